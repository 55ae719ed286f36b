"""Dense layers whose rows do not depend on each other, on a GPU: one kernel for any number of rows.

A matrix library chooses its tiles, and whether to cut the sums, by the number of rows, so the last bits of a row
change with whatever shares its batch. Here a program computes 64 rows times 64 outputs, and goes through the width in
blocks of 64, whatever the batch.

Predicted for a layer of 3584 x 3584 in bf16 (25.7 MB) on an H100: 1 to 64 rows are 56 programs,
less than half of its processors, so at most half of its bandwidth: 15 to 20 µs where the library takes about 10. With
4,096 rows a tile moves 1 byte from the L2 cache for 32 FLOP, which allows some 175 TFLOP/s, a third of the library's.
Measured since is what it costs the default model as a whole on an H200: scores take 1.7 times as long, texts 2.2
(bench/results/gpu.md).
"""

# mypy: disable-error-code="no-untyped-def"
# (Triton gives the parameters of its functions their types at each call.)

import torch
import triton
import triton.language as tl
from torch import Tensor

from adjudge.kernels.dispatch import launcher
from adjudge.kernels.triton_math import add_products, interpreted

TILE = 64
"""Rows, outputs and widths of a program."""


@launcher
def triton_linear(
    input_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """`input @ weight.T + bias`, [N, V] in the input's dtype or `dtype`, added up in float32."""
    rows, width = input_ND.shape
    outputs = len(weight_VD)
    output_NV = input_ND.new_empty(rows, outputs, dtype=dtype)
    if rows:
        linear_kernel[(triton.cdiv(rows, TILE) * triton.cdiv(outputs, TILE),)](
            input_ND,
            *input_ND.stride(),
            weight_VD,
            *weight_VD.stride(),
            bias_V,
            output_NV,
            rows,
            outputs,
            width,
            TILE=TILE,
            INTERPRETED=interpreted(),
        )
    return output_NV


# How many rows there are must not make another kernel.
@triton.jit(do_not_specialize=["rows"])
def linear_kernel(
    input,
    input_row_stride,
    input_stride,
    weight,
    weight_row_stride,
    weight_stride,
    bias,
    output,
    rows,
    outputs,
    width,
    TILE: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """One tile of the output; those of the same weights follow each other."""
    row_tiles = tl.cdiv(rows, TILE)
    row = (tl.program_id(0) % row_tiles).to(tl.int64) * TILE + tl.arange(0, TILE)
    place = (tl.program_id(0) // row_tiles).to(tl.int64) * TILE + tl.arange(0, TILE)
    input += row[:, None] * input_row_stride
    weight += place[:, None] * weight_row_stride
    sums = tl.zeros([TILE, TILE], tl.float32)
    for start in range(0, width, TILE):
        d = start + tl.arange(0, TILE)[None, :]
        x = tl.load(input + d.to(tl.int64) * input_stride, mask=(row[:, None] < rows) & (d < width), other=0.0)
        w = tl.load(weight + d.to(tl.int64) * weight_stride, mask=(place[:, None] < outputs) & (d < width), other=0.0)
        sums = add_products(sums, x, w, INTERPRETED)
    if bias is not None:
        sums += tl.load(bias + place, mask=place < outputs, other=0.0).to(tl.float32)[None, :]
    target = output + row[:, None] * outputs + place[None, :]
    tl.store(target, sums.to(output.dtype.element_ty), mask=(row[:, None] < rows) & (place[None, :] < outputs))
