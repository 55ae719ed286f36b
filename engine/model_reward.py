"""What the engine returns for one prompt whose reward was asked for."""

from __future__ import annotations

import msgspec

from adjudge.engine.score import Reason


class ModelReward(msgspec.Struct, frozen=True):
    """The reward that a model was trained to give: a logit, without bounds. With a `reason` the `value` is None."""

    value: float | None = None
    reason: Reason | None = None
    prompt_tokens: int = 0
