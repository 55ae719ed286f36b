"""Rewards made of rewards: weighted sums and products, with every part in the breakdown under its name."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import msgspec

from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.parts.function_reward import Function
from adjudge.rewards.parts.layer import inside
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import Column, GroupReward, ResponseReward, Reward, checked, engines_of, together

if TYPE_CHECKING:
    from adjudge.engine.face import EngineFace

WITH_TREND = "with_length_trend"
"""`LengthFree`'s part that has the reward before its trend was taken out, where it was."""
TREND = "length_trend"
"""Its part that has what was added."""
LENGTH = "length_words"
"""Its part that has the words that count."""

SHUT = "shut"
"""The measure of whether a gate decided the reward."""
OF_THE_TEXT = "words"
"""The measure that is no part's own, and so is not named after one."""
TAKEN = (
    OF_THE_TEXT,
    "abstained",
    "mass",
    "bias",
    "truncated",
    "error",
    "readable",
    "non_finite",
    "pairs_abstained",
    SHUT,
    LENGTH,
    WITH_TREND,
    TREND,
)
"""Names that trainers' logs and the journal of a run have for something else: how a text was judged."""

TURNED = "which turns the sign of a product: leave it out, or make it a sum"
"""What a part below 0 does there, and the mend."""

_log = logging.getLogger("adjudge")


class OfParts(Reward):
    """A reward made of others, its `parts` by name."""

    parts: Mapping[str, Reward]

    @property
    def engines(self) -> tuple[EngineFace, ...]:
        """Those of all parts, each once."""
        return engines_of(*self.parts.values())

    @property
    def takes_ids(self) -> bool:
        """Whether a part takes them."""
        return any(part.takes_ids for part in self.parts.values())


class Combined(OfParts):
    """Rewards made of `parts` by name, each a `Reward` or a function (see `FunctionReward`).

    The parts of the breakdown are each part's reward under its name and its own parts under "name/…"; so are measures,
    but for the length in words. A part's NaN or infinity (beyond `LARGEST`) abstains ("non_finite"), with a warning in
    the log that names the part; the measure "name/non_finite" is 1 there and 0 elsewhere. Raises AdjudgeError without
    parts, for names that are empty or hold a slash, and, naming the part, when it gives another number of rewards than
    a group has responses.
    """

    def __init__(self, parts: Mapping[str, Reward | Function], name: str) -> None:
        self.parts = parts_of(parts)
        self.name = name
        self.reads_reference = any(part.reads_reference for part in self.parts.values())

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        """The rewards of each group, in order; every part scores all groups at one go."""
        scored = {part: scored_by(part, reward, groups) for part, reward in self.parts.items()}
        return [
            self._group({part: rewards[place] for part, rewards in scored.items()}, len(group.responses))
            for place, group in enumerate(groups)
        ]

    @abstractmethod
    def _combined(self, values: Mapping[str, float]) -> float:
        """One reward from the rewards of the parts that count."""

    def _counts(self, part: str) -> bool:
        """Whether a part counts: one that does not may abstain."""
        return True

    def _group(self, scored: Mapping[str, GroupReward], count: int) -> GroupReward:
        counted = {part: group for part, group in scored.items() if self._counts(part)}
        responses = [
            self._response({part: group.at(place) for part, group in counted.items()}) for place in range(count)
        ]
        return msgspec.structs.replace(together(responses), parts=parts_by_name(scored), measures=measures_of(scored))

    def _response(self, given: Mapping[str, ResponseReward]) -> ResponseReward:
        if reasons := [one.abstained for one in given.values() if one.abstained]:
            return ResponseReward(None, reasons[0])
        values = {part: one.reward for part, one in given.items() if one.reward is not None}
        return ResponseReward(self._combined(values))


class WeightedSum(Combined):
    """Σ wₖ rₖ over `parts`, with `weights` by name (1 where none is given; below 0 for a penalty).

    A part that abstains makes the reward abstain, unless it weighs 0: then it is only watched. Raises AdjudgeError
    for a weight of no part or that is not finite, and if none counts.
    """

    def __init__(
        self, parts: Mapping[str, Reward | Function], weights: Mapping[str, float] | None = None, name: str = "sum"
    ) -> None:
        super().__init__(parts, name)
        if not isinstance(weights, Mapping | None):
            raise AdjudgeError(f"weights are {type(weights).__name__}: give a dict of them by part, or None for 1 each")
        for part, weight in (weights or {}).items():
            if part not in self.parts:
                raise AdjudgeError(f'there is a weight for "{part}", but no such part: choose {", ".join(self.parts)}')
            if not is_number(weight, Real):
                raise AdjudgeError(f'the weight of "{part}" is {shown(weight)}: give a finite number')
        self.weights = {part: float((weights or {}).get(part, 1.0)) for part in self.parts}
        if not any(self.weights.values()):
            raise AdjudgeError("all weights are 0: give at least one part another")

    @property
    def below_zero(self) -> bool:
        """Whether it can pay less than 0: by a part that can, or that is a penalty."""
        return any(weight < 0 or (weight > 0 and self.parts[part].below_zero) for part, weight in self.weights.items())

    def _counts(self, part: str) -> bool:
        return self.weights[part] != 0

    def _combined(self, values: Mapping[str, float]) -> float:
        terms = [self.weights[part] * value for part, value in values.items()]
        try:
            return math.fsum(terms) if all(map(math.isfinite, terms)) else math.nan
        except OverflowError:  # of a sum whose terms are finite
            return math.nan


class Product(Combined):
    """Π rₖ over `parts`: all must be good. A part that abstains makes the reward abstain, even beside a 0.

    Raises AdjudgeError for a part that may pay less than 0 (a tournament, a reward model), and where a function does:
    that turns the sign, and the better another part is, the less is paid.
    """

    def __init__(self, parts: Mapping[str, Reward | Function], name: str = "product") -> None:
        super().__init__(parts, name)
        if part := next((part for part, reward in self.parts.items() if reward.below_zero), None):
            raise AdjudgeError(f'the part "{part}" can pay less than 0, {TURNED}')

    def _combined(self, values: Mapping[str, float]) -> float:
        if part := next((part for part, value in values.items() if value < 0), None):
            raise AdjudgeError(f'the part "{part}" paid {values[part]:g}, {TURNED}')
        return math.prod(values.values())


def parts_of(parts: Mapping[str, Reward | Function]) -> dict[str, Reward]:
    """The parts by name, as rewards; raises AdjudgeError without any, and for names that would not do."""
    if not isinstance(parts, Mapping) or not parts:
        raise AdjudgeError("no parts are given by name: give a dict of at least one reward, {name: reward}")
    for part in parts:
        if not isinstance(part, str) or not part or "/" in part:
            raise AdjudgeError(f'a part is called "{part}": give it a name, a text without a slash')
        if part in TAKEN:
            raise AdjudgeError(f'a part is called "{part}": that is something else in logs, rename it')
    return {part: inside(reward, f'part "{part}"', part) for part, reward in parts.items()}


def scored_by(name: str, reward: Reward, groups: Sequence[Group]) -> list[GroupReward]:
    """The rewards of a part, `checked`; what is not finite is warned of, and a measure tells which."""
    return [_watched(name, one) for one in checked(reward.score_groups(groups), groups, f'part "{name}"')]


def scored_where(
    name: str, reward: Reward, groups: Sequence[Group], texts: Sequence[Sequence[str | None]]
) -> list[GroupReward]:
    """The rewards of a part that sees `texts`, one for each response; None is not asked about, and has no reward."""
    asked = [group.showing(own) for group, own in zip(groups, texts, strict=True)]
    return [_back(one, own) for one, own in zip(scored_by(name, reward, asked), texts, strict=True)]


def parts_by_name(scored: Mapping[str, GroupReward]) -> dict[str, Column]:
    """Each part's rewards under its name, its own parts under "name/…"."""
    found: dict[str, Column] = {}
    for name, group in scored.items():
        found[name] = group.rewards
        found |= {f"{name}/{part}": column for part, column in group.parts.items()}
    return found


def measures_of(scored: Mapping[str, GroupReward]) -> dict[str, Column]:
    """The measures of all parts, each named after its part, but for the length in words: the least that one saw."""
    found: dict[str, Column] = {}
    for name, group in scored.items():
        for measure, column in group.measures.items():
            if measure != OF_THE_TEXT:
                found[f"{name}/{measure}"] = column
            else:
                found[OF_THE_TEXT] = tuple(map(_least, found.get(OF_THE_TEXT, column), column))
    return found


def _least(*counts: float | None) -> float | None:
    return min((count for count in counts if count is not None), default=None)


def _watched(name: str, group: GroupReward) -> GroupReward:
    bad = [reason == "non_finite" for reason in group.abstained]
    if any(bad):
        _log.warning('part "%s" gave %d of %d rewards that are not finite: they abstain', name, sum(bad), len(bad))
    return msgspec.structs.replace(group, measures={**group.measures, "non_finite": tuple(map(float, bad))})


def _back(group: GroupReward, texts: Sequence[str | None]) -> GroupReward:
    """The rewards of the texts that are there, in their places."""

    def spread(column: Sequence[Any]) -> tuple[Any, ...]:
        values = iter(column)
        return tuple(None if text is None else next(values) for text in texts)

    parts, measures = (
        {name: spread(column) for name, column in columns.items()} for columns in (group.parts, group.measures)
    )
    return GroupReward(spread(group.rewards), spread(group.abstained), parts, measures)
