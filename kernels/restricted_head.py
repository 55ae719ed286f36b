"""Scores over a few labels straight from hidden states, with no row of vocabulary logits in memory.

Ladder, naive to fast. Milliseconds for N = 256, D = 576, V = 49152, K = 5, float32, two busy threads of an AMD EPYC:
1. the whole head, log_softmax, pick the labels                          134   1 x; stores [N, V] logits
2. "both" (and "full"), torch: log-sum-exp over chunks of the vocabulary 118   1.1 x; stores one chunk of 32 rows
3. "set", torch: multiply-and-sum with the label rows of the weight      0.6   220 x
   the same by matmuls: see label_products

"both" by 2 goes through tiles of 32 rows however few there are. In float32 on CPU the log-sum is now by the products of
`linear`, with weights kept prepacked, in parts of 4,096 of the vocabulary (2 is left to half precision and to devices
without Triton). Milliseconds before and since, the log-sum alone, one busy thread of an AMD EPYC, medians interleaved;
in brackets the share of the time that is left where there is no memory to keep weights prepacked:
- 1 row 38.9, 12.9 (0.51); 4 rows 39.2, 13.4 (0.50); 8 rows 45.8, 19.8 (0.56); 24 rows 45.8, 37.9 (0.94);
- 256 rows 284.9, 276.2 (1.02); 1,000 rows 1,424, 1,179; one warm question as a whole 178, 139.
Where it loses is a tile that is just full: 32 rows 44.0, 45.6 (1.18).

On CUDA, in bf16, predicted: bytes and FLOPs over an H200's 4.8 TB/s and about 700 TFLOP/s.
Microseconds for N = 4096, D = 3584, V = 152064, K = 5:
4. the whole head and log_softmax: 4.5 TFLOP and three passes over 1.2 GB of logits           7,000
5. index, matmul, log_softmax: 29 MB, and three launches                                      6 + the launches
6. "set", a row a program (…_row): 29 MB, and K rows of weights a row from the L2 cache       6 to 30
7. "set", a tile of rows a program (…_tile), the labels staged once a tile; one launch        7 to 8
8. "full" and "both" (…_full): 4.5 TFLOP and no logits; its tiles' reads of the L2 cache may double that  6,400

Every position of long texts: `rows` and a label or token each, K = 1 with "full" for the log-probabilities of a text's
own tokens. Memory beyond the arguments is that of the scores (rows times K) and one tile. The Triton path adds for
"full" two floats a chunk of the vocabulary for 8,192 rows at most and, where rows are gathered or normed, the rows
themselves in the model's dtype.

Where it loses (bench/results/kernels-cpu.csv, one thread): "set" takes 3.5 to 29 times as long on a CPU as index,
matmul and log_softmax (no statistics, and bits that depend on the batch), and "both" for a single row took 3.8 times
the plain head, the price of its padding to 32 rows, before the log-sum was by `linear`. On an H200
(bench/results/gpu.md) "set" of 64 rows takes 9.0 µs at D 576, V 49152, where index and matmul take 15.5, but 26.6 at D
3584, V 152064, where these take 16.6. The checks of rows and labels wait for the device once a call where one of these
lies there; on the host they are checked without waiting, and then copied over.
"""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from adjudge.kernels.dispatch import kernel_backend
from adjudge.kernels.restricted_head_arguments import (
    HeadWeights,
    LabelRows,
    Normalizer,
    check_head,
    check_normalizer,
    lay_out,
)
from adjudge.kernels.restricted_head_torch import Scores, no_scores, torch_set_scores, vocabulary_log_sum, with_full
from adjudge.kernels.surroundings import undisturbed


@dataclass(frozen=True, slots=True)
class RestrictedScores:
    """What each of N rows says about its labels, in float32; NaN, best -1 and keep False where `valid` is False.

    Per-label fields are [N, L] where the labels are shared and flat, cut by `label_offsets`, where each row has its
    own. `expected`, `variance`, `entropy` and `margin` belong to the set-normalised distribution, whatever normalizer.
    """

    logprobs: Tensor  # per label: normalised over the set for "set" and "both", over the vocabulary for "full"
    label_offsets: Tensor | None  # [N + 1]: where rows begin in flat per-label fields; None where labels are shared
    full_logprobs: Tensor | None  # per label: normalised over the vocabulary; None for "set"
    log_mass: Tensor | None  # [N]: log of the set's probability under the full softmax, at most 0; None for "set"
    mass: Tensor | None  # [N]: exp(log_mass); None for "set"
    best: Tensor  # [N] int64: the most probable label; among equals the lowest index
    best_logprob: Tensor  # [N]: `logprobs` at `best`
    expected: Tensor | None  # [N]: mean of label_values; None without them
    variance: Tensor | None  # [N]: variance of label_values; None without them
    entropy: Tensor  # [N]: in nats
    margin: Tensor  # [N]: probability of the best label minus the second's; 1 where there is only one label
    keep: Tensor | None  # [N] bool: the best label is the target; None without targets
    valid: Tensor  # [N] bool: the hidden state and every log-sum are finite


@torch.no_grad()
@undisturbed
def restricted_logprobs(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    label_ids: Tensor,
    *,
    rows: Tensor | None = None,
    label_offsets: Tensor | None = None,
    label_groups: Tensor | None = None,
    label_values: Tensor | None = None,
    targets: Tensor | None = None,
    norm_weight: Tensor | None = None,
    eps: float = 1e-6,
    bias: Tensor | None = None,
    softcap: float | None = None,
    temperature: float = 1.0,
    normalizer: Normalizer = "set",
) -> RestrictedScores:
    """Score a few labels at every row of hidden states, reading only the label rows of the head unless asked for mass.

    Shapes: `label_ids` [K], or [total] with `label_offsets` [N + 1] for a set per row; `label_groups` like `label_ids`,
    the label (0 … L-1, counted within the row's set) that each token is a variant of; `label_values` one per label, [L]
    or flat; `targets` [N] label indices. `rows` [N] picks the scored rows of a longer `hidden_ND`; else all are scored.
    `rows` and labels may lie on the host where hidden_ND does not: then their checks wait for no device.
    A token's logit is softcap · tanh((w · x + bias) / softcap) / temperature in float32. With `norm_weight` [D],
    x = hidden · rsqrt(mean(hidden²) + eps) · norm_weight, in float32 and rounded once, to hidden's dtype.
    "set" normalises over the labels; "full" and "both" add the exact log-sum-exp over the vocabulary.
    A row's result never depends on the other rows. No gradients.
    Raises LabelSetError (a ValueError) about labels, ValueError about other values and shapes, TypeError about dtypes.
    """
    check_normalizer(normalizer)
    head = HeadWeights(weight_VD, norm_weight, eps, bias, softcap, temperature)
    check_head(hidden_ND, head)
    rows, labels = lay_out(
        hidden_ND, len(weight_VD), rows, label_ids, label_offsets, label_groups, label_values, targets
    )
    n = len(hidden_ND) if rows is None else len(rows)
    scores = checked_scores(hidden_ND, rows, n, head, labels, normalizer)
    offsets = None if labels.shared else labels.label_offsets
    given: dict[str, Any] = {field.name: scores.get(field.name) for field in fields(RestrictedScores)}
    return RestrictedScores(**given | {"label_offsets": offsets})


def checked_scores(
    hidden_ND: Tensor, rows: Tensor | None, n: int, head: HeadWeights, labels: LabelRows, normalizer: Normalizer
) -> Scores:
    """The fields of RestrictedScores that there are, of `n` rows and labels that `lay_out` has checked."""
    if n and kernel_backend(hidden_ND.device) == "triton":
        from adjudge.kernels.restricted_head_triton import triton_scores

        return triton_scores(hidden_ND, rows, n, head, labels, normalizer)
    scores = torch_set_scores(hidden_ND, rows, n, head, labels) if n else no_scores(hidden_ND, labels)
    if normalizer == "set":
        return scores
    log_full = vocabulary_log_sum(hidden_ND, rows, n, head) if n else scores["log_z"]
    return with_full(scores, log_full, labels, replace=normalizer == "full")
