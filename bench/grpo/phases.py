"""Where the seconds of a GRPO step go, told by where TRL calls: the step, the reward, the step's end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec
import torch
from transformers import TrainerCallback

from adjudge.bench.grpo.variants import Opened, Spent
from adjudge.bench.kernels.timing import synchronize
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward


class StepTimes(msgspec.Struct, frozen=True):
    """Seconds of one step, what its judge spent, what was judged and how often it abstained.

    `generate` lasts from the step's beginning until the reward is called, `update` from its return to the step's end.
    `peak_bytes` is the most that torch had allocated on the GPU during the step, None on CPU.
    """

    generate: float
    reward: float
    update: float
    spent: Spent
    groups: tuple[Group, ...]
    abstained: int
    peak_bytes: int | None = None

    @property
    def step(self) -> float:
        """All of it."""
        return self.generate + self.reward + self.update


class Phases(TrainerCallback):
    """Takes the times of a run whose reward is `self.reward`; the trainer saves no checkpoint meanwhile."""

    def __init__(self, opened: Opened, device: torch.device) -> None:
        self.steps: list[StepTimes] = []
        self.reward = _Timed(opened, self._now)
        self._device = device

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        self._began = self._now()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End."""
        ended, timed = self._now(), self.reward
        peak = torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else None
        times = (timed.called - self._began, timed.returned - timed.called, ended - timed.returned)
        self.steps.append(StepTimes(*times, timed.spent, timed.groups, timed.abstained, peak))
        control.should_save = False  # a gigabyte on the disk, for nothing

    def _now(self) -> float:
        """The time, once the device has done what it was given."""
        synchronize(self._device)
        return time.perf_counter()


class _Timed(Reward):
    """A reward that notes when it was last called, when it returned, and what that took."""

    called = returned = 0.0
    spent, abstained = Spent(), 0
    groups: tuple[Group, ...] = ()

    def __init__(self, opened: Opened, now: Any) -> None:
        self._inner, self._spent, self._now = opened.reward, opened.spent, now
        self.name = opened.reward.name

    @property
    def engines(self) -> tuple[Any, ...]:
        """Those of the reward."""
        return self._inner.engines

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        """The rewards of each group, in order."""
        before, self.groups = self._spent(), tuple(groups)
        self.called = self._now()
        rewards = self._inner.score_groups(groups)
        self.returned = self._now()
        self.spent = self._spent().since(before)
        self.abstained = sum(value is None for reward in rewards for value in reward.rewards)
        return rewards
