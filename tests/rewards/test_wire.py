from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.group import Group, GroupVerdict
from adjudge.rewards.verdict import Example, Item, Pair, PairVerdict, Part, Verdict
from adjudge.rewards.wire import (
    Row,
    example_of,
    group_line,
    group_of,
    item_of,
    label_of,
    labels_of,
    pair_of,
    read_rows,
    verdict_line,
)

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
    ("name", "content", "message"),
    [
        ("p.jsonl", "", "is empty"),
        ("p.jsonl", "\n \n", "is empty"),
        ("p.csv", "story_a,story_b\n", "is empty"),
        ("p.csv", "story_a,story_b\na,b,c\n", "line 2 of p.csv has more columns"),
        ("p.csv", "prompt,story_a\np,a\n", 'line 2 of p.csv: "story_b" is missing'),
    ],
)
def test_files_without_rows_or_with_a_wrong_shape(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(AdjudgeError) as caught:
        pairs(tmp_path / name)
    assert message in str(caught.value)


def test_a_file_that_is_not_there_or_is_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.jsonl", tmp_path):
        with pytest.raises(AdjudgeError, match="cannot read"):
            read_rows(path)


def test_what_policies_write_is_read(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    story = "\ud800 \0 <|im_end|> \u2028 \x85 \U0001f600"
    path.write_bytes(
        json.dumps({"prompt": "p", "story_a": story, "story_b": "b" * 2_000_000}).encode()
        + b'\n{"prompt": "p", "story_a": "\xff\xfe", "story_b": "b\x85"}\n'
    )
    first, second = pairs(path)
    assert first.a == story
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
    assert labels_of(Row("line 1", {"labels": ["1", "2"]}), None) == ("1", "2")
    assert labels_of(Row("line 1", {"labels": "1|2"}), ("x",)) == ("1", "2")
    assert labels_of(Row("line 1", {}), ("x",)) == ("x",)
    for bad in ({}, {"labels": [1]}, {"labels": ""}, {"labels": None}):
        with pytest.raises(AdjudgeError, match='line 1: "labels"'):
            labels_of(Row("line 1", bad), None)


def groups(path: Path) -> list[Group]:
    return [group_of(row, number) for number, row in enumerate(read_rows(path), 1)]


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


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "p"}', '"responses" is missing (needed by a tournament)'),
        ('{"responses": ["a"]}', '"prompt" is missing (needed by a tournament)'),
        ('{"prompt": "p", "responses": "a"}', '"responses" is "a", not a list of strings'),
        ('{"prompt": "p", "responses": ["a", 5]}', '"responses" is ["a", 5], not a list of strings'),
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
    }


def test_the_example_groups_have_a_reference_a_doubled_response_and_an_attack() -> None:
    first, second = groups(Path(__file__).parents[2] / "examples" / "groups.jsonl")
    assert first.reference is not None and second.reference is None
    assert len(set(first.responses)) == len(first.responses) - 1
    assert any("<ANSWER> 5" in text for text in first.responses)


def test_an_item_takes_its_id_or_its_number_and_a_missing_text_is_named() -> None:
    row = Row("line 4 of items.jsonl", {"prompt": "p", "response": "r", "id": 7})
    assert item_of(row, 4) == Item(prompt="p", response="r", id="7")
    assert item_of(Row("x", {"prompt": "", "response": ""}), 4).id == "4"
    with pytest.raises(AdjudgeError, match=r'line 4 .*: "response" is missing \(needed by a judge of single texts\)'):
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


def test_examples_are_read_by_their_two_columns() -> None:
    assert example_of(Row("line 1", {"prompt": "P", "response": "R", "label": 1})) == Example("P", "R")
    with pytest.raises(AdjudgeError, match=r'line 1: "response" is missing \(needed by an example\)'):
        example_of(Row("line 1", {"prompt": "P"}))


@pytest.mark.parametrize(
    ("value", "label"), [(1, True), (0, False), ("1", True), ("0", False), ("", None), (None, None)]
)
def test_labels_are_1_or_0_or_absent(value: object, label: bool | None) -> None:
    assert label_of(Row("line 1", {"label": value})) is label
    assert label_of(Row("line 1", {})) is None


@pytest.mark.parametrize("value", [2, 0.5, "good", True, [1]])
def test_another_label_is_named_with_its_line(value: object) -> None:
    with pytest.raises(AdjudgeError, match=r'line 3: "label" is .*write 1 for good'):
        label_of(Row("line 3", {"label": value}))
