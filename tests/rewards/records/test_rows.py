from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adjudge.commands.runs.rows import rows_of
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.row_files import read_rows
from adjudge.rewards.records.rows import Row, id_of
from tests.jsonl import write_lines


def test_ids_of_tables_that_hold_numbers_as_floats_are_whole_or_none(tmp_path: Path) -> None:
    write_lines(path := tmp_path / "p.jsonl", *({"id": name} for name in (7.0, float("nan"), 1.5, "1.0", None)))
    assert [id_of(row, number) for number, row in enumerate(read_rows(path), 1)] == ["7", "2", "1.5", "1.0", "5"]


def test_columns_go_by_the_names_they_are_given(tmp_path: Path) -> None:
    write_lines(path := tmp_path / "r.jsonl", {"prompt": "x", "q": "Q", "r": "R"}, {"q": "P", "s": 1})
    rows = rows_of(path, columns="prompt=q, response = r")
    assert [row.columns for row in rows] == [{"prompt": "Q", "response": "R"}, {"prompt": "P", "s": 1}]
    with pytest.raises(AdjudgeError, match=r'^line 1 of r.jsonl: "t" is missing \(--columns takes it as prompt\)'):
        rows_of(path, columns="prompt=t")
    for mistake, message in (
        ("prompt", 'has "prompt": write name=column'),
        ("prompt=q,", "write name=column"),
        ("prompt=q,prompt=r", 'names "prompt" twice'),
        ("prompt=q,response=q", 'names "q" twice'),
    ):
        with pytest.raises(AdjudgeError, match=message):
            rows_of(path, columns=mistake)


def test_what_is_no_text_is_named_whatever_it_is() -> None:
    values: list[Any] = [{(1, 2): 3}, 10**5000, [10**5000], {"a": {1}}, object()]
    for value in values:
        with pytest.raises(AdjudgeError, match='row 1: "prompt" is .*, not a string'):
            Row("row 1", {"prompt": value}).text("prompt", "a judge")
