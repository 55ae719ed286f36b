"""`Gated`: a reward that only those responses are judged for that pass some gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real

import msgspec

from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.parts.combining import SHUT, OfParts, measures_of, parts_by_name, parts_of, scored_by, scored_where
from adjudge.rewards.parts.function_reward import Function
from adjudge.rewards.parts.layer import inside
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import Column, GroupReward, ResponseReward, Reward, together

PAID = "what a shut gate pays: give shut, below that"
"""Of a reward that is, or may be, less than that."""


class Gated(OfParts):
    """`reward` for responses on which every one of `gates` gives at least `least`, else `shut` (0).

    `shut` must be less than the reward can come to, or a policy is paid for shutting the gate: where that goes below 0
    (a tournament, a reward model, a penalty), give it. What a gate shuts out is not judged: it costs nothing, takes no
    part in a tournament, and its reward is known whatever the judge would say. A gate that abstains makes the reward
    abstain, unless another one is shut. The parts are "reward", and the gates by their names; the measure "shut" is 1
    for what a gate shuts out and 0 for the rest. Raises AdjudgeError as `Combined` does, for a `shut` or `least` that
    is no finite number, and where no `shut` is given and a function pays less than 0.
    """

    def __init__(
        self,
        reward: Reward | Function,
        gates: Mapping[str, Reward | Function],
        *,
        least: float = 0.5,
        shut: float | None = None,
        name: str | None = None,
    ) -> None:
        if (shut is not None and not is_number(shut, Real)) or not is_number(least, Real):
            raise AdjudgeError(f"shut is {shown(shut)} and least {shown(least)}: give numbers")
        self.gates = parts_of(gates)
        if "reward" in self.gates:
            raise AdjudgeError('a gate is called "reward", as what it guards: give it another name')
        self.reward = inside(reward, 'part "reward"', "reward")
        self.parts = {"reward": self.reward, **self.gates}
        if shut is None and self.reward.below_zero:
            raise AdjudgeError(f'"{self.reward.name}" can pay less than 0, {PAID}')
        self.least, self.shut, self._chosen = least, shut or 0.0, shut is not None
        self.name = name or self.reward.name
        self.reads_reference = any(part.reads_reference for part in self.parts.values())

    @property
    def below_zero(self) -> bool:
        """Whether it can pay less than 0, open or shut."""
        return self.shut < 0 or self.reward.below_zero

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        """The rewards of each group, in order."""
        gates = {name: scored_by(name, gate, groups) for name, gate in self.gates.items()}
        states = [
            [self._state([gate[number].at(place) for gate in gates.values()]) for place in range(len(group.responses))]
            for number, group in enumerate(groups)
        ]
        passed = [
            [text if state is None else None for text, state in zip(group.responses, own, strict=True)]
            for group, own in zip(groups, states, strict=True)
        ]
        rewards = scored_where("reward", self.reward, groups, passed)
        return [
            self._group({name: gate[number] for name, gate in gates.items()}, states[number], rewards[number])
            for number in range(len(groups))
        ]

    def _state(self, given: Sequence[ResponseReward]) -> ResponseReward | None:
        """The reward where the gates decide it; None where they let the response pass."""
        if any(one.reward is not None and one.reward < self.least for one in given):
            return ResponseReward(self.shut)
        return next((one for one in given if one.abstained), None)

    def _group(
        self, gates: Mapping[str, GroupReward], states: Sequence[ResponseReward | None], asked: GroupReward
    ) -> GroupReward:
        paid = [value for value in asked.rewards if value is not None]
        if not self._chosen and any(value < 0 for value in paid):
            raise AdjudgeError(f'"{self.reward.name}" paid {min(paid):g}, less than {PAID}')
        scored = {"reward": asked, **gates}
        responses = [asked.at(place) if state is None else state for place, state in enumerate(states)]
        shut = tuple(
            float(bool(inner) if state is None else state.reward is not None)
            for state, inner in zip(states, shut_out(asked), strict=True)  # a gate inside may have decided it
        )
        measures = {**measures_of(scored), SHUT: shut}
        return msgspec.structs.replace(together(responses), parts=parts_by_name(scored), measures=measures)


def shut_out(group: GroupReward) -> Column:
    """1 for each response that a gate decided, whatever else a reward asks; all 0 where it has none."""
    return group.measures.get(SHUT) or (0.0,) * len(group.rewards)
