"""What the restricted head is given: a head and label sets, checked before anything is computed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Normalizer = Literal["set", "full", "both"]


class LabelSetError(ValueError):
    """Label ids, offsets, groups, values or targets do not describe label sets."""


@dataclass(frozen=True, slots=True)
class Head:
    """What turns a hidden state into logits."""

    weight_VD: Tensor
    norm_weight_D: Tensor | None
    eps: float
    bias_V: Tensor | None
    softcap: float | None
    temperature: float

    def without_norm(self) -> Head:
        """The same head for hidden states that are normed already."""
        return replace(self, norm_weight_D=None)

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


def check_head(hidden_ND: Tensor, head: Head) -> None:
    """Refuse tensors whose shapes, dtypes or devices do not fit each other, and numbers outside their range."""
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


def lay_out(
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
    ids = indices("label_ids", ids, hidden_ND)
    require("label_ids", ids, (ids >= 0) & (ids < vocabulary), f"a row of weight_VD (0 … {vocabulary - 1})")
    if offsets is None:
        offsets = ids.new_tensor([0, len(ids)])
        if len(ids) == 0:
            raise LabelSetError("label_ids is empty: pass at least one label")
    else:
        offsets = indices("label_offsets", offsets, hidden_ND)
        _check_offsets(offsets, n, len(ids))
    counts = offsets.diff()
    label_offsets, label_count = offsets, len(ids)
    if groups is not None:
        groups = indices("label_groups", groups, hidden_ND)
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
        targets = indices("targets", targets, hidden_ND)
        if len(targets) != n:
            raise LabelSetError(f"targets has {len(targets)} entries: pass one label index a row ({n})")
        require("targets", targets, (targets >= 0) & (targets < label_offsets.diff()), "a label of its row's set")
    return Labels(shared, ids, offsets, groups, label_offsets, label_count, values, targets)


def _check_offsets(offsets: Tensor, n: int, total: int) -> None:
    if len(offsets) != n + 1:
        raise LabelSetError(f"label_offsets has {len(offsets)} entries for {n} rows: pass {n + 1}")
    if offsets[0] != 0 or offsets[-1] != total:
        raise LabelSetError(
            f"label_offsets runs from {int(offsets[0])} to {int(offsets[-1])}: it must start at 0 and end at {total}, "
            "the length of label_ids"
        )
    require("label_offsets", offsets[1:], offsets.diff() > 0, "above the one before it: no row may be without labels")


def _number_groups(groups: Tensor, counts: Tensor) -> Tensor:
    """Count each set's groups and return where the sets' labels begin; a set's groups must be 0 … L-1 without gaps."""
    sets = torch.arange(len(counts), device=counts.device)
    set_of_token = sets.repeat_interleave(counts)
    mend = "a label index counted from 0 without gaps within its set"
    require("label_groups", groups, (groups >= 0) & (groups < counts[set_of_token]), mend)
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


def indices(name: str, tensor: Tensor, hidden_ND: Tensor) -> Tensor:
    """The tensor as int64 [*], refused unless it holds integers, has one dimension and lies beside hidden_ND."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}: pass a tensor of integers")
    if tensor.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} has dtype {tensor.dtype}: pass int64 or int32")
    if tensor.dim() != 1:
        raise LabelSetError(f"{name} has shape {tuple(tensor.shape)}: pass one dimension")
    _check_device(name, tensor, hidden_ND)
    return tensor.long().contiguous()


def require(name: str, values: Tensor, good: Tensor, what: str) -> None:
    """Refuse `values` at the first place that is not `good`; `what` says what it should be."""
    if not good.all():
        place = int((~good).nonzero()[0])
        raise LabelSetError(f"{name}[{place}] is {int(values[place])}: it must be {what}")


def _check_device(name: str, tensor: Tensor, hidden_ND: Tensor) -> None:
    if tensor.device != hidden_ND.device:
        raise ValueError(f"{name} is on {tensor.device} and hidden_ND on {hidden_ND.device}: move it there")
