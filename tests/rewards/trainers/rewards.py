"""Rewards of which every number can be foretold, and one that asks an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from adjudge.engine.engine import Engine
from adjudge.engine.face import EngineFace
from adjudge.rewards.aspects import STORYER
from adjudge.rewards.group import Group
from adjudge.rewards.pointwise import PointwiseJudge
from adjudge.rewards.reward import GroupReward, Reward
from adjudge.rewards.verdict import Item


class Relative(Reward):
    """How much longer a response is than its group's mean; `asked` notes the groups that were asked for."""

    name = "relative"

    def __init__(self) -> None:
        self.asked: list[Group] = []

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        self.asked += groups
        return [self._scored(group) for group in groups]

    def _scored(self, group: Group) -> GroupReward:
        lengths = [len(response) for response in group.responses]
        values = tuple(length - sum(lengths) / len(lengths) for length in lengths)
        return GroupReward(values, (None,) * len(values), {"length": tuple(map(float, lengths))})


class Told(Reward):
    """What `answer` says about each response; an abstention with "low_mass" where it says None."""

    name = "told"

    def __init__(self, answer: Callable[[str], Any]) -> None:
        self.answer = answer

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        return [self._scored(group) for group in groups]

    def _scored(self, group: Group) -> GroupReward:
        values = tuple(self.answer(response) for response in group.responses)
        return GroupReward(values, tuple("low_mass" if value is None else None for value in values))


class Judged(Reward):
    """A tiny judge's score; the engine opens on the first call and is no part of a pickle."""

    name = "judged"

    def __init__(self) -> None:
        self.prompts: list[str] = []

    @cached_property
    def judge(self) -> PointwiseJudge:
        return PointwiseJudge(Engine("dummy:tiny-llama", kv_cache_gb=0.1), STORYER[:2])

    @property
    def engines(self) -> tuple[EngineFace, ...]:
        return (self.judge.engine,) if "judge" in self.__dict__ else ()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "judge"}

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        return [self._scored(group) for group in groups]

    def _scored(self, group: Group) -> GroupReward:
        self.prompts.append(group.prompt)
        verdicts = self.judge.judge(Item(group.prompt, response) for response in group.responses)
        return GroupReward(
            tuple(verdict.score for verdict in verdicts),
            tuple(verdict.abstained for verdict in verdicts),
            measures={"mass": tuple(verdict.mass for verdict in verdicts)},
        )


def fails_on_second(response: str) -> float:
    if "B" in response:
        raise KeyError("no such rubric")
    return float(len(response))


class Short(Told):
    """One reward too few for the group that has a B."""

    def _scored(self, group: Group) -> GroupReward:
        count = len(group.responses) - any("B" in response for response in group.responses)
        return GroupReward((1.0,) * count, (None,) * count)
