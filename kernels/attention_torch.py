"""Paged attention in torch, for CPUs: tiles of query rows, and one fused call for all tiles that read the same keys.

A tile holds TILE_ROWS consecutive positions of one sequence, from a multiple of TILE_ROWS on, with all query heads of
a KV head in the rows of one matrix. Its keys, from the beginning up to its own positions, are padded to a multiple of
BAND.

Ladder (2 cores, 9 query heads on 3 KV heads of 64, context 1024; GFLOP/s of useful rows)
1. one matmul, softmax, matmul a sequence: 74 to 106, and memory for every score;
2. torch's fused CPU attention, one query tile a call: 116;
3. query heads of one KV head packed into the rows of a tile, all tiles of a KV band in one call: 126;
4. a quarter of a tile where a sequence asks about no more, as in decode: a layer of 16 sequences at
   context 1000, one thread of an AVX-512 EPYC, 12.4 -> 5.6 ms; of one at context 200, 0.23 -> 0.13;
5. keys and values that the band before has gathered stay in their place: twelve texts of 32 tokens after
   550 shared ones, the whole engine, two cores of an AVX-512 Xeon, 4.7 -> 4.1 s; 1,500 tokens of one prompt 2.09 ->
   2.04; one text as before;
6. a single position by itself where that has the same bits (this version): the twelve texts 4.03 -> 3.62 s, one of
   them 2.48 -> 2.43.

Beside plain SDPA, a sequence at a time on gathered keys, whose bits depend on the chunks (one thread,
bench/results/kernels-cpu.csv): 0.91 to 0.99 of its time in prefill and on a judge's batch, 0.24 to 0.40 in decode.
Another day (commit aacc8e8) it lost by 3 to 4 % in prefill and by 1.2 times on a cold judge's batch with 9 heads.

Tried and dropped, each slower on the same machine, one thread:
- shared prefixes cut at multiples of 512 keys, each span read once for all siblings and merged by log-sums: the fused
  calls take 6 % less, merging and copying more than that; 3 to 4 % slower in all on the example pairs and on stories of
  600 tokens. A prefix stays in the processor's cache between siblings as it is;
- sequences that read equally many keys gathered side by side for one call: a decode step of 64 sequences takes 1.6
  (context 1000) to 1.8 times as long (200), and 1.0 to 1.3 times with 2048 keys a call. Keys gathered for one sequence
  are used while they are in the cache; the loop over sequences is not what costs.

Batch invariance: the query at absolute position p sits in tile p // TILE_ROWS at row p % TILE_ROWS, and that tile
always reads its keys padded to the same multiple of BAND: the shapes a query meets depend on its position and on
nothing else. A smaller part of a tile is read alone only where a probe on this machine found the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F

from adjudge.kernels.linear import WIDTH_STEP
from adjudge.kernels.paged_kv import PagedBatch, PagedKV, PagedSequence

TILE_ROWS = 16
FEW_ROWS = (1, 4)
"""Positions of smaller tiles, of which a sequence has the smallest that holds all it asks about."""
BAND = 128
PROBED = 1024
"""Positions of the probe for smaller tiles."""
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
) -> torch.Tensor:
    """`paged_attention` in torch."""
    kv_heads, value_width = cache.value.shape[2:]
    heads, width = query_THD.shape[1:]
    fused = softcap is None and width == value_width and query_THD.device.type == "cpu"
    kind = kv_heads, heads // kv_heads, width, query_THD.dtype, torch.get_num_threads()
    few = tuple(size for size in FEW_ROWS if fused and few_rows_agree(size, *kind))
    return _in_tiles(query_THD, cache, batch, few, scale, sliding_window, softcap)


@cache
def few_rows_agree(size: int, kv_heads: int, group: int, width: int, dtype: torch.dtype, threads: int) -> bool:
    """Whether a probe with random numbers found the bits of a whole tile where `size` of its positions stand alone.

    `threads` are those of the moment. torch reads 512 keys at a time, so contexts of the probe go to 1024.
    """
    generator = torch.Generator().manual_seed(0)
    query_THD, key, value = (
        torch.randn(PROBED, heads, width, generator=generator).to(dtype)
        for heads in (kv_heads * group, kv_heads, kv_heads)
    )
    kv = PagedKV.empty(1, PROBED, key, value)
    kv.key[0], kv.value[0] = key, value
    none = torch.empty(0, dtype=torch.long)

    def read(start: int, count: int, few: tuple[int, ...]) -> torch.Tensor:
        batch = PagedBatch((PagedSequence(0, count, start, [0]),), PROBED, count, none, none)
        return _in_tiles(query_THD[start : start + count], kv, batch, few, width**-0.5, None, None)

    whole = read(0, PROBED, ())
    ends = [end - place for end in range(BAND, PROBED + 1, BAND) for place in range(1, TILE_ROWS + 1)]
    return all(torch.equal(read(place, 1, (size,)), whole[place : place + 1]) for place in ends)


def _in_tiles(
    query_THD: torch.Tensor,
    cache: PagedKV,
    batch: PagedBatch,
    few: tuple[int, ...],
    scale: float,
    sliding_window: int | None,
    softcap: float | None,
) -> torch.Tensor:
    """`torch_attention`, with smaller tiles of the sizes `few`."""
    query_THD = _widened(query_THD)
    heads, width = query_THD.shape[1:]
    kv_heads, value_width = cache.value.shape[2:]
    group = heads // kv_heads
    keys, values = cache.key.flatten(0, 1), cache.value.flatten(0, 1)
    poisoned = bool(cache.bad.any())
    result = query_THD.new_zeros(batch.rows, heads, value_width)
    for tiles in _tiles(batch, few):
        # [tiles, R, KV, G, D] -> [tiles, KV, G * R, D]: one KV head's query heads are rows of one matrix
        query = query_THD.index_select(0, tiles.rows).view(-1, tiles.size, kv_heads, group, width)
        query = query.permute(0, 2, 3, 1, 4).reshape(-1, kv_heads, group * tiles.size, width)
        output = query.new_empty(*query.shape[:-1], value_width)
        gathered = [cached.new_empty(tiles.most, *cached.shape[1:]) for cached in (keys, values)]
        for band, mask in zip(tiles.bands, tiles.masks_of(group, sliding_window, query.dtype), strict=True):
            part = slice(band.first, band.last)
            key, value = (_read(*pair, band) for pair in zip((keys, values), gathered, strict=True))
            output[part] = _attend(query[part], key, value, mask, scale, softcap)[..., :value_width]
            if poisoned:
                seen = (cache.bad.index_select(0, band.slots) & (mask == 0)).any(-1)  # [tiles, 1, G * R]
                output[part].masked_fill_(seen.unsqueeze(-1), torch.nan)
        output = output.view(-1, kv_heads, group, tiles.size, value_width).permute(0, 3, 1, 2, 4)
        flat = output.reshape(-1, heads, value_width)
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
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scale: float, softcap: float | None
) -> torch.Tensor:
    if softcap is None:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    scores = torch.tanh((query * scale) @ key.transpose(-1, -2) / softcap) * softcap
    return torch.softmax(scores.float() + mask, -1).to(value.dtype) @ value


def _tiles(batch: PagedBatch, few: tuple[int, ...]) -> tuple[_Tiles, ...]:
    """The tiles of a batch, those of one size together; a sequence within one of the sizes `few` has a small one."""
    kind = ("tiles", few)
    if kind not in batch.plans:
        sized: dict[int, list[PagedSequence]] = {}
        for sequence in batch.sequences:
            first, last = sequence.start, sequence.start + sequence.length - 1
            size = next((size for size in few if first // size == last // size), TILE_ROWS)
            sized.setdefault(size, []).append(sequence)
        batch.plans[kind] = tuple(_Tiles.plan(batch, part, size) for size, part in sized.items())
    tiles: tuple[_Tiles, ...] = batch.plans[kind]
    return tiles


@dataclass(frozen=True)
class _Band:
    """Tiles `first .. last` (of one sequence) that read the same `slots` [L], L a multiple of BAND.

    The first `kept` slots are those of the band before, whose keys and values are there already.
    """

    first: int
    last: int
    positions: torch.Tensor  # [tiles, size] absolute positions of the queries
    slots: torch.Tensor
    kept: int


@dataclass(frozen=True)
class _Tiles:
    """Query tiles of one size at absolute positions: `rows` [tiles * size], 0 where a place is empty; their bands.

    `most` slots are the longest band's, if any band keeps what the one before it has read, and 0 otherwise.
    """

    size: int
    rows: torch.Tensor
    filled: torch.Tensor  # places that hold a query
    filled_rows: torch.Tensor  # and the batch row of each
    bands: tuple[_Band, ...]
    most: int
    masks: dict[Any, list[torch.Tensor]] = field(default_factory=dict)

    @staticmethod
    def plan(batch: PagedBatch, sequences: Sequence[PagedSequence], size: int) -> _Tiles:
        rows: list[torch.Tensor] = []
        bands: list[_Band] = []
        count = 0
        device = batch.write_rows.device
        before = torch.empty(0, dtype=torch.long)
        for sequence in sequences:
            end = sequence.start + sequence.length
            first, last = sequence.start // size, -(-end // size)
            positions = torch.arange(first * size, last * size)
            row = positions - sequence.start + sequence.row
            rows.append(torch.where((positions >= sequence.start) & (positions < end), row, -1))
            slots = _slots(sequence, batch.block_size)
            tile = first
            while tile < last:
                length = -(-(tile + 1) * size // BAND) * BAND
                stop = min(last, length // size)
                part = positions[(tile - first) * size : (stop - first) * size].view(-1, size)
                padded = F.pad(slots[:length], (0, max(0, length - slots.shape[0])))
                kept = _common(before, padded)
                bands.append(_Band(count, count + stop - tile, part.to(device), padded.to(device), kept))
                before = padded
                count += stop - tile
                tile = stop
        flat = torch.cat(rows)
        filled = (flat >= 0).nonzero().squeeze(1)
        places = flat.clamp(min=0).to(device), filled.to(device), flat[filled].to(device)
        most = max(band.slots.shape[0] for band in bands) if any(band.kept for band in bands) else 0
        return _Tiles(size, *places, tuple(bands), most)

    def masks_of(self, group: int, window: int | None, dtype: torch.dtype) -> Iterable[torch.Tensor]:
        """Additive masks [tiles, 1, G * size, L] of every band."""
        if sum(band.positions.numel() * group * band.slots.shape[0] for band in self.bands) > KEPT_MASK_ELEMENTS:
            return (_mask(band, group, window, dtype) for band in self.bands)
        kind = (group, window, dtype)
        if kind not in self.masks:
            self.masks[kind] = [_mask(band, group, window, dtype) for band in self.bands]
        return self.masks[kind]


def _common(one: torch.Tensor, other: torch.Tensor) -> int:
    """How many slots two bands have in common from the beginning on."""
    length = min(len(one), len(other))
    parts = (one[:length] != other[:length]).nonzero()
    return int(parts[0]) if len(parts) else length


def _slots(sequence: PagedSequence, block_size: int) -> torch.Tensor:
    """Slots of positions 0 .. end of the sequence."""
    blocks = torch.as_tensor(sequence.blocks, dtype=torch.long)
    slots = (blocks[:, None] * block_size + torch.arange(block_size)).flatten()
    return slots[: sequence.start + sequence.length]


def _mask(band: _Band, group: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    query = band.positions[:, :, None]
    key = torch.arange(band.slots.shape[0], device=band.slots.device)
    hidden = key > query
    if window is not None:
        hidden |= key <= query - window
    mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -torch.inf)
    return mask.repeat(1, group, 1).unsqueeze(1)
