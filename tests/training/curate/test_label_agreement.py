from __future__ import annotations

import pytest

from adjudge.rewards.records.verdict import Verdict
from adjudge.training.curate.label_agreement import compare_labels


def verdicts(*scores: float | None) -> list[Verdict]:
    return [Verdict("", s, {}, "low_mass" if s is None else None, False, "m", "k") for s in scores]


SCORED = verdicts(0.9, 0.8, 0.7, 0.51, 0.5, 0.2, None, None, 0.6)
LABELS = [True, True, False, True, True, False, True, False, None]


def test_counts_and_measures_are_those_worked_out_by_hand() -> None:
    agreement = compare_labels(SCORED, LABELS)
    counts = (agreement.true_good, agreement.false_good, agreement.true_bad, agreement.false_bad)
    assert counts == (3, 1, 1, 1) and agreement.judged == 6 and agreement.abstained == 2
    assert agreement.accuracy == pytest.approx(4 / 6, abs=1e-6)
    assert agreement.precision == pytest.approx(3 / 4, abs=1e-6)
    assert agreement.recall == pytest.approx(3 / 4, abs=1e-6)
    assert agreement.f1 == pytest.approx(3 / 4, abs=1e-6)
    assert agreement.excellence == pytest.approx(5 / 7, abs=1e-6)


def test_the_papers_ablation_row_agrees_with_itself() -> None:
    """Without the positive agent (Table 4): recall 7.40 % of 1,000, precision 98.67 %."""
    scored = verdicts(*[1.0] * 74, *[0.0] * 926, *[1.0] * 1, *[0.0] * 999)
    agreement = compare_labels(scored, [True] * 1000 + [False] * 1000)
    measures = (agreement.accuracy, agreement.precision, agreement.recall, agreement.f1)
    assert measures == pytest.approx((0.5365, 0.9867, 0.0740, 0.1377), abs=5e-5)


def test_a_ratio_of_nothing_is_none() -> None:
    none = compare_labels(verdicts(None), [True])
    assert (none.accuracy, none.precision, none.recall, none.f1, none.excellence) == (None,) * 5
    bad = compare_labels(verdicts(0.1), [False])
    assert (bad.accuracy, bad.precision, bad.recall, bad.f1, bad.excellence) == (1.0, None, None, None, 0.0)
