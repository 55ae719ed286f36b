"""The bytes that each token id of a vocabulary stands for, in one flat array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from adjudge.kernels.surroundings import undisturbed


@dataclass(frozen=True, slots=True)
class ByteTable:
    """Strings of bytes laid end to end: string i is data[starts[i] : starts[i + 1]]; some may be empty."""

    data: Tensor  # [total] uint8, on CPU
    starts: Tensor  # [V + 1] int64, on CPU

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    @undisturbed
    def of(cls, pieces: Sequence[bytes]) -> ByteTable:
        """A table of the strings in their order: of a vocabulary, `pieces[i]` is what token id i stands for."""
        for place, piece in enumerate(pieces):
            if not isinstance(piece, bytes):
                raise TypeError(f"pieces[{place}] is a {type(piece).__name__}: pass bytes")
        starts = torch.tensor([0, *accumulate(map(len, pieces))])
        return cls(torch.from_numpy(np.frombuffer(bytearray(b"".join(pieces)), dtype=np.uint8)), starts)
