"""Dense layers whose rows do not depend on each other, on CPU.

A CPU matmul picks its inner loops by the number of rows, so the last bits of a row can change with whatever shares its
batch. Here every matmul has one of a few fixed row counts, and the larger ones are used only after a probe on this
machine has shown that they agree, bit for bit, with the smallest.

Ladder (2 cores of an AVX-512 machine, D 576 -> 1536, fp32, 2048 rows): one matmul of all rows 172-185 GFLOP/s, not
invariant for odd row counts; tiles of 32 rows 136; tiles of 512 with the rest in 128 and 32 162; tiles of 1024 with the
rest in 256, 64 and 32 (this version) 185.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import nn
from torch.nn import functional as F

ROW_TILE = 32
"""Row counts on CPU are padded to a multiple of this."""
LARGER_TILES = (1024, 256, 64)
MAX_WIDTH = 768
"""float32 matmuls of greater width are cut along it, here always in the same places: for up to 256 rows MKL cuts them
too (from 784 on), elsewhere for each number of threads."""
WIDTH_STEP = 16
"""At other widths a matmul can depend on where a row stands in its tile, so widths are padded with zeros."""


def padded_rows(count: int) -> int:
    """The number of rows after padding `count` rows to whole tiles, at least one tile."""
    return max(1, -(-count // ROW_TILE)) * ROW_TILE


def tiled_linear(input_ND: torch.Tensor, weight_VD: torch.Tensor, bias_V: torch.Tensor | None = None) -> torch.Tensor:
    """`input @ weight.T + bias` in row tiles of fixed size: bit-equal for a row whatever surrounds it.

    Shapes: input [N, D] with N a multiple of `ROW_TILE`, weight [V, D], bias [V] -> [N, V].
    """
    rows = input_ND.shape[0]
    if rows % ROW_TILE:
        raise ValueError(f"tiled_linear takes a multiple of {ROW_TILE} rows, got {rows}: pad with padded_rows()")
    if short := -weight_VD.shape[1] % WIDTH_STEP:
        input_ND, weight_VD = F.pad(input_ND, (0, short)), F.pad(weight_VD, (0, short))
    output_NV = input_ND.new_empty(rows, weight_VD.shape[0])
    start = 0
    for tile in _tiles(weight_VD.shape[1], weight_VD.shape[0], weight_VD.dtype, torch.get_num_threads()):
        while rows - start >= tile:
            _tile(input_ND[start : start + tile], weight_VD, bias_V, output_NV[start : start + tile])
            start += tile
    return output_NV


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
    if matrix.dtype != torch.float32:
        return (matrix,)
    steps = -(-matrix.shape[1] // WIDTH_STEP)
    count = -(-matrix.shape[1] // MAX_WIDTH)
    return torch.split(matrix, -(-steps // count) * WIDTH_STEP, dim=1)


@cache
def _tiles(width: int, outputs: int, dtype: torch.dtype, threads: int) -> tuple[int, ...]:
    """Tile sizes, largest first, that a probe with random rows found bit-equal to `ROW_TILE` on this machine."""
    generator = torch.Generator().manual_seed(0)
    rows = LARGER_TILES[0]
    input_ND = torch.randn(rows, width, generator=generator).to(dtype)
    weight_VD = torch.randn(outputs, width, generator=generator).to(dtype)
    bias_V = torch.randn(outputs, generator=generator).to(dtype)

    def in_tiles(tile: int, bias_V: torch.Tensor | None) -> torch.Tensor:
        output_NV = input_ND.new_empty(rows, outputs)
        for start in range(0, rows, tile):
            _tile(input_ND[start : start + tile], weight_VD, bias_V, output_NV[start : start + tile])
        return output_NV

    small = [in_tiles(ROW_TILE, bias) for bias in (None, bias_V)]
    agreeing = [
        tile
        for tile in LARGER_TILES
        if all(
            torch.equal(in_tiles(tile, bias), expected) for bias, expected in zip((None, bias_V), small, strict=True)
        )
    ]
    return (*agreeing, ROW_TILE)


class BatchInvariantLinear(nn.Linear):
    """`nn.Linear` through `tiled_linear`; takes [..., N, D] with N a multiple of `ROW_TILE`."""

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
