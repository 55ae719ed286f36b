"""The restricted head's Triton launches: which kernel takes which label sets, and with which tiles.

| label sets | kernel |
|---|---|
| shared, at most 128 tokens | restricted_head_triton_tile: a tile of rows a program, tensor cores |
| one a row, or larger | restricted_head_triton_row: a row a program |
| "full" and "both" | restricted_head_triton_full on top: two more launches (three with `rows` or a norm) |

The choice depends on K, D, V, dtype and device, never on N: a row takes the same way whatever surrounds it. The tiles
are chosen by what compiles without spilling (`adjudge bench compile`) and by byte counts. A GPU has timed N 64
alone (`bench/results/restricted-head-h200.csv`): at D 3584 two such tiles go through the whole width, and lose.
"""

from typing import Any

import torch
import triton
from torch import Tensor

from adjudge.kernels.dispatch import capability, launcher
from adjudge.kernels.restricted_head_arguments import HeadWeights, LabelRows, Normalizer
from adjudge.kernels.restricted_head_torch import Scores
from adjudge.kernels.restricted_head_triton_full import final_row_kernel, full_scores_kernel, vocabulary_kernel
from adjudge.kernels.restricted_head_triton_row import set_row_kernel
from adjudge.kernels.restricted_head_triton_tile import set_tile_kernel
from adjudge.kernels.triton_math import interpreted

LARGEST_TILE = 128  # tokens of a shared set
ROW_TOKENS = 8
ROW_WIDTH = 256
VOCABULARY_CHUNK = 512
ROWS_AT_ONCE = 8192
"""Rows whose sums over the vocabulary's chunks are in memory at once (20 MB for V = 152064); a multiple of any tile."""


@launcher
def triton_scores(
    hidden_ND: Tensor, rows: Tensor | None, n: int, head: HeadWeights, labels: LabelRows, normalizer: Normalizer
) -> Scores:
    """The scores of at least one row."""
    hidden_ND = hidden_ND.contiguous()  # other strides would make other kernels, whose sums have another order
    if normalizer == "set":
        return _set_scores(hidden_ND, rows, n, head, labels)
    if rows is not None or head.norm_weight_D is not None:
        hidden_ND, rows, head = triton_final_rows(hidden_ND, rows, n, head), None, head.without_norm()
    scores = _set_scores(hidden_ND, rows, n, head, labels)
    scores |= {name: torch.empty_like(scores["log_z"]) for name in ("log_mass", "mass")}
    scores["full_logprobs"] = torch.empty_like(scores["logprobs"])
    for start in range(0, n, ROWS_AT_ONCE):
        peaks, sums = _vocabulary_sums(hidden_ND[start : start + ROWS_AT_ONCE], head)
        _finish(scores, start, peaks, sums, labels, replace=normalizer == "full")
    return scores


def _set_scores(hidden_ND: Tensor, rows: Tensor | None, n: int, head: HeadWeights, labels: LabelRows) -> Scores:
    def output(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=hidden_ND.device)

    label_shape = (n, labels.label_count) if labels.shared else (labels.label_count,)
    scores = {"logprobs": output(*label_shape), "best": output(n, dtype=torch.int64)}
    scores |= {name: output(n) for name in ("log_z", "best_logprob", "entropy", "margin")}
    scores["valid"] = output(n, dtype=torch.bool)
    if labels.values is not None:
        scores |= {"expected": output(n), "variance": output(n)}
    if labels.targets is not None:
        scores["keep"] = output(n, dtype=torch.bool)
    inputs = {
        "hidden": hidden_ND,
        "rows": rows,
        "weight": head.weight_VD,
        "weight_row_stride": head.weight_VD.stride(0),
        "weight_stride": head.weight_VD.stride(1),
        "norm_weight": None if head.norm_weight_D is None else head.norm_weight_D.contiguous(),
        "eps": head.eps,
        "bias": None if head.bias_V is None else head.bias_V.contiguous(),
        "softcap": head.softcap,
        "temperature": head.temperature,
        "token_ids": labels.token_ids,
        "groups": labels.groups,
        "values": labels.values,
        "targets": labels.targets,
        "width": hidden_ND.shape[1],
    }
    names = ("log_z", "best", "best_logprob", "expected", "variance", "entropy", "margin", "keep", "valid")
    outputs = {"logprobs": scores["logprobs"]} | {f"{name}_out": scores.get(name) for name in names}
    tokens = len(labels.token_ids)
    if labels.shared and tokens <= LARGEST_TILE:
        tile = _tile(tokens, hidden_ND.dtype)
        set_tile_kernel[(triton.cdiv(n, tile["ROWS"]),)](
            **inputs,
            **outputs,
            **tile,
            n=n,
            token_count=tokens,
            label_count=labels.label_count,
            INTERPRETED=interpreted(),
        )
    else:
        token_logits = output(tokens * (n if labels.shared else 1))
        set_row_kernel[(n,)](
            **inputs,
            **outputs,
            token_offsets=labels.token_offsets,
            label_offsets=labels.label_offsets,
            token_logits=token_logits,
            label_logits=token_logits if labels.groups is None else output(*label_shape),
            SHARED=labels.shared,
            BLOCK=ROW_TOKENS,
            WIDTH_BLOCK=ROW_WIDTH,
        )
    return scores


def _tile(tokens: int, dtype: torch.dtype) -> dict[str, Any]:
    labels = max(16, triton.next_power_of_2(tokens))
    narrow = dtype == torch.float32 or labels > 32
    return {"ROWS": 32, "LABELS": labels, "WIDTH_BLOCK": 32 if narrow else 128, "num_warps": 4, "num_stages": 4}


@launcher
def triton_final_rows(hidden_ND: Tensor, rows: Tensor | None, n: int, head: HeadWeights) -> Tensor:
    """At least one row of contiguous `hidden_ND`, normed if asked and rounded to its dtype."""
    final_ND = hidden_ND.new_empty(n, hidden_ND.shape[1])
    final_row_kernel[(n,)](
        hidden_ND,
        rows,
        None if head.norm_weight_D is None else head.norm_weight_D.contiguous(),
        head.eps,
        final_ND,
        hidden_ND.shape[1],
        WIDTH_BLOCK=1024,
    )
    return final_ND


def _vocabulary_sums(hidden_ND: Tensor, head: HeadWeights) -> tuple[Tensor, Tensor]:
    """Maximum and sum of exponentials [N, C] over each chunk of the vocabulary."""
    n = len(hidden_ND)
    vocabulary, width = head.weight_VD.shape
    chunks = triton.cdiv(vocabulary, VOCABULARY_CHUNK)
    peaks, sums = (hidden_ND.new_empty(n, chunks, dtype=torch.float32) for _ in range(2))
    tile = _vocabulary_tile(hidden_ND)
    row_tiles = triton.cdiv(n, tile["ROWS"])
    vocabulary_kernel[(row_tiles * chunks,)](
        hidden_ND,
        head.weight_VD,
        *head.weight_VD.stride(),
        None if head.bias_V is None else head.bias_V.contiguous(),
        head.softcap,
        head.temperature,
        peaks,
        sums,
        n,
        vocabulary,
        width,
        row_tiles,
        chunks,
        CHUNK=VOCABULARY_CHUNK,
        INTERPRETED=interpreted(),
        **tile,
    )
    return peaks, sums


def _vocabulary_tile(hidden_ND: Tensor) -> dict[str, int]:
    if hidden_ND.dtype == torch.float32 or interpreted():  # no tensor cores; the interpreter's tensors are bounded
        return {"ROWS": 32, "COLUMNS": 64, "WIDTH_BLOCK": 32, "num_warps": 4, "num_stages": 3}
    # Wider tiles read less from the L2 cache a FLOP; only Hopper's matrix units hold them without spilling.
    columns = 256 if capability(hidden_ND.device) // 10 == 9 else 128
    return {"ROWS": 128, "COLUMNS": columns, "WIDTH_BLOCK": 64, "num_warps": 8, "num_stages": 3}


def _finish(scores: Scores, start: int, peaks: Tensor, sums: Tensor, labels: LabelRows, *, replace: bool) -> None:
    """Add what the vocabulary tells to the scores of the rows from `start` on."""
    n, chunks = peaks.shape
    rows = {name: value[start : start + n] for name, value in scores.items()}
    if not labels.shared:  # flat per label: found through the offsets
        rows |= {name: scores[name] for name in ("logprobs", "full_logprobs")}
    names = ("best", "best_logprob", "expected", "variance", "entropy", "margin", "keep", "valid")
    full_scores_kernel[(n,)](
        peaks=peaks,
        sums=sums,
        label_offsets=labels.label_offsets if labels.shared else labels.label_offsets[start:],
        logprobs=rows["logprobs"],
        full_logprobs=rows["full_logprobs"],
        log_z_in=rows["log_z"],
        log_mass_out=rows["log_mass"],
        mass_out=rows["mass"],
        **{f"{name}_io": rows.get(name) for name in names},
        chunks=chunks,
        SHARED=labels.shared,
        REPLACE=replace,
        CHUNKS=triton.next_power_of_2(chunks),
        BLOCK=32,
    )
