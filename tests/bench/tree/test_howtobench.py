from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adjudge.bench.tree.howtobench import SYSTEMS, TABLE_4, items_of
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.row_files import read_rows
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.wire import item_of

DATA = Path(__file__).parents[3].parent / "shared" / "data" / "howtobench"
OURS: dict[str, Any] = {
    "id": "i1",
    "task": "guide",
    "genre": "散文",
    "instruction": "Write it.",
    "information": "Points: a, b.",
    "reference": "0123456789",
    "outputs": {"gpt": "abcdefghij", "glm": "short"},
}
THEIRS = {
    "infer_id": "i1",
    "task_type": "guide",
    "sub_task": "散文",
    "basic_instruction": "Write it.",
    "information": "Points: a, b.",
    "reference": "0123456789",
    "infers": {"gpt": "abcdefghij", "glm": "short"},
}


def rows(*columns: dict[str, Any]) -> list[Row]:
    return [Row(f"line {number} of h.jsonl", row) for number, row in enumerate(columns, 1)]


def test_a_row_becomes_one_item_for_each_system() -> None:
    first, second = items_of(rows(OURS))
    assert first == {
        "id": "i1/gpt",
        "instruction": "i1",
        "system": "gpt",
        "task": "guide",
        "genre": "散文",
        "prompt": "Write it.\n\nPoints: a, b.",
        "reference": "0123456789",
        "response": "abcdefghij",
    }
    assert (second["id"], second["response"], second["prompt"]) == ("i1/glm", "short", first["prompt"])
    item = item_of(Row("line 1", first), 1, ("genre", "task"))
    assert (item.genre, item.task, item.reference) == ("散文", "guide", "0123456789")


def test_the_authors_own_column_names_are_read_too() -> None:
    assert list(items_of(rows(THEIRS))) == list(items_of(rows(OURS)))


def test_without_information_the_prompt_is_the_instruction() -> None:
    assert next(items_of(rows(OURS | {"information": ""})))["prompt"] == "Write it."


def test_long_texts_keep_their_beginning_and_end() -> None:
    first, second = items_of(rows(OURS), characters=5)
    assert (first["response"], first["reference"], second["response"]) == ("abc\n……\nij", "012\n……\n89", "short")
    assert first["prompt"] == "Write it.\n\nPoi\n……\nb."


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({**OURS, "reference": None}, 'line 1 of h.jsonl: "reference" is missing'),
        ({**OURS, "outputs": ["a"]}, 'line 1 of h.jsonl: "outputs" is missing or not texts by system'),
        ({**OURS, "outputs": {"gpt": 1}}, "not texts by system"),
        ({**OURS, "instruction": 3}, '"instruction" is 3, not a string'),
    ],
)
def test_a_row_that_is_not_of_the_set_is_named(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(AdjudgeError, match=reason):
        list(items_of(rows(row)))


def test_the_published_table_has_ten_systems_and_its_means_agree_with_its_own_last_column() -> None:
    assert all(tuple(row) == SYSTEMS for row in TABLE_4.values())
    averages = {"argumentative": 5.68, "comment": 5.48, "prose": 5.32, "letters": 6.02, "speech": 5.60, "plan": 5.03}
    for genre, published in averages.items():
        assert sum(TABLE_4[genre].values()) / 10 == pytest.approx(published, abs=0.07)
    assert list(TABLE_4["all"].values()) == sorted(TABLE_4["all"].values(), reverse=True)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the real data set is not at {DATA}")
def test_the_real_set_is_read_whole() -> None:
    read = [row for path in sorted(DATA.glob("*.jsonl")) for row in read_rows(path)]
    items = [json.loads(json.dumps(item)) for item in items_of(read)]
    assert len(items) == 10 * len(read) > 0
    assert {item["system"] for item in items} == set(SYSTEMS)
    assert {item_of(Row("", item), 1, ("genre", "task")).task for item in items} == {"completion", "guide", "open"}
