"""Which query rows share a tile, and which keys the tile reads: worked out once a batch, used by every layer.

A row's context is cut into splits at fixed absolute positions, and each split of it is the work of one tile. What a
tile computes for a row does not depend on the other rows in it, so rows may be put together in any way that reads the
same keys: rows of one sequence (the plain plan), or of all sequences that keep a whole split in the same blocks (the
cascade: the split is read once for all siblings). Both plans give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from adjudge.kernels.paged_kv import PagedBatch, PagedSequence, to_device

SPLIT_KEYS = 1024
"""Keys a split. A row with several splits writes each one's partial result and reads it again: 8 bytes a value against
4 · SPLIT_KEYS FLOP, which at 1024 adds about a sixth to the time of a prefill's tile (at 512 a third), and 1 % to the
bytes of a decode step. Longer splits would leave the decode of one sequence to fewer programs (one for each KV head and
split), and siblings with less to share: only whole splits are shared."""

MAX_PARTS = 16384
"""Partial results (row and split) that one round keeps in memory: 240 MB at 28 heads of 128."""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Round:
    """The work of one launch, as int32 tensors on the batch's device.

    `items` [I, 5]: a tile's first query, its number of queries, where its sequence's blocks begin in the flattened
    block table, its first key and the end of its keys. `queries` [Q, 3]: batch row, absolute position, and where the
    result goes: the row of the output if it sees one split alone, else -1 - the part that keeps it. `merges` [R, 3]:
    batch row, its first part and how many parts follow, in the order of the splits. `parts`: their total.
    """

    items: torch.Tensor
    queries: torch.Tensor
    merges: torch.Tensor
    parts: int

    @property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Items, queries and merges."""
        return self.items, self.queries, self.merges


@dataclass(frozen=True)
class _Piece:
    """Consecutive rows of one sequence whose positions lie in one split."""

    sequence: int
    row: int
    position: int
    length: int


def attention_plan(
    batch: PagedBatch, tile_queries: int, block_keys: int, window: int | None, split_keys: int, cascade: bool
) -> tuple[Round, ...]:
    """The rounds of a batch, for tiles of `tile_queries` queries that read `block_keys` keys at a time."""
    kind = ("rounds", tile_queries, block_keys, window, split_keys, cascade)
    if kind not in batch.plans:
        batch.plans[kind] = tuple(
            _round(pieces, batch, tile_queries, block_keys, window, split_keys, cascade)
            for pieces in _rounds(batch.sequences, split_keys)
        )
    rounds: tuple[Round, ...] = batch.plans[kind]
    return rounds


def _rounds(sequences: Sequence[PagedSequence], split_keys: int) -> Iterator[list[_Piece]]:
    """Pieces that are worked on together: as many as keep the partial results within bounds."""
    pieces: list[_Piece] = []
    parts = 0
    for index, sequence in enumerate(sequences):
        position, end = sequence.start, sequence.start + sequence.length
        while position < end:
            splits = position // split_keys + 1
            stop = min(end, splits * split_keys, position + max(1, MAX_PARTS // splits))
            if parts + splits * (stop - position) > MAX_PARTS and pieces:
                yield pieces
                pieces, parts = [], 0
            pieces.append(_Piece(index, sequence.row + position - sequence.start, position, stop - position))
            parts += splits * (stop - position)
            position = stop
    if pieces:
        yield pieces


def _round(
    pieces: list[_Piece],
    batch: PagedBatch,
    tile_queries: int,
    block_keys: int,
    window: int | None,
    split_keys: int,
    cascade: bool,
) -> Round:
    lengths = [piece.length for piece in pieces]
    row = _ranges([piece.row for piece in pieces], lengths)
    position = _ranges([piece.position for piece in pieces], lengths)
    first_split = (position * 0 if window is None else np.maximum(position - window + 1, 0)) // split_keys
    splits = position // split_keys - first_split + 1
    parts = np.where(splits > 1, splits, 0)
    first_part = parts.cumsum() - parts

    runs = _runs(pieces, batch, window, split_keys, cascade)
    begins = np.flatnonzero(np.diff(runs.band, prepend=-1))
    band_table, band_split = runs.table[begins], runs.split[begins]
    sizes = np.add.reduceat(runs.length, begins)
    query = _ranges(runs.start, runs.length)
    part = (first_part - first_split)[query] + band_split.repeat(sizes)
    target = np.where(parts[query] > 0, -1 - part, row[query])

    tiles = -(-sizes // tile_queries)
    done = _ranges(tiles * 0, tiles) * tile_queries  # queries of the band in earlier tiles
    band = np.arange(len(begins)).repeat(tiles)
    first_query = (sizes.cumsum() - sizes)[band] + done
    split_start = band_split[band] * split_keys
    end = np.minimum(split_start + split_keys, np.maximum.reduceat(position[query], first_query) + 1)
    skipped = first_query * 0
    if window is not None:
        before = np.minimum.reduceat(position[query], first_query) - window + 1 - split_start
        skipped = np.maximum(before, 0) // block_keys * block_keys
    count = np.minimum(sizes[band] - done, tile_queries)
    merged = parts > 0

    def tensor(*columns: Integers) -> torch.Tensor:
        return to_device(torch.from_numpy(np.stack(columns, 1).astype(np.int32)), batch.device)

    return Round(
        tensor(first_query, count, band_table[band], split_start + skipped, end),
        tensor(row[query], position[query], target),
        tensor(row[merged], first_part[merged], parts[merged]),
        int(parts.sum()),
    )


class _Runs(NamedTuple):
    """Rows `start .. start + length` of the round that read a split through the block table from place `table` on.

    Those of a `band` read the same keys and follow each other.
    """

    band: Integers
    start: Integers
    length: Integers
    table: Integers
    split: Integers


def _runs(pieces: list[_Piece], batch: PagedBatch, window: int | None, split_keys: int, cascade: bool) -> _Runs:
    """The runs of rows, band after band."""
    table, size = batch.host_table, batch.block_size
    sequence, position, lengths = (
        np.array([getattr(piece, name) for piece in pieces]) for name in ("sequence", "position", "length")
    )
    first = position * 0 if window is None else np.maximum(position - window + 1, 0) // split_keys
    counts = position // split_keys - first + 1
    piece, split = np.arange(len(pieces)).repeat(counts), _ranges(first, counts)
    start, length, reader = (lengths.cumsum() - lengths)[piece], lengths[piece], sequence[piece]
    end = (split + 1) * split_keys
    if window is not None:
        length = np.minimum(length, end + window - 1 - position[piece])
    if cascade:
        ends = np.array([one.start + one.length for one in batch.sequences])
        whole = end <= ends[reader]  # what goes on growing is nobody else's
        for one in range(int(split[whole].max(initial=-1)) + 1):
            some = np.flatnonzero(whole & (split == one))
            keys = np.ascontiguousarray(
                table[reader[some], one * split_keys // size : -(-(one + 1) * split_keys // size)]
            )
            if len(some):
                _, of, which = np.unique(keys.view(f"V{keys[0].nbytes}")[:, 0], return_index=True, return_inverse=True)
                reader[some] = reader[some][of[which]]
    band = split * len(batch.sequences) + reader
    order = band.argsort(kind="stable")
    return _Runs(*(column[order] for column in (band, start, length, reader * table.shape[1], split)))


def _ranges(starts: Sequence[int] | Integers, lengths: Sequence[int] | Integers) -> Integers:
    """The numbers start .. start + length of every pair, one after the other."""
    counts: Integers = np.asarray(lengths, dtype=np.int64)
    before: Integers = counts.cumsum() - counts
    shift: Integers = np.asarray(starts, dtype=np.int64) - before
    return np.arange(int(counts.sum())) + shift.repeat(counts)
