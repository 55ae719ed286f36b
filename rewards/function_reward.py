"""`FunctionReward`: a function of one's own as a reward."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.group import Group
from adjudge.rewards.reward import GroupReward, ResponseReward, Reward, together

Function = Callable[..., Sequence[float | None]]
"""A function of one's own, called as `function(prompts=…, completions=…, **columns)`: a number or None for each."""


class FunctionReward(Reward):
    """A function of one's own as a reward: `function(prompts=…, completions=…, **columns)`, a number or None for each.

    It is called once for all groups, with lists of texts, and gets of `prompts`, `completions` and the columns what it
    takes; `reference` and `id` are among the columns where a group has one. With `messages` prompts and completions
    are lists of messages instead, as TRL has those of conversations: its own functions of rewards read them so. None
    abstains ("unsupported"), NaN and infinity do ("non_finite"). Raises AdjudgeError naming the function when it
    returns another number of values than there are completions, or something that is no number. It pickles if the
    function does.
    """

    def __init__(self, function: Function, name: str | None = None, *, messages: bool = False) -> None:
        self.function, self.messages = function, messages
        self.name = name or str(getattr(function, "__name__", type(function).__name__))

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        """The rewards of each group, in order."""
        rows = [(group, response) for group in groups for response in group.responses]
        if not rows:
            return [together([]) for _ in groups]
        columns = {
            name: [group.columns.get(name) for group, _ in rows]
            for name in dict.fromkeys(name for group, _ in rows for name in group.columns)
        }
        if any(group.reference is not None for group, _ in rows):
            columns["reference"] = [group.reference for group, _ in rows]
        if any(group.id for group, _ in rows):
            columns["id"] = [group.id for group, _ in rows]
        columns["prompts"] = [_turns(group) if self.messages else group.prompt for group, _ in rows]
        columns["completions"] = [[_message("assistant", text)] if self.messages else text for _, text in rows]
        values = self.function(**self._taken(columns))
        rewards = iter(self._checked(values, len(rows)))
        return [together([next(rewards) for _ in group.responses]) for group in groups]

    def _taken(self, columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """The columns that the function takes."""
        try:
            taken = inspect.signature(self.function).parameters
        except (TypeError, ValueError):  # of a function in C
            return columns
        if any(one.kind is one.VAR_KEYWORD for one in taken.values()):
            return columns
        return {name: values for name, values in columns.items() if name in taken}

    def _checked(self, values: Any, count: int) -> list[ResponseReward]:
        try:
            if isinstance(values, str | bytes | Mapping):  # they would be paid by their letters, or their keys
                raise TypeError
            values = list(values)
        except TypeError:
            raise AdjudgeError(f"{self.name} returned {type(values).__name__}: return a list of numbers") from None
        if len(values) != count:
            raise AdjudgeError(
                f"{self.name} returned {len(values)} rewards for {count} completions: return one for each"
            )
        return [self._value(value, place) for place, value in enumerate(values)]

    def _value(self, value: Any, place: int) -> ResponseReward:
        if value is None:
            return ResponseReward(None, "unsupported")
        try:
            return ResponseReward(float(value))
        except (TypeError, ValueError, OverflowError):
            raise AdjudgeError(
                f"{self.name} returned {type(value).__name__} for completion {place}: return a number, or None"
            ) from None


def _turns(group: Group) -> list[dict[str, str]]:
    """The prompt's messages."""
    return [_message(role, text) for role, text in group.conversation or (("user", group.prompt),)]


def _message(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}
