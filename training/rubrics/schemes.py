"""The three scoring schemes of rubrics on the same rows (QuRL, section 4.4): agreement, variance, abstentions."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, pvariance
from typing import get_args

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.engine.score import LEAST_MASS
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.rubric_judge import RubricJudge
from adjudge.rewards.judges.rubric_scoring import Form, Scheme, marks_of
from adjudge.rewards.records.rubric import Rubric
from adjudge.rewards.records.verdict import Item, RubricVerdict, Verdict
from adjudge.training.stages import passed

SCHEMES: tuple[Scheme, ...] = get_args(Scheme)

FEWEST_LABELS = 3
"""Labelled rows without which a rank correlation says nothing."""
FEWEST_FOR_P = 10
"""And those without which its p-value does not."""


class SchemeRow(msgspec.Struct, frozen=True):
    """What a scheme makes of the rows.

    `abstained` counts reasons, of all rows. `mean` and `variance` (of the scores, in [0, 1]) are over the `shared` rows
    that every scheme has scored, `spearman` and its `p` over those of them that have a label, `labelled` in number.
    """

    scheme: Scheme
    rows: int
    abstained: dict[str, int]
    shared: int
    mean: float | None
    variance: float | None
    labelled: int
    spearman: float | None
    p: float | None


def check_schemes(schemes: Sequence[str], items: Mapping[str, Item], rubric: Rubric | None, form: Form) -> None:
    """Refuse rows that a scheme cannot mark, by their places, before anything is computed.

    Raises AdjudgeError.
    """
    if not schemes:
        raise AdjudgeError(f"no scheme is named: choose from {', '.join(SCHEMES)}")
    for scheme in schemes:
        if scheme not in SCHEMES:
            raise AdjudgeError(f'no scheme is called "{scheme}": choose from {", ".join(SCHEMES)}')
    for place, item in items.items():
        own = item.rubric or rubric
        if own is None:
            raise AdjudgeError(f"{place} has no rubric of its own: give the rows one, or all of them one with --rubric")
        for scheme in schemes:
            try:
                marks_of(own, scheme, form)  # type: ignore[arg-type]
            except AdjudgeError as error:
                raise AdjudgeError(f"{place}, scheme {scheme}: {error} (or leave it out of --schemes)") from error


def judge_schemes(
    engine: EngineFace,
    items: Sequence[Item],
    schemes: Sequence[Scheme],
    *,
    rubric: Rubric | None = None,
    form: Form = "fixed",
    min_mass: float = LEAST_MASS,
    journal: Journal | None = None,
) -> dict[Scheme, list[RubricVerdict]]:
    """The verdicts of each scheme, in the order of the items."""
    verdicts = {}
    for scheme in schemes:
        judge = RubricJudge(engine, rubric, scheme=scheme, form=form, min_mass=min_mass, journal=journal)
        verdicts[scheme] = passed(scheme, items, enumerate(judge.judge_iter(items))).kept
    return verdicts


def compare_schemes(verdicts: Mapping[Scheme, Sequence[Verdict]], labels: Sequence[float | None]) -> list[SchemeRow]:
    """What each scheme makes of the rows, beside people's labels where there are any."""
    shared = [place for place in range(len(labels)) if all(own[place].score is not None for own in verdicts.values())]
    labelled = [place for place in shared if labels[place] is not None]
    rows = []
    for scheme, own in verdicts.items():
        scores = [own[place].score or 0.0 for place in shared]
        spearman, p = _spearman([own[place].score or 0.0 for place in labelled], [labels[place] for place in labelled])
        rows.append(
            SchemeRow(
                scheme,
                len(own),
                dict(Counter(verdict.abstained for verdict in own if verdict.abstained)),
                len(shared),
                fmean(scores) if scores else None,
                pvariance(scores) if scores else None,
                len(labelled),
                spearman,
                p,
            )
        )
    return rows


def _spearman(scores: Sequence[float], labels: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Rank correlation and its p-value; None for too few rows, or where a side does not vary.

    The p-value is of Student's t, which fits no correlation of a few rows: below FEWEST_FOR_P it is None.
    """
    from scipy.stats import spearmanr

    if len(scores) < FEWEST_LABELS or len(set(scores)) < 2 or len(set(labels)) < 2:
        return None, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = spearmanr(scores, labels)
    return float(found.statistic), float(found.pvalue) if len(scores) >= FEWEST_FOR_P else None
