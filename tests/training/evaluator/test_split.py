from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.training.evaluator.recipe import JudgedRows
from adjudge.training.evaluator.split import place_of, prompts_of, read_split
from tests.jsonl import write_lines

ROWS: list[dict[str, Any]] = [{"prompt": f"p{n // 3}", "n": n} for n in range(120)]


def test_no_prompt_is_on_both_sides_and_its_side_is_its_own(tmp_path: Path) -> None:
    data = JudgedRows(train=str(write_lines(tmp_path / "a.jsonl", *ROWS)), held_out=0.3)
    split = read_split(data, 0)
    train, held_out = ({prompts_of(row) for row in rows} for rows in (split.train, split.held_out))
    assert not train & held_out and len(train | held_out) == 40 and 5 < len(held_out) < 20
    assert len(split.train) + len(split.held_out) == 120
    fewer = JudgedRows(train=str(write_lines(tmp_path / "b.jsonl", *ROWS[60:][::-1])), held_out=0.3)
    assert {prompts_of(row) for row in read_split(fewer, 0).held_out} <= held_out
    assert {prompts_of(row) for row in read_split(data, 1).held_out} != held_out


def test_a_prompt_that_is_spaced_otherwise_is_the_same_prompt(tmp_path: Path) -> None:
    spaced = [{"prompt": f"tell  it {n}\n"} for n in range(40)]
    rows = [*spaced, *({"prompt": " ".join(row["prompt"].split())} for row in spaced)]
    split = read_split(JudgedRows(train=str(write_lines(tmp_path / "a.jsonl", *rows)), held_out=0.5), 0)
    train, held_out = ([prompts_of(row) for row in side] for side in (split.train, split.held_out))
    assert not {*train} & {*held_out} and len(train) == 2 * len({*train}) and len(train) + len(held_out) == 80


def test_a_pair_with_prompts_on_both_sides_is_on_neither_and_counted(tmp_path: Path) -> None:
    names = sorted((f"p{n}" for n in range(20)), key=lambda prompt: place_of(prompt, 0))
    out, kept = names[0], names[-1]
    rows = [{"prompt_a": a, "prompt_b": b} for a, b in [(out, out), (kept, kept), (out, kept), (kept, out)]]
    data = JudgedRows(train=str(write_lines(tmp_path / "a.jsonl", *rows)), held_out=place_of(out, 0) + 1e-6)
    split = read_split(data, 0)
    assert (len(split.train), len(split.held_out), split.straddling) == (1, 1, 2)


def test_prompts_of_a_held_out_file_are_taken_out_of_the_other(tmp_path: Path) -> None:
    held_out = write_lines(tmp_path / "b.jsonl", {"prompt": "p0"})
    data = JudgedRows(train=str(write_lines(tmp_path / "a.jsonl", *ROWS)), held_out=str(held_out))
    split = read_split(data, 0)
    assert (len(split.train), len(split.held_out), split.shared) == (117, 1, 3)
    assert split.told == ["3 rows left out of training: their prompts are held out in the other file"]


def test_of_few_prompts_there_is_one_on_either_side_and_of_one_there_cannot_be(tmp_path: Path) -> None:
    two = str(write_lines(tmp_path / "b.jsonl", {"prompt": "p0"}, {"prompt": "p1"}, {"prompt": "p1"}))
    first = min(("p0", "p1"), key=lambda prompt: place_of(prompt, 0))
    for share in (1e-9, 0.5, 1 - 1e-9):
        split = read_split(JudgedRows(train=two, held_out=share), 0)
        assert {row.columns["prompt"] for row in split.held_out} == {first} and split.train
    one = str(write_lines(tmp_path / "a.jsonl", *ROWS[:3]))
    with pytest.raises(AdjudgeError, match="parts rows by their prompts, and these have one: write held_out = 0"):
        read_split(JudgedRows(train=one, held_out=0.5), 0)
    assert len(read_split(JudgedRows(train=one, held_out=0.0), 0).train) == 3


def test_an_empty_side_is_refused(tmp_path: Path) -> None:
    path = str(write_lines(tmp_path / "a.jsonl", *[{"prompt_a": "p0", "prompt_b": "p1"}] * 3))
    with pytest.raises(AdjudgeError, match="held_out leaves no prompt to test on"):
        read_split(JudgedRows(train=path, held_out=0.5), 0)
    other = str(write_lines(tmp_path / "b.jsonl", {"prompt": "p1"}))
    with pytest.raises(AdjudgeError, match="held_out leaves no rows to train on: name a file of other prompts"):
        read_split(JudgedRows(train=path, held_out=other), 0)


def test_a_share_that_the_draw_misses_by_far_is_told(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{n}"} for n in range(6)]
    path = str(write_lines(tmp_path / "a.jsonl", *rows))
    data = JudgedRows(train=path, held_out=0.34)
    counts = {seed: len(read_split(data, seed).held_out) for seed in range(20)}
    for seed, count in counts.items():
        missed = read_split(data, seed).told
        assert bool(missed) is (count not in (2, 3)), (seed, count)
        assert not missed or f"held out: {count} of 6 prompts, where [data] held_out is 0.34" in missed[0]
    assert {1, 2} <= set(counts.values())
    assert read_split(JudgedRows(train=path, held_out=0), 0).told == []
    other = str(write_lines(tmp_path / "b.jsonl", {"prompt": "other"}))
    assert read_split(JudgedRows(train=path, held_out=other), 0).told == []
