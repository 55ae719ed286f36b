"""What the engine returns for one prompt: the distribution over a label set at the prompt's end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

Reason = Literal["unparsable", "low_mass", "timeout", "non_finite", "too_long", "cancelled", "unsupported"]
"""Why there is no value: the reasons to abstain."""
LEAST_MASS = 0.01
"""Label mass below which a score abstains, where nobody says otherwise."""
PASSING: tuple[Reason, ...] = ("timeout", "cancelled")
"""Those that lie in the moment, not in the texts."""
UNKEPT: tuple[Reason, ...] = (*PASSING, "unsupported")
"""Those that do not lie in the texts: what rests on one is not kept, so that a later run asks again. A server that does
not tell what it is asked for may have been started otherwise by then."""


class Score(msgspec.Struct, frozen=True):
    """The distribution over `labels` at one position.

    `logprobs` sum to one over the labels; `full_logprobs` are under the whole vocabulary and sum to `mass`.
    `expected` and `variance` need labels with values (numbers). `margin` is the probability of the best label minus
    the second's. With a `reason` every number is None. Entropy is in nats.
    """

    labels: tuple[str, ...]
    logprobs: tuple[float, ...] | None = None
    full_logprobs: tuple[float, ...] | None = None
    mass: float | None = None
    best: str | None = None
    expected: float | None = None
    variance: float | None = None
    entropy: float | None = None
    margin: float | None = None
    reason: Reason | None = None
    prompt_tokens: int = 0

    @property
    def probabilities(self) -> tuple[float, ...] | None:
        """exp(logprobs)."""
        return None if self.logprobs is None else tuple(math.exp(value) for value in self.logprobs)

    @staticmethod
    def abstained(labels: tuple[str, ...], reason: Reason, prompt_tokens: int = 0) -> Score:
        """A score without numbers."""
        return Score(labels, reason=reason, prompt_tokens=prompt_tokens)

    @staticmethod
    def of(
        labels: tuple[str, ...], full_logprobs: Sequence[float], values: Sequence[float] | None, prompt_tokens: int
    ) -> Score:
        """Every statistic from the labels' log-probabilities under the whole vocabulary."""
        if not all(value < math.inf for value in full_logprobs):  # NaN compares False
            return Score.abstained(labels, "non_finite", prompt_tokens)
        top = max(full_logprobs)
        if top == -math.inf:
            return Score.abstained(labels, "low_mass", prompt_tokens)
        log_mass = top + math.log(sum(math.exp(value - top) for value in full_logprobs))
        logprobs = tuple(value - log_mass for value in full_logprobs)
        probabilities = [math.exp(value) for value in logprobs]
        ranked = sorted(probabilities, reverse=True)
        expected = variance = None
        if values is not None:
            expected = sum(p * v for p, v in zip(probabilities, values, strict=True))
            variance = sum(p * (v - expected) ** 2 for p, v in zip(probabilities, values, strict=True))
        return Score(
            labels=labels,
            logprobs=logprobs,
            full_logprobs=tuple(full_logprobs),
            mass=math.exp(log_mass),
            best=labels[logprobs.index(max(logprobs))],
            expected=expected,
            variance=variance,
            entropy=-sum(p * lp for p, lp in zip(probabilities, logprobs, strict=True) if p),
            margin=ranked[0] - ranked[1] if len(ranked) > 1 else 1.0,
            prompt_tokens=prompt_tokens,
        )
