"""Numbers for trainers that know no abstention: what moves the policy nowhere."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Collection, Iterable
from numbers import Real

import msgspec

from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import Reason
from adjudge.rewards.reward import GroupReward

RECENT = 512
"""How many rewards, the latest ones, have the mean that stands for those of a group without any."""

BITS = 12
"""Of a number that a whole group gets: float32 has 24, so that the sums of up to 4,096 of them are exact."""

_log = logging.getLogger("adjudge")


class LoneAbstention(AdjudgeError):
    """A sample that came alone has no reward, and no others whose mean could stand for it."""


class Member(msgspec.Struct, frozen=True):
    """What a sample got as a member of its group; `filled` is a number also where there is no reward.

    `few` says that fewer than two of its group have one, so that nothing is learned from the group.
    """

    reward: float | None
    filled: float
    abstained: Reason | None
    few: bool = False


class Filling:
    """What members get where a trainer knows no abstention; an adapter has one, and notes all rewards that it gives.

    A group in which nobody has a reward gets `fill`, or else the mean of the `RECENT` latest rewards, those of the same
    call among them; 0 before there are any. That mean is the adapter's own: each worker has another one, and a run that
    is resumed begins anew. Estimators that compare a group's members make 0 of it whatever it is; those that compare a
    batch's find it in their midst, where a 0 would be the worst of all, or the best.
    """

    def __init__(self, fill: float | None = None) -> None:
        self.fill = checked_fill(fill)
        self._latest: deque[float] = deque(maxlen=RECENT)

    def note(self, rewards: Iterable[GroupReward]) -> None:
        """Remember the rewards of a call, before its groups are filled."""
        for reward in rewards:
            self._latest.extend(value for value in reward.rewards if value is not None)

    def members(self, reward: GroupReward) -> list[Member]:
        """What each member of a group gets; raises LoneAbstention as `filled` does."""
        usual = _mean(self._latest) if self._latest else 0.0
        columns = (reward.settled, filled(reward, self.fill, usual), reward.abstained)
        few = not any(value is not None for value in reward.settled)
        return [Member(*row, few) for row in zip(*columns, strict=True)]


def checked_fill(fill: float | None) -> float | None:
    """The number for samples that abstain alone; raises AdjudgeError for one that is not finite."""
    if fill is not None and not is_number(fill, Real):
        raise AdjudgeError(f"fill is {shown(fill)}: give a finite number, or None to stop where a lone sample abstains")
    return fill


def filled(reward: GroupReward, fill: float | None = None, usual: float = 0.0) -> list[float]:
    """The rewards to train on, with the mean of the group's others where there is none.

    The group's mean stays that of the members that have a reward, and the advantage of the others is 0, up to rounding:
    a 0 in their place would be a reward like any other. (The standard deviation shrinks by √((valid − 1)/(all − 1)), so
    that the others' normalised advantages grow by its inverse: only a trainer that leaves members out can help that, as
    slime does with `slime_advantages`.)
    Where one has a reward all get it, and where nobody has, `fill`, or what is `usual`: nothing is learned from such a
    group, but a trainer may hold it against others of its batch. The number that all get is rounded (`BITS`), by a
    4,096th at most: the mean that a trainer takes in float32 is then that number, and their advantages are exactly 0.
    (Eight times 0.85 can miss it by 6e-8, which OpenRLHF's `group_norm` divides by 1e-9.)
    A sample that is alone gets `fill`, and a line in the log. Raises LoneAbstention without that number.
    """
    settled = [value for value in reward.settled if value is not None]
    if settled:
        mean = _mean(settled)
        return [mean if value is None else value for value in reward.settled]
    if len(reward.rewards) == 1:
        [why] = reward.abstained
        if fill is None:
            raise LoneAbstention(
                f"a sample that came alone abstained ({why}), and has no group whose mean could stand for its reward:"
                " hand over whole groups (num_generations above 1, --group-rm), or give a number as fill"
            )
        _log.warning("a sample that came alone abstained (%s): its reward is fill, %g", why, fill)
        return [fill]
    nobody = usual if fill is None else fill
    return [_rounded(next((value for value in reward.rewards if value is not None), nobody))] * len(reward.rewards)


def _mean(values: Collection[float]) -> float:
    """Their mean, which rounding does not lead beyond them: that of equal numbers is that number."""
    return min(max(math.fsum(values) / len(values), min(values)), max(values))


def _rounded(number: float) -> float:
    """The number with its first `BITS` bits."""
    fraction, exponent = math.frexp(number)
    return math.ldexp(round(math.ldexp(fraction, BITS)), exponent - BITS)
