"""The restricted head in torch: label logits in tiles of one fixed shape, and the log-sum over the vocabulary."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from adjudge.kernels.label_products import label_products
from adjudge.kernels.linear import (
    LEAST_ROWS,
    PART,
    PART_ROWS,
    ROW_TILE,
    invariant_part,
    padded_rows,
)
from adjudge.kernels.restricted_head_arguments import HeadWeights, LabelRows

# A row's bits must not depend on its neighbours. So all arithmetic of the torch path runs on tiles of one fixed shape,
# padded where the rows run out: torch then goes the same way for a row whatever N is and wherever the row stands. The
# vocabulary's products in float32 on CPU alone are of as many rows as `linear` has probed for that.
_SET_TILE = 128
_LABEL_BLOCK = 8
_ROWS_AT_ONCE = 1024  # of the vocabulary's log-sum: enough to read the weights once for many rows
_VOCABULARY_CHUNK = 2048
_EVEN = 64  # numbers: rows of a multiple of these begin alike for a CPU's vectors

Scores = dict[str, Tensor]  # RestrictedScores by field name, as far as computed, and "log_z" [N]: log-sum over the set


Rows = Tensor | range


def torch_set_scores(hidden_ND: Tensor, rows: Tensor | None, n: int, head: HeadWeights, labels: LabelRows) -> Scores:
    """Score the label sets alone, in tiles of rows that have equally many tokens and labels.

    Memory beyond the scores is that of one tile.
    """
    buckets = list(_buckets(labels, n))
    parts = [_bucket_scores(hidden_ND, rows, head, labels, bucket) for bucket in buckets]
    if labels.shared:
        scores = parts[0]
    else:
        order = torch.cat([torch.as_tensor(bucket.rows_B) for bucket in buckets]).argsort()
        logprobs = parts[0]["logprobs"].new_empty(labels.label_count)
        for bucket, part in zip(buckets, parts, strict=True):
            logprobs[bucket.label_positions_BL] = part.pop("logprobs")
        scores = {name: torch.cat([part[name] for part in parts])[order] for name in parts[0]}
        scores["logprobs"] = logprobs
    if labels.targets is not None:
        scores["keep"] = scores["best"] == labels.targets
    return scores


@dataclass(frozen=True, slots=True)
class _Bucket:
    """B rows with K tokens and L labels each; the tables of a shared set have one row, which broadcasts."""

    rows_B: Rows
    token_positions_BK: Tensor
    label_positions_BL: Tensor


def _buckets(labels: LabelRows, n: int) -> Iterator[_Bucket]:
    device = labels.token_ids.device
    if labels.shared:
        tokens, places = (torch.arange(count, device=device) for count in (len(labels.token_ids), labels.label_count))
        yield _Bucket(range(n), tokens[None], places[None])
        return
    sizes = torch.stack([labels.token_offsets.diff(), labels.label_offsets.diff()], dim=1)
    for tokens, label_count in sorted(set(map(tuple, sizes.tolist()))):
        sets = (sizes == sizes.new_tensor([tokens, label_count])).all(-1).nonzero().flatten()
        yield _Bucket(
            rows_B=sets,
            token_positions_BK=labels.token_offsets[sets, None] + torch.arange(tokens, device=device),
            label_positions_BL=labels.label_offsets[sets, None] + torch.arange(label_count, device=device),
        )


def _bucket_scores(
    hidden_ND: Tensor, rows: Tensor | None, head: HeadWeights, labels: LabelRows, bucket: _Bucket
) -> Scores:
    def tile(table: Tensor, start: int) -> Tensor:
        return table if len(table) == 1 else _pad(table[start : start + _SET_TILE], _SET_TILE)

    tiles = []
    for start in range(0, len(bucket.rows_B), _SET_TILE):
        positions, places = tile(bucket.token_positions_BK, start), tile(bucket.label_positions_BL, start)
        rows_T = bucket.rows_B[start : start + _SET_TILE]
        x_PD = torch_final_rows(hidden_ND, rows_T if rows is None else _take(rows, rows_T), head)
        token_ids = labels.token_ids[positions[: len(rows_T)]]
        logits = _pad(_token_logits(x_PD, head, token_ids), _SET_TILE)
        finite = _pad(x_PD.abs().amax(-1) < torch.inf, _SET_TILE)
        if labels.groups is not None:
            logits = _merge_variants(logits, labels.groups[positions], places.shape[1])
        tiles.append(_statistics(logits, None if labels.values is None else labels.values[places], finite))
    return {name: torch.cat([scores[name] for scores in tiles])[: len(bucket.rows_B)] for name in tiles[0]}


def _take(table: Tensor, rows: Rows) -> Tensor:
    """Some rows of a table; consecutive ones are not copied."""
    return table[rows.start : rows.stop] if isinstance(rows, range) else table[rows]


def torch_final_rows(hidden_ND: Tensor, rows_T: Rows, head: HeadWeights) -> Tensor:
    """Gather rows in float32, normed if asked, padded with rows of zeros to whole tiles."""
    x_PD = _pad(_take(hidden_ND, rows_T).float(), -(-len(rows_T) // ROW_TILE) * ROW_TILE).contiguous()
    if head.norm_weight_D is None:
        return x_PD
    normed = []
    for tile in torch.split(x_PD, ROW_TILE):
        scale = torch.rsqrt(tile.square().mean(-1, keepdim=True) + head.eps)
        # Squares that overflow would leave a row of zeros, whose labels look plausible: make it invalid instead.
        normed.append(tile * scale.masked_fill_(scale == 0, torch.nan) * head.norm_weight_D.float())
    return torch.cat(normed).to(hidden_ND.dtype).float()


def _token_logits(x_PD: Tensor, head: HeadWeights, ids_BK: Tensor) -> Tensor:
    """The logits [P, K] of tokens [B, K]: B is P, or 1 for all rows, or less where nobody reads the last rows."""
    if len(ids_BK) > 1:
        ids_BK = _pad(ids_BK, len(x_PD))
    dots_PK = label_products(x_PD, head.weight_VD, ids_BK)
    return head.logits(dots_PK, None if head.bias_V is None else head.bias_V[ids_BK].float())


def _merge_variants(logits_TK: Tensor, groups_BK: Tensor, label_count: int) -> Tensor:
    """Log-sum-exp over the tokens of each label."""
    labels_L1 = torch.arange(label_count, device=logits_TK.device)[:, None]
    return torch.cat(
        [
            logits_TK[:, None].masked_fill(groups_BK[:, None] != block, -torch.inf).logsumexp(-1)
            for block in torch.split(labels_L1, _LABEL_BLOCK)
        ],
        dim=1,
    )


def _statistics(logits_TL: Tensor, values_BL: Tensor | None, finite_T: Tensor) -> Scores:
    log_z = logits_TL.logsumexp(-1)
    valid = finite_T & log_z.isfinite()
    logprobs = (logits_TL - log_z[:, None]).masked_fill_(~valid[:, None], torch.nan)
    probs = logprobs.exp()
    best_logprob, best = logprobs.max(-1)
    best_prob, runner_up = probs.amax(-1), probs.scatter(1, best[:, None], 0.0).amax(-1)
    scores = {
        "log_z": log_z,
        "valid": valid,
        "logprobs": logprobs,
        "best": best.masked_fill_(~valid, -1),
        "best_logprob": best_logprob,
        "margin": best_prob - runner_up,
        # A label with probability 0 has no share in the entropy: 0 · -inf must be 0.
        "entropy": -(probs * logprobs.clamp(min=torch.finfo(torch.float32).min)).sum(-1),
    }
    if values_BL is not None:
        scores["expected"] = (probs * values_BL).sum(-1)
        scores["variance"] = (probs * (values_BL - scores["expected"][:, None]).square()).sum(-1)
    return scores


def vocabulary_log_sum(hidden_ND: Tensor, rows: Tensor | None, n: int, head: HeadWeights) -> Tensor:
    """Log-sum-exp over the vocabulary [N]; memory beyond it is that of some rows and one part of the vocabulary."""
    plain = hidden_ND.device.type == "cpu" and head.weight_VD.dtype == torch.float32
    log_sum = _log_sum if plain else _log_sum_in_tiles
    log_sums = []
    for start in range(0, n, _ROWS_AT_ONCE):
        places = range(start, min(n, start + _ROWS_AT_ONCE))
        x_PD = torch_final_rows(hidden_ND, places if rows is None else _take(rows, places), head)
        log_sums.append(log_sum(x_PD[: padded_rows(len(places), LEAST_ROWS)], head)[: len(places)])
    return torch.cat(log_sums)


def _log_sum(x_PD: Tensor, head: HeadWeights) -> Tensor:
    """Two stages of fixed order: within parts of the vocabulary, then over the parts."""
    parts = torch.split(head.weight_VD, PART)
    sums = x_PD.new_zeros(-(-len(x_PD) // ROW_TILE), len(parts), ROW_TILE)
    for c, part_CD in enumerate(parts):  # outermost, so that its weights stay in a cache for all rows
        short = -len(part_CD) % _EVEN
        bias_C = None if head.bias_V is None else F.pad(head.bias_V[c * PART :][:PART].float(), (0, short))
        for start in range(0, len(x_PD), PART_ROWS):
            dots_BC = invariant_part(x_PD[start : start + PART_ROWS], head.weight_VD, c)
            dots_BC = F.pad(dots_BC, (0, short)) if short else dots_BC
            for row in range(start, start + len(dots_BC), LEAST_ROWS):
                logits_TC = head.logits(dots_BC[row - start :][:LEAST_ROWS], bias_C)
                logits_TC[:, len(part_CD) :] = -torch.inf
                sums[row // ROW_TILE, c, row % ROW_TILE :][:LEAST_ROWS] = logits_TC.logsumexp(1)
    return torch.cat([tile.logsumexp(0) for tile in sums])


def _log_sum_in_tiles(x_PD: Tensor, head: HeadWeights) -> Tensor:
    """The same by matmuls of one shape, for weights that are converted first, and on any device."""
    tiles = _pad(x_PD, padded_rows(len(x_PD), ROW_TILE)).view(-1, ROW_TILE, x_PD.shape[1])
    chunks = torch.split(head.weight_VD, _VOCABULARY_CHUNK)
    sums = x_PD.new_empty(len(tiles), len(chunks), ROW_TILE)
    for c, chunk in enumerate(chunks):  # outermost, so that a chunk of weights stays in the cache for all rows
        weight_CD = _pad(chunk.float().contiguous(), _VOCABULARY_CHUNK)
        bias_C1 = None
        if head.bias_V is not None:
            start = c * _VOCABULARY_CHUNK
            bias_C1 = _pad(head.bias_V[start : start + len(chunk), None].float(), _VOCABULARY_CHUNK)
        for t, tile in enumerate(tiles):
            logits_CT = head.logits(weight_CD @ tile.T, bias_C1)
            logits_CT[len(chunk) :] = -torch.inf
            sums[t, c] = logits_CT.logsumexp(0)
    log_sum = x_PD.new_empty(len(tiles), ROW_TILE)
    for t, tile in enumerate(sums):
        log_sum[t] = tile.logsumexp(0)
    return log_sum.flatten()


def with_full(scores: Scores, log_full: Tensor, labels: LabelRows, *, replace: bool) -> Scores:
    """Add what the log-sum over the vocabulary [N] tells, and make rows invalid where it is not finite."""
    n = len(log_full)
    valid = scores["valid"] & log_full.isfinite()
    hole = torch.zeros_like(log_full).masked_fill_(~valid, torch.nan)
    log_set = scores["log_z"] - log_full + hole  # two roundings, or a token twice, may lift a sum over its whole
    log_mass = log_set.clamp(max=0.0)
    tiles = torch.split(_pad(log_mass, -(-n // ROW_TILE) * ROW_TILE), ROW_TILE)
    mass = torch.cat([tile.exp() for tile in tiles])[:n] if n else log_mass
    logprobs = scores["logprobs"] + labels.over_labels(hole)
    full_logprobs = (logprobs + labels.over_labels(log_set)).clamp(max=0.0)
    full = {name: value + hole for name, value in scores.items() if value.is_floating_point() and name != "logprobs"}
    full |= {"log_mass": log_mass, "mass": mass, "full_logprobs": full_logprobs, "valid": valid}
    full |= {"logprobs": full_logprobs if replace else logprobs, "best": scores["best"].masked_fill(~valid, -1)}
    if replace:
        full["best_logprob"] = (full["best_logprob"] + log_set).clamp(max=0.0)
    if "keep" in scores:
        full["keep"] = scores["keep"] & valid
    return full


def no_scores(hidden_ND: Tensor, labels: LabelRows) -> Scores:
    """The scores of no rows at all."""
    empty = hidden_ND.new_empty(0, dtype=torch.float32)
    names = ["log_z", "best_logprob", "entropy", "margin"] + ["expected", "variance"] * (labels.values is not None)
    scores = dict.fromkeys(names, empty) | {"best": empty.long(), "valid": empty.bool()}
    scores["logprobs"] = empty.new_empty(0, labels.label_count) if labels.shared else empty
    return scores if labels.targets is None else scores | {"keep": empty.bool()}


def _pad(table: Tensor, length: int) -> Tensor:
    """Lengthen a table with zeros."""
    if len(table) == length:
        return table
    padded = table.new_zeros(length, *table.shape[1:])
    padded[: len(table)] = table
    return padded
