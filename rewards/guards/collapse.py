"""Whether a judge has fallen back on a few scores: the entropy of what it predicts, against the data's."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from adjudge.engine.checking import at_least, shown
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.guards.guard import UNKNOWN, Guard, checked_limit, finite
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import LEAST_VALID, GroupReward

LOSS = 0.5
"""The limit of `loss` beside a given reference."""


class CollapseGuard(Guard):
    """Watches the histogram of scores over the last `window` groups: EvolvR's evaluator collapsed onto the commonest.

    `reference` are scores as they should be spread (people's, from the data). The histogram has `bins` of equal width
    between its ends; scores beyond fall into the outer ones. Without a reference the first `enough` scores that are not
    all equal stand for it; the bins keep that width, and there are as many as the scores of the window need from their
    own least on: a policy that learns is paid more, which is no collapse. Nor is one whose rewards come to the end of
    their range, so that `loss` has a limit beside a given reference, or where it is given one. Scores are the rewards,
    or the `parts` of them by these names, together: of an evaluator in training what it wrote ("score/score_a",
    "score/score_b").

    Measures, from `enough` scores in the window on: `entropy` of the histogram and `reference_entropy`, in nats;
    `loss` = 1 − entropy/reference_entropy (below 0 where there is more); `commonest` = the share of the fullest bin;
    and, from an eighth as many groups with two rewards or more on, `zero_variance` = the share of those whose rewards
    are all equal, from which nothing is learned. It has a limit, and so may `loss`.
    """

    name = "collapse"
    measures = ("entropy", "reference_entropy", "loss", "commonest", "zero_variance")

    def __init__(
        self,
        reference: Sequence[float] | None = None,
        *,
        parts: Sequence[str] = (),
        bins: int = 10,
        window: int = 128,
        enough: int = 64,
        loss: float | None = None,
        zero_variance: float = 0.8,
    ) -> None:
        if isinstance(parts, str):
            raise AdjudgeError(f'the collapse guard\'s parts are "{parts}": give a list of names')
        at_least(1, **{"the collapse guard's window": window})
        at_least(2, **{"the collapse guard's bins": bins, "the collapse guard's enough": enough})
        self.parts = tuple(parts)
        self.bins = bins
        self.enough = enough
        self.given = reference is not None
        self.limits = {"zero_variance": checked_limit("the collapse guard's zero_variance", zero_variance)}
        if loss is not None or self.given:
            self.limits["loss"] = checked_limit("the collapse guard's loss", LOSS if loss is None else loss)
        try:
            self.reference = [] if reference is None else [float(score) for score in reference]
        except (TypeError, ValueError) as error:
            told = f"the collapse guard's reference is {shown(reference)}: give the data's scores, as numbers"
            raise AdjudgeError(told) from error
        if reference is not None and not (all(map(math.isfinite, self.reference)) and len(set(self.reference)) > 1):
            raise AdjudgeError("the collapse guard's reference has no two different finite scores: give the data's")
        self.scores: deque[tuple[float, ...]] = deque(maxlen=window)
        self.equal: deque[bool] = deque(maxlen=window)

    @property
    def remembers(self) -> Mapping[str, Any]:
        """The groups in the window, and the first scores where those stand for the reference."""
        seen = {"scores": list[tuple[float, ...]], "equal": list[bool]}
        return seen if self.given else seen | {"reference": list[float]}

    def observe(self, groups: Sequence[Group], rewards: Sequence[GroupReward]) -> None:
        """Take note of a step's groups and their rewards."""
        for reward in rewards:
            columns = [reward.parts.get(part, ()) for part in self.parts] if self.parts else [reward.rewards]
            scores = tuple(value for column in columns for value in column if finite(value))
            valid = [value for value in reward.rewards if finite(value)]
            if scores:
                self.scores.append(scores)
            if len(valid) >= LEAST_VALID:
                self.equal.append(len(set(valid)) == 1)
            if not self.given and len(self.reference) < self.enough:
                self.reference.extend(scores)
        if len(self.reference) >= self.enough and len(set(self.reference)) < 2:
            self.reference.clear()
        self._check_parts(rewards)

    def readings(self) -> dict[str, float]:
        """Every measure as it stands."""
        readings = dict.fromkeys(self.measures, UNKNOWN)
        if len(self.equal) * 8 >= self.enough:
            readings["zero_variance"] = sum(self.equal) / len(self.equal)
        scores = [score for row in self.scores for score in row]
        known = self.given or len(self.reference) >= self.enough
        if not known or len(scores) < self.enough or len(set(self.reference)) < 2:
            return readings
        shares, expected = self._shares(scores), self._shares(self.reference)
        now, then = entropy(shares), entropy(expected)
        return readings | {
            "entropy": now,
            "reference_entropy": then,
            "loss": 1.0 - now / then,
            "commonest": max(shares),
        }

    def _check_parts(self, rewards: Sequence[GroupReward]) -> None:
        """Raises AdjudgeError for parts that no group has while there are others.

        A part that nobody was given, as what is behind a gate where that shut everybody out, may be made of them.
        """
        known = {part for reward in rewards for part in reward.parts}
        given = {part for reward in rewards for part, column in reward.parts.items() if any(map(finite, column))}
        if any(wanted.startswith(f"{part}/") for wanted in self.parts for part in known - given):
            return
        if self.parts and known and not known & set(self.parts):
            raise AdjudgeError(
                f"the reward has no part {' or '.join(self.parts)} for the collapse guard: choose from"
                f" {', '.join(sorted(known))}"
            )

    def _shares(self, scores: Sequence[float]) -> list[float]:
        counts_B = np.unique(self._bins_of(np.array(scores)), return_counts=True)[1]
        return [float(count) / len(scores) for count in counts_B]

    def _bins_of(self, scores_N: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """The bin of each score; without a given reference the least score is amid the first."""
        low, high = min(self.reference), max(self.reference)
        if self.given:
            return np.searchsorted(np.linspace(low, high, self.bins + 1)[1:-1], scores_N, side="right")
        with np.errstate(over="ignore"):
            places_N: npt.NDArray[Any] = np.round((scores_N - scores_N.min()) * self.bins / (high - low))
        return places_N


def entropy(shares: Sequence[float]) -> float:
    """−Σ p log p, in nats."""
    return -math.fsum(share * math.log(share) for share in shares if share) or 0.0
