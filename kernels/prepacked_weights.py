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
    """The prepacked copies of one weight, `rows` of it in each.

    They are made when they are first asked for and again after each change in place.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._parts: dict[int, torch.Tensor] = {}
        self._source = (0, -1)  # where the numbers stood that they have, and how often they had been written to

    def of(self, weight_VD: torch.Tensor, part: int = 0) -> torch.Tensor:
        """A part of the weight as oneDNN's matmuls take it."""
        source = weight_VD.data_ptr(), weight_VD._version
        if self._source != source:
            self._parts, self._source = {}, source
        if part not in self._parts:
            self._parts[part] = prepack(weight_VD[part * self.rows : (part + 1) * self.rows])
        return self._parts[part]


_prepackings: Any = WeakTensorKeyDictionary()


def keep_prepacked(weight_VD: torch.Tensor, rows: int | None = None) -> None:
    """Have `linear` use a prepacked copy of a weight, which was not made in inference mode, for as long as it lives.

    With `rows` there is one of so many rows after the other, for who multiplies with one at a time.
    """
    if weight_VD not in _prepackings:
        _prepackings[weight_VD] = Prepacking(_rows(weight_VD, rows))


def prepacking_of(weight_VD: torch.Tensor, rows: int | None = None) -> Prepacking | None:
    """That of a weight which is to be kept prepacked, and by `rows` if they are given, else as a whole."""
    prepacking: Prepacking | None = _prepackings.get(weight_VD)
    return prepacking if prepacking and prepacking.rows == _rows(weight_VD, rows) else None


def _rows(weight_VD: torch.Tensor, rows: int | None) -> int:
    return len(weight_VD) if rows is None else min(rows, len(weight_VD))


def prepack(weight_VD: torch.Tensor) -> torch.Tensor:
    """A weight in oneDNN's layout, which nothing but its matmuls reads; raises RuntimeError where there is none."""
    reorder: Any = torch.ops.mkldnn._reorder_linear_weight
    prepacked: torch.Tensor = reorder(weight_VD.detach().contiguous())
    return prepacked
