"""The head of a reward model: one number read off a hidden state (Bradley & Terry, Biometrika 39, 1952)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from adjudge.engine.tokens import Tokens

if TYPE_CHECKING:
    import torch

NAMES = ("score", "classifier")
"""What transformers calls it."""


@dataclass(frozen=True)
class RewardHead:
    """Weights [D] and a bias; `pad_id` is the token that the model's own class does not read at."""

    weights: tuple[float, ...]
    bias: float = 0.0
    pad_id: int | None = None

    @staticmethod
    def of(model: Any) -> RewardHead | None:
        """The head of a transformers model for sequence classification with one label; None for another model."""
        from torch.nn import Linear

        linear = next((head for name in NAMES if isinstance(head := getattr(model, name, None), Linear)), None)
        if linear is None or linear.out_features != 1:
            return None
        return RewardHead.from_tensors(model, linear.weight, linear.bias)

    @staticmethod
    def from_tensors(model: Any, weight_1D: torch.Tensor, bias_1: torch.Tensor | None = None) -> RewardHead:
        """The head with these tensors, on the hidden states of `model`."""
        bias = 0.0 if bias_1 is None else float(bias_1.item())
        weights: list[float] = weight_1D[0].tolist()
        return RewardHead(tuple(weights), bias, getattr(model.config.get_text_config(), "pad_token_id", None))

    def reward(self, hidden_D: npt.ArrayLike) -> float:
        """weights · hidden + bias, summed exactly and rounded once: the same on every machine. NaN if not finite.

        Products of float32 are exact in float64.
        """
        values_D = np.asarray(hidden_D, np.float64)
        assert values_D.shape == self._weights_D.shape
        with np.errstate(invalid="ignore"):
            products_D = self._weights_D * values_D
        return math.fsum([*products_D.tolist(), self.bias]) if np.isfinite(products_D).all() else math.nan

    @cached_property
    def _weights_D(self) -> npt.NDArray[np.float64]:
        return np.array(self.weights)

    def read_part(self, tokens: Tokens) -> Tokens:
        """The tokens up to the one whose hidden state is read: the last that is not padding, as in transformers."""
        last = next((place for place in reversed(range(len(tokens))) if tokens[place] != self.pad_id), 0)
        return tokens[: last + 1]
