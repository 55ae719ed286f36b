"""Weights of dense layers as oneDNN lays them out for its matmuls, kept beside the plain ones on CPU.

Of a plain weight every matmul makes that layout anew; the bits are the same either way, of which `linear` makes sure.

Ladder (two threads of an AMD EPYC with AVX-512, float32, microseconds, weights from memory; plain, then prepacked):
- D 576 -> 1536: 2 rows 151, 75; 16 rows 189, 117; 128 rows 622, 506; 512 rows 2,141, 1,930;
- D 576 -> 49152: 2 rows 3,860, 1,670; 16 rows 5,817, 3,050; 128 rows 17,422, 15,500;
- D 2048 -> 8192: 2 rows 2,059, 940; 16 rows 2,996, 1,810; 128 rows 10,512, 9,290.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary


class Prepacking:
    """The prepacked copy of one weight, made when it is first asked for and again after each change in place."""

    def __init__(self) -> None:
        self._prepacked: torch.Tensor | None = None
        self._source = (0, -1)  # where the numbers stood that it has, and how often they had been written to

    def of(self, weight_VD: torch.Tensor) -> torch.Tensor:
        """The weight as oneDNN's matmuls take it."""
        source = weight_VD.data_ptr(), weight_VD._version
        if self._prepacked is None or self._source != source:
            self._prepacked, self._source = prepack(weight_VD), source
        return self._prepacked


_prepackings: Any = WeakTensorKeyDictionary()


def keep_prepacked(weight_VD: torch.Tensor) -> None:
    """Have `linear` use a prepacked copy of a weight, which was not made in inference mode, for as long as it lives."""
    if weight_VD not in _prepackings:
        _prepackings[weight_VD] = Prepacking()


def prepacking_of(weight_VD: torch.Tensor) -> Prepacking | None:
    """That of a weight which is to be kept prepacked."""
    prepacking: Prepacking | None = _prepackings.get(weight_VD)
    return prepacking


def prepack(weight_VD: torch.Tensor) -> torch.Tensor:
    """A weight in oneDNN's layout, which nothing but its matmuls reads; raises RuntimeError where there is none."""
    reorder: Any = torch.ops.mkldnn._reorder_linear_weight
    prepacked: torch.Tensor = reorder(weight_VD.detach().contiguous())
    return prepacked
