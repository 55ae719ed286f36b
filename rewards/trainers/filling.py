"""Numbers for trainers that know no abstention: what moves the policy nowhere."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.reward import GroupReward

_log = logging.getLogger("adjudge")


class LoneAbstention(AdjudgeError):
    """A sample that came alone has no reward, and no others whose mean could stand for it."""


def checked_fill(fill: float | None) -> float | None:
    """The number for samples that abstain alone; raises AdjudgeError for one that is not finite."""
    if fill is not None and not math.isfinite(fill):
        raise AdjudgeError(f"fill is {fill}: give a finite number, or None to stop where a lone sample abstains")
    return fill


def filled(reward: GroupReward, fill: float | None = None) -> list[float]:
    """The rewards to train on, with the mean of the group's others where there is none.

    The group's mean stays that of the members that have a reward, and the advantage of the others is 0, up to rounding:
    a 0 in their place would be a reward like any other. (The standard deviation shrinks by √((valid − 1)/(all − 1)), so
    that the others' normalised advantages grow by its inverse: only a trainer that leaves members out can help that.)
    Where nobody has one all are `fill`, or 0.
    A sample that is alone gets `fill`, and a line in the log. Raises LoneAbstention without that number.
    """
    if [*reward.rewards] == [None]:
        return [_lone(reward, fill)]
    known = [value for value in reward.settled if value is not None]
    mean = _mean(known) if known else fill or 0.0
    return [mean if value is None else value for value in reward.settled]


def _mean(values: Collection[float]) -> float:
    """Their mean, which rounding does not lead beyond them: that of equal numbers is that number."""
    return min(max(math.fsum(values) / len(values), min(values)), max(values))


def _lone(reward: GroupReward, fill: float | None) -> float:
    if fill is None:
        raise LoneAbstention(
            f"a sample that came alone abstained ({reward.abstained[0]}), and has no group whose mean could stand for"
            " its reward: hand over whole groups (num_generations above 1, --group-rm), or give a number as fill"
        )
    _log.warning("a sample that came alone abstained (%s): its reward is fill, %g", reward.abstained[0], fill)
    return fill
