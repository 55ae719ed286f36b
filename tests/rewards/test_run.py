from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.absent import Card
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal
from adjudge.rewards.run import record_run, run_of, runs_of
from adjudge.rewards.wire import Row, read_rows

LINES = [
    '{"id": 7, "response": "lone \\ud800 and nul \\u0000", "z": NaN, "a": [1, {"b": null}], "1": 1e400}',
    '{"response": "", "z": 0.1}',
]


def record(journal: Journal, rows: list[Row], **options: Any) -> None:
    record_run(
        journal, what="items", judge="rubric", source=Path("dir/items.jsonl"), options=options, card=Card("m"),
        rows=rows, keys=[f"key {number}" for number in range(len(rows))],
    )  # fmt: skip


def test_rows_keys_options_and_files_come_back_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text("\n".join(LINES))
    rows = read_rows(tmp_path / "items.jsonl")
    (tmp_path / "my rubric.toml").write_bytes(b"weight = 1 # \xff")
    with Journal(tmp_path / "j") as journal:
        record(journal, rows, rubric=tmp_path / "my rubric.toml", examples=Path("six"), min_mass=0.5, form="parity")
        (tmp_path / "my rubric.toml").unlink()
        run = run_of(journal)
        back = run.read_rows(journal)
        assert [json.dumps(row.columns) for row in back] == [json.dumps(row.columns) for row in rows]
        assert back[1].place == "row 2 of j" and run.read_keys(journal) == ["key 0", "key 1"]
        options = run.read_options(journal, tmp_path / "elsewhere")
        assert (options.pop("rubric")).read_bytes() == b"weight = 1 # \xff"
        assert options == {"min_mass": 0.5, "form": "parity", "examples": Path("six")}
        assert (run.source, run.judge, run.card.name) == ("items.jsonl", "rubric", "m")


def test_texts_are_kept_once_however_many_runs_judge_them(tmp_path: Path) -> None:
    rows = [Row("", {"prompt": "p", "response": f"{number} " + "word " * 500}) for number in range(50)]
    with Journal(tmp_path / "j") as journal:
        for least in range(10):
            record(journal, rows, min_mass=float(least))
        assert len(runs_of(journal)) == 10
    assert (tmp_path / "j").stat().st_size < 100_000  # of 50 × 2,500 characters


def test_runs_are_chosen_by_number(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        with pytest.raises(AdjudgeError, match="no record of a run .* with --resume"):
            run_of(journal)
        for least in (0.1, 0.2):
            record(journal, [Row("", {})], min_mass=least)
        assert [run_of(journal, number).options for number in (1, 2, None)] == [
            {"min_mass": least} for least in (0.1, 0.2, 0.2)
        ]
        with pytest.raises(AdjudgeError, match="has 2 runs, no run 3"):
            run_of(journal, 3)
