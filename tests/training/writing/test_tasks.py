from __future__ import annotations

from typing import Any

import msgspec
import pytest

from adjudge.bench.tree.howtobench import items_of
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.wire import item_of
from adjudge.training.writing.building import Candidate, Construction, candidates_of
from adjudge.training.writing.tasks import GAP, completions, guided, opened, parse_tasks

LINES = [f"Paragraph {number} of some words." for number in range(9)]
TOLD = Construction("Rain", "It rains", ("Much rain.", "Wet\npeople.", "Good.", "Plain."))


def candidate(text: str = "\n\n".join(LINES), told: Construction = TOLD, **more: Any) -> Candidate:
    [one] = candidates_of([Row("line 1", {"id": "t", "text": text, "genre": "essay", "site": "s", **more})])
    return msgspec.structs.replace(one, construction=told, quality=4.5)


@pytest.mark.parametrize("seed", range(20))
def test_a_gap_and_what_fills_it_are_the_text_between_its_ends(seed: int) -> None:
    [row] = completions([candidate()], seed).kept
    assert row["information"].replace(GAP, row["reference"]) == "\n\n".join(LINES)
    assert row["information"].startswith(LINES[0]) and row["information"].endswith(LINES[-1])
    assert 1 <= len(row["reference"].split("\n\n")) <= 3 and "(essay)" in row["instruction"]
    assert completions([candidate()], seed).kept == [row]


def test_other_seeds_leave_other_gaps_and_never_more_than_ten_paragraphs() -> None:
    long = candidate("\n".join(f"Line {number}." for number in range(99)))
    sizes = {len(completions([long], seed).kept[0]["reference"].split("\n")) for seed in range(60)}
    assert sizes == set(range(1, 11))


def test_short_texts_have_no_room_for_a_gap() -> None:
    passed = completions([candidate("One. Two. Three."), candidate("a\n\nb\n\nc")])
    assert [drop.reason for drop in passed.dropped] == ["too_short"]
    assert passed.kept[0]["reference"] == "b"


def test_an_outline_names_every_trait_and_an_open_task_none() -> None:
    guide, open_ = guided(candidate()), opened(candidate())
    assert guide["information"].splitlines() == [
        "subject: Much rain.",
        "point of view: Wet people.",
        "thought: Good.",
        "style: Plain.",
    ]
    instruction = "Write a text (essay) about Rain. It rains. Aim for about 50 words."
    assert guide["instruction"] == open_["instruction"] == open_["prompt"] == instruction
    assert guide["prompt"] == f"{instruction}\n\n{guide['information']}" and open_["information"] == ""
    assert (guide["id"], open_["id"], guide["source"], guide["site"]) == ("t/guide", "t/open", "t", "s")
    assert "text" not in guide and guide["reference"] == "\n\n".join(LINES)


def test_chinese_texts_are_asked_for_in_chinese_and_in_characters() -> None:
    row = guided(candidate("雨下了一整天。" * 20, Construction("雨", "雨下个不停。", TOLD.requirements), genre="随笔"))
    assert row["instruction"] == "请写一篇随笔，主题是“雨”。雨下个不停。篇幅约 150 字。"
    assert row["information"].startswith("题材：Much rain.")


@pytest.mark.parametrize("task", ["completion", "guide", "open"])
def test_rows_are_what_the_tree_judge_and_the_benchmark_read(task: str) -> None:
    [filled] = completions([candidate()]).kept
    row = {"completion": filled, "guide": guided(candidate()), "open": opened(candidate())}[task]
    item = item_of(Row("line 1", {**row, "response": "x"}), 1, ("genre", "task"))
    assert (item.task, item.genre, item.prompt, item.reference) == (task, "essay", row["prompt"], row["reference"])
    [line] = items_of([Row("line 1", {**row, "outputs": {"gpt": "x"}})])
    assert line["prompt"] == row["prompt"]


def test_tasks_are_named_in_any_order() -> None:
    assert parse_tasks(" open,completion") == ("completion", "open") and len(parse_tasks(None)) == 3
    for text, reason in (("poem", 'called "poem"'), (",", "no task")):
        with pytest.raises(AdjudgeError, match=reason):
            parse_tasks(text)
