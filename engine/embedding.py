"""What the engine returns for one prompt whose hidden state was asked for."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from adjudge.engine.models.reward_head import RewardHead
from adjudge.engine.score import Reason


class Embedding(msgspec.Struct, frozen=True, eq=False):
    """The model's hidden state after a prompt's last token.

    `values` [D] are float32, after the model's final norm, and read-only; `reward` is what a reward model's head reads
    off them, be it not finite. With a `reason` both are None.
    """

    values: npt.NDArray[np.float32] | None = None
    reason: Reason | None = None
    prompt_tokens: int = 0
    reward: float | None = None

    @staticmethod
    def of(values_D: npt.NDArray[np.float32], prompt_tokens: int, head: RewardHead | None = None) -> Embedding:
        """A hidden state, or why it is none: a number that is not finite."""
        if not np.isfinite(values_D).all():
            return Embedding(None, "non_finite", prompt_tokens)
        values_D.setflags(write=False)
        return Embedding(values_D, None, prompt_tokens, None if head is None else head.reward(values_D))
