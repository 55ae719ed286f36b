from __future__ import annotations

from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.rows import Row
from adjudge.training.evaluator.recipe import Scores
from adjudge.training.evaluator.targets import expected, ratings_of, soft_target

LABELS = (1.0, 2.0, 3.0, 4.0, 5.0)


@pytest.mark.parametrize(
    ("ratings", "shares"),
    [
        ([3], [0, 0, 1, 0, 0]),
        ([1, 2, 2, 5], [0.25, 0.5, 0, 0, 0.25]),
        ([2.2], [0, 0.8, 0.2, 0, 0]),
        ([4.5, 1], [0.5, 0, 0, 0.25, 0.25]),
    ],
)
def test_raters_count_alike_and_means_are_spread_over_two_labels(ratings: list[float], shares: list[float]) -> None:
    found = soft_target(ratings, LABELS, None, "line 1")
    assert found == pytest.approx(shares)
    assert expected(found, LABELS) == pytest.approx(sum(ratings) / len(ratings))


def test_another_scale_is_mapped_onto_the_labels() -> None:
    assert soft_target([0], LABELS, (0, 10), "") == [1, 0, 0, 0, 0]
    assert expected(soft_target([7.5], LABELS, (0, 10), ""), LABELS) == pytest.approx(4)
    with pytest.raises(AdjudgeError, match="line 3: a score is 11, outside 0 to 10"):
        soft_target([11], LABELS, (0, 10), "line 3")


@pytest.mark.parametrize("value", ["[5, 4]", [5, 4]])
def test_scores_stand_in_a_column_each_or_in_one_by_aspect_also_in_tables(value: Any) -> None:
    one = Scores(columns={"wit": "human"})
    assert ratings_of(Row("", {"human_a": value}), one, "wit", "_a") == [5, 4]
    assert ratings_of(Row("", {"human": "3"}), one, "wit") == [3]
    assert ratings_of(Row("", {"human": ""}), one, "wit") is None
    assert ratings_of(Row("", {"human": 3}), one, "grip") is None
    by_aspect = Scores(column="r")
    assert ratings_of(Row("", {"r": '{"Wit": 2}'}), by_aspect, "wit") == [2]
    for bad, told in (("good", '"good"'), (10**400, "1000000"), (float("nan"), "NaN")):
        with pytest.raises(AdjudgeError, match=f'"human" is {told}.*, not a number'):
            ratings_of(Row("line 1", {"human": bad}), one, "wit")
