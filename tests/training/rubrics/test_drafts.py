from __future__ import annotations

import json
import math
from typing import Any

import pytest

from adjudge.rewards.judges.published_rubrics import IGNITING, SIX
from adjudge.rewards.records.rubric import Criterion, Level, Rubric, rubric_of
from adjudge.training.rubrics.drafts import mended_points, read_rubric_text, rubric_record
from adjudge.training.stages import Unusable
from tests.training.rubrics.examiner import criterion, draft, simple


@pytest.mark.parametrize(
    ("given", "points"),
    [
        ([7, 3], [7, 3]),
        ([2.5, 7.5], [2.5, 7.5]),
        ([1, 1, 1], [3.5, 3.5, 3]),
        ([70, 30], [7, 3]),
        ([1, 1000], [0.5, 9.5]),
        ([1 / 3, 29 / 3], [0.5, 9.5]),
        ([1.0] * 20, [0.5] * 20),
        ([5], [10]),
    ],
)
def test_points_become_shares_of_ten_in_half_points(given: list[float], points: list[float]) -> None:
    assert mended_points(given) == points and math.fsum(mended_points(given)) == 10


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("words", "unparsable"),
        ('{"content": []}', "unparsable"),
        (draft([], [criterion("a")]), "part_missing"),
        (draft([criterion("a", 0)], [criterion("b")]), "bad_points"),
        (draft([criterion("a", -1)], [criterion("b")]), "bad_points"),
        (draft([criterion("a", 1e9)], [criterion("b")]), "bad_points"),
        (draft([criterion(f"c{n}", 1) for n in range(20)], [criterion("b")]), "too_many_criteria"),
        (draft([criterion("Same")], [criterion(" same")]), "invalid_rubric"),
        (draft([criterion(" ")], [criterion("b")]), "invalid_rubric"),
        (draft([criterion("a") | {"text": ""}], [criterion("b")]), "invalid_rubric"),
    ],
)
def test_what_is_no_rubric_is_unusable(text: str, reason: str) -> None:
    with pytest.raises(Unusable, match=f"^{reason}$"):
        read_rubric_text(text)


def test_a_sound_draft_gives_none_half_or_all_of_each_criterion() -> None:
    found = read_rubric_text(simple("Bees"))
    assert not found.mended and found.rubric.points == 10
    assert [one.values for one in found.rubric.criteria] == [(0, 3.5, 7), (0, 1.5, 3)]
    assert read_rubric_text(simple("Bees", (7, 4))).mended


VETO = Rubric(
    (Criterion("a", "b", 3, (Level(0, 0, "none"), Level(1, 2, "some"), Level(3, 3, "all")), veto=1),), points=3
)


@pytest.mark.parametrize("rubric", [SIX, IGNITING, VETO, read_rubric_text(simple("x", (1, 2))).rubric])
def test_a_rubric_as_it_is_written_is_read_back_the_same(rubric: Any) -> None:
    assert rubric_of(json.loads(json.dumps(rubric_record(rubric))), "row") == rubric
