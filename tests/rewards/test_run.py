from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adjudge.engine.absent import Card
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.kinds import FILES
from adjudge.rewards.records.row_files import read_rows
from adjudge.rewards.records.rows import Row
from adjudge.rewards.run import record_run, run_of, runs_of

LINES = [
    '{"id": 7, "response": "lone \\ud800 and nul \\u0000", "z": NaN, "a": [1, {"b": null}], "1": 1e400}',
    '{"response": "", "z": 0.1}',
]


def record(journal: Journal, rows: list[Row], source: Path = Path("dir/items.jsonl"), **options: Any) -> None:
    record_run(
        journal, what="items", judge="rubric", source=source, options=options, card=Card("m"),
        rows=rows, keys=[f"key {number}" for number in range(len(rows))],
    )  # fmt: skip


def test_rows_keys_options_and_files_come_back_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text("\n".join(LINES))
    rows = read_rows(tmp_path / "items.jsonl")
    (tmp_path / "my rubric.toml").write_bytes(b"weight = 1 # \xff")
    with Journal(tmp_path / "j") as journal:
        record(journal, rows, rubric=tmp_path / "my rubric.toml", min_mass=0.5, form="parity")
        (tmp_path / "my rubric.toml").unlink()
        run = run_of(journal)
        back = run.read_rows(journal)
        assert [json.dumps(row.columns) for row in back] == [json.dumps(row.columns) for row in rows]
        assert back[1].place == "row 2 of j" and run.read_keys(journal) == ["key 0", "key 1"]
        (tmp_path / "elsewhere").mkdir()
        options = run.read_options(journal, tmp_path / "elsewhere")
        assert (options.pop("rubric")).read_bytes() == b"weight = 1 # \xff"
        assert options == {"min_mass": 0.5, "form": "parity"}
        assert (run.source, run.judge, run.card.name) == ("items.jsonl", "rubric", "m")


def test_names_and_options_that_are_no_utf8_are_held_with_question_marks(tmp_path: Path) -> None:
    name = os.fsdecode(b"r\xff.toml")
    (tmp_path / name).write_text("x")
    with Journal(tmp_path / "j") as journal:
        record(journal, [Row("", {})], source=Path(name), rubric=tmp_path / name, aspects="wit=\udcff")
        run = run_of(journal)
    assert (run.source, run.files["rubric"].name, run.options) == ("r?.toml", "r?.toml", {"aspects": "wit=?"})


def test_a_published_rubric_is_no_file_even_where_one_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "six").write_text("not a rubric")
    with Journal(tmp_path / "j") as journal:
        record(journal, [Row("", {})], rubric=Path("six"))
        run = run_of(journal)
        assert run.files == {} and run.read_options(journal, tmp_path) == {"rubric": "six"}


@pytest.mark.parametrize("kept", [b"{", b"{}", b'{"what": "\xff"}', 3])
def test_a_record_that_is_damaged_is_one_sentence(tmp_path: Path, kept: bytes | int) -> None:
    with Journal(tmp_path / "j") as journal:
        record(journal, [Row("", {})])
        journal._db.execute("UPDATE runs SET run = ?", (kept,))
        with pytest.raises(AdjudgeError, match="j is damaged .*: name another file"):
            runs_of(journal)


def test_a_run_whose_contents_are_gone_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text("")
    with Journal(tmp_path / "j") as journal:
        record(journal, [Row("", {})], rubric=tmp_path / "r.toml")
        run = run_of(journal)
        journal._db.execute("DELETE FROM contents")
        for read in (run.read_rows, run.read_keys, lambda journal: run.read_options(journal, tmp_path)):
            with pytest.raises(AdjudgeError, match="j is damaged"):
                read(journal)


@pytest.mark.parametrize("name", ["/etc/x.toml", "../../x.toml", "..", "a/b.toml\0"])
def test_a_strangers_journal_writes_nowhere_but_into_the_folder_it_is_given(tmp_path: Path, name: str) -> None:
    (tmp_path / "r.toml").write_text("x")
    (tmp_path / "in").mkdir()
    with Journal(tmp_path / "j") as journal:
        record(journal, [Row("", {})], rubric=tmp_path / "r.toml")
        run = run_of(journal)
        kept = {**run.files, "model": run.files["rubric"]}
        stranger = msgspec.structs.replace(
            run, files={option: msgspec.structs.replace(file, name=name) for option, file in kept.items()}
        )
        try:
            options = stranger.read_options(journal, tmp_path / "in")
        except ValueError:  # a name that no file can have
            options = {}
        assert {path.parent for path in options.values()} <= {tmp_path / "in"} and "model" not in options
    assert {path.name for path in tmp_path.iterdir()} == {"r.toml", "in", "j"}


@pytest.mark.parametrize("option", FILES)
def test_a_strangers_journal_opens_no_file_that_it_does_not_hold(tmp_path: Path, option: str) -> None:
    (tmp_path / "mine.toml").write_text("private")
    with Journal(tmp_path / "j") as journal:
        record(journal, [Row("", {})])
        stranger = msgspec.structs.replace(run_of(journal), options={option: str(tmp_path / "mine.toml")})
        with pytest.raises(AdjudgeError, match=f"j does not hold the file that its run has for {option}, "):
            stranger.read_options(journal, tmp_path)


def test_texts_are_kept_once_however_many_runs_judge_them(tmp_path: Path) -> None:
    rows = [Row("", {"prompt": "p", "response": f"{number} " + "word " * 500}) for number in range(50)]
    with Journal(tmp_path / "j") as journal:
        for least in range(10):
            record(journal, rows, min_mass=float(least))
        assert len(runs_of(journal)) == 10
    assert (tmp_path / "j").stat().st_size < 100_000  # of 50 × 2,500 characters


def test_runs_are_chosen_by_number(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        written = r"no record of a run \(it was written from Python, .* with --resume; in Python"
        with pytest.raises(AdjudgeError, match=written):
            run_of(journal)
        for least in (0.1, 0.2):
            record(journal, [Row("", {})], min_mass=least)
        assert [run_of(journal, number).options for number in (1, 2, None)] == [
            {"min_mass": least} for least in (0.1, 0.2, 0.2)
        ]
        with pytest.raises(AdjudgeError, match="has no run 3, of 2"):
            run_of(journal, 3)
