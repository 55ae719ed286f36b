from __future__ import annotations

from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.published_rubrics import IGNITING, SIX
from adjudge.rewards.records.verdict import Item, Verdict
from adjudge.training.rubrics.drafts import read_rubric_text
from adjudge.training.rubrics.schemes import SCHEMES, check_schemes, compare_schemes, judge_schemes
from tests.training.rubrics.examiner import Examiner, simple

TEN = read_rubric_text(simple("Bees")).rubric


def verdicts(scores: list[Any]) -> list[Verdict]:
    return [
        Verdict("", None, {}, score, False, "m", "k")
        if isinstance(score, str)
        else Verdict("", score, {}, None, False, "m", "k")
        for score in scores
    ]


def test_schemes_are_compared_on_the_rows_that_all_of_them_have_scored() -> None:
    fixed, free = compare_schemes(
        {
            "fixed": verdicts([0.1, 0.2, 0.3, 0.4, "low_mass", 0.9]),
            "free": verdicts([0.4, 0.3, 0.1, 0.2, 0.5, "timeout"]),
        },
        [1, 2, 3, None, 5, 6],
    )
    assert (fixed.rows, fixed.shared, fixed.labelled, fixed.abstained) == (6, 4, 3, {"low_mass": 1})
    assert fixed.spearman == pytest.approx(1) and free.spearman == pytest.approx(-1)
    assert fixed.mean == pytest.approx(0.25) and fixed.variance == pytest.approx(0.0125)
    assert free.abstained == {"timeout": 1}
    assert fixed.p is None  # Student's t makes it 0


def test_a_correlation_of_some_rows_has_a_p_value() -> None:
    [row] = compare_schemes({"fixed": verdicts([n / 10 for n in range(10)])}, [1, 0, 2, 3, 5, 4, 6, 7, 9, 8])
    assert row.spearman == pytest.approx(159 / 165) and 0 < (row.p or 0) < 1e-4


@pytest.mark.parametrize(
    ("scores", "labels"),
    [([0.1, 0.2], [1, 2]), ([0.1] * 4, [1, 2, 3, 4]), ([0.1, 0.2, 0.3], [2, 2, 2]), ([0.1, 0.2, 0.3], [None] * 3)],
)
def test_a_correlation_that_does_not_exist_is_none(scores: list[Any], labels: list[Any]) -> None:
    [row] = compare_schemes({"fixed": verdicts(scores)}, labels)
    assert row.spearman is None and row.p is None


def test_a_comparison_of_nothing_says_so() -> None:
    [row] = compare_schemes({"fixed": verdicts(["timeout"] * 3)}, [1, 2, 3])
    assert (row.shared, row.mean, row.variance, row.spearman, row.abstained) == (0, None, None, None, {"timeout": 3})


def test_the_same_rows_are_judged_by_every_scheme(tiny: Engine) -> None:
    engine = Examiner(tiny, lambda shown, before: "", lambda shown: float("fine words" in shown))
    items = [Item("q", "fine words", rubric=TEN), Item("q", "bad")]
    found = judge_schemes(engine, items, SCHEMES, rubric=TEN)
    assert list(found) == ["fixed", "free", "binary"]
    assert [[verdict.score for verdict in own] for own in found.values()] == [pytest.approx([1, 0])] * 3


@pytest.mark.parametrize(
    ("schemes", "rubric", "message"),
    [
        (["fixed"], None, "line 2 has no rubric of its own: give the rows one"),
        (["free", "fixed"], SIX, r"line 2, scheme fixed: the criteria's points sum to 12.*leave it out of --schemes"),
        (["fixed"], IGNITING, "the criteria have weights"),
        ([], TEN, "no scheme is named: choose from fixed, free, binary"),
        (["fuzzy"], TEN, 'no scheme is called "fuzzy": choose from fixed, free, binary'),
    ],
)
def test_rows_that_a_scheme_cannot_mark_are_refused_by_line(schemes: Any, rubric: Any, message: str) -> None:
    items = {"line 1": Item("q", "a", rubric=TEN), "line 2": Item("q", "b")}
    with pytest.raises(AdjudgeError, match=message):
        check_schemes(schemes, items, rubric, "fixed")
