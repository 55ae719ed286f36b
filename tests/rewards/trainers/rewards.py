"""Rewards of which every number can be foretold, and one that asks an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

from adjudge.rewards.engines.specification import EngineSpec, JudgeSpec
from adjudge.rewards.guards.guard import Guard, GuardTripped
from adjudge.rewards.judge_rewards.judge_reward import JudgeReward
from adjudge.rewards.judges.aspects import STORYER
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward


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


class Patient(Relative):
    """Scores only when something else of the event loop (`others`) has gone on meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.went_on = Event(), Event()

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        self.began.set()
        assert self.went_on.wait(60)
        return super().score_groups(groups)

    async def others(self) -> None:
        while not self.began.is_set():
            await asyncio.sleep(0)
        self.went_on.set()


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


class Judged(JudgeReward):
    """A tiny judge's score; `prompts` notes what was asked for."""

    def __init__(self) -> None:
        engine = EngineSpec("dummy:tiny-llama", kv_cache_gb=0.1)
        super().__init__(JudgeSpec("pointwise", {"aspects": STORYER[:2]}, engine), name="judged")
        self.prompts: list[str] = []

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        self.prompts += [group.prompt for group in groups]
        return super().score_groups(groups)


def fails_on_second(response: str) -> float:
    if "B" in response:
        raise KeyError("no such rubric")
    return float(len(response))


class Short(Told):
    """One reward too few for the group that has a B."""

    def _scored(self, group: Group) -> GroupReward:
        count = len(group.responses) - any("B" in response for response in group.responses)
        return GroupReward((1.0,) * count, (None,) * count)


class Trips(Told):
    """A guard trips where there is a B."""

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        if any("B" in response for group in groups for response in group.responses):
            raise GuardTripped("length", "grip", 0.5, 0.3, 7)
        return super().score_groups(groups)


class Waiting(Reward):
    """Answers when it is let go, and says when it is asked and when it is done."""

    def __init__(self) -> None:
        self.asked, self.go = Event(), Event()
        self.calls = 0

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        self.calls += 1
        self.asked.set()
        assert self.go.wait(60)
        return [GroupReward((1.0, 2.0), (None, None)) for _ in groups]


class Seen(Guard):
    """Notes the prompts of every step, and at which steps it probes."""

    name, measures = "seen", ()
    limits = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.steps: list[list[str]] = []
        self.probed: list[int] = []

    def observe(self, groups: Sequence[Group], rewards: Sequence[GroupReward]) -> None:
        self.steps.append([group.prompt for group in groups])

    def probe(self, reward: Reward) -> None:
        self.probed.append(len(self.steps) + 1)

    def readings(self) -> dict[str, float]:
        return {}
