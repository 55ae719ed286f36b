"""Numbers for trainers that know no abstention: what moves the policy nowhere."""

from __future__ import annotations

import math

from adjudge.rewards.reward import GroupReward


def filled(reward: GroupReward) -> list[float]:
    """The rewards to train on, with the mean of the group's others where there is none; all 0 where nobody has one.

    The group's mean stays that of the members that have a reward, and the advantage of the others is 0, up to rounding:
    a 0 in their place would be a reward like any other. (The standard deviation shrinks by √(valid/all), so that the
    others' normalised advantages grow by its inverse: only a trainer that leaves members out can help that.)
    """
    known = [value for value in reward.settled if value is not None]
    mean = math.fsum(known) / len(known) if known else 0.0
    return [mean if value is None else value for value in reward.settled]
