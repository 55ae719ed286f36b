"""The variance filter: rubric sets that give all answers nearly the same score cannot tell good ones from weak ones."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import pstdev, pvariance
from typing import Any

import msgspec

from adjudge.rewards.judges.rubric_scoring import TOTAL, Form
from adjudge.rewards.records.rubric import Rubric
from adjudge.training.rubrics.drafts import rubric_record

ALPHA = 0.15
"""The paper's threshold (A.2)."""

FEWEST = 2
"""Scores without which there is no variance."""


class RubricSet(msgspec.Struct, frozen=True):
    """One of the sets written for a question; `mended` says that its points had to be made to sum."""

    question: str
    number: int
    rubric: Rubric
    mended: bool = False

    @property
    def record(self) -> dict[str, Any]:
        """As it is written."""
        return {
            "question": self.question,
            "set": self.number,
            "mended": self.mended,
            "rubric": rubric_record(self.rubric),
        }


class Spread(msgspec.Struct, frozen=True):
    """The scores of a question's answers under one set, from 0 to 10, and how far apart they are.

    `scores` are in the order of the answers, None where the judge abstained; variance and deviation are of those there
    are, as of a whole population.
    """

    question: str
    number: int
    scores: tuple[float | None, ...]
    variance: float | None
    deviation: float | None

    @staticmethod
    def of(rubric_set: RubricSet, rewards: Sequence[float | None]) -> Spread:
        """What the judge's scores of a question's answers, in [0, 1], come to."""
        scores = tuple(None if reward is None else TOTAL * reward for reward in rewards)
        told = [score for score in scores if score is not None]
        enough = len(told) >= FEWEST and 2 * len(told) >= len(scores)
        return Spread(
            rubric_set.question,
            rubric_set.number,
            scores,
            pvariance(told) if enough else None,
            pstdev(told) if enough else None,
        )

    @property
    def record(self) -> dict[str, Any]:
        """As it is written, beside its set."""
        return {"scores": self.scores, "variance": self.variance, "deviation": self.deviation}

    def dropped_for(self, alpha: float, form: Form) -> str | None:
        """Why the set is left out, if it is: "unscored" (most answers, or all but one, abstained), or "low_variance".

        "parity": the variance is below α·Δ, as published (A.2), Δ being the range of scores, 10. Its flaw: a variance
        has the unit of a squared score, so that on another scale the same scores pass or fail (in [0, 1] no set could
        reach .15, on 0 to 100 nearly all do). "fixed": the standard deviation is below α·Δ, the same on every scale.
        """
        if self.variance is None or self.deviation is None:
            return "unscored"
        measure = self.variance if form == "parity" else self.deviation
        return "low_variance" if measure < alpha * TOTAL else None
