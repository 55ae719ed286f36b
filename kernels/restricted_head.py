"""Scores over a few labels straight from hidden states, with no row of vocabulary logits in memory.

Ladder, naive to fast. Milliseconds for N = 256 rows, D = 576, V = 49152, K = 5, float32, on two busy CPU cores:
1. the whole head, log_softmax, pick the labels                          134   1 x; stores [N, V] logits
2. "both" (and "full"), torch: log-sum-exp over chunks of the vocabulary 118   1.1 x; stores one chunk of 32 rows
3. "set", torch: multiply-and-sum with the label rows of the weight      0.6   220 x
4. "set", Triton: one launch (restricted_head_triton)                    not measured yet: no GPU at hand

Where it loses: index, matmul and log_softmax alone take 0.05 ms (no statistics, and bits that depend on the batch), and
"both" for a single row takes 2.3 x the plain head, which is the price of its padding to 32 rows.
On CUDA "full" and "both" still take their log-sum-exp over the vocabulary from the torch path, in float32.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from adjudge.kernels.dispatch import kernel_backend

Normalizer = Literal["set", "full", "both"]

# A row's bits must not depend on its neighbours. So all arithmetic of the torch path runs on tiles of one fixed shape,
# padded where the rows run out: torch then goes the same way for a row whatever N is and wherever the row stands.
_ROW_TILE = 32
_SET_TILE = 128
_LABEL_BLOCK = 8
_VOCABULARY_CHUNK = 2048


class LabelSetError(ValueError):
    """Label ids, offsets, groups, values or targets do not describe label sets."""


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


@dataclass(frozen=True, slots=True)
class Head:
    """What turns a hidden state into logits."""

    weight_VD: Tensor
    norm_weight_D: Tensor | None
    eps: float
    bias_V: Tensor | None
    softcap: float | None
    temperature: float

    def logits(self, dots: Tensor, bias: Tensor | None) -> Tensor:
        """Turn dot products into logits: bias, then soft cap, then temperature."""
        logits = dots if bias is None else dots + bias
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        return logits if self.temperature == 1.0 else logits / self.temperature


@dataclass(frozen=True, slots=True)
class Labels:
    """Checked label sets, one for all rows or one a row: set s owns tokens and labels offsets[s] : offsets[s + 1]."""

    shared: bool
    token_ids: Tensor
    token_offsets: Tensor
    groups: Tensor | None
    label_offsets: Tensor
    label_count: int  # of all sets together
    values: Tensor | None
    targets: Tensor | None

    def over_labels(self, per_row: Tensor) -> Tensor:
        """Spread [N] values over the per-label fields."""
        return per_row[:, None] if self.shared else per_row.repeat_interleave(self.label_offsets.diff())


Scores = dict[str, Tensor]  # RestrictedScores by field name, as far as computed, and "log_z" [N]: log-sum over the set


@torch.no_grad()
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
    A token's logit is softcap · tanh((w · x + bias) / softcap) / temperature in float32. With `norm_weight` [D],
    x = hidden · rsqrt(mean(hidden²) + eps) · norm_weight, in float32 and rounded once, to hidden's dtype.
    "set" normalises over the labels; "full" and "both" add the exact log-sum-exp over the vocabulary.
    A row's result never depends on the other rows. No gradients.
    Raises LabelSetError (a ValueError) about labels, ValueError about other values and shapes, TypeError about dtypes.
    """
    if normalizer not in ("set", "full", "both"):
        raise ValueError(f'normalizer is {normalizer!r}: use "set", "full" or "both"')
    head = Head(weight_VD, norm_weight, eps, bias, softcap, temperature)
    _check_head(hidden_ND, head)
    if rows is not None:
        rows = _indices("rows", rows, hidden_ND)
        _require("rows", rows, (rows >= 0) & (rows < len(hidden_ND)), f"a row of hidden_ND (0 … {len(hidden_ND) - 1})")
    n = len(hidden_ND) if rows is None else len(rows)
    labels = _lay_out(hidden_ND, len(weight_VD), n, label_ids, label_offsets, label_groups, label_values, targets)

    if n == 0:
        scores = _no_scores(hidden_ND, labels)
    elif kernel_backend(hidden_ND.device) == "triton":
        from adjudge.kernels.restricted_head_triton import triton_set_scores

        scores = triton_set_scores(hidden_ND, rows, n, head, labels)
    else:
        scores = torch_set_scores(hidden_ND, rows, n, head, labels)
    if normalizer != "set":
        x_PD = _final_rows(hidden_ND, rows, n, head)
        scores = _with_full(scores, _vocabulary_log_sum(x_PD, head), labels, replace=normalizer == "full")
    return RestrictedScores(
        logprobs=scores["logprobs"],
        label_offsets=None if labels.shared else labels.label_offsets,
        full_logprobs=scores.get("full_logprobs"),
        log_mass=scores.get("log_mass"),
        mass=scores.get("mass"),
        best=scores["best"],
        best_logprob=scores["best_logprob"],
        expected=scores.get("expected"),
        variance=scores.get("variance"),
        entropy=scores["entropy"],
        margin=scores["margin"],
        keep=scores.get("keep"),
        valid=scores["valid"],
    )


# ---- the torch path: label logits


def torch_set_scores(hidden_ND: Tensor, rows: Tensor | None, n: int, head: Head, labels: Labels) -> Scores:
    """Score the label sets alone, in tiles of rows that have equally many tokens and labels."""
    x_PD = _final_rows(hidden_ND, rows, n, head)
    buckets = list(_buckets(labels, n, x_PD.device))
    parts = [_bucket_scores(x_PD, head, bucket) for bucket in buckets]
    if labels.shared:
        scores = parts[0]
    else:
        order = torch.cat([bucket.rows_B for bucket in buckets]).argsort()
        logprobs = x_PD.new_empty(labels.label_count)
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

    rows_B: Tensor
    token_ids_BK: Tensor
    groups_BK: Tensor | None
    label_positions_BL: Tensor
    values_BL: Tensor | None


def _buckets(labels: Labels, n: int, device: torch.device) -> Iterator[_Bucket]:
    sizes = torch.stack([labels.token_offsets.diff(), labels.label_offsets.diff()], dim=1)
    for tokens, label_count in sorted(set(map(tuple, sizes.tolist()))):
        sets = (sizes == sizes.new_tensor([tokens, label_count])).all(-1).nonzero().flatten()
        token_positions = labels.token_offsets[sets, None] + torch.arange(tokens, device=device)
        label_positions = labels.label_offsets[sets, None] + torch.arange(label_count, device=device)
        yield _Bucket(
            rows_B=torch.arange(n, device=device) if labels.shared else sets,
            token_ids_BK=labels.token_ids[token_positions],
            groups_BK=None if labels.groups is None else labels.groups[token_positions],
            label_positions_BL=label_positions,
            values_BL=None if labels.values is None else labels.values[label_positions],
        )


def _bucket_scores(x_PD: Tensor, head: Head, bucket: _Bucket) -> Scores:
    def tile(table: Tensor, start: int) -> Tensor:
        return table if len(table) == 1 else _pad(table[start : start + _SET_TILE], _SET_TILE)

    tiles = []
    for start in range(0, len(bucket.rows_B), _SET_TILE):
        x_TD = x_PD[_pad(bucket.rows_B[start : start + _SET_TILE], _SET_TILE)]
        logits = _token_logits(x_TD, head, tile(bucket.token_ids_BK, start))
        if bucket.groups_BK is not None:
            logits = _merge_variants(logits, tile(bucket.groups_BK, start), bucket.label_positions_BL.shape[1])
        values = None if bucket.values_BL is None else tile(bucket.values_BL, start)
        tiles.append(_statistics(logits, values, x_TD.abs().amax(-1) < torch.inf))
    return {name: torch.cat([scores[name] for scores in tiles])[: len(bucket.rows_B)] for name in tiles[0]}


def _final_rows(hidden_ND: Tensor, rows: Tensor | None, n: int, head: Head) -> Tensor:
    """Gather the scored rows in float32, normed if asked, padded with rows of zeros to whole tiles."""
    x_ND = hidden_ND if rows is None else hidden_ND[rows]
    x_PD = _pad(x_ND.float(), -(-n // _ROW_TILE) * _ROW_TILE).contiguous()
    if head.norm_weight_D is None:
        return x_PD
    normed = []
    for tile in torch.split(x_PD, _ROW_TILE):
        scale = torch.rsqrt(tile.square().mean(-1, keepdim=True) + head.eps)
        # Squares that overflow would leave a row of zeros, whose labels look plausible: make it invalid instead.
        normed.append(tile * scale.masked_fill_(scale == 0, torch.nan) * head.norm_weight_D.float())
    return torch.cat(normed).to(hidden_ND.dtype).float()


def _token_logits(x_TD: Tensor, head: Head, ids_BK: Tensor) -> Tensor:
    dots = []
    for ids_Bk in torch.split(ids_BK, _LABEL_BLOCK, dim=1):
        weight_BkD = head.weight_VD[ids_Bk].float().contiguous()
        # No matmul: with few columns and an odd D, BLAS gives equal rows of one tile different last bits.
        dots.append((x_TD[:, None] * weight_BkD).sum(-1))
    return head.logits(torch.cat(dots, dim=1), None if head.bias_V is None else head.bias_V[ids_BK].float())


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


# ---- the torch path: log-sum over the vocabulary


def _vocabulary_log_sum(x_PD: Tensor, head: Head) -> Tensor:
    """Log-sum-exp over the vocabulary in two stages of fixed order: within chunks of it, then over the chunks."""
    tiles = x_PD.view(-1, _ROW_TILE, x_PD.shape[1])
    chunks = torch.split(head.weight_VD, _VOCABULARY_CHUNK)
    sums = x_PD.new_empty(len(tiles), len(chunks), _ROW_TILE)
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
    log_sum = x_PD.new_empty(len(tiles), _ROW_TILE)
    for t, tile in enumerate(sums):
        log_sum[t] = tile.logsumexp(0)
    return log_sum.flatten()


def _with_full(scores: Scores, log_full_P: Tensor, labels: Labels, *, replace: bool) -> Scores:
    """Add what the log-sum over the vocabulary tells, and make rows invalid where it is not finite."""
    n = len(scores["log_z"])
    log_full = log_full_P[:n]
    valid = scores["valid"] & log_full.isfinite()
    hole = torch.zeros_like(log_full).masked_fill_(~valid, torch.nan)
    log_mass = (scores["log_z"] - log_full).clamp(max=0.0) + hole  # two roundings may lift a sum over its whole
    mass = torch.cat([tile.exp() for tile in torch.split(_pad(log_mass, len(log_full_P)), _ROW_TILE)])[:n]
    logprobs = scores["logprobs"] + labels.over_labels(hole)
    full_logprobs = logprobs + labels.over_labels(log_mass)
    full = {name: value + hole for name, value in scores.items() if value.is_floating_point() and name != "logprobs"}
    full |= {"log_mass": log_mass, "mass": mass, "full_logprobs": full_logprobs, "valid": valid}
    full |= {"logprobs": full_logprobs if replace else logprobs, "best": scores["best"].masked_fill(~valid, -1)}
    if replace:
        full["best_logprob"] = full["best_logprob"] + log_mass
    if "keep" in scores:
        full["keep"] = scores["keep"] & valid
    return full


def _no_scores(hidden_ND: Tensor, labels: Labels) -> Scores:
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


# ---- checks


def _check_head(hidden_ND: Tensor, head: Head) -> None:
    weight_VD = head.weight_VD
    for name, tensor in (("hidden_ND", hidden_ND), ("weight_VD", weight_VD)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}: pass a tensor")
        if tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise TypeError(f"{name} has dtype {tensor.dtype}: pass float32, bfloat16 or float16")
        if tensor.dim() != 2:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}: pass a matrix")
    if hidden_ND.dtype != weight_VD.dtype:
        raise TypeError(f"hidden_ND is {hidden_ND.dtype} and weight_VD {weight_VD.dtype}: cast one to the other")
    vocabulary, width = weight_VD.shape
    if hidden_ND.shape[1] != width or width == 0 or vocabulary == 0:
        raise ValueError(
            f"hidden_ND is {tuple(hidden_ND.shape)} and weight_VD {tuple(weight_VD.shape)}: "
            "both need the same width D of at least 1, and weight_VD at least one row"
        )
    for name, vector, length in (("norm_weight", head.norm_weight_D, width), ("bias", head.bias_V, vocabulary)):
        if vector is not None:
            if not vector.is_floating_point():
                raise TypeError(f"{name} has dtype {vector.dtype}: pass a floating dtype")
            if vector.shape != (length,):
                raise ValueError(f"{name} has shape {tuple(vector.shape)}: pass ({length},)")
    for name, other in (("weight_VD", weight_VD), ("norm_weight", head.norm_weight_D), ("bias", head.bias_V)):
        if other is not None:
            _check_device(name, other, hidden_ND)
    if not 0 < head.temperature < math.inf:
        raise ValueError(f"temperature is {head.temperature}: pass a positive, finite number")
    if head.softcap is not None and not 0 < head.softcap < math.inf:
        raise ValueError(f"softcap is {head.softcap}: pass a positive, finite number, or None for no cap")
    if not 0 <= head.eps < math.inf:
        raise ValueError(f"eps is {head.eps}: pass a number of at least 0")


def _lay_out(
    hidden_ND: Tensor,
    vocabulary: int,
    n: int,
    ids: Tensor,
    offsets: Tensor | None,
    groups: Tensor | None,
    values: Tensor | None,
    targets: Tensor | None,
) -> Labels:
    """Check the label arguments and number the labels of all sets in one row."""
    shared = offsets is None
    ids = _indices("label_ids", ids, hidden_ND)
    _require("label_ids", ids, (ids >= 0) & (ids < vocabulary), f"a row of weight_VD (0 … {vocabulary - 1})")
    if offsets is None:
        offsets = ids.new_tensor([0, len(ids)])
        if len(ids) == 0:
            raise LabelSetError("label_ids is empty: pass at least one label")
    else:
        offsets = _indices("label_offsets", offsets, hidden_ND)
        _check_offsets(offsets, n, len(ids))
    counts = offsets.diff()
    label_offsets, label_count = offsets, len(ids)
    if groups is not None:
        groups = _indices("label_groups", groups, hidden_ND)
        if len(groups) != len(ids):
            raise LabelSetError(f"label_groups has {len(groups)} entries and label_ids {len(ids)}: pass one a token")
        label_offsets = _number_groups(groups, counts)
        label_count = int(label_offsets[-1])
    if values is not None:
        _check_device("label_values", values, hidden_ND)
        if values.shape != (label_count,):
            raise LabelSetError(f"label_values has shape {tuple(values.shape)}: pass one a label, ({label_count},)")
        values = values.float().contiguous()
    if targets is not None:
        targets = _indices("targets", targets, hidden_ND)
        if len(targets) != n:
            raise LabelSetError(f"targets has {len(targets)} entries: pass one label index a row ({n})")
        _require("targets", targets, (targets >= 0) & (targets < label_offsets.diff()), "a label of its row's set")
    return Labels(shared, ids, offsets, groups, label_offsets, label_count, values, targets)


def _check_offsets(offsets: Tensor, n: int, total: int) -> None:
    if len(offsets) != n + 1:
        raise LabelSetError(f"label_offsets has {len(offsets)} entries for {n} rows: pass {n + 1}")
    if offsets[0] != 0 or offsets[-1] != total:
        raise LabelSetError(
            f"label_offsets runs from {int(offsets[0])} to {int(offsets[-1])}: it must start at 0 and end at {total}, "
            "the length of label_ids"
        )
    _require("label_offsets", offsets[1:], offsets.diff() > 0, "above the one before it: no row may be without labels")


def _number_groups(groups: Tensor, counts: Tensor) -> Tensor:
    """Count each set's groups and return where the sets' labels begin; a set's groups must be 0 … L-1 without gaps."""
    sets = torch.arange(len(counts), device=counts.device)
    set_of_token = sets.repeat_interleave(counts)
    mend = "a label index counted from 0 without gaps within its set"
    _require("label_groups", groups, (groups >= 0) & (groups < counts[set_of_token]), mend)
    group_counts = torch.zeros_like(counts).scatter_reduce_(0, set_of_token, groups + 1, "amax")
    label_offsets = F.pad(group_counts.cumsum(0), (1, 0))
    members = torch.bincount(label_offsets[set_of_token] + groups, minlength=int(label_offsets[-1]))
    if not members.all():
        label = int((members == 0).nonzero()[0])
        gap_set = int(torch.searchsorted(label_offsets, label, right=True)) - 1
        place = f" of row {gap_set}" if len(counts) > 1 else ""
        group = label - int(label_offsets[gap_set])
        raise LabelSetError(f"label_groups{place} has no token in group {group}: number groups from 0 without gaps")
    return label_offsets


def _indices(name: str, tensor: Tensor, hidden_ND: Tensor) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}: pass a tensor of integers")
    if tensor.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} has dtype {tensor.dtype}: pass int64 or int32")
    if tensor.dim() != 1:
        raise LabelSetError(f"{name} has shape {tuple(tensor.shape)}: pass one dimension")
    _check_device(name, tensor, hidden_ND)
    return tensor.long().contiguous()


def _require(name: str, values: Tensor, good: Tensor, what: str) -> None:
    if not good.all():
        place = int((~good).nonzero()[0])
        raise LabelSetError(f"{name}[{place}] is {int(values[place])}: it must be {what}")


def _check_device(name: str, tensor: Tensor, hidden_ND: Tensor) -> None:
    if tensor.device != hidden_ND.device:
        raise ValueError(f"{name} is on {tensor.device} and hidden_ND on {hidden_ND.device}: move it there")
