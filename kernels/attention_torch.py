"""Paged attention in torch, for CPUs: tiles of query rows, and one fused call for all tiles that read the same keys.

A tile holds TILE_ROWS consecutive positions of one sequence, or FEW_ROWS where it asks about no more, with all query
heads of a KV head in the rows of one matrix. Its keys, from the beginning up to its own positions, are padded to a
multiple of BAND.

Ladder (2 cores, 9 query heads on 3 KV heads of 64, context 1024; GFLOP/s of useful rows)
1. one matmul, softmax, matmul a sequence: 74 to 106, and memory for every score;
2. torch's fused CPU attention, one query tile a call: 116;
3. query heads of one KV head packed into the rows of a tile, all tiles of a KV band in one call: 126;
4. tiles of 4 positions where a sequence asks about one (this version): a layer's decode step of 16 sequences, context
   1000, one thread of an AVX-512 EPYC, 12.4 -> 5.6 ms; of one sequence, context 200, 0.23 -> 0.13.

Where it loses (bench/results/kernels-cpu.csv, one thread): plain SDPA, a sequence at a time on gathered keys, is 3 to
4 % faster in prefill and 1.2 times as fast on a cold judge's batch with 9 heads; its bits depend on the chunks.

Tried and dropped, each slower on the same machine, one thread:
- shared prefixes cut at multiples of 512 keys, each span read once for all siblings and merged by log-sums: the fused
  calls take 6 % less, merging and copying more than that; 3 to 4 % slower in all on the example pairs and on stories of
  600 tokens. A prefix stays in the processor's cache between siblings as it is;
- sequences that read equally many keys gathered side by side for one call: a decode step of 64 sequences takes 1.6
  (context 1000) to 1.8 times as long (200), and 1.0 to 1.3 times with 2048 keys a call. Keys gathered for one sequence
  are used while they are in the cache; the loop over sequences is not what costs.

Batch invariance: the query at absolute position p always sits in tile p // TILE_ROWS at row p % TILE_ROWS, and that
tile always reads its keys padded to the same multiple of BAND: the shapes a query meets depend on its position and on
nothing else. Tiles of FEW_ROWS, cut from those, are used where a probe on this machine found the same bits in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch.nn import functional as F

from adjudge.kernels.paged_kv import PagedBatch, PagedKV, PagedSequence

TILE_ROWS = 16
FEW_ROWS = 4
"""Positions of the tile of a sequence that asks about few, as all do that are being written."""
BAND = 128
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
    heads, width = query_THD.shape[1:]
    kv_heads, value_width = cache.value.shape[2:]
    group = heads // kv_heads
    keys, values = cache.key.flatten(0, 1), cache.value.flatten(0, 1)
    poisoned = bool(cache.bad.any())
    result = query_THD.new_zeros(batch.rows, heads, value_width)
    few = few_rows_agree(
        kv_heads, group, width, value_width, query_THD.dtype, softcap is not None, torch.get_num_threads()
    )
    for tiles in _tiles(batch, few):
        # [tiles, R, KV, G, D] -> [tiles, KV, G * R, D]: one KV head's query heads are rows of one matrix
        query = query_THD.index_select(0, tiles.rows).view(-1, tiles.size, kv_heads, group, width)
        query = query.permute(0, 2, 3, 1, 4).reshape(-1, kv_heads, group * tiles.size, width)
        output = query.new_empty(*query.shape[:-1], value_width)
        masks = _masks(batch, tiles, group, sliding_window, query.dtype)
        for band, mask in zip(tiles.bands, masks, strict=True):
            part = slice(band.first, band.last)
            key, value = (
                cached.index_select(0, band.slots)
                .transpose(0, 1)
                .unsqueeze(0)
                .expand(band.last - band.first, -1, -1, -1)
                for cached in (keys, values)
            )
            output[part] = _attend(query[part], key, value, mask, scale, softcap)
            if poisoned:
                seen = (cache.bad.index_select(0, band.slots) & (mask == 0)).any(-1)  # [tiles, 1, G * R]
                output[part].masked_fill_(seen.unsqueeze(-1), torch.nan)
        output = output.view(-1, kv_heads, group, tiles.size, value_width).permute(0, 3, 1, 2, 4)
        flat = output.reshape(-1, heads, value_width)
        result.index_copy_(0, tiles.filled_rows, flat.index_select(0, tiles.filled))
    return result


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scale: float, softcap: float | None
) -> torch.Tensor:
    if softcap is None:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    scores = torch.tanh((query * scale) @ key.transpose(-1, -2) / softcap) * softcap
    return torch.softmax(scores.float() + mask, -1).to(value.dtype) @ value


@cache
def few_rows_agree(
    kv_heads: int, group: int, width: int, value_width: int, dtype: torch.dtype, softcap: bool, threads: int
) -> bool:
    """Whether a probe with random numbers found the bits of a tile of TILE_ROWS in tiles of FEW_ROWS.

    `threads` are those of the moment. Contexts beyond the first 512 keys are read 512 at a time, so those of the probe
    end in every way there is.
    """
    generator = torch.Generator().manual_seed(0)

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Of queries [2, KV, G, R, D]."""
        mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf).repeat(group, 1)
        output = _attend(query.flatten(2, 3), key, value, mask, width**-0.5, 30.0 if softcap else None)
        return output.view(*query.shape[:-1], value_width)

    for length in range(BAND, 6 * BAND, BAND):
        query, key, value = (
            torch.randn(*shape, generator=generator).to(dtype)
            for shape in (
                (2, kv_heads, group, TILE_ROWS, width),
                (2, kv_heads, length, width),
                (2, kv_heads, length, value_width),
            )
        )
        hidden = torch.arange(length) > torch.arange(length - TILE_ROWS, length)[:, None]
        whole = attend(query, key, value, hidden)
        for start in range(0, TILE_ROWS, FEW_ROWS):
            rows = slice(start, start + FEW_ROWS)
            if not torch.equal(attend(query[..., rows, :], key, value, hidden[rows]), whole[..., rows, :]):
                return False
    return True


def _tiles(batch: PagedBatch, few: bool) -> tuple[_Tiles, ...]:
    """The tiles of a batch, `few` in two sizes; those of either size together."""
    kind = ("tiles", few)
    if kind not in batch.plans:
        small = [sequence for sequence in batch.sequences if few and _few(sequence)]
        large = [sequence for sequence in batch.sequences if not (few and _few(sequence))]
        sizes = ((FEW_ROWS, small), (TILE_ROWS, large))
        batch.plans[kind] = tuple(_Tiles.plan(batch, part, size) for size, part in sizes if part)
    tiles: tuple[_Tiles, ...] = batch.plans[kind]
    return tiles


def _few(sequence: PagedSequence) -> bool:
    """Whether all that is asked about lies in one tile of FEW_ROWS."""
    return sequence.start // FEW_ROWS == (sequence.start + sequence.length - 1) // FEW_ROWS


@dataclass(frozen=True)
class _Band:
    """Tiles `first .. last` (of one sequence) that read the same `slots` [L], L a multiple of BAND."""

    first: int
    last: int
    positions: torch.Tensor  # [tiles, size] absolute positions of the queries
    slots: torch.Tensor


@dataclass(frozen=True)
class _Tiles:
    """Query tiles of one size at absolute positions: `rows` [tiles * size], 0 where a place is empty; their bands."""

    size: int
    rows: torch.Tensor
    filled: torch.Tensor  # places that hold a query
    filled_rows: torch.Tensor  # and the batch row of each
    bands: tuple[_Band, ...]

    @staticmethod
    def plan(batch: PagedBatch, sequences: Sequence[PagedSequence], size: int) -> _Tiles:
        rows: list[torch.Tensor] = []
        bands: list[_Band] = []
        count = 0
        device = batch.write_rows.device
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
                bands.append(_Band(count, count + stop - tile, part.to(device), padded.to(device)))
                count += stop - tile
                tile = stop
        flat = torch.cat(rows)
        filled = (flat >= 0).nonzero().squeeze(1)
        return _Tiles(size, flat.clamp(min=0).to(device), filled.to(device), flat[filled].to(device), tuple(bands))


def _slots(sequence: PagedSequence, block_size: int) -> torch.Tensor:
    """Slots of positions 0 .. end of the sequence."""
    blocks = torch.as_tensor(sequence.blocks, dtype=torch.long)
    slots = (blocks[:, None] * block_size + torch.arange(block_size)).flatten()
    return slots[: sequence.start + sequence.length]


def _masks(
    batch: PagedBatch, tiles: _Tiles, group: int, window: int | None, dtype: torch.dtype
) -> Iterable[torch.Tensor]:
    """Additive masks [tiles, 1, G * size, L] of every band."""
    bands = tiles.bands
    if sum(band.positions.numel() * group * band.slots.shape[0] for band in bands) > KEPT_MASK_ELEMENTS:
        return (_mask(band, group, window, dtype) for band in bands)
    kind = ("masks", tiles.size, group, window, dtype)
    if kind not in batch.plans:
        batch.plans[kind] = [_mask(band, group, window, dtype) for band in bands]
    masks: list[torch.Tensor] = batch.plans[kind]
    return masks


def _mask(band: _Band, group: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    query = band.positions[:, :, None]
    key = torch.arange(band.slots.shape[0], device=band.slots.device)
    hidden = key > query
    if window is not None:
        hidden |= key <= query - window
    mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -torch.inf)
    return mask.repeat(1, group, 1).unsqueeze(1)
