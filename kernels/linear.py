"""Dense layers whose rows do not depend on each other; on a GPU they are Triton's (`linear_triton`).

A CPU matmul picks its inner loops by the number of rows, so the last bits of a row can change with whatever shares its
batch. oneDNN's goes through the width in the same order for any two rows or more, and any number of threads; where a
probe on this machine finds that so, it serves. Elsewhere every matmul has `ROW_TILE` rows, or as many more as another
probe finds to have their bits: so it is in bfloat16 with AMX, where 33 to 512 rows at once go in another order than
fewer do and more, at widths up to some 1,500. Its sums go one product after the other: torch's own, on an EPYC added up
in blocks, are up to three times as exact there (1,537 wide, of sums up to 192 the largest error 6e-5, here 1.9e-4).

Ladder (two cores with AVX-512, microseconds, weights from memory; MKL in tiles of 4 to 1024 rows as far as they agree,
which served before, then oneDNN; `prepacked_weights` has the step after it):
- D 576 -> 1536: 4 rows 324, 230; 16 rows 305, 299; 32 rows 382, 392; 128 rows 1,142, 887; 300 rows 2,336, 1,889;
- D 576 -> 49152: 4 rows 9,062, 6,529; 16 rows 8,602, 8,362; 64 rows 17,320, 16,568; 128 rows 40,028, 28,268;
- D 576 -> 192, where a call's own cost counts: 4 rows 34, 46; 16 rows 44, 63; 300 rows 322, 256.
A token of 1, 4 and 16 texts of the default model at 600 tokens of context: 81, 100 and 164 ms, then 76, 96 and 173;
4,800 prompt tokens as fast as before.

In bfloat16 (two cores with AMX, microseconds; float32 by oneDNN, then bfloat16 in tiles of 32, in large tiles):
- D 576 -> 1536: 128 rows 985, 521, the same; 512 rows 3,158, 1,887, 1,160; 2,048 rows 12,426, 7,230, 1,791;
- six pairs of stories (9,366 tokens), the whole engine, each once: 10.8 s, 8.9, 4.5; one thread 17.3, 13.2,
  5.8.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from adjudge.kernels.dispatch import kernel_backend
from adjudge.kernels.prepacked_weights import prepack, prepacking_of

ROW_TILE = 32
"""The rows of every matmul that oneDNN does not serve."""
LEAST_ROWS = 4
"""Row counts on CPU are padded to a multiple of this: a single row is another matmul to oneDNN, too."""
PROBED_ROWS = (2, 3, 4, 7, 16, 17, 31, 32, 33, 64, 100, 255, 512, 1000, 2048)
LARGE_TILES = (1024, 768, 512, 2048, 256)
"""Rows of the matmuls that take the place of many of `ROW_TILE` rows, the better ones first."""
LEAST_FILLED = 4
"""A large tile that is less than a quarter full costs more than its rows in small ones."""
LEAST_PROBED = 33
PART = 4096
"""Outputs of a layer that is computed in parts, as a head is: their products with some rows stay in a CPU's caches."""
PART_ROWS = 100
"""Its rows at once; a probe of more would take longer than they gain."""
PROBED_VALUES = 1 << 23
"""Row counts above `LEAST_PROBED` with more results than this are not probed: a head's probe would take seconds."""
MAX_WIDTH = 768
"""float32 matmuls of greater width are cut along it, here always in the same places: for up to 256 rows MKL cuts them
too (from 784 on), elsewhere for each number of threads."""
WIDTH_STEP = 16
"""At other widths a matmul can depend on where a row stands in its tile, so widths are padded with zeros."""


def padded_rows(count: int, unit: int) -> int:
    """The least multiple of `unit` that holds `count` rows, and one."""
    return max(1, -(-count // unit)) * unit


def invariant_linear(
    input_ND: torch.Tensor,
    weight_VD: torch.Tensor,
    bias_V: torch.Tensor | None = None,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`input @ weight.T + bias`, bit-equal for a row whatever surrounds it.

    Shapes: input [N, D], weight [V, D], bias [V] -> [N, V], in the input's dtype or `dtype`, to which torch's sums come
    rounded to the input's.
    """
    if kernel_backend(input_ND.device) == "triton":
        from adjudge.kernels.linear_triton import triton_linear

        return triton_linear(input_ND, weight_VD, bias_V, dtype)
    prepacking = prepacking_of(weight_VD)
    prepacked = partial(prepacking.of, weight_VD) if prepacking else None
    output_NV = _torch_linear(input_ND, weight_VD, bias_V, prepacked)
    return output_NV if dtype is None else output_NV.to(dtype)


def invariant_part(input_ND: torch.Tensor, weight_VD: torch.Tensor, part: int) -> torch.Tensor:
    """`input @ weight.T` on a CPU for `PART` of the outputs alone, bit-equal for a row whatever surrounds it.

    The weight may be kept prepacked by `PART` rows.
    """
    prepacking = prepacking_of(weight_VD, PART)
    prepacked = partial(prepacking.of, weight_VD, part) if prepacking else None
    return _torch_linear(input_ND, weight_VD[part * PART :][:PART], None, prepacked, PART_ROWS)


def _torch_linear(
    input_ND: torch.Tensor,
    weight_VD: torch.Tensor,
    bias_V: torch.Tensor | None,
    prepacked: Callable[[], torch.Tensor] | None,
    limit: int = PROBED_ROWS[-1],
) -> torch.Tensor:
    """By oneDNN, `limit` rows at once at most, where it heeds no other rows; else in tiles."""
    outputs, width = weight_VD.shape
    kind = width, outputs, weight_VD.dtype, bias_V is not None, torch.get_num_threads()
    most = agreeing_rows(*kind, limit)
    if not most:
        large = large_tile(padded_rows(width, WIDTH_STEP), *kind[1:]) if input_ND.shape[0] > ROW_TILE else 0
        return tiled_linear(input_ND, weight_VD, bias_V, large)
    if prepacked is not None and prepacking_agrees(*kind, limit):
        weight_VD = prepacked()
    if input_ND.shape[0] <= most:
        return _onednn(input_ND, weight_VD, bias_V)
    return torch.cat([_onednn(part_ND, weight_VD, bias_V) for part_ND in torch.split(input_ND, most)])


@cache
def agreeing_rows(
    width: int, outputs: int, dtype: torch.dtype, biased: bool, threads: int, limit: int = PROBED_ROWS[-1]
) -> int:
    """Up to how many rows, `limit` at most, a probe found the same bits in oneDNN's matmuls of different numbers.

    0 for none. `threads` are those of the moment.
    """
    counts = (count for count in PROBED_ROWS if count <= limit)
    most = max(count for count in counts if count <= LEAST_PROBED or count * outputs <= PROBED_VALUES)
    input_ND, weight_VD, bias_V = _cancelling(most, width, outputs, dtype, biased)

    def agrees(count: int) -> bool:
        parts = ((start, _onednn(input_ND[start : start + count], weight_VD, bias_V)) for start in {0, most - count})
        return all(torch.equal(part_NV, whole_NV[start : start + count]) for start, part_NV in parts)

    try:
        whole_NV = _onednn(input_ND, weight_VD, bias_V)
        return most if all(map(agrees, (count for count in PROBED_ROWS if count < most))) else 0
    except (RuntimeError, AttributeError):  # this torch is built without it, or it does not know this type
        return 0


@cache
def prepacking_agrees(
    width: int, outputs: int, dtype: torch.dtype, biased: bool, threads: int, limit: int = PROBED_ROWS[-1]
) -> bool:
    """Whether a probe found oneDNN's matmuls of prepacked weights to have the bits of those of plain ones.

    `threads` are those of the moment.
    """
    most = agreeing_rows(width, outputs, dtype, biased, threads, limit)
    input_ND, weight_VD, bias_V = _cancelling(most, width, outputs, dtype, biased)
    plain_NV = _onednn(input_ND, weight_VD, bias_V)
    counts = (count for count in PROBED_ROWS if count <= most)
    try:
        prepacked_VD = prepack(weight_VD)
        return all(torch.equal(_onednn(input_ND[:count], prepacked_VD, bias_V), plain_NV[:count]) for count in counts)
    except (RuntimeError, AttributeError):  # for this type there is no such layout
        return False


@cache
def large_tile(width: int, outputs: int, dtype: torch.dtype, biased: bool, threads: int) -> int:
    """How many rows at once a probe found to have the bits of `ROW_TILE` at a time; 0 where none of `LARGE_TILES` has.

    `threads` are those of the moment.
    """
    sizes = [size for size in LARGE_TILES if size * outputs <= PROBED_VALUES]
    if not sizes:
        return 0
    input_ND, weight_VD, bias_V = _cancelling(max(sizes), width, outputs, dtype, biased)
    small_NV = _in_tiles(input_ND, weight_VD, bias_V, [ROW_TILE] * (max(sizes) // ROW_TILE))
    for size in sizes:
        if torch.equal(_in_tiles(input_ND[:size], weight_VD, bias_V, [size]), small_NV[:size]):
            return size
    return 0


def _cancelling(
    rows: int, width: int, outputs: int, dtype: torch.dtype, biased: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Input, weight and bias whose products are 0, so that what a matmul finds is its rounding and tells its order."""
    generator = torch.Generator().manual_seed(0)
    half = width // 2
    order = torch.cat([torch.randperm(2 * half, generator=generator), torch.arange(2 * half, width)])
    numbers = partial(torch.randn, generator=generator, dtype=torch.float32)
    input_NH, weight_VH = numbers(rows, half), numbers(outputs, half)
    odd = width - 2 * half
    input_ND = F.pad(torch.cat([input_NH, input_NH], 1), (0, odd))[:, order].to(dtype)
    weight_VD = F.pad(torch.cat([weight_VH, -weight_VH], 1), (0, odd))[:, order].to(dtype)
    bias_V = 1e-6 * numbers(outputs).to(dtype) if biased else None
    return input_ND, weight_VD, bias_V


def _onednn(input_ND: torch.Tensor, weight_VD: torch.Tensor, bias_V: torch.Tensor | None) -> torch.Tensor:
    """A single row goes with another beside it: by itself it is another matmul."""
    if (rows := input_ND.shape[0]) == 1:
        input_ND = F.pad(input_ND, (0, 0, 0, 1))
    if not weight_VD.is_mkldnn:
        weight_VD = weight_VD.contiguous()
    matmul: Any = torch.ops.mkldnn._linear_pointwise
    output_NV: torch.Tensor = matmul(input_ND.contiguous(), weight_VD, bias_V, "none", [], "")
    return output_NV if output_NV.shape[0] == rows else output_NV[:rows]


def tiled_linear(
    input_ND: torch.Tensor, weight_VD: torch.Tensor, bias_V: torch.Tensor | None = None, large: int = 0
) -> torch.Tensor:
    """The same by matmuls of `ROW_TILE` rows each, on any machine; by `large` rows where that has the same bits."""
    rows = len(input_ND)
    if short := -weight_VD.shape[1] % WIDTH_STEP:
        input_ND, weight_VD = F.pad(input_ND, (0, short)), F.pad(weight_VD, (0, short))
    many = (rows + large - large // LEAST_FILLED) // large if large else 0
    few = -(-max(0, rows - many * large) // ROW_TILE)
    return _in_tiles(input_ND, weight_VD, bias_V, [large] * many + [ROW_TILE] * few)


def _in_tiles(
    input_ND: torch.Tensor, weight_VD: torch.Tensor, bias_V: torch.Tensor | None, sizes: list[int]
) -> torch.Tensor:
    """The rows in matmuls of so many each, the last of them with zeros in the place of those that are missing."""
    output_NV = input_ND.new_empty(len(input_ND), len(weight_VD))
    start = 0
    for size in sizes:
        input_TD, output_TV = (matrix[start : start + size] for matrix in (input_ND, output_NV))
        if missing := size - len(input_TD):
            tile_TV = output_NV.new_empty(size, len(weight_VD))
            _tile(F.pad(input_TD, (0, 0, 0, missing)), weight_VD, bias_V, tile_TV)
            output_TV.copy_(tile_TV[: len(output_TV)])
        else:
            _tile(input_TD, weight_VD, bias_V, output_TV)
        start += size
    return output_NV


def _tile(input_TD: torch.Tensor, weight_VD: torch.Tensor, bias_V: torch.Tensor | None, out: torch.Tensor) -> None:
    pieces = zip(_pieces(input_TD), _pieces(weight_VD), strict=True)
    first_TD, first_VD = next(pieces)
    if bias_V is None:
        torch.mm(first_TD, first_VD.t(), out=out)
    else:
        torch.addmm(bias_V, first_TD, first_VD.t(), out=out)
    for piece_TD, piece_VD in pieces:
        out.addmm_(piece_TD, piece_VD.t())


def _pieces(matrix: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The columns in as few equal pieces as `MAX_WIDTH` allows; sums in half precision would round between pieces."""
    if matrix.dtype != torch.float32 or matrix.shape[1] <= MAX_WIDTH:
        return (matrix,)
    steps = -(-matrix.shape[1] // WIDTH_STEP)
    count = -(-matrix.shape[1] // MAX_WIDTH)
    return torch.split(matrix, -(-steps // count) * WIDTH_STEP, dim=1)


class BatchInvariantLinear(nn.Linear):
    """`nn.Linear` through `invariant_linear`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Apply the layer to [..., N, D]."""
        flat_ND = input.reshape(-1, self.in_features)
        return invariant_linear(flat_ND, self.weight, self.bias).view(*input.shape[:-1], self.out_features)


def make_batch_invariant(model: nn.Module) -> int:
    """Turn every `nn.Linear` of `model` into a `BatchInvariantLinear`, sharing its weights; returns how many."""
    layers = [module for module in model.modules() if type(module) is nn.Linear]
    for layer in layers:
        layer.__class__ = BatchInvariantLinear
    return len(layers)
