"""Rewards made for tests: each text has a number of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from adjudge.rewards.guards.canary import Canary
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward

CANARIES = tuple(
    Canary(f"Prompt {n}.", f"Good {n} text.", f"Fair {n}. More of it.", f"Bad {n}", f"Reference {n}.") for n in range(4)
)
BY_RANK = {"Good": 5.0, "Fair": 3.0, "Bad": 1.0}


def rank(group: Group, text: str) -> float:
    """5, 3 or 1 by the beginning of the text, 2 for any other, and for those that belong to another prompt."""
    if group.prompt.startswith("Prompt") and group.prompt[6:8] not in text:
        return 2.0
    return next((value for start, value in BY_RANK.items() if text.startswith(start)), 2.0)


class Made(Reward):
    """Pays every text what `pay` says, and counts its calls."""

    name = "made"

    def __init__(self, pay: Callable[[Group, str], float | None] = rank) -> None:
        self.pay = pay
        self.asked: list[list[Group]] = []

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        self.asked.append(list(groups))
        return [rewarded([self.pay(group, text) for text in group.responses]) for group in groups]


def rewarded(values: Sequence[float | None]) -> GroupReward:
    return GroupReward(tuple(values), tuple("timeout" if value is None else None for value in values))


def of_words(*counts: int) -> Group:
    return Group("A prompt.", tuple("w " * count for count in counts))
