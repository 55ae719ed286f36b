"""What is worth watching while a reward is trained on, as numbers by name."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import get_args

from adjudge.engine.score import Reason
from adjudge.rewards.guards.length import PER, judged_rewards, judged_words, length_points
from adjudge.rewards.guards.length_trend import centred
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import Column, GroupReward, as_float

REASONS: tuple[Reason, ...] = get_args(Reason)


def logged(groups: Sequence[Group], rewards: Sequence[GroupReward]) -> dict[str, float]:
    """Rates, which are there also when they are 0, and means, which are there where there is something to measure.

    `abstained` is the share of completions without a reward to train on, `abstained/<reason>` the shares by reason,
    `abstained/too_few` of those whose reward was left out because nobody else in their group had one. `zero_variance`
    is the share of groups from which nothing is learned: their rewards are all equal, or there are none. `length_slope`
    is by how much the reward rises with every hundred words judged, within groups, where no gate decided it.
    `mean/<part>` and `mean/<measure>` are means of what the reward says of itself (label mass, position bias); a part
    that has a measure's name is `mean/part/<part>`.
    """
    settled = [reward.settled for reward in rewards]
    why = [reason for reward in rewards for reason in reward.abstained]
    dropped = [
        kept is None and value is not None
        for reward, group in zip(rewards, settled, strict=True)
        for value, kept in zip(reward.rewards, group, strict=True)
    ]
    measures = {"abstained": _share(value is None for group in settled for value in group)}
    measures |= {f"abstained/{reason}": _share(given == reason for given in why) for reason in REASONS}
    measures["abstained/too_few"] = _share(dropped)
    measures["zero_variance"] = _share(len(set(group) - {None}) < 2 for group in settled)
    words = [judged_words(group, reward) for group, reward in zip(groups, rewards, strict=True)]
    slope = length_slope(words, list(map(judged_rewards, rewards)))  # one reward in a group has no slope
    if slope is not None:
        measures["length_slope"] = slope
    return measures | _means(rewards)


def length_slope(words: Sequence[Sequence[float]], rewards: Sequence[Sequence[float | None]]) -> float | None:
    """The least-squares slope of reward over hundreds of words that all groups share; None where lengths are equal."""
    points = [length_points(counts, values) for counts, values in zip(words, rewards, strict=True)]
    x_N, y_N = centred(points).T
    spread = float(x_N @ x_N)
    return PER * float(x_N @ y_N) / spread if spread else None


def _means(rewards: Sequence[GroupReward]) -> dict[str, float]:
    columns: dict[str, list[float]] = {}
    for reward in rewards:
        parts = parts_beside(reward.measures, reward)
        for name, values in (*parts.items(), *reward.measures.items()):
            known = (as_float(value) for value in values if value is not None)
            columns.setdefault(name, []).extend(filter(math.isfinite, known))
    return {f"mean/{name}": math.fsum(known) / len(known) for name, known in columns.items() if known}


def parts_beside(others: Collection[str], reward: GroupReward) -> dict[str, Column]:
    """The parts of a reward by the names that they are logged by: "part/<part>" for one that is among the `others`."""
    return {f"part/{name}" if name in others else name: own for name, own in reward.parts.items()}


def _share(flags: Iterable[bool]) -> float:
    known = list(flags)
    return sum(known) / len(known) if known else 0.0
