"""`FunctionReward`: a function of one's own as a reward."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, get_args

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace, checked_engine
from adjudge.engine.score import LEAST_MASS, Reason, Score
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, ResponseReward, Reward, as_float, together

Given = float | Score | tuple[None, Reason] | None
"""What a function of one's own says of a completion: a reward, an engine's score, or why there is none."""
Function = Callable[..., Sequence[Given]]
"""A function of one's own, called as `function(prompts=…, completions=…, **columns)`: a number or None for each."""


class FunctionReward(Reward):
    """A function of one's own as a reward: `function(prompts=…, completions=…, **columns)`, a number or None for each.

    It is called once for all groups, with lists of texts, and gets of `prompts`, `completions` and the columns what it
    takes, with a value for each completion, also of columns in which those of a group differ; `reference` and `id` (a
    text) are among the columns where a group has one, and `completion_ids` where a trainer gives them (see
    `takes_ids`). With `messages` prompts and completions are lists of messages instead, as TRL has those of
    conversations: its own functions of rewards read them so. None abstains ("unsupported"), NaN and infinity do
    ("non_finite"), and (None, reason) says why. An engine's `Score` stands for its expected value, abstains for its
    reason or with a mass below `LEAST_MASS`, and its mass is a measure. `engines` are those that the function asks:
    they sleep between calls where a reward's do, and their tokens are counted. Raises AdjudgeError naming the function
    for one that cannot be called, a column that it must have and that is not there, and when it returns another number
    of values than there are completions, or something that is none of these. It pickles if the function does, without
    engines.
    """

    def __init__(
        self,
        function: Function,
        name: str | None = None,
        *,
        messages: bool = False,
        engines: Sequence[EngineFace] = (),
    ) -> None:
        if not callable(function):
            raise AdjudgeError(
                f"{type(function).__name__} is no function, for it cannot be called: give one, or of a judge its"
                " JudgeReward"
            )
        if any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None)))):  # noqa: B004
            raise AdjudgeError(
                f"{getattr(function, '__name__', type(function).__name__)} is asynchronous, and nobody awaits it here:"
                " give a function that returns its numbers, as one that calls asyncio.run"
            )
        self.function, self.messages, self._engines = function, messages, tuple(map(checked_engine, engines))
        self.name = name or str(getattr(function, "__name__", type(function).__name__))

    @property
    def engines(self) -> tuple[EngineFace, ...]:
        """Those that the function asks."""
        return self._engines

    @property
    def takes_ids(self) -> bool:
        """Whether the function takes them, by their name or as it takes all columns."""
        return self._takes("completion_ids")

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        """The rewards of each group, in order."""
        rows = [(group, response) for group in groups for response in group.responses]
        if not rows:
            return [together([]) for _ in groups]
        names = dict.fromkeys(name for group, _ in rows for name in group.names)
        columns = {name: [value for group in groups for value in group.values(name)] for name in names}
        columns["prompts"] = [_turns(group) if self.messages else group.prompt for group, _ in rows]
        columns["completions"] = [[_message("assistant", text)] if self.messages else text for _, text in rows]
        self.check(columns)
        values = self.function(**{name: values for name, values in columns.items() if self._takes(name)})
        rewards = iter(self._checked(values, len(rows)))
        return [together([next(rewards) for _ in group.responses]) for group in groups]

    def check(self, columns: Iterable[str]) -> None:
        """Raise AdjudgeError for a parameter that must be given and is no column."""
        for name, one in (self._parameters or {}).items():
            by_name = one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
            if by_name and one.default is one.empty and name not in columns:
                there = ", ".join(sorted(columns))
                raise AdjudgeError(
                    f'{self.name} takes "{name}", which is no column (there are: {there}): give the data that column,'
                    " or the parameter a default"
                )

    @property
    def _parameters(self) -> Mapping[str, inspect.Parameter] | None:
        """What the function takes by name, None where nobody can tell: of a function in C."""
        try:
            return inspect.signature(self.function).parameters
        except (TypeError, ValueError):
            return None

    def _takes(self, name: str) -> bool:
        taken = self._parameters
        return taken is None or name in taken or any(one.kind is one.VAR_KEYWORD for one in taken.values())

    def _checked(self, values: Any, count: int) -> list[ResponseReward]:
        try:
            if isinstance(values, str | bytes | bytearray | Mapping | Set):  # paid by letters, by keys, in any order
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
        if isinstance(value, Score) and (value.reason or value.expected is not None):
            low = value.mass is not None and value.mass < LEAST_MASS
            mass = {} if value.mass is None else {"mass": value.mass}
            return ResponseReward(
                None if low else value.expected, value.reason or ("low_mass" if low else None), {}, mass
            )
        if isinstance(value, tuple) and len(value) == 2 and value[0] is None and value[1] in get_args(Reason):
            return ResponseReward(*value)
        try:
            if isinstance(value, str | bytes | bytearray):  # of which float would read a number
                raise TypeError
            return ResponseReward(as_float(value))
        except (TypeError, ValueError):
            raise AdjudgeError(
                f"{self.name} returned {type(value).__name__} for completion {place}: return a number, or None; a Score"
                f" whose labels are numbers, or (None, reason), of {', '.join(get_args(Reason))}, may stand there too"
            ) from None


def _turns(group: Group) -> list[dict[str, str]]:
    """The prompt's messages."""
    return [_message(role, text) for role, text in group.conversation or (("user", group.prompt),)]


def _message(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}
