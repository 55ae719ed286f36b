"""`Reward`: completions in, numbers to train on out, a whole group at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import Reason
from adjudge.rewards.group import Group

LEAST_VALID = 2
"""Members with a reward that a group of two or more must have: a mean of one says nothing about it."""


class GroupReward(msgspec.Struct, frozen=True):
    """The rewards of a group's responses, in order: None for one on which the judge abstained, with the reason.

    `parts` has what each reward is made of, by name; `measures` what is worth watching besides (label mass, position
    bias, length in words), where there is any. Raises AdjudgeError unless all have one entry for each response.
    """

    rewards: tuple[float | None, ...]
    abstained: tuple[Reason | None, ...]
    parts: dict[str, tuple[float | None, ...]] = {}
    measures: dict[str, tuple[float | None, ...]] = {}

    def __post_init__(self) -> None:
        for name, column in (("abstained", self.abstained), *self.parts.items(), *self.measures.items()):
            if len(column) != len(self.rewards):
                raise AdjudgeError(
                    f"{name} has {len(column)} entries for {len(self.rewards)} rewards: give one for each"
                )

    @property
    def settled(self) -> tuple[float | None, ...]:
        """The rewards to train on: none at all where fewer than two of two or more members have one."""
        valid = sum(reward is not None for reward in self.rewards)
        if len(self.rewards) >= LEAST_VALID and valid < LEAST_VALID:
            return (None,) * len(self.rewards)
        return self.rewards


class Reward(ABC):
    """What a trainer maximises; `name` is how its logs call it. Groups are the primitive: a judge shares their prompt.

    The reward of a response may depend on its group's other members (a tournament), never on other groups.
    """

    name: str = "adjudge"

    @abstractmethod
    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        """The rewards of each group, in order; a group may hold a single response, or none."""
