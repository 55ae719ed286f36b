"""`Around`: a reward around another; `Layer`: one that has its own part to do once a step."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.parts.function_reward import Function, FunctionReward
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward, checked

if TYPE_CHECKING:
    from adjudge.engine.face import EngineFace

_LEARNS: ContextVar[bool] = ContextVar("adjudge_learns", default=True)


class Around(Reward):
    """A reward around another, or around a function (see `FunctionReward`).

    Its name, metrics, engines, what it can pay and whether it takes tokens are those of the reward inside.
    """

    def __init__(self, reward: Reward | Function) -> None:
        self.reward = reward_of(reward, f"what {type(self).__name__} is around")
        self.name, self.reads_reference = self.reward.name, self.reward.reads_reference

    @property
    def metrics(self) -> Mapping[str, float]:  # type: ignore[override]
        """What the reward inside keeps."""
        return self.reward.metrics

    @property
    def below_zero(self) -> bool:
        """Whether the reward inside can pay less than 0."""
        return self.reward.below_zero

    @property
    def takes_ids(self) -> bool:
        """Whether the reward inside takes them."""
        return self.reward.takes_ids

    @property
    def engines(self) -> tuple[EngineFace, ...]:
        """Those of the reward inside."""
        return self.reward.engines


class Layer(Around):
    """The rewards of `reward`, and something done with all of a step's once they are there.

    A trainer's adapter that has to ask the reward inside several times in a step (some of its groups fail) finds it by
    `layers_of`, and calls `after` once; before that `probe`, where it `has_probes` and there is time. So layers are the
    outermost: rewards that are made of others take none.
    """

    @property
    def learning(self) -> bool:
        """Whether what is scored now teaches the layer; what is held out leaves it as it was."""
        return _LEARNS.get()

    @property
    def has_probes(self) -> bool:
        """Whether there is something to ask the reward inside besides this step's groups."""
        return False

    def probe(self) -> None:
        """Ask it."""
        return

    @abstractmethod
    def after(self, groups: Sequence[Group], rewards: list[GroupReward]) -> list[GroupReward]:
        """What becomes of a step's rewards, in order; nothing is asked for it, so that it takes no time."""

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        """The rewards of each group, in order; what is done with them rests on those that are `checked`."""
        rewards = checked(self.reward.score_groups(groups), groups, f'reward "{self.name}"')
        if self.has_probes:
            self.probe()
        return self.after(groups, rewards)

    def during_training(self, *, sleep: bool = True, policy: Any = None) -> Reward:
        """The same, with the reward inside on the policy's own device: layers stay outermost."""
        moved = copy.copy(self)
        moved.reward = self.reward.during_training(sleep=sleep, policy=policy)
        return moved


def layers_of(reward: Reward) -> tuple[Reward, list[Layer]]:
    """The reward inside all layers, and the layers, the innermost first."""
    layers: list[Layer] = []
    while isinstance(reward, Layer):
        layers.insert(0, reward)
        reward = reward.reward
    return reward, layers


def reward_of(reward: Reward | Function, what: str, name: str | None = None) -> Reward:
    """The reward, or the one that a function is, by that `name`; raises AdjudgeError for what cannot be `what`."""
    if isinstance(reward, Reward):
        return reward
    if not callable(reward):
        raise AdjudgeError(
            f"{what} is {type(reward).__name__}: give a reward or a function, of a judge its JudgeReward"
        )
    return FunctionReward(reward, name)


def inside(reward: Reward | Function, what: str, name: str | None = None) -> Reward:
    """The same, if it may be inside another; raises AdjudgeError for a layer too, which nobody finds there."""
    if isinstance(reward, Layer):
        kind = type(reward).__name__
        raise AdjudgeError(f"{what} is {kind}, which looks at whole steps: put {kind} around the whole reward")
    return reward_of(reward, what, name)


@contextmanager
def learning(learns: bool) -> Iterator[None]:
    """Within the block (of this thread or task) layers learn only if it `learns`, and if they did before."""
    token = _LEARNS.set(_LEARNS.get() and learns)
    try:
        yield
    finally:
        _LEARNS.reset(token)
