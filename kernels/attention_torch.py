"""Paged attention in torch, for CPUs: tiles of query rows against spans of keys, many tiles a call.

A tile holds TILE_ROWS consecutive positions of one sequence, with all query heads of a KV head in the rows of one
matrix. Its context is cut at multiples of SPAN; each span is read by one call of torch's fused CPU attention, and the
spans' outputs are put together in order by their log-sums. Sequences that share the blocks of a whole span (siblings
after a long prefix) read it once, in one call; spans that few tiles read are gathered side by side, so that many short
sequences are one call too.

Ladder (2 cores, 9 query heads on 3 KV heads of 64; GFLOP/s of useful rows at context 1024)
1. one matmul, softmax, matmul a sequence: 74 to 106, and memory for every score;
2. torch's fused CPU attention, one query tile a call: 116;
3. query heads of one KV head packed into the rows of a tile, all tiles of a KV band in one call: 126;
4. spans, shared ones read once, short sequences side by side (this version): see `adjudge bench kernels`.

Batch invariance: position p always sits in row p % TILE_ROWS of its tile, spans begin at fixed positions, and the last
one is padded to a multiple of STEP that depends on the tile's position: the shapes a query meets depend on its position
and on nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import torch

from adjudge.kernels.paged_kv import PagedBatch, PagedKV, PagedSequence

TILE_ROWS = 16
SPAN = 512
STEP = 128
SHARED_BY = 4
"""Tiles that must read the same keys for them to have a call of their own, which spares copies of the keys."""
KEPT_MASK_ELEMENTS = 1 << 26
"""A step's masks are made once for all layers up to this size, and anew in every layer beyond it (long contexts)."""
MERGED_AT_ONCE = 1 << 15
"""Up to here torch works through a tensor in one piece; where it cuts, exp may round the last of a piece otherwise."""


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
    plan = _plan(batch, sliding_window)
    heads, width = query_THD.shape[1:]
    kv_heads, value_width = cache.value.shape[2:]
    group = heads // kv_heads
    # [tiles, TILE_ROWS, KV, G, D] -> [tiles, KV, G * TILE_ROWS, D]: one KV head's query heads are rows of one matrix
    query = query_THD.index_select(0, plan.rows).view(-1, TILE_ROWS, kv_heads, group, width)
    query = query.permute(0, 2, 3, 1, 4).reshape(-1, kv_heads, group * TILE_ROWS, width)
    keys, values = cache.key.flatten(0, 1), cache.value.flatten(0, 1)
    output = query.new_empty(*query.shape[:-1], value_width, dtype=torch.float32)
    log_sum = query.new_empty(query.shape[:-1], dtype=torch.float32)
    seen_bad = torch.zeros_like(log_sum, dtype=torch.bool) if cache.bad.any() else None
    for part, mask in zip(plan.parts, _masks(batch, plan, group, sliding_window, query.dtype), strict=True):
        key, value = (part.gather(cached) for cached in (keys, values))
        out, log = _attend(query[part.tiles], key, value, mask, scale, softcap)
        if sliding_window is not None and mask is not None:
            log = log.masked_fill(mask.amax(-1) == -torch.inf, -torch.inf)  # torch says 0 where a query sees no key
        if part.first:
            output[part.tiles], log_sum[part.tiles] = out.float(), log
        else:
            _merge(output, log_sum, part.tiles, out, log, blind=sliding_window is not None)
        if seen_bad is not None:
            bad = cache.bad[part.slots]
            if mask is None:
                seen = bad.any(-1)[..., None, None]
            else:
                seen = (bad.view(-1, 1, 1, bad.shape[-1]) & (mask == 0)).any(-1)
            seen_bad[part.tiles] |= seen
    if seen_bad is not None:
        output.masked_fill_(seen_bad.unsqueeze(-1), torch.nan)
    output = output.to(query.dtype).view(-1, kv_heads, group, TILE_ROWS, value_width).permute(0, 3, 1, 2, 4)
    flat = output.reshape(-1, heads, value_width)
    result = flat.new_zeros(batch.rows, heads, value_width)
    return result.index_copy_(0, plan.filled_rows, flat.index_select(0, plan.filled))


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    softcap: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention [tiles, KV, R, Dv] of query [tiles, KV, R, D] over key, value [tiles, KV, L, ·], and its log-sums."""
    if softcap is None and key.shape[-1] == value.shape[-1]:
        output, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, attn_mask=mask, scale=scale
        )
        return output, log_sum
    scores = (query @ key.transpose(-1, -2)).float() * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is not None:
        scores = scores + mask
    log_sum = scores.logsumexp(-1)
    return (scores - log_sum.unsqueeze(-1)).exp().to(value.dtype) @ value, log_sum


def _merge(
    output: torch.Tensor,
    log_sum: torch.Tensor,
    tiles: torch.Tensor,
    more: torch.Tensor,
    more_log: torch.Tensor,
    blind: bool,
) -> None:
    """Put a later span's attention together with that of the spans before it; if `blind`, rows may see none of one."""
    at_once = max(1, MERGED_AT_ONCE // log_sum[0].numel())
    for start in range(0, len(tiles), at_once):
        some = tiles[start : start + at_once]
        out, next_out = output[some], more[start : start + at_once]
        log, next_log = log_sum[some], more_log[start : start + at_once].contiguous()
        peak = torch.maximum(log, next_log)
        weight, next_weight = torch.exp(log - peak), torch.exp(next_log - peak)
        if blind:
            out, next_out = (
                states.masked_fill((seen == 0).unsqueeze(-1), 0)
                for states, seen in ((out, weight), (next_out, next_weight))
            )
        total = weight + next_weight
        out = out * (weight / total).unsqueeze(-1) + next_out * (next_weight / total).unsqueeze(-1)
        output[some] = out
        log_sum[some] = peak + torch.log(total)


@dataclass(frozen=True)
class _Part:
    """`tiles` [n] that read one span of keys each: `slots` [L], the same for all, or [n, L].

    `positions` [n, TILE_ROWS] of their queries; `start`, the position of the first key; whether some key is hidden from
    some query (`masked`); whether it is their `first` span.
    """

    tiles: torch.Tensor
    slots: torch.Tensor
    positions: torch.Tensor
    start: int
    masked: bool
    first: bool

    def gather(self, cached: torch.Tensor) -> torch.Tensor:
        """Keys or values [n, KV, L, D] of the span, out of [slots, KV, D]."""
        if self.slots.dim() == 1:
            states = cached.index_select(0, self.slots).transpose(0, 1)
            return states.unsqueeze(0).expand(len(self.tiles), -1, -1, -1)
        return cached.index_select(0, self.slots.flatten()).view(*self.slots.shape, *cached.shape[1:]).transpose(1, 2)

    def mask(self, group: int, window: int | None, dtype: torch.dtype) -> torch.Tensor | None:
        """What is added to the scores: [n, 1, G * TILE_ROWS, L], or None where every query sees every key."""
        if not self.masked:
            return None
        query = self.positions[:, :, None]
        key = self.start + torch.arange(self.slots.shape[-1], device=self.slots.device)
        hidden = key > query
        if window is not None:
            hidden |= key <= query - window
        mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -torch.inf)
        return mask.repeat(1, group, 1).unsqueeze(1)


@dataclass(frozen=True)
class _Plan:
    """Query tiles: `rows` [tiles * TILE_ROWS] (0 where a place is empty), the places `filled` and the batch row of
    each, and the parts in the order in which they are put together."""

    rows: torch.Tensor
    filled: torch.Tensor
    filled_rows: torch.Tensor
    parts: list[_Part]


@dataclass(frozen=True)
class _Reader:
    """A tile that reads the keys of positions start .. start + length of its sequence."""

    tile: int
    first_position: int
    sequence: int
    start: int
    length: int
    masked: bool
    first: bool


def _plan(batch: PagedBatch, window: int | None) -> _Plan:
    kind = ("plan", window)
    if kind not in batch.plans:
        batch.plans[kind] = _make_plan(batch, window)
    plan: _Plan = batch.plans[kind]
    return plan


def _make_plan(batch: PagedBatch, window: int | None) -> _Plan:
    rows: list[torch.Tensor] = []
    levels: list[dict[Hashable, list[_Reader]]] = []
    tiles = 0
    for index, sequence in enumerate(batch.sequences):
        end = sequence.start + sequence.length
        first, last = sequence.start // TILE_ROWS, -(-end // TILE_ROWS)
        positions = torch.arange(first * TILE_ROWS, last * TILE_ROWS)
        row = positions - sequence.start + sequence.row
        rows.append(torch.where((positions >= sequence.start) & (positions < end), row, -1))
        for position in range(first * TILE_ROWS, last * TILE_ROWS, TILE_ROWS):
            for level, reader in enumerate(_spans(tiles, position, index, window)):
                if level == len(levels):
                    levels.append({})
                stop = min(end, reader.start + reader.length)
                blocks = sequence.blocks[reader.start // batch.block_size : -(-stop // batch.block_size)]
                keys = (*blocks, reader.start, stop, reader.length, reader.masked, reader.first)
                levels[level].setdefault(keys, []).append(reader)
            tiles += 1
    slots = [_slots(sequence, batch.block_size) for sequence in batch.sequences]
    parts = [part for units in levels for part in _parts(units, slots, batch.device)]
    flat = torch.cat(rows) if rows else torch.empty(0, dtype=torch.long)
    filled = (flat >= 0).nonzero().squeeze(1)
    device = batch.device
    return _Plan(flat.clamp(min=0).to(device), filled.to(device), flat[filled].to(device), parts)


def _spans(tile: int, position: int, sequence: int, window: int | None) -> Iterator[_Reader]:
    """The spans that a tile at `position` reads: whole ones before its own, and its own up to the tile."""
    own = position // SPAN * SPAN
    earliest = 0 if window is None else max(0, position - window + 1) // SPAN * SPAN  # spans before it are out of sight
    for start in range(earliest, own, SPAN):
        # The last query of the tile has the narrowest view of what lies behind.
        masked = window is not None and start <= position + TILE_ROWS - 1 - window
        yield _Reader(tile, position, sequence, start, SPAN, masked, start == earliest)
    length = -(-(position + TILE_ROWS - own) // STEP) * STEP
    yield _Reader(tile, position, sequence, own, length, True, own == earliest)


def _parts(units: dict[Hashable, list[_Reader]], slots: list[torch.Tensor], device: torch.device) -> Iterator[_Part]:
    """Units of readers of the same keys: large ones by themselves, small ones of equal shape together."""
    side_by_side: dict[Hashable, list[_Reader]] = {}
    for readers in units.values():
        one = readers[0]
        if len(readers) >= SHARED_BY:
            yield _part(readers, _span(slots[one.sequence], one), device)
        else:
            side_by_side.setdefault((one.start, one.length, one.masked, one.first), []).extend(readers)
    for readers in side_by_side.values():
        yield _part(readers, torch.stack([_span(slots[reader.sequence], reader) for reader in readers]), device)


def _part(readers: list[_Reader], slots: torch.Tensor, device: torch.device) -> _Part:
    tiles = torch.tensor([reader.tile for reader in readers])
    positions = torch.tensor([reader.first_position for reader in readers])[:, None] + torch.arange(TILE_ROWS)
    one = readers[0]
    return _Part(tiles.to(device), slots.to(device), positions.to(device), one.start, one.masked, one.first)


def _slots(sequence: PagedSequence, block_size: int) -> torch.Tensor:
    """Slots of positions 0 .. end of the sequence, and zeros (the padding's) to the end of its last span."""
    blocks = torch.as_tensor(sequence.blocks, dtype=torch.long)
    slots = (blocks[:, None] * block_size + torch.arange(block_size)).flatten()
    end = sequence.start + sequence.length
    padded = torch.zeros(-(-end // SPAN) * SPAN, dtype=torch.long)
    padded[:end] = slots[:end]
    return padded


def _span(slots: torch.Tensor, reader: _Reader) -> torch.Tensor:
    return slots[reader.start : reader.start + reader.length]


def _masks(
    batch: PagedBatch, plan: _Plan, group: int, window: int | None, dtype: torch.dtype
) -> Iterator[torch.Tensor | None]:
    """The mask of every part."""
    elements = sum(part.positions.numel() * group * part.slots.shape[-1] for part in plan.parts if part.masked)
    if elements > KEPT_MASK_ELEMENTS:
        return (part.mask(group, window, dtype) for part in plan.parts)
    kind = ("masks", group, window, dtype)
    if kind not in batch.plans:
        batch.plans[kind] = [part.mask(group, window, dtype) for part in plan.parts]
    return iter(batch.plans[kind])
