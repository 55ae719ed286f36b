"""Paged attention in torch, for CPUs: tiles of query rows, and one fused call for all tiles that read the same keys.

A plain tile holds TILE_ROWS consecutive positions of one sequence, from a multiple of TILE_ROWS on, with all query
heads of a KV head in the rows of one matrix. Its keys, from the beginning up to its own positions, are padded to a
multiple of BAND. Tiles of other sizes, which begin where they are needed, read the same keys.

Ladder (2 cores, 9 query heads on 3 KV heads of 64, context 1024; GFLOP/s of useful rows)
1. one matmul, softmax, matmul a sequence: 74 to 106, and memory for every score;
2. torch's fused CPU attention, one query tile a call: 116;
3. query heads of one KV head packed into the rows of a tile, all tiles of a KV band in one call: 126;
4. a quarter of a tile where a sequence asks about no more, as in decode: a layer of 16 sequences at
   context 1000, one thread of an AVX-512 EPYC, 12.4 -> 5.6 ms; of one at context 200, 0.23 -> 0.13;
5. keys and values that the band before has gathered stay in their place: twelve texts of 32 tokens after
   550 shared ones, the whole engine, two cores of an AVX-512 Xeon, 4.7 -> 4.1 s; 1,500 tokens of one prompt 2.09 ->
   2.04; one text as before;
6. a single position by itself where that has the same bits: the twelve texts 4.03 -> 3.62 s, one of them 2.48 -> 2.43;
7. tiles of up to 64 positions from anywhere (this version): of the time of plain SDPA, a sequence at a time, in the
   same run (two threads, means of two runs of each): a warm judge's batch 0.78 -> 0.54, a cold one 0.90 -> 0.83, with
   28 heads of 128 0.82 -> 0.58 and 0.89 -> 0.69, prefill as before; in bfloat16 0.88 -> 0.67 and 1.04 -> 0.86, with 28
   heads 0.72 -> 0.45 and 0.90 -> 0.64, prefill 1.48 -> 1.29 and 1.33 -> 1.11.

Beside plain SDPA, a sequence at a time on gathered keys, whose bits depend on the chunks (one thread,
bench/results/kernels-cpu.csv): 0.58 to 0.82 of its time in prefill and on a judge's batch, 0.16 and 0.59 in decode
(an AMD EPYC; on an Intel Xeon, commit 82fb00d, 0.91 to 0.99, and 0.24 to 0.40; commit aacc8e8 lost by 3 to 4 % there in
prefill, and by 1.2 times on a cold judge's batch with 9 heads).

Tried and dropped, each slower on the same machine, one thread:
- shared prefixes cut at multiples of 512 keys, each span read once for all siblings and merged by log-sums: the fused
  calls take 6 % less, merging and copying more than that; 3 to 4 % slower in all on the example pairs and on stories of
  600 tokens. A prefix stays in the processor's cache between siblings as it is;
- sequences that read equally many keys gathered side by side for one call: a decode step of 64 sequences takes 1.6
  (context 1000) to 1.8 times as long (200), and 1.0 to 1.3 times with 2048 keys a call. Keys gathered for one sequence
  are used while they are in the cache; the loop over sequences is not what costs.

Batch invariance: the query at absolute position p sits in tile p // TILE_ROWS at row p % TILE_ROWS, and that tile
always reads its keys padded to the same multiple of BAND: the shapes a query meets depend on its position and on
nothing else. Tiles of other sizes serve only where a probe on this machine found the same bits, wherever they begin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F

from adjudge.kernels.linear import WIDTH_STEP
from adjudge.kernels.paged_kv import PagedBatch, PagedKV, PagedSequence

TILE_ROWS = 16
SIZES = (1, 4, 16, 32, 64)
"""Positions of other tiles, which begin anywhere; torch multiplies 64 rows at a time where there are 192 or more."""
BAND = 128
PROBED_BANDS = (128, 256, 512, 640, 1024)
"""Where the bands end that are probed for other tiles; torch reads 512 keys at a time."""
KEPT_MASK_ELEMENTS = 1 << 26
"""A step's masks are made once for all layers up to this size, and anew in every layer beyond it (long contexts)."""


def torch_attention(
    query_THD: torch.Tensor,
    cache: PagedKV,
    batch: PagedBatch,
    *,
    scale: float,
    sliding_window: int | None,
    softcap: float | None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """`paged_attention` in torch."""
    kv_heads, value_width = cache.value.shape[2:]
    heads, width = query_THD.shape[1:]
    plain = softcap is None and sinks is None
    fused = plain and width == value_width and query_THD.device.type == "cpu"
    kind = kv_heads, heads // kv_heads, width, query_THD.dtype, torch.get_num_threads()
    sizes = agreeing_sizes(*kind) if fused else ()
    return _in_tiles(query_THD, cache, batch, sizes, scale, sliding_window, softcap, sinks)


@cache
def agreeing_sizes(kv_heads: int, group: int, width: int, dtype: torch.dtype, threads: int) -> tuple[int, ...]:
    """Those of `SIZES` whose tiles a probe found to have the bits of plain ones, from anywhere.

    `threads` are those of the moment.
    """
    most = max(PROBED_BANDS)
    query_THD, kv = _cancelling(most, max(2, kv_heads), group, width, dtype)
    none = torch.empty(0, dtype=torch.long)

    def read(end: int, count: int, *sizes: int) -> torch.Tensor:
        batch = PagedBatch((PagedSequence(0, count, end - count, [0]),), most, count, none, none)
        return _in_tiles(query_THD[end - count : end], kv, batch, sizes, width**-0.5, None, None)

    plain = {end: read(end, BAND) for end in PROBED_BANDS}

    def agrees(size: int) -> bool:
        counts = {BAND, size, -(-size * 2 // 3)}
        return all(torch.equal(read(end, n, size), plain[end][BAND - n :]) for end in PROBED_BANDS for n in counts)

    return tuple(filter(agrees, SIZES))


def _cancelling(count: int, kv_heads: int, group: int, width: int, dtype: torch.dtype) -> tuple[torch.Tensor, PagedKV]:
    """A query and a cache that lay bare in which order products are added up, also in half precision.

    Of every other head the scores are 0 but for their rounding, which is made large; of the others there are pairs of
    the same keys in each band whose values cancel. Of random numbers half precision shows a difference in one position
    of hundreds.
    """
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(count, kv_heads, *shape, generator=generator).to(dtype)
        for shape in ((group, width), (width,), (width,))
    )
    half = width // 2
    order = torch.randperm(width, generator=generator)
    query[:, ::2, :, order[half : 2 * half]] = query[:, ::2, :, order[:half]]
    key[:, ::2, order[half : 2 * half]] = -key[:, ::2, order[:half]]
    query[:, ::2, :, order[2 * half :]] = 0
    query[:, ::2], key[:, ::2] = query[:, ::2] * 2**12, key[:, ::2] * 2**12
    for start in range(0, count, BAND):
        one, other = (start + torch.randperm(BAND, generator=generator)).view(2, -1)
        key[other, 1::2], value[other, 1::2] = key[one, 1::2], -value[one, 1::2]
    kv = PagedKV.empty(1, count, key, value)
    kv.key[0], kv.value[0] = key, value
    return query.flatten(1, 2), kv


def _in_tiles(
    query_THD: torch.Tensor,
    cache: PagedKV,
    batch: PagedBatch,
    sizes: tuple[int, ...],
    scale: float,
    sliding_window: int | None,
    softcap: float | None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """`torch_attention`, with tiles of `sizes` beside the plain ones."""
    query_THD = _widened(query_THD)
    heads, width = query_THD.shape[1:]
    kv_heads, value_width = cache.value.shape[2:]
    group = heads // kv_heads
    keys, values = cache.key.flatten(0, 1), cache.value.flatten(0, 1)
    plan = _planned(batch, sizes)
    poisoned = bool(cache.bad.view(-1, batch.block_size).index_select(0, plan.blocks).any())
    # [tiles, R, KV, G, D] -> [tiles, KV, G * R, D]: one KV head's query heads are rows of one matrix
    queries = {
        tiles.size: query_THD.index_select(0, tiles.rows)
        .view(-1, tiles.size, kv_heads, group, width)
        .permute(0, 2, 3, 1, 4)
        .reshape(-1, kv_heads, group * tiles.size, width)
        for tiles in plan.tiles
    }
    outputs = {size: query.new_empty(*query.shape[:-1], value_width) for size, query in queries.items()}
    gathered = [cached.new_empty(plan.most, *cached.shape[1:]) for cached in (keys, values)]
    for band, mask in zip(plan.bands, plan.masks_of(group, sliding_window, query_THD.dtype), strict=True):
        query, output = (matrices[band.size][band.first : band.last] for matrices in (queries, outputs))
        key, value = (_read(*pair, band) for pair in zip((keys, values), gathered, strict=True))
        sink = None if sinks is None else sinks.view(kv_heads, group, 1).repeat_interleave(band.size, 1)
        output.copy_(_attend(query, key, value, mask, scale, softcap, sink)[..., :value_width])
        if poisoned:
            seen = (cache.bad.index_select(0, band.slots) & (mask == 0)).any(-1)  # [tiles, 1, G * R]
            output.masked_fill_(seen.unsqueeze(-1), torch.nan)
    result = query_THD.new_zeros(batch.rows, heads, value_width)
    for tiles in plan.tiles:
        flat = outputs[tiles.size].view(-1, kv_heads, group, tiles.size, value_width).permute(0, 3, 1, 2, 4)
        flat = flat.reshape(-1, heads, value_width)
        result.index_copy_(0, tiles.filled_rows, flat.index_select(0, tiles.filled))
    return result


def _read(cached: torch.Tensor, gathered: torch.Tensor, band: _Band) -> torch.Tensor:
    """Keys or values [tiles, KV, L, D] of a band, the same for all its tiles.

    Where there is room they are gathered in the place of those of the band before, of which `kept` stay.
    """
    length, width = band.slots.shape[0], cached.shape[-1]
    if len(gathered) and not width % WIDTH_STEP:
        torch.index_select(cached, 0, band.slots[band.kept :], out=gathered[band.kept : length])
        found = gathered[:length]
    else:
        found = _widened(cached.index_select(0, band.slots))
    return found.transpose(0, 1).unsqueeze(0).expand(band.last - band.first, -1, -1, -1)


def _widened(heads: torch.Tensor) -> torch.Tensor:
    """Heads [..., D] with zeros up to a multiple of `WIDTH_STEP`: at other widths bits can depend on the company."""
    short = -heads.shape[-1] % WIDTH_STEP
    return F.pad(heads, (0, short)) if short else heads


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    scale: float,
    softcap: float | None,
    sink: torch.Tensor | None,
) -> torch.Tensor:
    if softcap is None and sink is None:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    scores = (query.float() * scale) @ key.float().transpose(-1, -2)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores + mask
    if sink is not None:  # one more key that all rows see, without a value
        scores = torch.cat([scores, sink.float().expand(*scores.shape[:-1], 1)], -1)
    weights = torch.softmax(scores, -1)[..., : key.shape[-2]]
    return (weights @ value.float()).to(value.dtype)


def _planned(batch: PagedBatch, sizes: tuple[int, ...]) -> _Plan:
    kind = ("tiles", sizes)
    if kind not in batch.plans:
        batch.plans[kind] = _Plan.of(batch, sizes)
    plan: _Plan = batch.plans[kind]
    return plan


@dataclass(frozen=True)
class _Tiles:
    """Tiles of one size: their `rows` [tiles * size], 0 where a place is empty."""

    size: int
    rows: torch.Tensor
    filled: torch.Tensor  # places that hold a query
    filled_rows: torch.Tensor  # and the batch row of each


@dataclass(frozen=True)
class _Band:
    """Tiles `first .. last` of a size (all of one sequence) that read the same `slots` [L], L a multiple of BAND.

    The first `kept` slots are those of the band before, whose keys and values are there already.
    """

    size: int
    first: int
    last: int
    positions: torch.Tensor  # [tiles, size] absolute positions of the queries
    slots: torch.Tensor
    kept: int


@dataclass(frozen=True)
class _Plan:
    """The tiles of a batch, by their sizes, and the bands in which they are read, sequence by sequence.

    `blocks` are those that any sequence has. `most` slots are the longest band's, if any band keeps what the one before
    it has read, and 0 otherwise.
    """

    tiles: tuple[_Tiles, ...]
    bands: tuple[_Band, ...]
    blocks: torch.Tensor
    most: int
    masks: dict[Any, list[torch.Tensor]] = field(default_factory=dict)

    @staticmethod
    def of(batch: PagedBatch, sizes: tuple[int, ...]) -> _Plan:
        """The plan with tiles of `sizes` beside the plain ones."""
        device = batch.write_rows.device
        rows: dict[int, list[torch.Tensor]] = {}  # of each size
        counts: dict[int, int] = defaultdict(int)  # of tiles
        bands: list[_Band] = []
        before = torch.empty(0, dtype=torch.long)
        for sequence in batch.sequences:
            slots = torch.from_numpy(sequence.slots(batch.block_size))
            for size, length, firsts, start, stop in _runs(sequence, sizes):
                positions = torch.tensor(firsts)[:, None] + torch.arange(size)
                row = positions - sequence.start + sequence.row
                others = rows.setdefault(size, [])
                first = counts[size]
                counts[size] += len(firsts)
                others.append(torch.where((positions >= start) & (positions < stop), row, -1))
                padded = F.pad(slots[:length], (0, max(0, length - slots.shape[0])))
                kept = _common(before, padded)
                places = positions.to(device), padded.to(device)
                bands.append(_Band(size, first, first + len(firsts), *places, kept))
                before = padded
        tiles: list[_Tiles] = []
        for size, parts in rows.items():
            flat = torch.cat(parts).flatten()
            filled = (flat >= 0).nonzero().squeeze(1)
            tiles.append(_Tiles(size, flat.clamp(min=0).to(device), filled.to(device), flat[filled].to(device)))
        most = max(band.slots.shape[0] for band in bands) if any(band.kept for band in bands) else 0
        return _Plan(tuple(tiles), tuple(bands), torch.unique(batch.block_table), most)

    def masks_of(self, group: int, window: int | None, dtype: torch.dtype) -> Iterable[torch.Tensor]:
        """Additive masks [tiles, 1, G * size, L] of every band."""
        if sum(band.positions.numel() * group * band.slots.shape[0] for band in self.bands) > KEPT_MASK_ELEMENTS:
            return (_mask(band, group, window, dtype) for band in self.bands)
        kind = (group, window, dtype)
        if kind not in self.masks:
            self.masks[kind] = [_mask(band, group, window, dtype) for band in self.bands]
        return self.masks[kind]


def _runs(sequence: PagedSequence, sizes: tuple[int, ...]) -> Iterator[tuple[int, int, list[int], int, int]]:
    """Tiles of one size in one band: the size, the keys they read, each one's first position, and what is asked there.

    What is asked are positions `start .. stop` of the sequence. A plain tile begins at a multiple of TILE_ROWS, one of
    `sizes` where it is needed: of what is left of a band the largest, then the smallest that holds the rest.
    """
    position, end = sequence.start, sequence.start + sequence.length
    while position < end:
        length = -(-(position + 1) // BAND) * BAND
        stop = min(end, length)
        size, first = next((size for size in sizes if position + size >= stop), max(sizes, default=0)), position
        if size < min(TILE_ROWS, stop - position):
            size, first = TILE_ROWS, position // TILE_ROWS * TILE_ROWS
        if size < stop - first:
            stop -= (stop - first) % size
        yield size, length, list(range(first, stop, size)), position, stop
        position = stop


def _common(one: torch.Tensor, other: torch.Tensor) -> int:
    """How many slots two bands have in common from the beginning on."""
    length = min(len(one), len(other))
    parts = (one[:length] != other[:length]).nonzero()
    return int(parts[0]) if len(parts) else length


def _mask(band: _Band, group: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    query = band.positions[:, :, None]
    key = torch.arange(band.slots.shape[0], device=band.slots.device)
    hidden = key > query
    if window is not None:
        hidden |= key <= query - window
    mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -torch.inf)
    return mask.repeat(1, group, 1).unsqueeze(1)
