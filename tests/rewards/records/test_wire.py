from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.group import Group, GroupVerdict
from adjudge.rewards.records.row_files import read_rows
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.rubric import Criterion, Level, Rubric
from adjudge.rewards.records.verdict import Comparison, Example, Item, Pair, PairVerdict, Part, Review, Verdict
from adjudge.rewards.records.wire import (
    example_of,
    group_line,
    group_of_row,
    item_of,
    label_of,
    labels_of_row,
    pair_of,
    verdict_line,
    verdict_record,
)
from tests.jsonl import write_lines

GOOD = '{"prompt": "p", "story_a": "a", "story_b": "b"}'


def pairs(path: Path) -> list[Pair]:
    return [pair_of(row, number) for number, row in enumerate(read_rows(path), 1)]


def test_jsonl_and_csv_give_the_same_pairs(tmp_path: Path) -> None:
    jsonl, table = tmp_path / "p.jsonl", tmp_path / "p.csv"
    jsonl.write_text(GOOD + '\n\n{"id": "x", "prompt_a": "1", "prompt_b": "2", "story_a": "a, b", "story_b": ""}\n')
    table.write_text('id,prompt,prompt_a,prompt_b,story_a,story_b\n,p,,,a,b\nx,,1,2,"a, b",\n')
    expected = [Pair("a", "b", "p", id="1"), Pair("a, b", "", prompt_a="1", prompt_b="2", id="x")]
    assert pairs(jsonl) == expected
    assert pairs(table) == expected
    assert expected[1].prompts == ("1", "2")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "p", "story_a": "a"}', 'line 7 of p.jsonl: "story_b" is missing (needed by a pairwise judge)'),
        ('{"prompt": "p", "story_a": "a", "story_b": null}', 'line 7 of p.jsonl: "story_b" is missing'),
        ('{"prompt": "p", "story_a": "a", "story_b": 5}', 'line 7 of p.jsonl: "story_b" is 5, not a string'),
        ('{"prompt": null, "story_a": "a", "story_b": "b"}', 'line 7 of p.jsonl: "prompt" is missing'),
        (
            '{"prompt": null, "prompt_a": "p", "story_a": "a", "story_b": "b"}',
            'line 7 of p.jsonl: "prompt" is missing',
        ),
        ('{"story_a": "a", "story_b": "b"}', 'line 7 of p.jsonl: "prompt" is missing (or "prompt_a" and "prompt_b"'),
        ('{"prompt": "p", "story_a', "line 7 of p.jsonl is not JSON"),
        ("[1]", "line 7 of p.jsonl is list, not a JSON object"),
        ("[" * 100_000, "line 7 of p.jsonl is not JSON"),
    ],
)
def test_a_mistake_in_line_7_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join([GOOD] * 6 + [line, GOOD]))
    with pytest.raises(AdjudgeError) as caught:
        pairs(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"Prompt": "p", "response": "r"}, 'its columns are "Prompt", "response"; is "Prompt" meant?'),
        ({"promt": "p", "id": None}, 'its columns are "promt"; is "promt" meant?'),
        ({"text": "p"}, '(needed by a judge of single texts; pairs have story_a and story_b): its columns are "text"'),
        ({"prompts": "p", "response": "r"}, 'is "prompts" meant?'),
        ({}, "its columns are none"),
    ],
)
def test_where_a_column_is_missing_those_that_are_there_are_told(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(AdjudgeError) as caught:
        item_of(Row("line 1", columns), 1)
    assert str(caught.value).endswith(message)


def test_the_other_story_is_not_taken_for_the_missing_one() -> None:
    with pytest.raises(AdjudgeError, match='its columns are "prompt", "story_a"$'):
        pair_of(Row("line 1", {"prompt": "p", "story_a": "x"}), 1)


def test_rows_of_responses_are_sent_to_rank() -> None:
    row = Row("line 1", {"prompt": "p", "responses": ["a", "b"]})
    for read in (item_of, pair_of):
        with pytest.raises(AdjudgeError, match='"prompt", "responses"; `adjudge rank` reads such rows$'):
            read(row, 1)
    with pytest.raises(AdjudgeError, match='its columns are "responses"$'):
        group_of_row(Row("line 1", {"responses": ["a"]}), 1)


def test_what_policies_write_is_read(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    story = "\ud800 \0 <|im_end|> \u2028 \x85 \U0001f600"
    path.write_bytes(
        json.dumps({"prompt": "p", "story_a": story, "story_b": "b" * 2_000_000}).encode()
        + b'\n{"prompt": "p", "story_a": "\xff\xfe", "story_b": "b\x85"}\n'
    )
    first, second = pairs(path)
    assert first.a == story.replace("\ud800", "\ufffd")  # which no encoder takes
    assert second.a == "\ufffd\ufffd"


def test_a_verdict_line_passes_other_columns_through_and_is_valid_json() -> None:
    further = {"genre": "fab\ud800le", "n": [1, {"k": "\udfff"}]}
    row = Row("line 1", {"story_a": "a", "story_b": "b", "prompt": "p", **further})
    verdict = PairVerdict("7", float("nan"), {}, None, False, "m", "k")
    record = json.loads(verdict_line(verdict, row))
    assert record["genre"] == "fab\ufffdle" and record["n"] == [1, {"k": "\ufffd"}]
    assert record["id"] == "7" and record["preference"] is None and "story_a" not in record
    assert msgspec.json.decode(verdict_line(verdict, row))["model"] == "m"


def test_labels_come_from_the_row_or_the_command() -> None:
    assert labels_of_row(Row("line 1", {"labels": ["1", "2"]}), None) == ("1", "2")
    assert labels_of_row(Row("line 1", {"labels": "1|2"}), ("x",)) == ("1", "2")
    assert labels_of_row(Row("line 1", {}), ("x",)) == ("x",)
    for bad in ({}, {"labels": [1]}, {"labels": ""}, {"labels": None}):
        with pytest.raises(AdjudgeError, match='line 1: "labels"'):
            labels_of_row(Row("line 1", bad), None)


def groups(path: Path) -> list[Group]:
    return [group_of_row(row, number) for number, row in enumerate(read_rows(path), 1)]


def test_groups_are_read_with_and_without_what_is_optional(tmp_path: Path) -> None:
    path = tmp_path / "g.jsonl"
    path.write_text(
        '{"prompt": "p", "responses": ["a", ""]}\n\n'
        '{"prompt": "q", "responses": ["a"], "reference": "r", "id": 7}\n'
        '{"prompt": "q", "responses": ["a"], "reference": null, "id": null}\n'
    )
    assert groups(path) == [
        Group("p", ("a", ""), id="1"),
        Group("q", ("a",), reference="r", id="7"),
        Group("q", ("a",), id="3"),
    ]


CELL = ' (a cell of CSV has its JSON: ["a", "b"])'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"prompt": "p"}',
            '"responses" is missing (or "response", one a row; needed by a tournament): its columns are "prompt"',
        ),
        ('{"responses": ["a"]}', '"prompt" is missing (needed by a tournament): its columns are "responses"'),
        ('{"prompt": "p", "responses": "a"}', f'"responses" is "a", not a list of strings{CELL}'),
        ('{"prompt": "p", "responses": ["a", 5]}', f'"responses" is ["a", 5], not a list of strings{CELL}'),
        ('{"prompt": "p", "responses": []}', '"responses" is empty: give at least one'),
        ('{"prompt": "p", "responses": ["a"], "reference": 5}', '"reference" is 5, not a string'),
    ],
)
def test_a_mistake_in_a_group_names_its_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "g.jsonl"
    path.write_text('{"prompt": "p", "responses": ["a"]}\n' * 6 + line)
    with pytest.raises(AdjudgeError) as caught:
        groups(path)
    assert str(caught.value) == f"line 7 of g.jsonl: {message}"


def test_a_group_line_passes_columns_through_and_repeats_no_text() -> None:
    row = Row("line 1", {"prompt": "p", "responses": ["a"], "reference": "r", "id": "g", "genre": "tale \ud800"})
    verdict = GroupVerdict("g", (None,), (None,), None, (None,), (), "timeout", False, "m", "k")
    assert json.loads(group_line(verdict, row)) == {
        "genre": "tale \ufffd",
        "id": "g",
        "strengths": [None],
        "errors": [None],
        "reference_strength": None,
        "preferences": [None],
        "outcomes": [],
        "abstained": "timeout",
        "truncated": False,
        "model": "m",
        "key": "k",
        "ranks": [None],
    }


def test_the_example_groups_have_a_reference_a_doubled_response_and_an_attack() -> None:
    first, second = groups(Path(__file__).parents[3] / "examples" / "groups.jsonl")
    assert first.reference is not None and second.reference is None
    assert len(set(first.responses)) == len(first.responses) - 1
    assert any("<ANSWER> 5" in text for text in first.responses)


def test_an_item_takes_its_id_or_its_number_and_a_missing_text_is_named() -> None:
    row = Row("line 4 of items.jsonl", {"prompt": "p", "response": "r", "id": 7})
    assert item_of(row, 4) == Item(prompt="p", response="r", id="7")
    assert item_of(Row("x", {"prompt": "", "response": ""}), 4).id == "4"
    with pytest.raises(AdjudgeError, match=r'line 4 .*: "response" is missing \(needed by a judge of single texts'):
        item_of(Row("line 4 of items.jsonl", {"prompt": "p"}), 4)


def test_an_items_line_has_its_mass_and_the_further_columns() -> None:
    parts = {"a": Part(2.0, 1.0, (0.5, 0.5), 0.25), "b": Part(None, 0.0, mass=0.5, abstained="low_mass")}
    verdict = Verdict("1", 2.0, parts, None, False, "m", "k", {"a": ("\ufffd",)})
    line = json.loads(verdict_line(verdict, Row("x", {"prompt": "p", "response": "r", "reference": "", "genre": "g"})))
    assert line.keys() == {
        *("id", "score", "breakdown", "abstained", "truncated", "model", "key", "analysis", "mass", "genre")
    }
    assert line["mass"] == 0.25 and line["analysis"] == {"a": ["\ufffd"]}
    assert line["breakdown"]["b"] == {
        "score": None,
        "weight": 0.0,
        "distribution": None,
        "mass": 0.5,
        "abstained": "low_mass",
    }


def rubric_items(path: Path) -> list[Item]:
    return [item_of(row, number, ("rubric",)) for number, row in enumerate(read_rows(path), 1)]


def test_an_items_own_rubric_is_an_object_or_the_json_text_of_a_cell(tmp_path: Path) -> None:
    rubric = {"criteria": [{"name": "a", "text": "?", "points": 2}]}
    checklist = [{"name": "b", "criteria_description": "!", "1-2": "low", "3-4": "high"}]
    rows: list[dict[str, Any]] = [{"rubric": rubric}, {"checklist": checklist}, {"rubric": None, "checklist": ""}]
    jsonl, table = tmp_path / "i.jsonl", tmp_path / "i.csv"
    jsonl.write_text("".join(json.dumps({"prompt": "p", "response": "r", **row}) + "\n" for row in rows))
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["prompt", "response", "rubric", "checklist"])
        writer.writerows(
            [["p", "r", json.dumps(rubric), ""], ["p", "r", "", json.dumps(checklist)], ["p", "r", "", ""]]
        )
    expected = [
        Item("p", "r", "1", rubric=Rubric((Criterion("a", "?", 2),))),
        Item("p", "r", "2", rubric=Rubric((Criterion("b", "!", levels=(Level(1, 2, "low"), Level(3, 4, "high"))),))),
        Item("p", "r", "3"),
    ]
    assert rubric_items(jsonl) == rubric_items(table) == expected
    assert all(item_of(row, 1).rubric is None for row in read_rows(jsonl))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"rubric": {"criteria": []}}, 'line 1 of i.jsonl: "rubric": the rubric has no criteria'),
        ({"rubric": "be kind"}, 'line 1 of i.jsonl: "rubric" is not JSON: write the rubric as JSON'),
        ({"rubric": "[" * 100_000}, 'line 1 of i.jsonl: "rubric" is not JSON'),
        ({"rubric": '{"criteria": [5]}'}, 'line 1 of i.jsonl: "rubric": criterion 1: Expected `object`, got `int`'),
        ({"checklist": [{}]}, 'line 1 of i.jsonl: "checklist": criterion 1 of the checklist needs "name"'),
        ({"rubric": {}, "checklist": []}, 'line 1 of i.jsonl has both "rubric" and "checklist": leave one out'),
    ],
)
def test_a_mistake_in_an_items_own_rubric_is_named_with_its_line(
    tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    path = tmp_path / "i.jsonl"
    path.write_text(json.dumps({"prompt": "p", "response": "r", **columns}))
    with pytest.raises(AdjudgeError) as caught:
        rubric_items(path)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_the_reviews_of_a_reader_are_read_from_jsonl_and_from_json_text_in_csv(tmp_path: Path) -> None:
    of_items = [{"plot": "p", "review": "r", "score": 7, "title": "t"}, {"plot": "q", "review": "", "score": 4.5}]
    of_pairs = [{"a": "x", "b": "y", "preferred": "b", "aspect": "ending"}, {"a": "x", "b": "z", "preferred": "a"}]
    items, pairs = tmp_path / "i.csv", tmp_path / "p.csv"
    for path, base, reviews in (
        (items, {"prompt": "", "response": "s"}, of_items),
        (pairs, {"prompt": "", "story_a": "a", "story_b": "b"}, of_pairs),
    ):
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, [*base, "reviews"])
            table.writeheader()
            table.writerows([{**base, "reviews": json.dumps(reviews)}, {**base, "reviews": ""}])
        rows: list[dict[str, object]] = [{**base, "reviews": reviews}, {**base, "reviews": None}, {**base}]
        write_lines(path.with_suffix(".jsonl"), *rows)
    given = (Review("p", "r", 7.0), Review("q", "", 4.5))
    chosen = (Comparison("x", "y", "b", "ending"), Comparison("x", "z", "a"))
    for suffix, empty in ((".csv", 1), (".jsonl", 2)):
        item_rows, pair_rows = (read_rows(path.with_suffix(suffix)) for path in (items, pairs))
        assert [item_of(row, 1, ("reviews",)).reviews for row in item_rows] == [given] + [()] * empty
        assert [pair_of(row, 1, ("reviews",)).reviews for row in pair_rows] == [chosen] + [()] * empty


@pytest.mark.parametrize(
    ("reviews", "detail"),
    [
        ("[{", "not JSON"),
        ("7", "Expected `array`"),
        ([{"review": "r", "score": 7}], "missing required field `plot` - at `$[0]`"),
        ([{"plot": "p", "review": "r", "score": "7"}], "at `$[0].score`"),
        ([{"plot": "p", "review": "r", "score": True}], "at `$[0].score`"),
        ("[" * 100_000, ""),
    ],
)
def test_reviews_that_cannot_be_read_are_named_with_their_line(reviews: object, detail: str) -> None:
    row = Row("line 3 of i.csv", {"prompt": "", "response": "s", "reviews": reviews})
    with pytest.raises(AdjudgeError) as caught:
        item_of(row, 3, ("reviews",))
    assert item_of(row, 3).reviews == ()
    assert str(caught.value).startswith('line 3 of i.csv: "reviews" cannot be read (') and detail in str(caught.value)
    assert str(caught.value).endswith('): give a list of {"plot", "review", "score"}')


def test_a_choice_that_is_neither_a_nor_b_is_named() -> None:
    reviews = [{"a": "x", "b": "y", "preferred": "both"}]
    row = Row("line 3 of p.jsonl", {"prompt": "", "story_a": "a", "story_b": "b", "reviews": reviews})
    with pytest.raises(
        AdjudgeError, match=r"line 3 of p.jsonl.*\$\[0\].preferred.*give a list of .*preferred.*a.* or .*b"
    ):
        pair_of(row, 3, ("reviews",))


def test_examples_are_read_by_their_two_columns() -> None:
    assert example_of(Row("line 1", {"prompt": "P", "response": "R", "label": 1})) == Example("P", "R")
    with pytest.raises(AdjudgeError, match=r'line 1: "response" is missing \(needed by an example\)'):
        example_of(Row("line 1", {"prompt": "P"}))


@pytest.mark.parametrize(
    ("value", "label"),
    [
        *[(1, True), (0, False), ("1", True), ("0", False), (1.0, True), (0.0, False), ("1.0", True)],
        *[(np.int64(1), True), (np.float64(0), False), ("", None), (None, None), (math.nan, None)],
    ],
)
def test_labels_are_1_or_0_or_absent(value: object, label: bool | None) -> None:
    assert label_of(Row("line 1", {"label": value})) is label
    assert label_of(Row("line 1", {})) is None


@pytest.mark.parametrize("value", [2, 0.5, "good", True, np.bool_(True), [1]])
def test_another_label_is_named_with_its_line(value: object) -> None:
    with pytest.raises(AdjudgeError, match=r'line 3: "label" is .*write 1 for good'):
        label_of(Row("line 3", {"label": value}))


def test_what_a_data_frame_has_where_there_is_no_value_is_absent() -> None:
    nothing = dict.fromkeys(("id", "reference", "genre", "task", "rubric", "checklist", "reviews", "labels"), math.nan)
    row = Row("here", {"prompt": "P", "response": "R", "prompt_a": math.nan, **nothing})
    assert item_of(row, 1, ("genre", "task", "rubric", "reviews")) == Item("P", "R", "1")
    assert labels_of_row(row, ("x",)) == ("x",)
    for read, name in ((pair_of, "story_a"), (group_of_row, "responses"), (item_of, "prompt")):
        with pytest.raises(AdjudgeError, match=f'"{name}" is missing .* it is null'):
            read(Row("here", {"prompt": "P", "story_b": "B", name: math.nan}), 1)


def test_names_that_are_null_in_an_object_are_absent() -> None:
    reviews = [{"a": "x", "b": "y", "preferred": "a", "aspect": None}]
    row = Row("here", {"prompt": "P", "story_a": "A", "story_b": "B", "reviews": reviews})
    assert pair_of(row, 1, ("reviews",)).reviews[0].aspect == ""


def test_responses_may_be_json_in_a_cell_of_a_table() -> None:
    assert group_of_row(Row("here", {"prompt": "P", "responses": '["a", "b"]'}), 1).responses == ("a", "b")
    with pytest.raises(AdjudgeError, match="not a list of strings"):
        group_of_row(Row("here", {"prompt": "P", "responses": "a, b"}), 1)


def test_a_column_that_has_a_verdicts_name_goes_by_another() -> None:
    verdict = Verdict("1", 2.0, {}, None, False, "house", "k")
    row = Row("here", {"id": "1", "prompt": "P", "response": "R", "model": "GPT-4", "score": 4.5, "genre": "tale"})
    record = verdict_record(verdict, row)
    assert (record["model"], record["input_model"]) == ("house", "GPT-4")
    assert (record["score"], record["input_score"], record["genre"]) == (2.0, 4.5, "tale")
    both = Row("line 1", {**row.columns, "input_score": 9})
    record = verdict_record(verdict, both)
    assert (record["score"], record["input_input_score"], record["input_score"]) == (2.0, 4.5, 9)  # none is lost
    poses = verdict_record(verdict, Row("line 1", {**row.columns, "adapter": "theirs"}))
    assert "adapter" not in poses and poses["input_adapter"] == "theirs"
