"""Dense layers whose rows do not depend on each other, on CPU.

A CPU matmul picks its inner loops by the number of rows, so the last bits of a row can change with whatever shares its
batch. Here every matmul has one of a few fixed row counts; others than `ROW_TILE` are used only after a probe on this
machine has shown that they agree with it, bit for bit.

Ladder (2 cores of an AVX-512 machine, D 576 -> 1536, fp32, 2048 rows): one matmul of all rows 172-185 GFLOP/s, not
invariant for odd row counts; tiles of 32 rows 136; tiles of 512 with the rest in 128 and 32 162; tiles of 1024 with the
rest in 256, 64 and 32 185. Few rows (4, 8, 16, 24 or 32; microseconds on one core, D 576 -> 1536, then -> 49152):
always 32 rows 632, 31,300; the smallest tile that holds them, this version, 167, 234, 367, 499 or 632, and 15,600,
17,700, 22,500, 27,200 or 31,300. A single row by itself, whose bits differ, takes 70 and 9,200.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import nn
from torch.nn import functional as F

ROW_TILE = 32
"""The row count that every other must agree with."""
LARGER_TILES = (1024, 256, 64)
SMALLER_TILES = (4, 8, 16, 24)
LEAST_ROWS = SMALLER_TILES[0]
"""Row counts on CPU are padded to a multiple of this."""
PROBED_ROWS = 32
"""Tiles are compared on at least so many random rows."""
PROBED_VALUES = 1 << 23
"""Larger tiles with more results than this are not tried: a head's probe would take seconds."""
MAX_WIDTH = 768
"""float32 matmuls of greater width are cut along it, here always in the same places: for up to 256 rows MKL cuts them
too (from 784 on), elsewhere for each number of threads."""
WIDTH_STEP = 16
"""At other widths a matmul can depend on where a row stands in its tile, so widths are padded with zeros."""


def padded_rows(count: int, unit: int) -> int:
    """The least multiple of `unit` that holds `count` rows, and one."""
    return max(1, -(-count // unit)) * unit


def tiled_linear(input_ND: torch.Tensor, weight_VD: torch.Tensor, bias_V: torch.Tensor | None = None) -> torch.Tensor:
    """`input @ weight.T + bias` in row tiles of fixed sizes: bit-equal for a row whatever surrounds it.

    Shapes: input [N, D], weight [V, D], bias [V] -> [N, V].
    """
    if short := -weight_VD.shape[1] % WIDTH_STEP:
        input_ND, weight_VD = F.pad(input_ND, (0, short)), F.pad(weight_VD, (0, short))
    (rows, width), outputs = input_ND.shape, weight_VD.shape[0]
    output_NV = input_ND.new_empty(rows, outputs)
    start = 0
    for tile in _cut(rows, _tiles(width, outputs, weight_VD.dtype, bias_V is not None, torch.get_num_threads())):
        part_TD, part_TV = input_ND[start : start + tile], output_NV[start : start + tile]
        if missing := tile - len(part_TD):
            whole_TV = output_NV.new_empty(tile, outputs)
            _tile(F.pad(part_TD, (0, 0, 0, missing)), weight_VD, bias_V, whole_TV)
            part_TV.copy_(whole_TV[:-missing])
        else:
            _tile(part_TD, weight_VD, bias_V, part_TV)
        start += tile
    return output_NV


def _cut(rows: int, tiles: Sequence[int]) -> list[int]:
    """Tiles for so many rows: the largest that are full, and the smallest that holds what is left over."""
    cut: list[int] = []
    while rows > 0:
        full = [tile for tile in tiles if ROW_TILE <= tile <= rows]
        cut.append(max(full) if full else min(tile for tile in tiles if tile >= rows))
        rows -= cut[-1]
    return cut


def _tile(input_ND: torch.Tensor, weight_VD: torch.Tensor, bias_V: torch.Tensor | None, out: torch.Tensor) -> None:
    pieces = zip(_pieces(input_ND), _pieces(weight_VD), strict=True)
    first_ND, first_VD = next(pieces)
    if bias_V is None:
        torch.mm(first_ND, first_VD.t(), out=out)
    else:
        torch.addmm(bias_V, first_ND, first_VD.t(), out=out)
    for piece_ND, piece_VD in pieces:
        out.addmm_(piece_ND, piece_VD.t())


def _pieces(matrix: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The columns in as few equal pieces as `MAX_WIDTH` allows; sums in half precision would round between pieces."""
    if matrix.dtype != torch.float32 or matrix.shape[1] <= MAX_WIDTH:
        return (matrix,)
    steps = -(-matrix.shape[1] // WIDTH_STEP)
    count = -(-matrix.shape[1] // MAX_WIDTH)
    return torch.split(matrix, -(-steps // count) * WIDTH_STEP, dim=1)


@cache
def _tiles(width: int, outputs: int, dtype: torch.dtype, biased: bool, threads: int) -> tuple[int, ...]:
    """`ROW_TILE` and the tile sizes that a probe with random rows found bit-equal to it on this machine."""
    generator = torch.Generator().manual_seed(0)
    larger = [tile for tile in LARGER_TILES if tile * outputs <= PROBED_VALUES]
    input_ND = torch.randn(max(PROBED_ROWS, *larger), width, generator=generator).to(dtype)
    weight_VD = torch.randn(outputs, width, generator=generator).to(dtype)
    bias_V = torch.randn(outputs, generator=generator).to(dtype) if biased else None

    def in_tiles(tile: int, rows: int) -> torch.Tensor:
        output_NV = input_ND.new_empty(rows, outputs)
        for start in range(0, rows, tile):
            _tile(input_ND[start : start + tile], weight_VD, bias_V, output_NV[start : start + tile])
        return output_NV

    expected_NV = in_tiles(ROW_TILE, len(input_ND))

    def agrees(tile: int) -> bool:
        rows = max(tile, PROBED_ROWS // tile * tile)
        return torch.equal(in_tiles(tile, rows), expected_NV[:rows])

    return (ROW_TILE, *filter(agrees, (*larger, *SMALLER_TILES)))


class BatchInvariantLinear(nn.Linear):
    """`nn.Linear` through `tiled_linear`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Apply the layer to [..., N, D]."""
        flat_ND = input.reshape(-1, self.in_features)
        return tiled_linear(flat_ND, self.weight, self.bias).view(*input.shape[:-1], self.out_features)


def make_batch_invariant(model: nn.Module) -> int:
    """Turn every `nn.Linear` of `model` into a `BatchInvariantLinear`, sharing its weights; returns how many."""
    layers = [module for module in model.modules() if type(module) is nn.Linear]
    for layer in layers:
        layer.__class__ = BatchInvariantLinear
    return len(layers)
