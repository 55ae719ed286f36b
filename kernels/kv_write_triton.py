"""Keys and values into the paged cache in one Triton launch.

Ladder, for 8192 rows of 8 KV heads of 128 in bf16 (34 MB read and 34 MB written: 20 µs on an H100, 14 µs on an H200;
all predicted):
1. torch: finiteness of both, a gather and a scatter of each, flags: 8 launches that move 4 to 5 times the bytes, about
   100 / 70 µs, or 30 µs of launches alone for a decode step;
2. a program for each written row (this version): reads the row, and again from L1 once it is known to be finite, and
   writes it: about 25 / 18 µs, and one launch of 3 µs for a decode step.
"""

# mypy: disable-error-code="no-untyped-def"
# (Triton gives the parameters of its functions their types at each call.)

import torch
import triton
import triton.language as tl
from torch import Tensor

from adjudge.kernels.dispatch import launcher
from adjudge.kernels.paged_kv import PagedBatch, PagedKV

ELEMENTS = 2048
"""How many numbers a program holds at a time, about."""


@launcher
def triton_write_kv(key_THD: Tensor, value_THD: Tensor, cache: PagedKV, batch: PagedBatch) -> None:
    """`write_kv` on CUDA; nothing here waits for the device."""
    writes = batch.write_rows.shape[0]
    if not writes:
        return
    heads, width = key_THD.shape[1:]
    value_width = value_THD.shape[2]
    width_block, value_block = triton.next_power_of_2(width), triton.next_power_of_2(value_width)
    key, value = (states if states.stride(2) == 1 else states.contiguous() for states in (key_THD, value_THD))
    write_kernel[(writes,)](
        key,
        *key.stride()[:2],
        value,
        *value.stride()[:2],
        cache.key,
        cache.value,
        cache.bad.view(torch.uint8),
        batch.write_rows.contiguous(),
        batch.write_slots.contiguous(),
        HEADS=heads,
        WIDTH=width,
        VALUE_WIDTH=value_width,
        HEAD_BLOCK=min(triton.next_power_of_2(heads), max(1, ELEMENTS // max(width_block, value_block))),
        WIDTH_BLOCK=width_block,
        VALUE_BLOCK=value_block,
    )


@triton.jit
def write_kernel(
    key,
    key_row_stride,
    key_head_stride,
    value,
    value_row_stride,
    value_head_stride,
    key_cache,
    value_cache,
    bad,
    rows,
    slots,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
    VALUE_BLOCK: tl.constexpr,
):
    """Write one row to one slot: what it holds if all of it is finite, zeros and a flag if not."""
    row = tl.load(rows + tl.program_id(0)).to(tl.int64)
    slot = tl.load(slots + tl.program_id(0)).to(tl.int64)
    key += row * key_row_stride
    value += row * value_row_stride
    key_cache += slot * (HEADS * WIDTH)
    value_cache += slot * (HEADS * VALUE_WIDTH)
    strange = _strange(key, key_head_stride, HEADS, WIDTH, HEAD_BLOCK, WIDTH_BLOCK)
    strange |= _strange(value, value_head_stride, HEADS, VALUE_WIDTH, HEAD_BLOCK, VALUE_BLOCK)
    _store(key, key_head_stride, strange, key_cache, HEADS, WIDTH, HEAD_BLOCK, WIDTH_BLOCK)
    _store(value, value_head_stride, strange, value_cache, HEADS, VALUE_WIDTH, HEAD_BLOCK, VALUE_BLOCK)
    tl.store(bad + slot, strange.to(tl.uint8))


@triton.jit
def _strange(
    source,
    head_stride,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
):
    """1 if any number of the row is infinite or NaN, else 0."""
    strange = tl.zeros([HEAD_BLOCK, WIDTH_BLOCK], tl.int32)
    for first in tl.static_range(0, HEADS, HEAD_BLOCK):
        head = (first + tl.arange(0, HEAD_BLOCK))[:, None]
        d = tl.arange(0, WIDTH_BLOCK)[None, :]
        x = tl.load(source + head * head_stride + d, mask=(head < HEADS) & (d < WIDTH), other=0.0).to(tl.float32)
        strange = tl.where(tl.abs(x) < float("inf"), strange, 1)
    return tl.max(tl.max(strange, 1), 0)


@triton.jit
def _store(
    source,
    head_stride,
    strange,
    target,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
):
    for first in tl.static_range(0, HEADS, HEAD_BLOCK):
        head = (first + tl.arange(0, HEAD_BLOCK))[:, None]
        d = tl.arange(0, WIDTH_BLOCK)[None, :]
        mask = (head < HEADS) & (d < WIDTH)
        read = mask & (d < tl.where(strange == 0, WIDTH, 0))  # Triton 3.9's interpreter takes no scalar for a mask
        x = tl.load(source + head * head_stride + d, mask=read, other=0.0)
        tl.store(target + head * WIDTH + d, x, mask=mask)
