"""Rows of different lengths, packed one after the other: row r of N owns offsets[r] : offsets[r + 1]."""

import torch
from torch import Tensor

INTEGERS = (torch.int64, torch.int32)


class RaggedError(ValueError):
    """Sizes, offsets or ids do not describe the rows or groups they should."""


def whole_numbers(name: str, tensor: Tensor, error: type[ValueError] = RaggedError) -> Tensor:
    """The tensor as contiguous int64 [*]; TypeError for anything but integers, the `error` for another shape."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}: pass a tensor of integers")
    if tensor.dtype not in INTEGERS:
        raise TypeError(f"{name} has dtype {tensor.dtype}: pass int64 or int32")
    if tensor.dim() != 1:
        raise error(f"{name} has shape {tuple(tensor.shape)}: pass one dimension")
    return tensor.long().contiguous()


def check_offsets(offsets: Tensor, total: int, row: str, *, empty: bool) -> None:
    """Refuse int64 offsets [N + 1] on CPU that do not cut `total` entries into rows; `row` is what a row is called."""
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != total:
        ends = f"runs from {int(offsets[0])} to {int(offsets[-1])}" if len(offsets) else "is empty"
        raise RaggedError(f"offsets {ends}: it must start at 0 and end at {total}, the number of entries")
    sizes = offsets.diff()
    bad = sizes < 0 if empty else sizes <= 0
    if bad.any():
        place = int(bad.nonzero()[0])
        size = int(sizes[place])
        fault = f"{row} {place} is empty" if size == 0 else "offsets may not fall"
        raise RaggedError(f"offsets[{place + 1}] is {int(offsets[place + 1])} after {int(offsets[place])}: {fault}")
