"""Batches whose tensors stay where they are."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch

from adjudge.kernels import held_batch
from adjudge.kernels.attention_plan import attention_plan
from adjudge.kernels.held_batch import HeldBatch, Room
from adjudge.kernels.paged_kv import PagedBatch, PagedSequence

SPLIT = 64
KINDS = [(7, 16, None, SPLIT, True), (7, 16, 20, SPLIT, True)]


def decode(*starts: int, lengths: Sequence[int] = (), writes: int | None = None) -> PagedBatch:
    """A step of sequences that begin there, a row each unless it is said, in blocks of their own."""
    lengths = lengths or [1] * len(starts)
    free = iter(range(1, 10_000))
    sequences, row = [], 0
    for start, length in zip(starts, lengths, strict=True):
        blocks = [next(free) for _ in range(-(-(start + length) // 16))]
        sequences.append(PagedSequence(row, length, start, blocks))
        row += length
    rows = torch.arange(row if writes is None else writes)
    batch = PagedBatch(tuple(sequences), 16, -(-row // 32) * 32, rows, 100 + rows)
    for kind in KINDS:
        attention_plan(batch, *kind)
    return batch


@pytest.fixture(autouse=True)
def short_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_batch, "SPLIT_KEYS", SPLIT)


def test_room_is_the_least_power_of_two() -> None:
    assert Room.of(decode(5)) == Room(32, 1) == Room.of(decode(*[SPLIT - 1] * 32))
    assert Room.of(decode(5, SPLIT)) == Room(32, 2) and Room.of(decode(*[3] * 33, 2 * SPLIT)) == Room(64, 4)
    assert Room.of(decode(*[3] * 256)) == Room(256, 1)


def test_what_is_no_decode_or_too_large_has_none() -> None:
    assert Room.of(decode(5, 9, lengths=(1, 2))) is None and Room.of(decode(*[3] * 257)) is None
    assert Room.of(decode(5, 9, writes=0)) is None and Room.of(decode(5, 9, writes=33)) is None
    assert Room.of(decode(*[3] * 255, 100 * SPLIT)) is None
    assert Room.of(PagedBatch((), 16, 32, *torch.empty(2, 0, dtype=torch.long))) is None


def test_it_holds_one_batch_after_the_other_in_the_same_place() -> None:
    draw = random.Random("held")
    first = decode(*(draw.randrange(2 * SPLIT, 4 * SPLIT) for _ in range(31)))
    held = HeldBatch.like(first, Room(32, 4))
    tensors = [
        held.table,
        held.write_rows,
        held.write_slots,
        *(t for [work] in held.plans.values() for t in work.tensors),
    ]
    where = [tensor.data_ptr() for tensor in tensors]
    for count in (31, 2, 17, 1):
        batch = decode(*(draw.randrange(0, 4 * SPLIT) for _ in range(count)), writes=draw.randint(1, count))
        held.take(batch)
        assert held.rows == 32 and held.filled == 0 and [tensor.data_ptr() for tensor in tensors] == where
        table = batch.flat_table
        assert held.flat_table[: len(table)].equal(table) and not held.flat_table[len(table) :].any()
        written = list(zip(held.write_rows.tolist(), held.write_slots.tolist(), strict=True))
        own = list(zip(batch.write_rows.tolist(), batch.write_slots.tolist(), strict=True))
        assert written == own + own[:1] * (32 - len(own))
        for kind in KINDS:
            [[kept], [plan]] = held.plans["rounds", *kind], attention_plan(batch, *kind)
            assert kept.parts >= plan.parts
            for ours, theirs in zip(kept.tensors, plan.tensors, strict=True):
                assert ours[: len(theirs)].equal(theirs) and not ours[len(theirs) :].any()
