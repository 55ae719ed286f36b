"""The restricted head when the vocabulary is cut over ranks: what each computes, and how the parts are put together.

A rank owns rows `first_id .. first_id + len(weight)` of the head. It reads the logits of the labels it owns and the
log-sum-exp of its rows ([N, K] and [N] numbers to send, not [N, V]); `combine_shards` is a pure function of the parts,
in rank order, and its scores are those of `restricted_logprobs` on the whole head.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from adjudge.kernels.dispatch import kernel_backend
from adjudge.kernels.restricted_head import RestrictedScores, assemble
from adjudge.kernels.restricted_head_arguments import (
    Conditions,
    Head,
    LabelSetError,
    Normalizer,
    check_head,
    check_normalizer,
    lay_out,
)
from adjudge.kernels.restricted_head_torch import (
    Rows,
    final_rows,
    no_scores,
    set_scores,
    take,
    token_logits,
    vocabulary_log_sum,
    with_full,
)
from adjudge.kernels.surroundings import undisturbed

TILE = 128


@dataclass(frozen=True, slots=True)
class ShardScores:
    """One rank's part of the scores of N rows; the parts of all ranks together are what `combine_shards` takes."""

    token_logits: Tensor  # [N, K], flat [total] where each row has its own labels; -inf where another rank owns it
    owned: Tensor  # [K] or [total] bool: the tokens whose rows of the head this rank has
    log_sum: Tensor  # [N]: log-sum-exp of the logits of this rank's vocabulary rows
    finite: Tensor  # [N] bool: the row's hidden state is finite


@torch.no_grad()
@undisturbed
def shard_scores(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    label_ids: Tensor,
    *,
    first_id: int,
    rows: Tensor | None = None,
    label_offsets: Tensor | None = None,
    norm_weight: Tensor | None = None,
    eps: float = 1e-6,
    bias: Tensor | None = None,
    softcap: float | None = None,
    temperature: float = 1.0,
) -> ShardScores:
    """Compute a rank's part from its rows of the head: `weight_VD` and `bias` hold ids first_id, first_id + 1, ….

    Shapes and errors are those of `restricted_logprobs`; label ids are ids of the whole vocabulary.
    """
    head = Head(weight_VD, norm_weight, eps, bias, softcap, temperature)
    check_head(hidden_ND, head)
    rows, labels = lay_out(hidden_ND, len(hidden_ND), None, rows, label_ids, label_offsets, None, None, None)
    n = len(hidden_ND) if rows is None else len(rows)
    ids = labels.token_ids
    owned = (ids >= first_id) & (ids < first_id + len(weight_VD))
    local_ids = torch.where(owned, ids - first_id, 0)

    finite = hidden_ND.new_empty(n, dtype=torch.bool)

    def read(row_T: Tensor, ids_TK: Tensor) -> Tensor:
        x_PD = final_rows(hidden_ND, row_T if rows is None else rows[row_T], head)
        finite[row_T] = (x_PD.abs().amax(-1) < torch.inf)[: len(row_T)]
        return token_logits(x_PD, head, ids_TK)[: len(row_T)]

    every_row = torch.arange(n, device=ids.device)
    if labels.shared:
        logits = hidden_ND.new_empty(n, len(ids), dtype=torch.float32)
        for start in range(0, n, TILE):
            logits[start : start + TILE] = read(every_row[start : start + TILE], local_ids[None])
    else:
        logits = hidden_ND.new_empty(len(ids), dtype=torch.float32)
        row_of_token = every_row.repeat_interleave(labels.token_offsets.diff(), output_size=len(ids))
        for start in range(0, len(ids), TILE):
            tile = slice(start, start + TILE)
            logits[tile] = read(row_of_token[tile], local_ids[tile, None])[:, 0]
    logits.masked_fill_(~owned, -torch.inf)
    return ShardScores(
        token_logits=logits,
        owned=owned,
        log_sum=_log_sum(hidden_ND, rows, n, head),
        finite=finite,
    )


@torch.no_grad()
@undisturbed
def combine_shards(
    shards: Sequence[ShardScores],
    *,
    label_offsets: Tensor | None = None,
    label_groups: Tensor | None = None,
    label_values: Tensor | None = None,
    targets: Tensor | None = None,
    normalizer: Normalizer = "set",
) -> RestrictedScores:
    """Put the parts of all ranks, in rank order, together: a pure function, so every rank gets the same bits.

    The other arguments are those of `restricted_logprobs`. Raises LabelSetError where a label's token is on no shard or
    on several, or the parts differ in shape, and what `restricted_logprobs` does.
    """
    check_normalizer(normalizer)
    if len({part.token_logits.shape for part in shards}) != 1:
        raise LabelSetError("the shards differ in shape: pass one part from each rank, all of the same call")
    owners = torch.stack([part.owned for part in shards]).sum(0)
    logits = torch.stack([part.token_logits for part in shards]).amax(0)
    finite = shards[0].finite
    n = len(finite)
    tokens = torch.arange(len(owners))  # a token stands for itself: the logits are read already
    conditions = Conditions()
    conditions.add(
        owners == 1,
        lambda place: f"label_ids[{place}] is on {int(owners[place])} shards: pass each rank's part of the head once",
    )
    conditions.judge()
    _, labels = lay_out(logits, n, len(tokens), None, tokens, label_offsets, label_groups, label_values, targets)

    def read(rows_T: Rows, positions_TK: Tensor) -> tuple[Tensor, Tensor]:
        return take(logits, rows_T) if labels.shared else logits[positions_TK], take(finite, rows_T)

    scores = set_scores(read, n, labels) if n else no_scores(logits, labels)
    if normalizer != "set":
        log_full = torch.stack([part.log_sum for part in shards]).logsumexp(0)
        scores = with_full(scores, log_full, labels, replace=normalizer == "full")
    return assemble(scores, labels)


def _log_sum(hidden_ND: Tensor, rows: Tensor | None, n: int, head: Head) -> Tensor:
    """Log-sum-exp [N] over the rank's vocabulary rows."""
    if n == 0:
        return hidden_ND.new_empty(0, dtype=torch.float32)
    if kernel_backend(hidden_ND.device) == "torch":
        return vocabulary_log_sum(hidden_ND, rows, n, head)
    from adjudge.kernels.restricted_head_triton import triton_log_sum

    return triton_log_sum(hidden_ND, rows, n, head)
