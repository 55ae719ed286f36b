"""The plan of the Triton attention: every row meets each split that it sees once, through its own blocks."""

from __future__ import annotations

import pytest
import torch

from adjudge.kernels import attention_plan
from adjudge.kernels.paged_kv import PagedBatch, PagedSequence

SPLIT, TILE, KEYS = 32, 5, 16


def batch(block_size: int) -> PagedBatch:
    """A prefill, a chunk, and three tokens of siblings that keep their first 96 positions in the same blocks."""
    shared = list(range(50, 50 + 96 // block_size))
    runs = [(0, 70, [*range(1, 20)]), (29, 40, [*range(20, 40)])]
    runs += [(position, 1, [*shared, *range(100 + 20 * i, 120 + 20 * i)]) for i, position in enumerate((96, 127, 130))]
    sequences, row = [], 0
    for start, length, blocks in runs:
        sequences.append(PagedSequence(row, length, start, blocks))
        row += length
    none = torch.empty(0, dtype=torch.long)
    return PagedBatch(tuple(sequences), block_size, row + 3, none, none)


@pytest.mark.parametrize("cascade", [True, False])
@pytest.mark.parametrize("most_parts", [attention_plan.MAX_PARTS, 50])
@pytest.mark.parametrize("window", [None, 1, 2, 16, 31, 32, 33, 34, 70])
@pytest.mark.parametrize("block_size", [16, 48])
def test_every_row_meets_each_split_it_sees_once(
    block_size: int, window: int | None, most_parts: int, cascade: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_plan, "MAX_PARTS", most_parts)
    given = batch(block_size)
    rows = {}
    for sequence in given.sequences:
        for place in range(sequence.length):
            rows[sequence.row + place] = (sequence.start + place, sequence.blocks)
    table = given.block_table.flatten().tolist()
    met = set()
    for work in attention_plan.attention_plan(given, TILE, KEYS, window, SPLIT, cascade):
        assert work.parts <= most_parts
        merged = {row: range(first, first + count) for row, first, count in work.merges.tolist()}
        assert sorted(part for parts in merged.values() for part in parts) == list(range(work.parts))
        queries = work.queries.tolist()
        for first_query, count, begin, first, end in work.items.tolist():
            assert 0 < count <= TILE and (first % SPLIT) % KEYS == 0
            split = first // SPLIT
            for row, position, target in queries[first_query : first_query + count]:
                assert (row, split) not in met
                met.add((row, split))
                where, blocks = rows[row]
                lowest = 0 if window is None else max(0, position - window + 1)
                splits = range(lowest // SPLIT, position // SPLIT + 1)
                assert position == where and split in splits
                assert first <= max(lowest, split * SPLIT) and end == min(end, split * SPLIT + SPLIT)
                assert end > min(position, split * SPLIT + SPLIT - 1)
                for key in range(first, min(end, position + 1)):
                    assert table[begin + key // block_size] == blocks[key // block_size]
                assert target == (row if len(splits) == 1 else -1 - merged[row][split - splits[0]])
                assert (row in merged) == (len(splits) > 1)
    expected = {
        (row, split)
        for row, (position, _) in rows.items()
        for split in range((0 if window is None else max(0, position - window + 1)) // SPLIT, position // SPLIT + 1)
    }
    assert met == expected


def test_siblings_share_the_tiles_of_their_common_splits() -> None:
    tiles = [
        sum(len(work.items) for work in attention_plan.attention_plan(batch(16), TILE, KEYS, None, SPLIT, cascade))
        for cascade in (True, False)
    ]
    assert tiles[1] - tiles[0] == 3 * 2  # three common splits: once instead of three times


def test_a_batch_without_rows_has_no_rounds() -> None:
    none = torch.empty(0, dtype=torch.long)
    assert attention_plan.attention_plan(PagedBatch((), 16, 4, none, none), TILE, KEYS, None, SPLIT, True) == ()
