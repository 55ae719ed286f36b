"""`AccuracyReward`: how near the scores that a completion writes come to people's (EvolvR, eq. 14)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import msgspec

from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import Reason
from adjudge.engine.text.written_scores import written_answers
from adjudge.rewards.judges.asking import ANSWER
from adjudge.rewards.judges.pairwise import SCALE
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.rows import number_of, with_point
from adjudge.rewards.reward import GroupReward, ResponseReward, Reward, together
from adjudge.rewards.words import count_words


class AccuracyReward(Reward):
    """R = exp(−λ Σ |y − y*|) for training an evaluator: the closer its written scores are to people's, the more.

    A completion writes `<ANSWER> s </ANSWER>`, s from 1 to 5, once for each of `columns`, in their order; the columns
    have people's scores ("score_a" and "score_b" for a pair, as in the paper; one column for a pointwise evaluator),
    numbers or, from a CSV file, texts of numbers.
    `rate` is λ, which the paper does not give: 0.5 is ours. What the completion is rewarded for is its own work, so one
    with too few, too many or other answers, or words after them, which the judge in reasoned mode would not read, has
    not failed to be judged: it earns `unreadable` (0; None: it abstains).

    Parts are "error", Σ |y − y*|, and "score/…" with what was written, None where that is unreadable; the measure
    "readable" is 1 or 0. Raises AdjudgeError naming prompt and column for a score of people's that is missing or
    outside 1 to 5. The paper's flaw stays with the formula: always writing the data's commonest scores pays well; a
    guard has to watch the entropy of what is written.
    """

    def __init__(
        self,
        columns: Sequence[str] = ("score_a", "score_b"),
        *,
        rate: float = 0.5,
        unreadable: float | None = 0.0,
        name: str = "accuracy",
    ) -> None:
        if not isinstance(columns, list | tuple) or not columns or not all(isinstance(name, str) for name in columns):
            raise AdjudgeError("columns are those of people's scores: give a list of at least one name")
        if not (is_number(rate, Real) and rate > 0):
            raise AdjudgeError(f"rate is {shown(rate)}: give a number above 0")
        if unreadable is not None and not is_number(unreadable, Real):
            raise AdjudgeError(f"unreadable is {shown(unreadable)}: give a finite number, or None to abstain")
        self.columns = tuple(columns)
        self.rate = rate
        self.unreadable = unreadable
        self.name = name

    @property
    def below_zero(self) -> bool:
        """Whether what cannot be read is."""
        return self.unreadable is not None and self.unreadable < 0

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        """The rewards of each group, in order."""
        gold = [self._gold(group, number) for number, group in enumerate(groups, 1)]
        return [
            together([self._rewarded(response, own) for response in group.responses])
            for group, own in zip(groups, gold, strict=True)
        ]

    def _rewarded(self, response: str, gold: Sequence[float]) -> ResponseReward:
        written = scores_at_end(response, len(gold))
        measures = {"readable": float(written is not None), "words": float(count_words(response))}
        if written is None:
            reason: Reason | None = "unparsable" if self.unreadable is None else None
            unknown = dict.fromkeys(("error", *(f"score/{column}" for column in self.columns)))
            return ResponseReward(self.unreadable, reason, unknown, measures)
        error = math.fsum(abs(y - own) for y, own in zip(written, gold, strict=True))
        scores = {f"score/{column}": y for column, y in zip(self.columns, written, strict=True)}
        return ResponseReward(math.exp(-self.rate * error), None, {"error": error, **scores}, measures)

    def _gold(self, group: Group, number: int) -> list[float]:
        place = group.place(number)
        return [peoples_score(group.shared(column, place), f'{place}: "{column}"') for column in self.columns]


def scores_at_end(text: str, count: int) -> list[float] | None:
    """The scores that a text ends in, in order, as the judge in reasoned mode reads them; None unless just `count`."""
    found = written_answers(text, SCALE.labels, msgspec.structs.replace(ANSWER, count=count))
    return None if found is None else [float(answer.label) for answer in found]


def peoples_score(value: Any, place: str) -> float:
    """The score that a column holds; raises AdjudgeError naming `place` for one that is missing or outside 1 to 5."""
    if value is None:
        raise AdjudgeError(f"{place} is missing: give people's score, from 1 to 5")
    if (score := number_of(value)) is None or not 1 <= score <= 5:
        raise AdjudgeError(f"{place} is {str(value)[:40]!r}: give people's score, from 1 to 5{with_point(value)}")
    return score
