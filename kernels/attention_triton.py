"""Attention over a ragged batch and a paged key/value cache in two Triton launches.

Measured on an H200 (bench/results/gpu.md): 64 sequences with 2048 keys 92 µs, a judge's twelve questions behind a
cached prefix 26; prefill of 8 times 2048 takes 1.6 times as long as torch's, at 26 % of the matrix units' rate.

Ladder. Its times are predictions for H100 / H200 (3.35 / 4.8 TB/s, 989 TFLOP/s in bf16, an L2 of about 5.5 TB/s) of one
layer with 28 query heads on 4 KV heads of 128, for three loads: P, the prefill of 8 sequences of 1024 (60 GFLOP: 61
µs); D, a token each of 64 sequences with 2048 keys (268 MB: 80 / 56 µs); S, a token of one sequence with 8192 keys (17
MB: 5 / 3.5 µs).
1. gather each context, matmul, softmax, matmul: a score travels 8 bytes (P: 1.9 GB, 560 / 390 µs alone), and the
   gather makes three of every byte of the cache (D: 240 / 170 µs and 5 launches a sequence);
2. a program for each row and query head that reads the blocks where they are, with a running softmax: no scores in
   memory, but each row and head reads its own keys (P: 60 GB from L2, 11 ms) and no matrix unit is used;
3. tiles of 64 rows that hold all query heads of a KV head: a key is read once for 9 queries. P: 950 MB from L2, 170 µs,
   about 200 µs with the softmax (300 TFLOP/s); D: 256 programs, 100 / 75 µs; S: 4 programs of 4 MB each, 80 µs;
4. contexts cut into splits of 1024 keys, each its own program, merged in order. P and D stay; S: 32 programs, 15 µs;
5. siblings whose blocks agree for a whole split share its tiles (this version): if D is 8 groups of 8 sequences with
   1024 keys in common, 151 MB instead of 268, 60 / 45 µs.

Batch invariance: a row's result is the same bits in any company, because
- one tile shape and one compiled kernel serve prefill and decode: 64 rows is the least that Hopper's matrix unit takes,
  and at 64 FLOP a byte a decode tile's empty rows cost less time than its keys (an H100 does 295 FLOP a byte);
- keys are walked in blocks at fixed absolute positions, and splits lie at fixed absolute positions;
- a block of which a row sees nothing changes nothing: its weights are exact zeros, and it scales by exactly 1 (while
  nothing is seen yet, zeros), so it does not matter which blocks are read for the sake of other rows;
- rows of a matrix product do not mix, and a row meets the same additions whichever row of the tile it has;
- whether a row is merged depends on its own position (and the window) alone.
"""

# mypy: disable-error-code="no-untyped-def"
# (Triton gives the parameters of its functions their types at each call.)

from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from adjudge.kernels.attention_plan import SPLIT_KEYS, attention_plan
from adjudge.kernels.dispatch import capability, launcher, shared_memory
from adjudge.kernels.paged_kv import PagedBatch, PagedKV
from adjudge.kernels.triton_math import tanh

# The interpreter's product of bf16 matrices is garbage: it gets them in float32.
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
MERGED_HEADS = 8


@dataclass(frozen=True)
class Tile:
    """How the kernel is launched: rows of a tile, keys of a block, warps and pipeline stages."""

    rows: int
    keys: int
    warps: int
    stages: int

    @staticmethod
    def of(width: int, group: int, dtype: torch.dtype, device: torch.device) -> "Tile | None":
        """The tile for heads of `width`, `group` of them on a KV head; it must not depend on the batch.

        None where no tile fits into the device's shared memory.
        """
        return Tile._of(width, group, dtype, capability(device), shared_memory(device))

    @staticmethod
    @cache
    def _of(width: int, group: int, dtype: torch.dtype, target: int, memory: int) -> "Tile | None":
        width = max(16, triton.next_power_of_2(width))
        if dtype == torch.float32:  # no matrix units: both operands of a product stand in registers
            rows, keys, warps = 32 if width <= 128 else 16, 32 if width <= 64 else 16, 4 if width <= 64 else 8
        else:
            rows, keys, warps = 64, 64 if width <= 128 else 32, 4 if width <= 128 else 8
        # Three stages: a block is looked up in the first, fetched in the second and used in the third.
        if (heads := triton.next_power_of_2(group)) > rows:  # more of them than registers of four warps hold
            rows, warps = heads, 8
        tiles = (Tile(rows, fewer, warps, 3) for fewer in (keys, keys // 2, keys // 4) if fewer >= 16)
        return next((tile for tile in tiles if tile.shared(width, dtype, target) <= memory), None)

    def shared(self, width: int, dtype: torch.dtype, target: int) -> int:
        """Bytes of shared memory of a program with heads of `width`, as Triton 3.7 was seen to take it."""
        query, block = (count * width * dtype.itemsize for count in (self.rows, 2 * self.keys))
        weights = self.rows * self.keys * dtype.itemsize
        if dtype != torch.float32 and target < 80:
            query, weights = 2 * query, 0
        elif dtype != torch.float32 and target // 10 in (9, 10, 11):  # two blocks on their way, weights in registers
            block, weights = 2 * block, 0
        return query + block + weights + 512 + 16 * self.keys


@launcher
def triton_attention(
    query_THD: Tensor,
    cache: PagedKV,
    batch: PagedBatch,
    *,
    scale: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    split_keys: int = SPLIT_KEYS,
    cascade: bool = True,
) -> Tensor:
    """`paged_attention` ([T, H, D] -> [T, H, Dv]) on CUDA; nothing here waits for the device.

    `split_keys` (a power of two) is part of the result's bits; `cascade` only changes which rows share tiles.
    """
    heads, width = query_THD.shape[1:]
    block_size, kv_heads, value_width = cache.value.shape[1:]
    group = heads // kv_heads
    widths = [max(16, triton.next_power_of_2(wide)) for wide in (width, value_width)]
    tile = Tile.of(max(widths), group, query_THD.dtype, query_THD.device)
    assert tile is not None  # else another back end serves
    unit = min(16, width & -width)
    row_stride, head_stride, stride = query_THD.stride()
    if stride != 1 or row_stride % unit or head_stride % unit:
        query_THD = query_THD.contiguous()
        row_stride, head_stride = heads * width, width

    output = query_THD.new_empty(batch.rows, heads, value_width)
    output[batch.filled :] = 0
    rounds = attention_plan(batch, tile.rows // group, tile.keys, sliding_window, split_keys, cascade)
    for work in rounds:
        # Never empty: a pointer that is None would make another kernel of it, and perhaps other bits.
        partial = query_THD.new_empty(max(1, work.parts), heads, value_width, dtype=torch.float32)
        statistics = query_THD.new_empty(max(1, work.parts), heads, 2, dtype=torch.float32)
        attend_kernel[(work.items.shape[0], kv_heads)](
            query_THD,
            row_stride // unit,
            head_stride // unit,
            cache.key,
            cache.value,
            cache.bad.view(torch.uint8),
            batch.flat_table,
            work.items,
            work.queries,
            output,
            partial,
            statistics,
            width**-0.5 if scale is None else scale,
            softcap,
            sliding_window,
            sinks,
            UNIT=unit,
            WIDTH=width,
            VALUE_WIDTH=value_width,
            WIDTH_BLOCK=widths[0],
            VALUE_BLOCK=widths[1],
            KV_HEADS=kv_heads,
            GROUP=group,
            BLOCK_SIZE=block_size,
            ROWS=tile.rows,
            KEYS=tile.keys,
            SPLIT_KEYS=split_keys,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
        if work.parts:
            merge_kernel[(work.merges.shape[0], triton.cdiv(heads, MERGED_HEADS))](
                work.merges,
                partial,
                statistics,
                output,
                sinks,
                HEADS=heads,
                VALUE_WIDTH=value_width,
                VALUE_BLOCK=widths[1],
                HEAD_BLOCK=MERGED_HEADS,
            )
    return output


# Strides of the query vary with the batch, and so would the kernel if it were compiled for what divides them.
@triton.jit(do_not_specialize=["query_row_stride", "query_head_stride"])
def attend_kernel(
    query,
    query_row_stride,
    query_head_stride,
    key_cache,
    value_cache,
    bad,
    table,
    items,
    queries,
    output,
    partial,
    statistics,
    scale,
    softcap,
    window,
    sinks,
    UNIT: tl.constexpr,
    WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
    VALUE_BLOCK: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    SPLIT_KEYS: tl.constexpr,
):
    """One tile (`program_id(0)`) of one KV head (`program_id(1)`); softcap, window and sinks may be None."""
    item = items + 5 * tl.program_id(0)
    kv_head = tl.program_id(1)
    queries += 3 * tl.load(item)
    count = tl.load(item + 1)
    table += tl.load(item + 2)
    first = tl.load(item + 3)
    end = tl.load(item + 4)

    # A row of the tile is one query head of one query.
    place = tl.arange(0, ROWS) // GROUP
    head = kv_head * GROUP + tl.arange(0, ROWS) % GROUP
    live = place < count
    row = tl.load(queries + 3 * place, mask=live, other=0).to(tl.int64)
    position = tl.load(queries + 3 * place + 1, mask=live, other=-1)
    last = tl.minimum(position, end - 1)
    d = tl.arange(0, WIDTH_BLOCK)
    v = tl.arange(0, VALUE_BLOCK)
    query += (row * query_row_stride + head * query_head_stride) * UNIT
    q = tl.load(query[:, None] + d[None, :], mask=live[:, None] & (d < WIDTH)[None, :], other=0.0)

    peak = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mean = tl.zeros([ROWS, VALUE_BLOCK], tl.float32)  # times the total
    for start in range(first, end, KEYS):
        position_key = start + tl.arange(0, KEYS)
        at = _slots(table, position_key, end, BLOCK_SIZE) * KV_HEADS + kv_head
        keys = _states(key_cache, at, d, WIDTH, WIDTH_BLOCK)
        scores = _dot(q, keys.T, None)
        if softcap is None:  # either way times log2(e): the exponents below are of two
            scores *= scale * 1.4426950408889634
        else:
            scores = tanh(scores * (scale / softcap)) * (softcap * 1.4426950408889634)
        visible = _visible(position_key, position, last, window)
        scores = tl.where(visible, scores, -float("inf"))

        highest = tl.maximum(peak, tl.max(scores, 1))
        shift = tl.where(highest == -float("inf"), 0.0, highest)  # nothing seen yet: no difference of infinities
        weights = tl.exp2(scores - shift[:, None])
        decay = tl.exp2(peak - shift)
        total = total * decay + tl.sum(weights, 1)
        values = _states(value_cache, at, v, VALUE_WIDTH, VALUE_BLOCK)
        mean = _dot(weights.to(values.dtype), values, mean * decay[:, None])
        peak = highest

    # What was not finite is rare: one look at the split's flags, and its rows are sought only if there is one.
    everything = first + tl.arange(0, SPLIT_KEYS)
    flags = tl.load(bad + _slots(table, everything, end, BLOCK_SIZE), mask=everything < end, other=0)
    if tl.max(flags.to(tl.int32), 0) > 0:
        hit = tl.zeros([ROWS], tl.int32)
        for start in range(first, end, KEYS):
            position_key = start + tl.arange(0, KEYS)
            flagged = tl.load(bad + _slots(table, position_key, end, BLOCK_SIZE)).to(tl.int32)
            visible = _visible(position_key, position, last, window)
            hit = tl.maximum(hit, tl.max(tl.where(visible, flagged[None, :], 0), 1))
        total = tl.where(hit > 0, float("nan"), total)

    # Where the results go is read only now, and they are divided last: registers are scarce up to here.
    target = tl.load(queries + 3 * place + 2, mask=live, other=0)
    inside = (v < VALUE_WIDTH)[None, :]
    split = live & (target < 0)
    at = (-1 - target) * (KV_HEADS * GROUP) + head
    tl.store(statistics + 2 * at, peak, mask=split)
    tl.store(statistics + 2 * at + 1, total, mask=split)
    tl.store(partial + (at.to(tl.int64) * VALUE_WIDTH)[:, None] + v[None, :], mean, mask=split[:, None] & inside)
    whole = live & (target >= 0)
    if sinks is not None:
        mean, total = _with_sink(sinks, head, live, peak, total, mean)
    at = target * (KV_HEADS * GROUP) + head
    result = (mean / total[:, None]).to(output.dtype.element_ty)
    tl.store(output + (at.to(tl.int64) * VALUE_WIDTH)[:, None] + v[None, :], result, mask=whole[:, None] & inside)


@triton.jit
def _slots(table, position, end, BLOCK_SIZE: tl.constexpr):
    """Where the keys at `position` are kept; from `end` on block 0, which holds zeros."""
    index = position // BLOCK_SIZE
    block = tl.load(table + index, mask=position < end, other=0)
    return position + (block - index) * BLOCK_SIZE


@triton.jit
def _states(store, at, d, WIDTH: tl.constexpr, WIDTH_BLOCK: tl.constexpr):
    pointers = store + (at.to(tl.int64) * WIDTH)[:, None] + d[None, :]
    if WIDTH == WIDTH_BLOCK:
        return tl.load(pointers)
    else:
        return tl.load(pointers, mask=(d < WIDTH)[None, :], other=0.0)


@triton.jit
def _visible(position_key, position, last, window):
    visible = position_key[None, :] <= last[:, None]
    if window is not None:
        visible &= position_key[None, :] > (position - window)[:, None]
    return visible


@triton.jit
def _dot(a, b, c):
    if INTERPRETED:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, c, input_precision="ieee")


@triton.jit
def _with_sink(sinks, head, live, peak, total, mean):
    """Mean and total of all keys of a row and of its head's sink, which has no value; `peak` times log2(e)."""
    sink = tl.load(sinks + head, mask=live, other=0.0).to(tl.float32) * 1.4426950408889634
    highest = tl.maximum(peak, sink)
    decay = tl.exp2(peak - highest)
    return mean * decay[:, None], total * decay + tl.exp2(sink - highest)


@triton.jit
def merge_kernel(
    merges,
    partial,
    statistics,
    output,
    sinks,
    HEADS: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    VALUE_BLOCK: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
):
    """Add up the splits of one row (`program_id(0)`), some of its heads (`program_id(1)`), first to last.

    A merge of no parts fills up the merges of a `HeldBatch`, and writes nothing.
    """
    merge = merges + 3 * tl.program_id(0)
    row = tl.load(merge).to(tl.int64)
    first = tl.load(merge + 1).to(tl.int64)
    count = tl.load(merge + 2)
    head = tl.program_id(1) * HEAD_BLOCK + tl.arange(0, HEAD_BLOCK)
    v = tl.arange(0, VALUE_BLOCK)
    live = head < tl.where(count > 0, HEADS, 0)  # Triton 3.9's interpreter takes no scalar for a mask
    mask = live[:, None] & (v < VALUE_WIDTH)[None, :]

    peak = tl.full([HEAD_BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([HEAD_BLOCK], tl.float32)
    mean = tl.zeros([HEAD_BLOCK, VALUE_BLOCK], tl.float32)
    for part in range(count):
        place = (first + part) * HEADS + head
        part_peak = tl.load(statistics + 2 * place, mask=live, other=0.0)
        part_total = tl.load(statistics + 2 * place + 1, mask=live, other=1.0)
        part_mean = tl.load(partial + (place * VALUE_WIDTH)[:, None] + v[None, :], mask=mask, other=0.0)
        highest = tl.maximum(peak, part_peak)
        decay = tl.exp2(peak - highest)
        weight = tl.exp2(part_peak - highest)
        total = total * decay + part_total * weight
        mean = mean * decay[:, None] + part_mean * weight[:, None]
        peak = highest
    if sinks is not None:
        mean, total = _with_sink(sinks, head, live, peak, total, mean)
    place = (row * HEADS + head) * VALUE_WIDTH
    tl.store(output + place[:, None] + v[None, :], (mean / total[:, None]).to(output.dtype.element_ty), mask=mask)
