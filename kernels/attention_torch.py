"""Paged attention in torch, for CPUs: tiles of query rows, and one fused call for all tiles that read the same keys.

A tile holds TILE_ROWS consecutive positions of one sequence, with all query heads of a KV head in the rows of one
matrix. Its keys, from the beginning up to its own positions, are padded to a multiple of BAND.

Ladder (2 cores, 9 query heads on 3 KV heads of 64, context 1024; GFLOP/s of useful rows)
1. one matmul, softmax, matmul a sequence: 74 to 106, and memory for every score;
2. torch's fused CPU attention, one query tile a call: 116;
3. query heads of one KV head packed into the rows of a tile, all tiles of a KV band in one call: 126;
4. bands with a single tile (decoding, short suffixes) side by side in one call, not one by one (this version).
Tried and dropped: shared prefixes cut at multiples of 512 keys, each read once for all siblings and merged by log-sums.
Its calls spend 6 % less in attention, its merges and copies cost more than that: 3 to 4 % slower in all on the example
pairs and on stories of 600 tokens. Whole prefixes stay in the processor's cache between siblings as it is.

Batch invariance: the query at absolute position p always sits in row p % TILE_ROWS of its tile, and its tile always
reads its keys padded to the same multiple of BAND: the shapes a query meets depend on its position and on nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from adjudge.kernels.paged_kv import PagedBatch, PagedKV, PagedSequence

TILE_ROWS = 16
BAND = 128
SIDE_BY_SIDE_KEYS = 1 << 14
"""Keys of single tiles that are gathered for one call."""
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
    if "tiles" not in batch.plans:
        batch.plans["tiles"] = _Plan.of(batch)
    plan: _Plan = batch.plans["tiles"]
    heads, width = query_THD.shape[1:]
    kv_heads, value_width = cache.value.shape[2:]
    group = heads // kv_heads
    # [tiles, TILE_ROWS, KV, G, D] -> [tiles, KV, G * TILE_ROWS, D]: one KV head's query heads are rows of one matrix
    query = query_THD.index_select(0, plan.rows).view(-1, TILE_ROWS, kv_heads, group, width)
    query = query.permute(0, 2, 3, 1, 4).reshape(-1, kv_heads, group * TILE_ROWS, width)
    keys, values = cache.key.flatten(0, 1), cache.value.flatten(0, 1)
    poisoned = bool(cache.bad.any())
    output = query.new_empty(*query.shape[:-1], value_width)
    for part, mask in zip(plan.parts, _masks(batch, plan, group, sliding_window, query.dtype), strict=True):
        key, value = (part.gather(cached) for cached in (keys, values))
        output[part.tiles] = _attend(query[part.tiles], key, value, mask, scale, softcap)
        if poisoned:
            seen = (cache.bad[part.slots][:, None, None] & (mask == 0)).any(-1)  # [tiles, 1, G * TILE_ROWS]
            output[part.tiles] = output[part.tiles].masked_fill(seen.unsqueeze(-1), torch.nan)
    output = output.view(-1, kv_heads, group, TILE_ROWS, value_width).permute(0, 3, 1, 2, 4)
    flat = output.reshape(-1, heads, value_width)
    result = flat.new_zeros(batch.rows, heads, value_width)
    return result.index_copy_(0, plan.filled_rows, flat.index_select(0, plan.filled))


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scale: float, softcap: float | None
) -> torch.Tensor:
    if softcap is None:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    scores = torch.tanh((query * scale) @ key.transpose(-1, -2) / softcap) * softcap
    return torch.softmax(scores.float() + mask, -1).to(value.dtype) @ value


@dataclass(frozen=True)
class _Part:
    """Tiles of one call, at `positions` [tiles, TILE_ROWS]: they read `slots` [1, L], or [tiles, L] each its own."""

    tiles: slice | torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor

    def gather(self, cached: torch.Tensor) -> torch.Tensor:
        """Keys or values [tiles, KV, L, D] out of [slots, KV, D]."""
        states = cached.index_select(0, self.slots.flatten()).view(*self.slots.shape, *cached.shape[1:])
        return states.transpose(1, 2).expand(len(self.positions), -1, -1, -1)

    def mask(self, group: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
        """What is added to the scores: [tiles, 1, G * TILE_ROWS, L]."""
        query = self.positions[:, :, None]
        key = torch.arange(self.slots.shape[1], device=self.slots.device)
        hidden = key > query
        if window is not None:
            hidden |= key <= query - window
        mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -torch.inf)
        return mask.repeat(1, group, 1).unsqueeze(1)


@dataclass(frozen=True)
class _Plan:
    """Query tiles at absolute positions, made once for all layers: `rows` [tiles * TILE_ROWS] (0 where a place is
    empty), the places `filled` and the batch row of each, and the calls."""

    rows: torch.Tensor
    filled: torch.Tensor
    filled_rows: torch.Tensor
    parts: list[_Part]

    @staticmethod
    def of(batch: PagedBatch) -> _Plan:
        rows: list[torch.Tensor] = []
        parts: list[_Part] = []
        singles: dict[Hashable, list[tuple[int, torch.Tensor, torch.Tensor]]] = {}
        count = 0
        device = batch.device
        for sequence in batch.sequences:
            end = sequence.start + sequence.length
            first, last = sequence.start // TILE_ROWS, -(-end // TILE_ROWS)
            positions = torch.arange(first * TILE_ROWS, last * TILE_ROWS)
            row = positions - sequence.start + sequence.row
            rows.append(torch.where((positions >= sequence.start) & (positions < end), row, -1))
            slots = _slots(sequence, batch.block_size)
            tile = first
            while tile < last:
                length = -(-(tile + 1) * TILE_ROWS // BAND) * BAND
                stop = min(last, length // TILE_ROWS)
                part = positions[(tile - first) * TILE_ROWS : (stop - first) * TILE_ROWS].view(-1, TILE_ROWS)
                padded = F.pad(slots[:length], (0, max(0, length - slots.shape[0])))
                if stop - tile == 1:
                    singles.setdefault(length, []).append((count, part, padded))
                else:
                    tiles = slice(count, count + stop - tile)
                    parts.append(_Part(tiles, part.to(device), padded[None].to(device)))
                count += stop - tile
                tile = stop
        parts += [part for same in singles.values() for part in _side_by_side(same, device)]
        flat = torch.cat(rows) if rows else torch.empty(0, dtype=torch.long)
        filled = (flat >= 0).nonzero().squeeze(1)
        return _Plan(flat.clamp(min=0).to(device), filled.to(device), flat[filled].to(device), parts)


def _side_by_side(singles: list[tuple[int, torch.Tensor, torch.Tensor]], device: torch.device) -> Iterator[_Part]:
    """Single tiles (number, positions, slots) that read equally many keys, as many a call as the keys allow."""
    at_once = max(1, SIDE_BY_SIDE_KEYS // singles[0][2].shape[0])
    for start in range(0, len(singles), at_once):
        numbers, positions, slots = zip(*singles[start : start + at_once], strict=True)
        tiles = torch.tensor(numbers, device=device)
        yield _Part(tiles, torch.cat(positions).to(device), torch.stack(slots).to(device))


def _slots(sequence: PagedSequence, block_size: int) -> torch.Tensor:
    """Slots of positions 0 .. end of the sequence."""
    blocks = torch.as_tensor(sequence.blocks, dtype=torch.long)
    slots = (blocks[:, None] * block_size + torch.arange(block_size)).flatten()
    return slots[: sequence.start + sequence.length]


def _masks(
    batch: PagedBatch, plan: _Plan, group: int, window: int | None, dtype: torch.dtype
) -> Iterator[torch.Tensor]:
    """The mask of every part."""
    if sum(part.positions.numel() * group * part.slots.shape[1] for part in plan.parts) > KEPT_MASK_ELEMENTS:
        return (part.mask(group, window, dtype) for part in plan.parts)
    kind = ("masks", group, window, dtype)
    if kind not in batch.plans:
        batch.plans[kind] = [part.mask(group, window, dtype) for part in plan.parts]
    return iter(batch.plans[kind])
