from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.published_rubrics import IGNITING, RUBRICS, SIX, open_rubric
from adjudge.rewards.records.rubric import Criterion, Level, Rubric, read_rubric, rubric_of, rubric_of_checklist
from tests.jsonl import read_lines

ROOT = Path(__file__).parents[3]
CHECKLISTS = ROOT.parent / "shared/data/writingbench/checklists.jsonl"

TOML = """
points = 5
[[criteria]]
name = "plot"
text = "Does it hold?"
points = 3
veto = 1
[[criteria]]
name = "style"
text = "Is it its own?"
[criteria.levels]
"0" = "no"
"0.5-0.5" = "hardly"
"1–2" = "yes"
"""
READ = Rubric(
    points=5,
    criteria=(
        Criterion("plot", "Does it hold?", points=3, veto=1),
        Criterion("style", "Is it its own?", levels=(Level(0, 0, "no"), Level(0.5, 0.5, "hardly"), Level(1, 2, "yes"))),
    ),
)
JSON = {
    "points": 5,
    "criteria": [
        {"name": "plot", "text": "Does it hold?", "points": 3, "veto": 1},
        {"name": "style", "text": "Is it its own?", "levels": {"0": "no", "0.5": "hardly", "1-2": "yes"}},
    ],
}
CHECKLIST = [
    {
        "name": "Length",
        "criteria_description": "Keeps to the length.",
        "1-2": "a",
        "3-4": "b",
        "5-6": "c",
        "7-8": "d",
        "9-10": "e",
    }
]


def test_toml_and_json_give_the_same_rubric(tmp_path: Path) -> None:
    toml, as_json = tmp_path / "r.toml", tmp_path / "r.JSON"
    toml.write_text(TOML, encoding="utf-8")
    as_json.write_bytes(b"\xef\xbb\xbf" + json.dumps(JSON).encode())
    assert read_rubric(toml) == read_rubric(as_json) == READ
    assert [READ.values(criterion) for criterion in READ.criteria] == [(0, 1, 2, 3), (0, 0.5, 1, 2)]


def test_criteria_without_points_and_levels_take_the_scale_of_the_rubric() -> None:
    rubric = rubric_of({"scale": [1, 3], "criteria": [{"name": "a", "text": "?"}]}, "r")
    assert rubric.values(rubric.criteria[0]) == (1, 2, 3)


def test_a_five_level_checklist_loads_as_a_rubric() -> None:
    [criterion] = rubric_of_checklist(CHECKLIST, "r").criteria
    assert (criterion.name, criterion.text) == ("Length", "Keeps to the length.")
    assert criterion.values == tuple(range(1, 11))
    assert criterion.levels[1] == Level(3, 4, "b")


@pytest.mark.skipif(not CHECKLISTS.exists(), reason="WritingBench's checklists are not at ../shared/data")
def test_every_checklist_of_writingbench_loads() -> None:
    rows = read_lines(CHECKLISTS)
    rubrics = [rubric_of_checklist(row["checklist"], "row") for row in rows]
    assert len(rubrics) == 120
    assert all(criterion.values == tuple(range(1, 11)) for rubric in rubrics for criterion in rubric.criteria)
    assert [criterion.levels[-1].text for criterion in rubrics[0].criteria] == [rows[0]["checklist"][0]["9-10"]]


def test_the_published_rubrics_are_known_by_name_beside_files() -> None:
    assert open_rubric("six") is open_rubric(Path("six")) is SIX and set(RUBRICS) == {"six", "igniting", "writing"}
    assert len(SIX.criteria) == 6 and SIX.scale == (0, 2)
    assert [criterion.weight for criterion in IGNITING.criteria] == [0.30, 0.30, 0.15, 0.15, 0.10]
    assert (IGNITING.scale, IGNITING.threshold) == ((1, 3), 2)
    assert open_rubric(ROOT / "examples/rubric.toml").points == 10


ONE: dict[str, Any] = {"name": "plot", "text": "?", "points": 3}
TWO: dict[str, Any] = {"name": "end", "text": "?", "points": 2}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([], "r.toml: Expected `object`, got `array` (a rubric has criteria, scale, points, threshold)"),
        ({}, "r.toml: Object missing required field `criteria`"),
        ({"criteria": []}, "r.toml: the rubric has no criteria: give at least one"),
        ({"criteria": [ONE], "totl": 3}, "r.toml: Object contains unknown field `totl` (a rubric has criteria, scale"),
        (
            {"criteria": [ONE, {**TWO, "pionts": 3}]},
            'r.toml: criterion 2 ("end"): Object contains unknown field `pionts` (a criterion has name, text, points',
        ),
        ({"criteria": [ONE, {"name": "end"}]}, 'criterion 2 ("end"): Object missing required field `text`'),
        ({"criteria": [ONE, 5]}, "criterion 2: Expected `object`, got `int`"),
        ({"criteria": [{**ONE, "points": "3"}]}, 'criterion 1 ("plot"): Expected `float | null`, got `str`'),
        ({"criteria": [{**ONE, "points": True}]}, 'criterion 1 ("plot"): Expected `float | null`, got `bool`'),
        ({"criteria": [ONE, TWO], "points": 6}, "points sum to 5, not to the 6 stated: mend them or the total"),
        ({"criteria": [ONE, {"name": "end", "text": "?"}], "points": 3}, 'criterion 2 ("end"): points are missing'),
        ({"criteria": [ONE, ONE]}, 'criterion 2 ("plot"): the name is given twice: rename one'),
        ({"criteria": [{**ONE, "name": " "}]}, "name or text is empty"),
        ({"criteria": [{**ONE, "points": 0}]}, "points is 0: give a number above 0"),
        ({"criteria": [{**ONE, "points": float("nan")}]}, "points is nan: give a number above 0"),
        ({"criteria": [{**ONE, "points": float("inf")}]}, "points is inf: give a number above 0"),
        ({"criteria": [{**ONE, "points": 1.5}]}, "points is 1.5: give a whole number below 101, or levels"),
        ({"criteria": [{**ONE, "points": 1e5}]}, "points is 100000: give a whole number below 101, or levels"),
        ({"criteria": [{**ONE, "levels": {"3": "all", "0": "none"}}]}, "the levels do not ascend: write them from"),
        ({"criteria": [{**ONE, "levels": {"0-2": "a", "2-3": "b"}}]}, "the levels do not ascend"),
        ({"criteria": [{**ONE, "levels": {"3": "all"}}]}, "1 scores can be given: give levels for 2 to 101"),
        ({"criteria": [{**ONE, "levels": {"0": "none", "2": "all"}}]}, "points is 3 but the highest level 2: make"),
        ({"criteria": [{**ONE, "levels": {"good": "all"}}]}, 'criterion 1 ("plot"): level "good" is no score: name it'),
        ({"criteria": [{**ONE, "levels": {"-1": "all"}}]}, 'level "-1" is no score'),
        (
            {"criteria": [{**ONE, "levels": {"0-1.5": "all"}}]},
            "a level is from 0 to 1.5, which is no range",
        ),
        (
            {"criteria": [{**ONE, "levels": {"3-1": "all"}}]},
            "a level is from 3 to 1: give scores",
        ),
        ({"criteria": [{**ONE, "levels": {"0": "none", "9" * 400: "all"}}]}, "a level is from inf to inf: give scores"),
        ({"criteria": [{**ONE, "levels": {"0-99999": "all"}}]}, "a level is from 0 to 99999, which is no range"),
        ({"criteria": [{**ONE, "levels": {"0": 1}}]}, 'level "0" is 1: give its words'),
        ({"criteria": [{**ONE, "levels": []}]}, "levels is []: give an object, each score with its words"),
        ({"criteria": [{**ONE, "levels": "3"}]}, "levels is '3': give an object"),
        ({"criteria": [ONE], "foo": 1}, "Object contains unknown field `foo` (a rubric has "),
        ({"criteria": [{**ONE, "weight": 1}, TWO]}, 'criterion 2 ("end"): give every criterion a weight, or none'),
        ({"criteria": [{**ONE, "weight": -1}]}, 'criterion 1 ("plot"): weight is -1: give one from 0 to 1e+06'),
        ({"criteria": [{**ONE, "weight": float("inf")}]}, "weight is inf"),
        ({"criteria": [{**ONE, "weight": 1e308}]}, "weight is 1e+308: give one from 0 to 1e+06"),
        ({"criteria": [{**ONE, "points": 1e308}]}, "points is 1e+308: give a number above 0, up to 1e+06"),
        (
            {"criteria": [{"name": "plot", "text": "?", "levels": {"0": "low", "9" * 308: "high"}}]},
            "give scores from 0 to 1e+06",
        ),
        ({"criteria": [{**ONE, "name": str(n)} for n in range(1001)]}, "1001 criteria: give at most 1000"),
        ({"criteria": [{**ONE, "weight": float("nan")}]}, "weight is nan"),
        ({"criteria": [{**ONE, "weight": 0}, {**TWO, "weight": 0}]}, "the weights sum to 0: give at least one"),
        ({"criteria": [{**ONE, "veto": 0}]}, "veto is 0: give the score that must be reached, above 0 and up to 3"),
        ({"criteria": [{**ONE, "veto": 4}]}, "veto is 4: give the score that must be reached, above 0 and up to 3"),
        ({"criteria": [{**ONE, "veto": float("nan")}]}, "veto is nan"),
        ({"criteria": [ONE], "scale": [3, 1]}, "scale is 3 to 1: give two whole numbers, the lower first"),
        ({"criteria": [ONE], "scale": [0, float("inf")]}, "scale is 0 to inf: give two whole numbers"),
        ({"criteria": [ONE], "scale": [1]}, "Expected `array` of length 2"),
        ({"criteria": [ONE, TWO], "threshold": 2}, "a threshold needs criteria of one scale"),
        ({"criteria": [{"name": "a", "text": "?"}], "threshold": 2}, "a threshold needs criteria of one scale"),
        ({"criteria": [ONE], "threshold": 0}, "threshold is 0: give one above 0 and up to 3, the scale"),
        ({"criteria": [ONE], "threshold": float("nan")}, "threshold is nan"),
    ],
)
def test_a_mistake_of_a_rubrics_author_is_named_with_its_place_and_mend(record: Any, message: str) -> None:
    with pytest.raises(AdjudgeError) as caught:
        rubric_of(record, "r.toml")
    assert str(caught.value).startswith("r.toml: ") and message in str(caught.value)
    assert str(caught.value).count("r.toml") == 1
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("checklist", "message"),
    [
        ({}, "r: the checklist is a dict, not a list of criteria"),
        ([], "r: the rubric has no criteria"),
        ([{"name": "x"}], 'r: criterion 1 of the checklist needs "name", "criteria_description" and its levels'),
        ([5], "r: criterion 1 of the checklist needs"),
        ([{**CHECKLIST[0], "11-x": "?"}], 'r: criterion 1 ("Length"): level "11-x" is no score'),
        (CHECKLIST * 2, 'r: criterion 2 ("Length"): the name is given twice'),
    ],
)
def test_a_mistake_in_a_checklist_is_named(checklist: Any, message: str) -> None:
    with pytest.raises(AdjudgeError) as caught:
        rubric_of_checklist(checklist, "r")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.toml", b"points = ", "r.toml is not TOML ("),
        ("r.toml", b"\xff", "r.toml is not TOML ("),
        ("r.toml", b"a = " + b"[" * 100_000, "r.toml is not TOML ("),
        ("r.json", b'{"criteria": [', "r.json is not JSON ("),
        ("r.json", b"[" * 100_000, "r.json is not JSON ("),
        ("r.yaml", b"", "r.yaml is neither .toml nor .json"),
        ("r.json", b'{"criteria": [{"name": "a", "text": "\\ue0001\\ue001", "points": 1}]}', "holds U+E000 or U+E001"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(AdjudgeError) as caught:
        read_rubric(tmp_path / name)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(AdjudgeError, match="cannot read .*absent.toml .No such file"):
        read_rubric(tmp_path / "absent.toml")


def test_a_rubric_in_code_holds_criteria_and_these_hold_texts_and_numbers() -> None:
    wrong: Any = "3"
    for build, message in [
        (lambda: Criterion("wit", "x", wrong), "points of the criterion \"wit\" is '3': give a number"),
        (lambda: Criterion("wit", "x", weight=True), "weight of the criterion .* give a number"),
        (lambda: Criterion("wit", None), "text of a criterion is None: give a string"),  # type: ignore[arg-type]
        (lambda: Rubric((Criterion("wit", "x"),), scale=wrong), "scale is '3': give the lowest score and the highest"),
        (lambda: Rubric((Criterion("wit", "x"),), scale=(1, wrong)), "an end of the scale is '3': give a number"),
        (lambda: Rubric((Criterion("wit", "x", 3),), threshold=wrong), "threshold of the rubric is '3': give a number"),
        (lambda: Rubric((wrong,)), r"criterion 1 is '3': give Criterion\(…\) objects"),
        (lambda: open_rubric({"criteria": []}), "rubric is .*: give a Rubric, the name"),  # type: ignore[arg-type]
    ]:
        with pytest.raises(AdjudgeError, match=message):
            build()


def test_a_file_may_be_named_by_a_string(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('{"criteria": [{"name": "wit", "text": "Is it funny?", "points": 3}]}')
    assert read_rubric(str(path)) == read_rubric(path) == Rubric((Criterion("wit", "Is it funny?", 3.0),))
