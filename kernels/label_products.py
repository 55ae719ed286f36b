"""Products of hidden states with label rows of the head, in torch: a product's bits depend on its two rows alone.

Ladder: milliseconds of a whole "set" call for a shared set, D = 576, float32, one thread of a busy 2-core Xeon, medians
of alternating runs:
                                                        N = 1: K = 2    5    64      N = 4096: K = 2    5    64
1. multiply and sum, 8 tokens of 128 rows at a time             0.33  0.43  2.13                 7.5  11.0  80.9
2. matmuls of 128 rows with 16 tokens                           0.34  0.36  0.59                 8.0   8.7  28.9
   index, matmul, log_softmax: other bits, no statistics        0.02  0.02  0.05                 1.4   1.7   4.7
3. of 32 rows, as all that oneDNN does not serve (this version; another run, in which the line above took 0.01 to 0.07
   and 1.9 to 3.2)                                              0.40  0.42  0.62                 9.9  11.4  21.4
Before and after 3 in turn: N = 4096, K = 5 16.6 and 18.3, K = 64 23.8 and 27.0, K = 1000 169 and 213.

A set for each row goes the same way, all rows of a tile with all of its labels, so that the same set gives the same
bits whether it is shared or not. With 4 different sets in all that takes 0.2 to 0.9 times what multiply and sum took.
Where nearly every row has another set it loses: 0.8 to 1.4 times for N = 64, 1.6 to 1.8 times for N = 4096.
"""

from __future__ import annotations

from functools import cache
from threading import Lock

import torch
from torch import Tensor

from adjudge.kernels.linear import ROW_TILE, padded_rows, tiled_linear

COLUMNS = 16
"""Label rows in a matmul."""
FEW = 64
"""Up to so many different labels, all rows are multiplied with all of them; beyond, tile by tile."""
GATHERED = 1024
"""Label rows copied at once."""
SUMMED = 8
"""Label rows a row, where products are summed without a matmul."""

_probing = Lock()


def label_products(x_PD: Tensor, weight_VD: Tensor, ids_BK: Tensor) -> Tensor:
    """Products [P, K] of float32 rows with the tokens of each [P, K], or of all [1, K]; P a multiple of `ROW_TILE`."""
    if x_PD.device.type != "cpu" or not _invariant(x_PD.shape[1]):
        return _summed(x_PD, weight_VD, ids_BK)
    if len(ids_BK) == 1:
        return _few(x_PD, weight_VD, ids_BK[0])
    tokens_U, places_PK = torch.unique(ids_BK, return_inverse=True)
    if len(tokens_U) <= FEW:
        return _few(x_PD, weight_VD, tokens_U).gather(1, places_PK)
    tiles = zip(torch.split(x_PD, ROW_TILE), torch.split(ids_BK, ROW_TILE), strict=True)
    return torch.cat([_many(x_TD, weight_VD, ids_TK) for x_TD, ids_TK in tiles])


def _few(x_PD: Tensor, weight_VD: Tensor, tokens_U: Tensor) -> Tensor:
    """All rows with all tokens."""
    blocks = [_gathered(weight_VD, tokens, COLUMNS) for tokens in torch.split(tokens_U, COLUMNS)]
    return torch.cat([tiled_linear(x_PD, weight_LD) for weight_LD in blocks], dim=1)[:, : len(tokens_U)]


def _many(x_TD: Tensor, weight_VD: Tensor, ids_TK: Tensor) -> Tensor:
    """A tile of rows with their own tokens; the tokens stand in the long side of the matmul."""
    tokens_U, places_TK = torch.unique(ids_TK, return_inverse=True)
    blocks = [
        _gathered(weight_VD, tokens, padded_rows(len(tokens), ROW_TILE)) for tokens in torch.split(tokens_U, GATHERED)
    ]
    return torch.cat([tiled_linear(weight_UD, x_TD) for weight_UD in blocks]).T.gather(1, places_TK)


def _gathered(weight_VD: Tensor, tokens: Tensor, length: int) -> Tensor:
    weight_LD = weight_VD.new_zeros(length, weight_VD.shape[1], dtype=torch.float32)
    weight_LD[: len(tokens)] = weight_VD[tokens]
    return weight_LD


def _summed(x_PD: Tensor, weight_VD: Tensor, ids_BK: Tensor) -> Tensor:
    """The products without a matmul, which need not give a row the same bits wherever it stands."""
    products = []
    for start in range(0, len(x_PD), ROW_TILE):
        x_T1D = x_PD[start : start + ROW_TILE, None]
        ids_TK = ids_BK if len(ids_BK) == 1 else ids_BK[start : start + ROW_TILE]
        blocks = [weight_VD[ids_Tk].float().contiguous() for ids_Tk in torch.split(ids_TK, SUMMED, dim=1)]
        products.append(torch.cat([(x_T1D * weight_TkD).sum(-1) for weight_TkD in blocks], dim=1))
    return torch.cat(products)


def _invariant(width: int) -> bool:
    with _probing:  # the probe changes the number of threads for a moment, and for all
        return matmuls_are_invariant(width, torch.get_num_threads())


@cache
def matmuls_are_invariant(width: int, threads: int) -> bool:
    """Whether a probe with random rows found a product to be the same bits in every place of every matmul used here,
    and with one thread as with `threads`, which are those of the moment."""
    generator = torch.Generator().manual_seed(0)
    x_TD, weight_TD = (torch.randn(ROW_TILE, width, generator=generator, dtype=torch.float32) for _ in range(2))

    def products(x_TD: Tensor, weight_TD: Tensor) -> Tensor:
        return torch.cat([tiled_linear(x_TD, weight_LD) for weight_LD in torch.split(weight_TD, COLUMNS)], dim=1)

    expected_TT = products(x_TD, weight_TD)
    same = torch.equal(tiled_linear(weight_TD, x_TD).T, expected_TT)
    for x_D, weight_D, expected in zip(x_TD, weight_TD, expected_TT.diagonal(), strict=True):
        everywhere_TT = products(x_D.repeat(ROW_TILE, 1), weight_D.repeat(ROW_TILE, 1))
        same = same and bool((everywhere_TT == expected).all())
    try:
        torch.set_num_threads(1)
        return same and torch.equal(products(x_TD, weight_TD), expected_TT)
    finally:
        torch.set_num_threads(threads)
