"""Whether longer texts are rewarded more: the within-group slope of rewards on words."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from adjudge.engine.checking import at_least
from adjudge.rewards.guards.guard import UNKNOWN, Guard, checked_limit, finite
from adjudge.rewards.guards.length_trend import LengthTrend, Points, length_trend
from adjudge.rewards.parts.combining import OF_THE_TEXT
from adjudge.rewards.parts.gated import shut_out
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import Column, GroupReward
from adjudge.rewards.words import count_words

PER = 100
"""The slope is per so many words."""


def length_points(words: Sequence[float], rewards: Sequence[float | None]) -> Points:
    """(words, reward) of a group's members that have a reward."""
    return [(count, value) for count, value in zip(words, rewards, strict=True) if finite(value)]


def judged_words(group: Group, reward: GroupReward) -> list[float]:
    """How many words of each response were judged: those of a section, where the judge sees no more (`SectionReward`).

    That is the measure "words"; all of a response's where the reward does not say.
    """
    said = reward.measures.get(OF_THE_TEXT) or (None,) * len(group.responses)
    return [float(count_words(text)) if n is None else n for n, text in zip(said, group.responses, strict=True)]


def judged_rewards(reward: GroupReward) -> Column:
    """The rewards that may go with length: None where there is none, or a gate around the reward decided it."""
    pairs = zip(reward.rewards, shut_out(reward), strict=True)
    return tuple(value if finite(value) and not closed else None for value, closed in pairs)


class LengthGuard(Guard):
    """Watches how rewards go with length within the groups, over the last `window` groups with two rewards or more.

    Measures: `slope` of the reward per 100 words with the ends of its 95 % interval (`low`, `high`), Pearson's
    `correlation`, and, from `enough` rewards in the window on, `grip`: how strong the correlation is at the least, in
    either direction, by its own interval (0 where that holds 0). `grip` has a limit: it is free of units, and does not
    trip on a slope that chance can explain, as it often can of the few rewards of the first steps, looked at after each
    of them. Abstained members count nowhere, nor does what a gate has shut out.
    """

    name = "length"
    measures = ("slope", "low", "high", "correlation", "grip")

    def __init__(self, *, limit: float = 0.3, window: int = 64, enough: int = 64) -> None:
        at_least(1, **{"the length guard's window": window})
        at_least(2, **{"the length guard's enough": enough})
        self.enough = enough
        self.limits = {"grip": checked_limit("the length guard's limit", limit)}
        self.groups: deque[Points] = deque(maxlen=window)

    @property
    def remembers(self) -> Mapping[str, Any]:
        """The groups in the window."""
        return {"groups": list[list[tuple[float, float]]]}

    def observe(self, groups: Sequence[Group], rewards: Sequence[GroupReward]) -> None:
        """Take note of a step's groups and their rewards."""
        for group, reward in zip(groups, rewards, strict=True):
            if len(points := length_points(judged_words(group, reward), judged_rewards(reward))) > 1:
                self.groups.append(points)

    @property
    def trend(self) -> LengthTrend:
        """The slope per word over the groups in the window."""
        return length_trend(self.groups)

    def readings(self) -> dict[str, float]:
        """Every measure as it stands."""
        trend = self.trend
        if trend.slope is None or trend.interval is None or trend.correlation_interval is None:
            return dict.fromkeys(self.measures, UNKNOWN)
        low, high = trend.correlation_interval
        told = sum(map(len, self.groups)) >= self.enough
        return {
            "slope": PER * trend.slope,
            "low": PER * trend.interval[0],
            "high": PER * trend.interval[1],
            "correlation": trend.correlation or 0.0,
            "grip": max(low, -high, 0.0) if told else UNKNOWN,
        }
