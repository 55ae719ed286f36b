"""EvolvR's reward for a story (arXiv 2508.06046, equations 7 to 10, C.2.3): as published, as released, and mended."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.aspects import HANNA, Aspect
from adjudge.rewards.preference import sigmoid

_BY_NAME = {aspect.name: aspect for aspect in HANNA}

STORY_ASPECTS: tuple[Aspect, ...] = (
    Aspect("creativity", "How original is the story: its idea, its images, the turns it takes?", 5.0),
    *(
        msgspec.structs.replace(_BY_NAME[name], weight=weight)
        for name, weight in (
            ("coherence", 3.0),
            ("relevance", 1.0),
            ("complexity", 3.0),
            ("surprise", 1.0),
            ("engagement", 1.0),
        )
    ),
)
"""What the reward looks at, with the paper's α as weights. HANNA has no creativity: that aspect is ours."""

RELEASED_ALPHA: dict[str, float] = {
    "relevance": 5.0,
    "coherence": 3.0,
    "empathy": 1.0,
    "surprise": 3.0,
    "engagement": 1.0,
    "complexity": 1.0,
}
"""The aspect weights of the authors' released code, which are not the paper's; they sum to 14."""

BEST, WORST = 5.0, 1.0
"""The ends of the scale that aspects are scored on."""


class ComponentWeights(msgspec.Struct, frozen=True):
    """How the parts of the reward are weighted; the defaults are the paper's (C.2.3)."""

    advantage: float = 0.1
    absolute: float = 0.8
    length: float = 0.1


PAPER_WEIGHTS = ComponentWeights()


class LengthWindow(msgspec.Struct, frozen=True):
    """How many words a story should have. Raises AdjudgeError unless 0 < least ≤ most."""

    least: int = 200
    most: int = 800

    def __post_init__(self) -> None:
        if not 0 < self.least <= self.most:
            raise AdjudgeError(f"a window of {self.least} to {self.most} words holds nothing: give 0 < least ≤ most")

    def reward(self, words: int) -> float:
        """1 inside the window, falling linearly to 0 at half its least and twice its most (the paper gives no f)."""
        if words < self.least:
            return max(0.0, 2.0 * words / self.least - 1.0)
        return min(1.0, max(0.0, 2.0 - words / self.most))


def weighted_sum(scores: Mapping[str, float], alpha: Mapping[str, float]) -> float:
    """Σ α_k y_k over the aspects of `alpha`, all of which must have a score."""
    return math.fsum(weight * scores[name] for name, weight in alpha.items())


def published_reward(
    scores: Mapping[str, float],
    reference: Mapping[str, float],
    length: float,
    aspects: Sequence[Aspect] = STORY_ASPECTS,
    weights: ComponentWeights = PAPER_WEIGHTS,
) -> float:
    """Equations 7 to 10 as they stand: w₁ Σ α(y − y_ref) + w₂ Σ α y + w₃ f.

    Its flaw: the sums are not normalised, so that with the paper's α the first two parts reach 61.6 and the length's
    0.1 is lost beside them. `mended_reward` has all parts in units of their own range.
    """
    alpha = {aspect.name: aspect.weight for aspect in aspects}
    mine, theirs = weighted_sum(scores, alpha), weighted_sum(reference, alpha)
    return weights.advantage * (mine - theirs) + weights.absolute * mine + weights.length * length


def mended_reward(
    scores: Mapping[str, float],
    reference: Mapping[str, float],
    length: float,
    aspects: Sequence[Aspect] = STORY_ASPECTS,
    weights: ComponentWeights = PAPER_WEIGHTS,
) -> float:
    """The same with each part in [0, 1]: the sums as weighted means, a tie with the reference in the middle.

    It rises with every score whose aspect has weight, and falls with the reference's.
    """
    alpha = {aspect.name: aspect.weight for aspect in aspects}
    total, span = math.fsum(alpha.values()), BEST - WORST
    mine, theirs = weighted_sum(scores, alpha) / total, weighted_sum(reference, alpha) / total
    advantage, absolute = ((mine - theirs) / span + 1.0) / 2.0, (mine - WORST) / span
    return weights.advantage * advantage + weights.absolute * absolute + weights.length * length


def released_relative(difference: float) -> float:
    """The authors' released map of the mean difference d to the reference, which weighs 0.8 there.

    0.2/(1 + e^(−10(d + 0.1))) for d ≤ 0, 1 − e^(−d) above. Its flaw: it falls at 0, so that a tie pays .146 and a win
    by 1/14 only .069. `mended_relative` goes on from where it is at a tie.
    """
    return _lost(difference) if difference <= 0 else -math.expm1(-difference)


def mended_relative(difference: float) -> float:
    """The released map without its fall: from its value at a tie, r₀, on with r₀ + (1 − r₀)(1 − e^(−d))."""
    if difference <= 0:
        return _lost(difference)
    tie = _lost(0.0)
    return tie - (1.0 - tie) * math.expm1(-difference)


def _lost(difference: float) -> float:
    return 0.2 * sigmoid(10.0 * (difference + 0.1))
