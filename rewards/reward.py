"""`Reward`: completions in, numbers to train on out, a whole group at a time."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from adjudge.engine.errors import AdjudgeError, reason
from adjudge.engine.score import Reason
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.grouping import grouped
from adjudge.rewards.records.messages import Text

if TYPE_CHECKING:
    from adjudge.engine.face import EngineFace
    from adjudge.rewards.engines.specification import JudgeSource
    from adjudge.rewards.judge_rewards.references import Reference

LEAST_VALID = 2
"""Members with a reward that a group of two or more must have: a mean of one says nothing about it."""

LARGEST = 1.7e38
"""A reward beyond this counts as not finite: trainers keep rewards in float32, and subtract them."""

Column = tuple[float | None, ...]
"""A value for each response of a group, None for one that has none."""


class GroupReward(msgspec.Struct, frozen=True):
    """The rewards of a group's responses, in order: None for one on which the judge abstained, with the reason.

    `parts` has what each reward is made of, by name; `measures` what is worth watching besides (label mass, position
    bias, length in words), where there is any. Raises AdjudgeError unless all have one entry for each response.
    """

    rewards: Column
    abstained: tuple[Reason | None, ...]
    parts: dict[str, Column] = {}
    measures: dict[str, Column] = {}

    def __post_init__(self) -> None:
        for name, column in (("abstained", self.abstained), *self.parts.items(), *self.measures.items()):
            if len(column) != len(self.rewards):
                raise AdjudgeError(
                    f"{name} has {len(column)} entries for {len(self.rewards)} rewards: give one for each"
                )

    def at(self, place: int) -> ResponseReward:
        """What the response of that place got: its reward, or why it has none."""
        return ResponseReward(self.rewards[place], self.abstained[place])

    @property
    def settled(self) -> Column:
        """The rewards to train on: none at all where fewer than two of two or more members have one."""
        valid = sum(reward is not None for reward in self.rewards)
        if len(self.rewards) >= LEAST_VALID and valid < LEAST_VALID:
            return (None,) * len(self.rewards)
        return self.rewards


class ResponseReward(msgspec.Struct, frozen=True):
    """The same of a single response.

    A reward that is not finite abstains ("non_finite"), and so does None, as "unsupported" where it has no reason.
    """

    reward: float | None
    abstained: Reason | None = None
    parts: Mapping[str, float | None] = {}
    measures: Mapping[str, float | None] = {}


def together(responses: Sequence[ResponseReward]) -> GroupReward:
    """The rewards of a group from those of its responses; what a response has no value for is None there."""
    settled = [_settled(one.reward, one.abstained, "a response") for one in responses]
    return GroupReward(
        rewards=tuple(number for number, _ in settled),
        abstained=tuple(reason for _, reason in settled),
        parts=_columns([one.parts for one in responses]),
        measures=_columns([one.measures for one in responses]),
    )


class Reward(ABC):
    """What a trainer maximises; `name` is how its logs call it. Groups are the primitive: a judge shares their prompt.

    The reward of a response may depend on its group's other members (a tournament), never on other groups.
    """

    name: str = "adjudge"
    metrics: Mapping[str, float] = MappingProxyType({})
    """What it keeps of itself for a trainer's log."""
    reads_reference: bool = True
    """Whether it may hold responses against their group's reference."""

    @abstractmethod
    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        """The rewards of each group, in order; a group may hold a single response, or none."""

    @property
    def below_zero(self) -> bool:
        """Whether it can pay less than 0, as far as it knows."""
        return False

    @property
    def engines(self) -> tuple[EngineFace, ...]:
        """The engines behind it that are open now: what a trainer puts to sleep, or counts the tokens of."""
        return ()

    @property
    def takes_ids(self) -> bool:
        """Whether it reads the column `completion_ids`, the completions' tokens: for_trl hands it on only then."""
        return False

    def __call__(self, /, prompts: Sequence[Text], completions: Sequence[Text], **columns: Any) -> list[float | None]:
        """A reward for every completion, in order; None for one that has none to train on.

        A group is a run of completions whose prompt, `id` and `reference` are equal. Prompts and completions are texts,
        or the messages of conversations. In a group of two or more with fewer than two rewards all are None. Raises
        AdjudgeError for lists of unequal length and what is no text.
        """
        if "trainer_state" in columns:
            warnings.warn(
                f'reward "{self.name}" is called by a trainer as it is: give reward_funcs=[reward.for_trl()], which'
                " puts groups together over processes and logs what they come to",
                stacklevel=2,
            )
        groups = grouped(prompts, completions, columns)
        scored = checked(self.score_groups(groups), groups, f'reward "{self.name}"')
        return [reward for group in scored for reward in group.settled]

    def during_training(self, *, sleep: bool = True, policy: Any = None) -> Reward:
        """This on the policy's own device: its engines wake for each call, and sleep while the policy has the memory.

        `policy` is the model that is trained with a LoRA adapter, or `PolicyWeights` of it: judges whose specification
        is `EngineSpec("policy")` then run on its base weights, without the adapter and without a copy. See `Colocated`.
        With `sleep` False engines stay awake.
        """
        from adjudge.rewards.engines.colocated import Colocated

        return Colocated(self, sleep=sleep, policy=policy) if sleep or policy is not None else self

    def for_trl(self, num_generations: int | None = None, deadline: float | None = None, **how: Any) -> Any:
        """This as a reward function of TRL's trainers: `GRPOTrainer(reward_funcs=[reward.for_trl()], …)`.

        See `rewards.trainers.trl.for_trl`, whose options `how` are.
        """
        from adjudge.rewards.trainers.trl import for_trl

        return for_trl(self, num_generations, deadline, **how)


def engines_of(*owners: Reward | Reference | JudgeSource | None) -> tuple[EngineFace, ...]:
    """The engines that these have open, each once."""
    found = [engine for owner in owners if owner is not None for engine in owner.engines]
    return tuple({id(engine): engine for engine in found}.values())


def checked(rewards: Any, groups: Sequence[Group], who: str) -> list[GroupReward]:
    """What `who` answered, if it is one GroupReward for each group with one number or None for each response.

    Raises AdjudgeError otherwise. Numbers that are not finite are abstentions, and so is a None without a reason, which
    becomes "unsupported".
    """
    if not isinstance(rewards, Sequence) or len(rewards) != len(groups):
        count = len(rewards) if isinstance(rewards, Sequence) else type(rewards).__name__
        raise AdjudgeError(f"{who} returned {count} for {len(groups)} groups: return one GroupReward for each")
    return [_checked(reward, group, who) for reward, group in zip(rewards, groups, strict=True)]


def _checked(reward: Any, group: Group, who: str) -> GroupReward:
    place = f'{who}, prompt "{group.prompt[:40]}"'
    if not isinstance(reward, GroupReward):
        raise AdjudgeError(f"{place}: this is {type(reward).__name__}: return one GroupReward for each group")
    if len(reward.rewards) != len(group.responses):
        raise AdjudgeError(
            f"{place}: {len(reward.rewards)} rewards for {len(group.responses)} completions:"
            " give one for each, None to abstain"
        )
    given = zip(reward.rewards, reward.abstained, strict=True)
    settled = [_settled(value, said, place) for value, said in given]
    numbers, reasons = (tuple(column) for column in zip(*settled, strict=True)) if settled else ((), ())
    return msgspec.structs.replace(reward, rewards=numbers, abstained=reasons)


def _settled(value: Any, said: Reason | None, place: str) -> tuple[float | None, Reason | None]:
    """A number that trainers can hold, or the reason why there is none: what was said, or what the value tells."""
    if value is None:
        return None, said or "unsupported"
    if isinstance(value, (str, bytes)):
        raise AdjudgeError(f"{place}: a reward is {type(value).__name__}: give a number")
    try:
        number = as_float(value)
    except (TypeError, ValueError) as error:
        raise AdjudgeError(f"{place}: a reward is {type(value).__name__} ({reason(error)}): give a number") from error
    return (number, None) if abs(number) <= LARGEST else (None, said or "non_finite")  # NaN is not within either


def as_float(value: Any) -> float:
    """The value as a float; infinity for one that no float can hold, as an int of 400 digits."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _columns(rows: Sequence[Mapping[str, float | None]]) -> dict[str, Column]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: tuple(row.get(name) for row in rows) for name in names}
