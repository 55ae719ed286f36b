"""`Guard`: something that watches a reward, measures it in a few numbers, and has limits for some of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar, TypeGuard

import msgspec

from adjudge.engine.checking import shown
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward

UNKNOWN = math.nan
"""What a measure is until there is enough to tell; it is above no limit."""


class GuardTripped(AdjudgeError):
    """A guard that training is to stop on: at `step` its `measure` had a `value` above the `limit`, for `why`."""

    def __init__(self, guard: str, measure: str, value: float, limit: float, step: int, why: str = "") -> None:
        super().__init__(guard, measure, value, limit, step, why)  # these as args: an exception is pickled by them
        self.guard, self.measure, self.value, self.limit, self.step, self.why = guard, measure, value, limit, step, why

    @property
    def finding(self) -> str:
        """What was measured, without what to do about it."""
        return (
            f"step {self.step}: the guard {self.guard} measures {self.measure} {self.value:.4g}, above its limit"
            f" {self.limit:.4g}{f' ({self.why})' if self.why else ''}"
        )

    def __str__(self) -> str:
        return (
            f"{self.finding}: look at what the policy writes, then change the reward, raise the limit, or leave"
            f" {self.guard} out of stop_on"
        )


class Guard(ABC):
    """Watches a reward: at every step what was scored (`observe`), now and then the reward itself (`probe`).

    `measures` are the names that `readings` always has; one that is above its entry in `limits` is a warning. State is
    plain data: a guard pickles, and what it says depends on nothing but what it was shown.
    """

    name: ClassVar[str]
    measures: ClassVar[tuple[str, ...]]
    limits: Mapping[str, float]

    @property
    def remembers(self) -> Mapping[str, Any]:
        """Its attributes, with their types, that a run which is resumed goes on with: what it has seen, and no setting.

        Plain data, or what msgspec makes of it. A deque is named as a list, and stays as long as it was made.
        """
        return {}

    def memory(self) -> dict[str, Any]:
        """What it remembers, as plain data."""
        values = {name: getattr(self, name) for name in self.remembers}
        plain = {name: list(value) if isinstance(value, deque) else value for name, value in values.items()}
        return dict(msgspec.to_builtins(plain, str_keys=True))

    def recalled(self, memory: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes as `memory` told them; raises msgspec.ValidationError for what is none of these."""
        values: dict[str, Any] = {
            name: msgspec.convert(memory.get(name), kind, str_keys=True) for name, kind in self.remembers.items()
        }
        for name, value in values.items():
            if isinstance(window := getattr(self, name), deque):
                values[name] = deque(value, window.maxlen)
        return values

    def observe(self, groups: Sequence[Group], rewards: Sequence[GroupReward]) -> None:
        """Take note of a step's groups and their rewards."""
        return

    def probe(self, reward: Reward) -> None:
        """Ask the reward about texts of the guard's own."""
        return

    @abstractmethod
    def readings(self) -> dict[str, float]:
        """Every measure as it stands; `UNKNOWN` (NaN) for one that cannot be told."""

    def why(self, measure: str) -> str:
        """What is behind a measure that is above its limit, for the log; "" where its name says it all."""
        return ""


def finite(value: float | None) -> TypeGuard[float]:
    """Whether there is a number: rewards of others may hold NaN as well as None."""
    return value is not None and math.isfinite(value)


def checked_limit(name: str, value: Any) -> Any:
    """The limit; raises AdjudgeError for what is no number, and NaN, which nothing is above."""
    if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
        raise AdjudgeError(f"{name} is {shown(value)}: give a number, or infinity for no limit")
    return value
