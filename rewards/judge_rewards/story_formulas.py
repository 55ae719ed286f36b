"""The formulas of EvolvR's reward for a story (arXiv 2508.06046, equations 7 to 10, C.2.3): published and mended."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real

import msgspec

from adjudge.engine.checking import is_number
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.aspects import HANNA, Aspect
from adjudge.rewards.judges.preference import sigmoid


def _weighed(**alpha: float) -> tuple[Aspect, ...]:
    """HANNA's aspects of these names with these weights."""
    known = {aspect.name: aspect for aspect in HANNA}
    return tuple(msgspec.structs.replace(known[name], weight=weight) for name, weight in alpha.items())


STORY_ASPECTS: tuple[Aspect, ...] = (
    Aspect("creativity", "How original is the story: its idea, its images, the turns it takes?", 5.0),
    *_weighed(coherence=3.0, relevance=1.0, complexity=3.0, surprise=1.0, engagement=1.0),
)
"""What the reward looks at, with the paper's α as weights. HANNA has no creativity: that aspect is ours."""

RELEASED_ASPECTS = _weighed(relevance=5.0, coherence=3.0, empathy=1.0, surprise=3.0, engagement=1.0, complexity=1.0)
"""With the weights of the authors' released code, which are not the paper's; they sum to 14."""

BEST, WORST = 5.0, 1.0
"""The ends of the scale that aspects are scored on."""

ROUNDING = 1e-6
"""By how much the mean of a distribution over the scale may lie beyond its end."""


class ComponentWeights(msgspec.Struct, frozen=True):
    """How the parts of the reward are weighted; the defaults are the paper's (C.2.3)."""

    advantage: float = 0.1
    absolute: float = 0.8
    length: float = 0.1

    def __post_init__(self) -> None:
        if not all(is_number(weight, Real) for weight in (self.advantage, self.absolute, self.length)):
            raise AdjudgeError(f"the weights of the parts are {self}: give finite numbers")

    def sum(self, advantage: float, absolute: float, length: float) -> float:
        """w₁ advantage + w₂ absolute + w₃ length."""
        return self.advantage * advantage + self.absolute * absolute + self.length * length


PAPER_WEIGHTS = ComponentWeights()
RELEASED_WEIGHTS = ComponentWeights(advantage=0.8, absolute=0.1, length=0.1)
"""Those of the released code, where what is relative to the reference weighs most."""


def weighted_sum(scores: Mapping[str, float], aspects: Sequence[Aspect]) -> float:
    """Σ α_k y_k over the aspects, all of which must have a score."""
    return math.fsum(aspect.weight * scores[aspect.name] for aspect in aspects)


def weighted_mean_of(scores: Mapping[str, float], aspects: Sequence[Aspect]) -> float:
    """Σ α_k y_k / Σ α_k over the aspects."""
    return weighted_sum(scores, aspects) / math.fsum(aspect.weight for aspect in aspects)


def published_parts(
    scores: Mapping[str, float], reference: Mapping[str, float], aspects: Sequence[Aspect]
) -> tuple[float, float]:
    """(advantage, absolute) of equations 8 and 9 as they stand: Σ α(y − y_ref) and Σ α y.

    Their flaw: the sums are not normalised, so that with the paper's α they reach 56 and 70 and the length's 0.1 is
    lost beside them. `mended_parts` has each in units of its own range.
    """
    mine, theirs = weighted_sum(scores, aspects), weighted_sum(reference, aspects)
    return mine - theirs, mine


def mended_parts(
    scores: Mapping[str, float], reference: Mapping[str, float], aspects: Sequence[Aspect]
) -> tuple[float, float]:
    """The same with each part in [0, 1]: the sums as weighted means, a tie with the reference in the middle.

    Both rise with every score whose aspect has weight; the advantage falls with the reference's. Raises AdjudgeError
    for a score that is not from WORST to BEST, of which no part of that range can be told.
    """
    for aspect in aspects:
        for score in (scores[aspect.name], reference[aspect.name]):
            if not WORST - ROUNDING <= score <= BEST + ROUNDING:
                raise AdjudgeError(
                    f'the judge scores "{aspect.name}" {score:g}, and this reward is of scores from {WORST:g} to'
                    f' {BEST:g}: let the judge score on that scale, or give form="parity"'
                )
    mine, theirs = weighted_mean_of(scores, aspects), weighted_mean_of(reference, aspects)
    return ((mine - theirs) / (BEST - WORST) + 1.0) / 2.0, (mine - WORST) / (BEST - WORST)


def released_parts(
    scores: Mapping[str, float], reference: Mapping[str, float], aspects: Sequence[Aspect]
) -> tuple[float, float]:
    """The parts of the authors' released code: the map of the mean difference (`released_relative`), and the mean."""
    mine, theirs = weighted_mean_of(scores, aspects), weighted_mean_of(reference, aspects)
    return released_relative(mine - theirs), mine


def released_relative(difference: float) -> float:
    """The authors' released map of the mean difference d to the reference, which weighs 0.8 there.

    0.2/(1 + e^(−10(d + 0.1))) for d ≤ 0, 1 − e^(−d) above. Its flaw: it falls at 0, so that a tie pays .146 and a win
    by 1/14 only .069.
    """
    return 0.2 * sigmoid(10.0 * (difference + 0.1)) if difference <= 0 else -math.expm1(-difference)
