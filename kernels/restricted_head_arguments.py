"""What the restricted head is given: a head and label sets, checked before anything is computed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from adjudge.kernels.paged_kv import to_device
from adjudge.kernels.ragged import whole_numbers

Normalizer = Literal["set", "full", "both"]


class LabelSetError(ValueError):
    """Label ids, offsets, groups, values or targets do not describe label sets."""


@dataclass(frozen=True, slots=True)
class HeadWeights:
    """What turns a hidden state into logits."""

    weight_VD: Tensor
    norm_weight_D: Tensor | None
    eps: float
    bias_V: Tensor | None
    softcap: float | None
    temperature: float

    def without_norm(self) -> HeadWeights:
        """The same head for hidden states that are normed already."""
        return replace(self, norm_weight_D=None)

    def logits(self, dots: Tensor, bias: Tensor | None) -> Tensor:
        """Turn dot products into logits: bias, then soft cap, then temperature."""
        logits = dots if bias is None else dots + bias
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        return logits if self.temperature == 1.0 else logits / self.temperature


@dataclass(frozen=True, slots=True)
class LabelRows:
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
        if self.shared:
            return per_row[:, None]
        return per_row.repeat_interleave(self.label_offsets.diff(), output_size=self.label_count)  # known: no wait


def check_normalizer(normalizer: str) -> None:
    """Raise ValueError for one that is none."""
    if normalizer not in get_args(Normalizer):
        raise ValueError(f'normalizer is {normalizer!r}: use "set", "full" or "both"')


def check_head(hidden_ND: Tensor, head: HeadWeights) -> None:
    """Refuse tensors whose shapes, dtypes or devices do not fit each other, and numbers outside their range."""
    weight_VD = head.weight_VD
    for name, tensor in (("hidden_ND", hidden_ND), ("weight_VD", weight_VD)):
        _check_type(name, tensor)
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
            _check_type(name, vector)
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


class Conditions:
    """What must hold of a call's tensors, asked all at once: a device is waited for once, however many there are."""

    def __init__(self) -> None:
        self._conditions: list[tuple[Tensor, Callable[[int], str]]] = []

    def add(self, good: Tensor, complaint: Callable[[int], str]) -> None:
        """Demand that all of `good` [*] holds; `complaint` words the first place where it does not."""
        self._conditions.append((good, complaint))

    def require(self, name: str, values: Tensor, good: Tensor, what: str) -> None:
        """Demand that all `values` are `good`; `what` says what each should be."""
        self.add(good, lambda place: f"{name}[{place}] is {int(values[place])}: it must be {what}")

    def judge(self, *numbers: Tensor) -> list[int]:
        """Raise LabelSetError for the first demand that is not met; give the numbers, fetched by the same copy."""
        report = torch.stack([*(good.all().long() for good, _ in self._conditions), *numbers]).tolist()
        for met, (good, complaint) in zip(report, self._conditions, strict=False):
            if not met:
                raise LabelSetError(complaint(int((~good).nonzero()[0])))
        return report[len(self._conditions) :]


def lay_out(
    hidden_ND: Tensor,
    vocabulary: int,
    rows: Tensor | None,
    ids: Tensor,
    offsets: Tensor | None,
    groups: Tensor | None,
    values: Tensor | None,
    targets: Tensor | None,
) -> tuple[Tensor | None, LabelRows]:
    """Check the rows and label arguments, number the labels of all sets in one row, and put both beside hidden_ND.

    Nothing waits for hidden_ND's device if rows and labels are on the host; if one is not, it is waited for once.
    """
    known = {"label_ids": _indices("label_ids", ids, hidden_ND)}
    others = {"rows": rows, "label_offsets": offsets, "label_groups": groups, "targets": targets}
    known |= {name: _indices(name, tensor, hidden_ND) for name, tensor in others.items() if tensor is not None}
    if any(tensor.device.type != "cpu" for tensor in known.values()):
        known = {name: _beside(tensor, hidden_ND) for name, tensor in known.items()}
    ids = known["label_ids"]
    rows, offsets, groups, targets = map(known.get, others)

    conditions = Conditions()
    hidden_rows = len(hidden_ND)
    n = hidden_rows if rows is None else len(rows)
    if rows is not None:
        known_rows = (rows >= 0) & (rows < hidden_rows)
        conditions.require("rows", rows, known_rows, f"a row of hidden_ND (0 … {hidden_rows - 1})")
    known_ids = (ids >= 0) & (ids < vocabulary)
    conditions.require("label_ids", ids, known_ids, f"a row of weight_VD (0 … {vocabulary - 1})")
    shared = offsets is None
    if offsets is None:
        offsets = torch.arange(2, device=ids.device) * len(ids)
        if len(ids) == 0:
            raise LabelSetError("label_ids is empty: pass at least one label")
    else:
        _check_offsets(conditions, offsets, n, len(ids))
    label_offsets = offsets
    if groups is not None:
        if len(groups) != len(ids):
            raise LabelSetError(f"label_groups has {len(groups)} entries and label_ids {len(ids)}: pass one a token")
        if len(offsets) > 1:
            label_offsets = _number_groups(conditions, groups, offsets)
    if targets is not None:
        if len(targets) != n:
            raise LabelSetError(f"targets has {len(targets)} entries: pass one label index a row ({n})")
        within = (targets >= 0) & (targets < label_offsets.diff())
        conditions.require("targets", targets, within, "a label of its row's set")
    [label_count] = conditions.judge(label_offsets[-1])
    if values is not None:
        _check_type("label_values", values, "a tensor of numbers")
        if values.is_complex():
            raise TypeError(f"label_values has dtype {values.dtype}: pass real numbers")
        _check_device("label_values", values, hidden_ND, or_host=True)
        if values.shape != (label_count,):
            raise LabelSetError(f"label_values has shape {tuple(values.shape)}: pass one a label, ({label_count},)")
        values = _beside(values.float().contiguous(), hidden_ND)
    return None if rows is None else _beside(rows, hidden_ND), LabelRows(
        shared=shared,
        token_ids=_beside(ids, hidden_ND),
        token_offsets=_beside(offsets, hidden_ND),
        groups=None if groups is None else _beside(groups, hidden_ND),
        label_offsets=_beside(label_offsets, hidden_ND),
        label_count=label_count,
        values=values,
        targets=None if targets is None else _beside(targets, hidden_ND),
    )


def _check_offsets(conditions: Conditions, offsets: Tensor, n: int, total: int) -> None:
    if len(offsets) != n + 1:
        raise LabelSetError(f"label_offsets has {len(offsets)} entries for {n} rows: pass {n + 1}")
    conditions.add(
        torch.stack([offsets[0] == 0, offsets[-1] == total]),
        lambda _: (
            f"label_offsets runs from {int(offsets[0])} to {int(offsets[-1])}: it must start at 0 and end at {total}, "
            "the length of label_ids"
        ),
    )
    mend = "above the one before it: no row may be without labels"
    conditions.require("label_offsets", offsets[1:], offsets.diff() > 0, mend)


def _number_groups(conditions: Conditions, groups: Tensor, offsets: Tensor) -> Tensor:
    """Count each set's groups and return where the sets' labels begin; a set's groups must be 0 … L-1 without gaps.

    Groups and offsets are not judged yet: whatever they hold, all shapes are known and no index is out of range.
    """
    counts = offsets.diff()
    token = torch.arange(len(groups), device=groups.device)
    set_of_token = (torch.searchsorted(offsets, token, right=True) - 1).clamp(0, len(counts) - 1)
    mend = "a label index counted from 0 without gaps within its set"
    conditions.require("label_groups", groups, (groups >= 0) & (groups < counts[set_of_token]), mend)
    group_counts = torch.zeros_like(counts).scatter_reduce_(0, set_of_token, groups + 1, "amax")
    # A set has no more groups than tokens, so its i-th token's place can say whether group i has a token.
    first_token = offsets[set_of_token]
    taken = torch.zeros_like(groups, dtype=torch.bool)
    taken.index_fill_(0, (first_token + groups).clamp(0, len(groups) - 1), True)

    def gap(place: int) -> str:
        row = f" of row {int(set_of_token[place])}" if len(counts) > 1 else ""
        group = place - int(first_token[place])
        return f"label_groups{row} has no token in group {group}: number groups from 0 without gaps"

    conditions.add(taken | (token - first_token >= group_counts[set_of_token]), gap)
    return F.pad(group_counts.cumsum(0), (1, 0))


def _indices(name: str, tensor: Tensor, hidden_ND: Tensor) -> Tensor:
    """The tensor as int64 [*], refused unless it holds integers, has one dimension and lies near hidden_ND."""
    numbers = whole_numbers(name, tensor, LabelSetError)
    _check_device(name, numbers, hidden_ND, or_host=True)
    return numbers


def _check_type(name: str, value: object, what: str = "a tensor") -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} is a {type(value).__name__}: pass {what}")


def _check_device(name: str, tensor: Tensor, hidden_ND: Tensor, *, or_host: bool = False) -> None:
    if tensor.device != hidden_ND.device and not (or_host and tensor.device.type == "cpu"):
        raise ValueError(f"{name} is on {tensor.device} and hidden_ND on {hidden_ND.device}: move it there")


def _beside(tensor: Tensor, hidden_ND: Tensor) -> Tensor:
    """The tensor on hidden_ND's device, without waiting for it."""
    return tensor if tensor.device == hidden_ND.device else to_device(tensor, hidden_ND.device)
