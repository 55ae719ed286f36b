"""The paged key/value cache: what it holds, where a batch's rows stand in it, and how they get there."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from adjudge.kernels.dispatch import kernel_backend


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy from the host that does not wait for what the device is doing."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


@dataclass(frozen=True)
class PagedKV:
    """One layer's cache: keys [blocks, block_size, KV heads, D] and values [blocks, block_size, KV heads, Dv].

    Block 0 belongs to nobody and holds zeros: padding reads from it. What is not finite is stored as zeros and noted in
    `bad` [blocks * block_size], because a product with a mask's zero would carry NaN to rows that must not see it.
    """

    key: torch.Tensor
    value: torch.Tensor
    bad: torch.Tensor

    @staticmethod
    def empty(blocks: int, block_size: int, key: torch.Tensor, value: torch.Tensor) -> PagedKV:
        """A cache for keys and values shaped like `key` and `value` ([T, KV heads, D]).

        On a GPU all of it holds zeros: libraries read whole blocks, and NaN that stood in the memory before would come
        through their masks.
        """
        shapes = ((like, (blocks, block_size, *like.shape[1:])) for like in (key, value))
        keys, values = (like.new_zeros(size) if like.is_cuda else like.new_empty(size) for like, size in shapes)
        keys[0], values[0] = 0, 0
        return PagedKV(keys, values, torch.zeros(blocks * block_size, dtype=torch.bool, device=key.device))

    def blanks(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A key and a value of no tokens ([0, KV heads, D], [0, KV heads, Dv]), to make another cache by."""
        return self.key.new_empty(0, *self.key.shape[2:]), self.value.new_empty(0, *self.value.shape[2:])

    def copy(self, sources: torch.Tensor, slots: torch.Tensor) -> None:
        """Copy what `sources` [C] hold to `slots` [C]; no slot is also a source."""
        for store in (self.key.flatten(0, 1), self.value.flatten(0, 1), self.bad):
            store.index_copy_(0, slots, store.index_select(0, sources))


@dataclass(frozen=True)
class PagedSequence:
    """A run of consecutive query rows and the blocks that hold its context (itself included).

    Rows `row .. row + length` of the packed batch sit at absolute positions `start .. start + length`; position p is
    kept in slot `blocks[p // block_size] * block_size + p % block_size`.
    """

    row: int
    length: int
    start: int
    blocks: Sequence[int]

    def slots(self, block_size: int) -> npt.NDArray[np.int64]:
        """[start + length]: where all its positions are kept."""
        end = self.start + self.length
        blocks = np.asarray(self.blocks[: -(-end // block_size)], np.int64)
        return (blocks[:, None] * block_size + np.arange(block_size)).ravel()[:end]


@dataclass(frozen=True)
class PagedBatch:
    """What attention must know of a packed batch of `rows` query rows.

    Fields: sequences; block_size; rows (padding included); write_rows [W] and write_slots [W]: which rows' keys and
    values go to which slots (a row may go to several: the blocks of siblings that diverge inside a block).
    """

    sequences: tuple[PagedSequence, ...]
    block_size: int
    rows: int
    write_rows: torch.Tensor
    write_slots: torch.Tensor
    plans: dict[Hashable, Any] = field(default_factory=dict)
    """What a back end has worked out about this batch, kept for the layers that follow."""
    backends: dict[Hashable, Any] = field(default_factory=dict)
    """Which serves each kind of attention, chosen for all layers at once."""

    @cached_property
    def filled(self) -> int:
        """Rows before the padding."""
        return max((run.row + run.length for run in self.sequences), default=0)

    @cached_property
    def query_offsets(self) -> torch.Tensor:
        """[S + 1] int32: where each sequence's rows begin in the packed batch; sequences lie one after the other."""
        ends = [sequence.row + sequence.length for sequence in self.sequences]
        return to_device(torch.tensor([0, *ends], dtype=torch.int32), self.device)

    @cached_property
    def context_lengths(self) -> torch.Tensor:
        """[S] int32: positions 0 .. length of each sequence have keys and values, those of this step included."""
        lengths = [sequence.start + sequence.length for sequence in self.sequences]
        return to_device(torch.tensor(lengths, dtype=torch.int32), self.device)

    @cached_property
    def block_table(self) -> torch.Tensor:
        """[S, B] int32: the blocks of each sequence in order, block 0 where it has no more."""
        return to_device(torch.from_numpy(self.host_table), self.device)

    @cached_property
    def host_table(self) -> npt.NDArray[np.int32]:
        """The block table on the host."""
        counts = [-(-(sequence.start + sequence.length) // self.block_size) for sequence in self.sequences]
        table = np.zeros((len(counts), max(counts, default=0)), np.int32)
        for row, (sequence, count) in enumerate(zip(self.sequences, counts, strict=True)):
            table[row, :count] = sequence.blocks[:count]
        return table

    @property
    def flat_table(self) -> torch.Tensor:
        """[S * B] int32: the block table, row after row."""
        return self.block_table.flatten()

    @property
    def device(self) -> torch.device:
        """Where the batch's tensors are."""
        return self.write_slots.device


def write_kv(key_THD: torch.Tensor, value_THD: torch.Tensor, cache: PagedKV, batch: PagedBatch) -> None:
    """Store the batch's keys and values ([T, KV heads, D]) at their slots."""
    if kernel_backend(key_THD.device) == "triton":
        from adjudge.kernels.kv_write_triton import triton_write_kv

        triton_write_kv(key_THD, value_THD, cache, batch)
    else:
        torch_write_kv(key_THD, value_THD, cache, batch)


def torch_write_kv(key_THD: torch.Tensor, value_THD: torch.Tensor, cache: PagedKV, batch: PagedBatch) -> None:
    """`write_kv` in plain torch."""
    if not key_THD.is_cuda and _all_finite(key_THD, value_THD):  # on CUDA, asking would wait for the device
        cache.bad.index_fill_(0, batch.write_slots, False)
    else:
        finite = key_THD.isfinite().flatten(1).all(1) & value_THD.isfinite().flatten(1).all(1)
        cache.bad.index_copy_(0, batch.write_slots, ~finite.index_select(0, batch.write_rows))
        key_THD, value_THD = (states.masked_fill(~finite[:, None, None], 0) for states in (key_THD, value_THD))
    for source, target in ((key_THD, cache.key), (value_THD, cache.value)):
        target.flatten(0, 1).index_copy_(0, batch.write_slots, source.index_select(0, batch.write_rows))


def _all_finite(*tensors: torch.Tensor) -> bool:
    """Whether the sum of each is finite, as it only is where all its numbers are: one pass for the five of isfinite."""
    return all(bool(tensor.sum(dtype=torch.float32).isfinite()) for tensor in tensors)
