"""A decode step whose tensors stay where they are: what a CUDA graph recorded of one can be played for others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch

from adjudge.kernels.attention_plan import MAX_PARTS, SPLIT_KEYS, Round, attention_plan
from adjudge.kernels.linear import ROW_TILE, padded_rows
from adjudge.kernels.paged_kv import PagedBatch

MOST_ROWS = 256
"""Beyond it the matrix products of a large model take longer than their launches. Of the default model they do not: on
an H200 a step of 1,798 rows is 32 ms of launches and 5 ms of work (bench/results/gpu.md)."""


class Room(NamedTuple):
    """How many rows, and splits of each row's context, a held batch has room for: powers of two (of tiles of rows)."""

    rows: int
    splits: int

    @classmethod
    def of(cls, batch: PagedBatch) -> Self | None:
        """The least that a batch needs; None where it does more than decode, or more of it than is worth a graph."""
        if not batch.sequences or any(run.length > 1 for run in batch.sequences):
            return None
        rows = ROW_TILE * _power(padded_rows(batch.filled, ROW_TILE) // ROW_TILE)
        splits = _power(max(run.start for run in batch.sequences) // SPLIT_KEYS + 1)
        fits = rows <= MOST_ROWS and rows * splits <= MAX_PARTS and 0 < len(batch.write_rows) <= rows
        return cls(rows, splits) if fits else None


@dataclass(frozen=True, kw_only=True)
class HeldBatch(PagedBatch):
    """A batch of `room.rows` rows that takes in one batch of single tokens after another (`take`).

    Its plans are those of the Triton attention, filled up with tiles and merges that do nothing; its table is flat, as
    that kernel reads it; its writes are filled up with the first one again.
    """

    room: Room
    table: torch.Tensor

    @classmethod
    def like(cls, batch: PagedBatch, room: Room) -> Self:
        """One for batches like this one, which attention has planned already; it holds this one."""
        blocks = room.splits * SPLIT_KEYS // batch.block_size
        held = cls(
            sequences=(),
            block_size=batch.block_size,
            rows=room.rows,
            write_rows=torch.zeros_like(batch.write_rows[:1]).repeat(room.rows),
            write_slots=torch.zeros_like(batch.write_slots[:1]).repeat(room.rows),
            plans={kind: (_empty(room, batch.device),) for kind in batch.plans},
            room=room,
            table=torch.zeros(room.rows * blocks, dtype=torch.int32, device=batch.device),
        )
        held.take(batch)
        return held

    @property
    def flat_table(self) -> torch.Tensor:
        """[room for all blocks] int32: the tables of all sequences, row after row."""
        return self.table

    def take(self, batch: PagedBatch) -> None:
        """Take in a batch that needs no more than this room; nothing here waits for the device."""
        for ours, theirs in ((self.write_rows, batch.write_rows), (self.write_slots, batch.write_slots)):
            ours.copy_(theirs[:1].expand_as(ours))
            ours[: len(theirs)] = theirs
        _fill(self.table, batch.flat_table)
        kind: Any
        for kind, (held,) in self.plans.items():
            [plan] = attention_plan(batch, *kind[1:])
            for ours, theirs in zip(held.tensors, plan.tensors, strict=True):
                _fill(ours, theirs)


def _empty(room: Room, device: torch.device) -> Round:
    """A plan with room for a tile, a query and a part of every split of every row, and for a merge of every row."""
    work = room.rows * room.splits
    items, queries, merges = (
        torch.zeros(count, width, dtype=torch.int32, device=device)
        for count, width in ((work, 5), (work, 3), (room.rows, 3))
    )
    return Round(items, queries, merges, work if room.splits > 1 else 0)


def _fill(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    ours[: len(theirs)] = theirs
    ours[len(theirs) :] = 0


def _power(count: int) -> int:
    """The least power of two that is not less."""
    return 1 << (count - 1).bit_length()
