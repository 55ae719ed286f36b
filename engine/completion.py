"""What the engine returns for one generated text."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from adjudge.engine.score import Reason

FinishReason = Literal["stop", "length", "non_finite", "too_long", "timeout", "cancelled"]
"""Why a text ends: at an end token or stop string; at `max_tokens` or the context's end; or why there is none."""


class TokenLogprob(msgspec.Struct, frozen=True):
    """A chosen token, its log-probability under the model, and the most probable tokens there with theirs."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Completion(msgspec.Struct, frozen=True):
    """A generated text: the `sample`-th for prompt number `prompt`.

    `token_ids` are all that were generated, the end token and those of a stop string included; `text` has neither.
    `prompt_logprobs` are those of the prompt's tokens, where they were asked for: None for the first, and () for a
    prompt that was "too_long", or not read before its "timeout" or where a server gave up.
    """

    prompt: int
    sample: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_tokens: int = 0
    prompt_logprobs: tuple[TokenLogprob | None, ...] = ()

    @property
    def missing(self) -> Reason | None:
        """Why there is no text; None where there is one, whether it came to its end or was cut short."""
        return None if self.finish_reason == "stop" or self.finish_reason == "length" else self.finish_reason

    @property
    def logprob(self) -> float:
        """Log-probability of the whole text under the model; NaN where a server did not report it."""
        if len(self.logprobs) != len(self.token_ids):
            return math.nan
        return sum(token.logprob for token in self.logprobs)
