"""From the scores of a rubric's criteria to one reward (QuRL, eqs 1 and 2 and section 4.4; Igniting, section 4.3).

Three schemes say what each criterion can be given:
- "fixed": its points, which sum to the total that the rubric states, or else to 10;
- "free": its points, levels or scale, whatever they sum to; weights count where there are any;
- "binary": whether it is met, No or Yes, asked by itself.

Two forms say how scores become a reward in [0, 1]:
- "parity", as published: of each criterion the one score that is most probable, as a parser of written grades sees it;
  Σ s / Σ max, with weights Σ w·s / Σ w·max; binary: the share of criteria that are met. Its flaws: more probability on
  better scores can lower it (of .35, .25, .40 on 0, 1, 2, moving .20 from 0 to 1 turns a 2 into a 1); two texts with
  the same most probable scores get the same reward, however sure the one and doubtful the other; on a scale that begins
  at 1 nothing is worth 0; a criterion of three points counts like one of a half when both are asked as binary.
- "fixed": the mean of u = (s − lowest)/(highest − lowest), weighted by the weights, or without any by highest − lowest
  (so that from 0 it is Σ s / Σ max, too), with every score taken as drawn from its distribution, independently: the
  reward is the expected value. Moving probability upwards never lowers it.

A veto makes a reward 0 where the criterion's score is below its bound, or, binary, where it is not met. In the form
"parity" the most probable score decides. In "fixed" the expected value goes over the vetoes too: every draw in which
some criterion stays below its bound is worth 0. (A single criterion, with a veto at 1, and .3, .3, .4 on 0, 1, 2: the
draws are worth 0, .5 and 1, the reward is .55; with the veto at 2 it is .4.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.text.labels import Labels
from adjudge.rewards.records.rubric import Criterion, Rubric, is_whole

Scheme = Literal["fixed", "free", "binary"]
Form = Literal["fixed", "parity"]
Chances = Sequence[float]
"""The probabilities of a mark's values."""

TOTAL = 10.0
"""What points sum to in the scheme "fixed" unless the rubric states another total."""

SAME = 1e-9
"""Weighted means that differ by less are the same number."""


class Mark(msgspec.Struct, frozen=True):
    """How a criterion is marked: its possible values, ascending, how it counts, and the least value that is no veto."""

    criterion: Criterion
    values: tuple[float, ...]
    labels: Labels
    weight: float
    bound: float | None

    def share(self, value: float) -> float:
        """Where a value lies between the lowest, 0, and the highest, 1."""
        return (value - self.values[0]) / (self.values[-1] - self.values[0])

    def expected(self, chances: Chances) -> float:
        """The expected value."""
        return math.fsum(p * value for p, value in zip(chances, self.values, strict=True))

    def written(self, chances: Chances) -> float:
        """The most probable value; the lowest of equals."""
        return self.values[list(chances).index(max(chances))]

    def passing(self, chances: Chances) -> tuple[float, float]:
        """The probability of no veto, and the expected share of those values that are none."""
        kept = [
            (p, self.share(value))
            for p, value in zip(chances, self.values, strict=True)
            if self.bound is None or value >= self.bound
        ]
        return math.fsum(p for p, _ in kept), math.fsum(p * share for p, share in kept)


class SchemeUnfit(AdjudgeError):
    """A rubric that a scheme cannot mark."""


def scheme_of(rubric: Rubric, scheme: Scheme | None = None) -> Scheme:
    """The scheme asked for, or the rubric's own: "fixed" where it states a total, else "free"."""
    return scheme or ("free" if rubric.points is None else "fixed")


def check_names(scheme: Scheme | None, form: Form) -> None:
    """Raise AdjudgeError for a scheme or a form that is none."""
    for name, value, known in (("scheme", scheme, get_args(Scheme)), ("form", form, get_args(Form))):
        if value is not None and value not in known:
            raise AdjudgeError(f'{name} is "{value}": choose {" or ".join(known)}')


def marks_of(rubric: Rubric, scheme: Scheme, form: Form = "fixed") -> tuple[Mark, ...]:
    """How each criterion is marked; raises SchemeUnfit for a rubric that the scheme cannot mark."""
    check_names(scheme, form)
    if scheme == "binary":
        weights = _binary_weights(rubric, form)
        return tuple(
            Mark(one, (0.0, 1.0), Labels(("No", "Yes"), (0.0, 1.0)), weight, None if one.veto is None else 1.0)
            for one, weight in zip(rubric.criteria, weights, strict=True)
        )
    marks = tuple(_mark(criterion, rubric.values(criterion), form) for criterion in rubric.criteria)
    if scheme == "fixed":
        _check_fixed(rubric, marks)
    return marks


def reward(marks: Sequence[Mark], chances: Sequence[Chances], form: Form = "fixed") -> float:
    """The reward in [0, 1] of a text, from the distribution over each mark's values; see above for the formulas."""
    weights = math.fsum(mark.weight for mark in marks)
    if form == "parity":
        if vetoed(marks, chances, form):
            return 0.0
        scores = [mark.written(chance) for mark, chance in zip(marks, chances, strict=True)]
        best = math.fsum(mark.weight * mark.values[-1] for mark in marks)
        return math.fsum(mark.weight * score for mark, score in zip(marks, scores, strict=True)) / best
    passing, shares = zip(*(mark.passing(chance) for mark, chance in zip(marks, chances, strict=True)), strict=True)
    others = [math.prod(passing[:place] + passing[place + 1 :]) for place in range(len(marks))]
    kept = [mark.weight * share * other for mark, share, other in zip(marks, shares, others, strict=True)]
    return min(1.0, math.fsum(kept) / weights)


def mean(marks: Sequence[Mark], chances: Sequence[Chances], form: Form = "fixed") -> float | None:
    """The weighted mean of the scores on their scale, vetoes aside; None where the criteria have no scale in common."""
    if len({(mark.values[0], mark.values[-1]) for mark in marks}) > 1:
        return None
    scores = [
        mark.written(chance) if form == "parity" else mark.expected(chance)
        for mark, chance in zip(marks, chances, strict=True)
    ]
    weighted = math.fsum(mark.weight * score for mark, score in zip(marks, scores, strict=True))
    return weighted / math.fsum(mark.weight for mark in marks)


def vetoed(marks: Sequence[Mark], chances: Sequence[Chances], form: Form = "fixed") -> tuple[str, ...]:
    """The criteria that veto: the most probable score is below the bound ("parity"), or below it is more probable."""
    return tuple(
        mark.criterion.name
        for mark, chance in zip(marks, chances, strict=True)
        if mark.bound is not None
        and (mark.written(chance) < mark.bound if form == "parity" else mark.passing(chance)[0] < 0.5)
    )


def written(value: float) -> str:
    """A score as a judge writes it: 2, 0.5."""
    return str(int(value)) if is_whole(value) else repr(value)


def _mark(criterion: Criterion, values: tuple[float, ...], form: Form) -> Mark:
    if not values:
        raise SchemeUnfit(
            f'criterion "{criterion.name}" has neither points nor levels: give it some, the rubric a scale,'
            " or choose the scheme binary"
        )
    counts = 1.0 if form == "parity" else values[-1] - values[0]
    weight = counts if criterion.weight is None else criterion.weight
    return Mark(criterion, values, Labels(tuple(map(written, values)), values), weight, criterion.veto)


def _binary_weights(rubric: Rubric, form: Form) -> list[float]:
    """1 each ("parity"), or the criteria's weights, or their points where all have some."""
    values = [rubric.values(criterion) for criterion in rubric.criteria]
    if form == "parity" or (rubric.criteria[0].weight is None and not all(values)):
        return [1.0 for _ in rubric.criteria]
    return [
        own[-1] - own[0] if criterion.weight is None else criterion.weight
        for criterion, own in zip(rubric.criteria, values, strict=True)
    ]


def _check_fixed(rubric: Rubric, marks: Sequence[Mark]) -> None:
    if rubric.criteria[0].weight is not None:
        raise SchemeUnfit("the criteria have weights, which the scheme fixed does not count: choose the scheme free")
    total = math.fsum(mark.values[-1] for mark in marks)
    if rubric.points is None and not math.isclose(total, TOTAL):
        raise SchemeUnfit(
            f"the criteria's points sum to {total:g}, not to the {TOTAL:g} of the scheme fixed: mend them,"
            f" state the total (points = {total:g}), or choose the scheme free"
        )
