"""What the engine returns for one prompt whose reward was asked for."""

from __future__ import annotations

import math

import msgspec

from adjudge.engine.embedding import Embedding
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import Reason


class ModelReward(msgspec.Struct, frozen=True):
    """The reward that a model was trained to give: a logit, without bounds. With a `reason` the `value` is None."""

    value: float | None = None
    reason: Reason | None = None
    prompt_tokens: int = 0

    @staticmethod
    def of(embedding: Embedding) -> ModelReward:
        """The reward of the prompt whose hidden state that is; one that is not finite is none.

        Raises AdjudgeError where no head has read it: the adapter that brings it may have been taken off meanwhile.
        """
        if embedding.reason is not None:
            return ModelReward(None, embedding.reason, embedding.prompt_tokens)
        if embedding.reward is None:
            raise AdjudgeError("the reward head was taken off before this was read: ask again")
        if not math.isfinite(embedding.reward):
            return ModelReward(None, "non_finite", embedding.prompt_tokens)
        return ModelReward(embedding.reward, None, embedding.prompt_tokens)
