"""What a run that was stopped or refused leaves, and how another goes on from it."""

from __future__ import annotations

import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.judge import WINDOW
from tests.cli.driving import SHORT, TINY, Run, refused, stored, write_pairs
from tests.jsonl import read_lines, write_lines


def test_a_run_that_was_killed_goes_on_with_nothing_lost_or_judged_twice(run: Run, tmp_path: Path) -> None:
    rows = WINDOW + 14  # of which the engine has not all at once
    write_pairs(tmp_path / "pairs.jsonl", rows)
    command = [sys.executable, "-m", "adjudge", "judge", "pairs.jsonl", "-o", "v.jsonl", *SHORT]
    journal = tmp_path / "v.jsonl.journal"
    killed = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (tmp_path / "v.jsonl").exists() or (tmp_path / "v.jsonl").read_bytes().count(b"\n") < 17:
        assert killed.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    with (tmp_path / "v.jsonl").open("ab") as file:
        file.write(b'{"id": "p99", "preference": 0.')  # as if torn in mid-line
    before = stored(journal)
    assert 17 <= len(before) < rows
    replayed = run("replay", "v.jsonl.journal")  # what was committed is there, whatever the output has lost
    assert replayed.returncode == 1 and f"{rows - len(before)} of {rows} rows have no verdict" in replayed.stderr
    assert len(replayed.stdout.splitlines()) == len(before)

    assert "v.jsonl exists: --resume continues that run" in refused(
        run("judge", "pairs.jsonl", "-o", "v.jsonl", *SHORT)
    )
    result = run("judge", "pairs.jsonl", "-o", "v.jsonl", "--resume", *SHORT)
    assert result.returncode == 0, result.stderr
    after = stored(journal)
    assert len(after) == rows
    assert {key: after[key] for key in before} == before  # the same rows, written at the same moment
    lines = (tmp_path / "v.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [f"p{n}" for n in range(rows)]
    assert run("replay", "v.jsonl").stdout.splitlines() == lines

    fresh = run("judge", "pairs.jsonl", "-o", "fresh.jsonl", *SHORT)
    assert fresh.returncode == 0
    assert (tmp_path / "fresh.jsonl").read_text().splitlines() == lines

    assert run("judge", "pairs.jsonl", "-o", "v.jsonl", "--overwrite", "--limit", "20", *SHORT).returncode == 0
    anew = stored(journal)
    assert len(anew) == 20 and anew.keys() < after.keys() and not anew.items() & after.items()


def test_a_file_that_no_run_has_written_is_no_run_to_go_on_from(run: Run, tmp_path: Path) -> None:
    write_pairs(tmp_path / "pairs.jsonl", 1)
    write_pairs(tmp_path / "mine.jsonl", 1)
    told = refused(run("judge", "pairs.jsonl", "-o", "mine.jsonl", *SHORT))
    assert "mine.jsonl exists, and no run's journal beside it: name another with -o, or --overwrite it" in told


def test_no_file_is_written_over_unless_that_is_asked_for(run: Run, tmp_path: Path) -> None:
    write_pairs(tmp_path / "p.jsonl", 1)
    assert run("judge", "p.jsonl", "-o", "v.jsonl", *SHORT).returncode == 0
    for kept in ("notes.md", "s.jsonl", "d.dropped.jsonl"):
        (tmp_path / kept).write_text("precious")
    (tmp_path / "t.jsonl").write_text('{"prompt": "p", "response": "A story."}\n')
    for command in (
        ("judge", "p.jsonl", "-o", "w.jsonl", "--report", "notes.md", *SHORT),
        ("replay", "v.jsonl", "-o", "s.jsonl"),
        ("replay", "v.jsonl", "--report", "notes.md"),
        ("score", "p.jsonl", "--labels", "1,2", "-o", "s.jsonl", *TINY),
        ("writing", "disturb", "t.jsonl", "-o", "d.jsonl", *TINY),
    ):
        assert "exists: --overwrite it, or name another file" in refused(run(*command))
    assert {(tmp_path / kept).read_text() for kept in ("notes.md", "s.jsonl", "d.dropped.jsonl")} == {"precious"}
    assert run("replay", "v.jsonl", "-o", "s.jsonl", "--overwrite").returncode == 0
    assert (tmp_path / "s.jsonl").read_bytes() == (tmp_path / "v.jsonl").read_bytes()
    assert run("score", "p.jsonl", "--labels", "1,2", "-o", "s.jsonl", "--overwrite", *TINY).returncode == 0
    told = refused(run("judge", "p.jsonl", "-o", "v.jsonl", "--report", "notes.md", *SHORT))
    assert "--resume continues that run" in told  # of what can go on, that is said first
    assert "would not be packed" in refused(run("judge", "p.jsonl", "-o", "v.jsonl.gz", *SHORT))
    for command in (
        ("judge", "p.jsonl", "-o", "w.jsonl", "--report", "-", *SHORT),
        ("writing", "disturb", "t.jsonl", "-o", "-", "--journal", "k.journal", *TINY),
    ):
        assert "- is no file" in refused(run(*command))
    (tmp_path / "h.jsonl").hardlink_to(tmp_path / "p.jsonl")
    assert "is both" in refused(run("judge", "p.jsonl", "-o", "h.jsonl", "--overwrite", *SHORT))


def test_ctrl_c_says_what_is_kept(tmp_path: Path) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in a shell's background it is ignored, here and there
    write_pairs(tmp_path / "pairs.jsonl", 2000)
    command = [sys.executable, "-m", "adjudge", "judge", "pairs.jsonl", "-o", "v.jsonl", *SHORT]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "v.jsonl").exists() or not (tmp_path / "v.jsonl").read_bytes():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    assert process.returncode == 130
    assert "of 2000 verdicts are kept; run again with --resume" in stderr and "Traceback" not in stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a file on a disk that is always full")
def test_a_full_disk_is_one_sentence_and_the_verdicts_are_in_the_journal(run: Run, tmp_path: Path) -> None:
    write_pairs(tmp_path / "pairs.jsonl", 3)
    result = run("judge", "pairs.jsonl", "-o", "/dev/full", "--journal", "j", *TINY)
    assert result.returncode == 1
    assert os.strerror(errno.ENOSPC) in result.stderr and "verdicts are kept" in result.stderr
    assert "Traceback" not in result.stderr
    assert len(stored(tmp_path / "j")) >= 1
    result = run("judge", "pairs.jsonl", "-o", "v.jsonl", "--journal", "j", "--resume", *TINY)
    assert result.returncode == 0 and len(stored(tmp_path / "j")) == 3


def test_a_disk_that_fills_under_the_journal_keeps_what_was_judged_and_resume_judges_the_rest_only(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pairs(tmp_path / "pairs.jsonl", 12)
    command, put, judged = ("judge", "pairs.jsonl", "-o", "v.jsonl", *SHORT), Journal.put, list[str]()

    def filling(self: Journal, key: str, *verdict: bytes) -> bytes:
        if len(self) == 3:
            self._db.execute("PRAGMA max_page_count=1")  # as many as there are
        kept = put(self, key, *verdict)
        judged.append(key)
        return kept

    with monkeypatch.context() as full:
        full.setattr(Journal, "put", filling)
        result = run(*command)
    kept = stored(tmp_path / "v.jsonl.journal")
    assert result.returncode == 1 and 3 <= len(kept) < 12 and list(kept) == judged
    assert result.stderr == (
        "adjudge: cannot write the journal of v.jsonl (database or disk is full): make room;"
        f" {len(kept)} of 12 verdicts are kept; run again with --resume to go on\n"
    )
    assert {verdict["key"] for verdict in read_lines(tmp_path / "v.jsonl")} <= {*judged}
    result = run(*command, "--resume")
    assert result.returncode == 0 and f"{len(kept)} pairs remembered" in result.stdout, result.stderr
    assert kept.items() < stored(tmp_path / "v.jsonl.journal").items()
    assert [verdict["id"] for verdict in read_lines(tmp_path / "v.jsonl")] == [f"p{n}" for n in range(12)]


def test_a_mistyped_model_costs_no_earlier_verdicts(run: Run, tmp_path: Path) -> None:
    write_pairs(tmp_path / "pairs.jsonl", 2)
    assert "no model" in refused(run("judge", "pairs.jsonl", "-o", "v.jsonl", "--model", "typo"))
    assert run("judge", "pairs.jsonl", "-o", "v.jsonl", *SHORT).returncode == 0
    lines, verdicts = (tmp_path / "v.jsonl").read_text(), stored(tmp_path / "v.jsonl.journal")
    for earlier in ("--resume", "--overwrite"):
        refused(run("judge", "pairs.jsonl", "-o", "v.jsonl", earlier, "--model", "typo"))
    assert "name its journal" in refused(run("judge", "pairs.jsonl", "-o", "v.jsonl", "--resume", "--journal", "j"))
    assert (tmp_path / "v.jsonl").read_text() == lines
    assert stored(tmp_path / "v.jsonl.journal") == verdicts
    again = run("judge", "pairs.jsonl", "-o", "v.jsonl", "--resume", *SHORT)
    assert again.returncode == 0 and "2 pairs remembered" in again.stdout


@pytest.mark.parametrize(
    "mistake", [("--model", "typo", "--report", "r.html"), (*TINY, "--device", "gpu"), (*TINY, "--adapter", "none")]
)
def test_a_run_that_is_refused_leaves_no_file_behind(run: Run, tmp_path: Path, mistake: tuple[str, ...]) -> None:
    write_pairs(tmp_path / "pairs.jsonl", 1)
    for earlier in ((), ("--overwrite",)):
        refused(run("judge", "pairs.jsonl", "-o", "v.jsonl", *earlier, *mistake))
        assert [path.name for path in tmp_path.iterdir()] == ["pairs.jsonl"]


def test_the_journal_of_a_stage_holds_no_verdicts(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"prompt": "Tell one.", "response": "A story. It ends. They sleep."}\n')
    made = run("writing", "disturb", "t.jsonl", "-o", "d.jsonl", "--kinds", "drop")
    assert made.returncode == 0, made.stderr
    what = "d.jsonl.journal has no record of a run (it is a stage's journal, was written from Python, or is empty)"
    assert what in refused(run("replay", "d.jsonl"))
    assert "not to write" in refused(run("bench", "tree", "d.jsonl"))  # its rows are read: their weights are written


def test_two_runs_do_not_write_one_output(run: Run, tmp_path: Path) -> None:
    write_pairs(tmp_path / "pairs.jsonl", 1)
    with FileLock(tmp_path / "v.jsonl.journal.lock"):
        assert "another run is writing" in refused(run("judge", "pairs.jsonl", "-o", "v.jsonl", *SHORT))


def test_going_on_with_other_options_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.jsonl").write_text(json.dumps({"prompt": "P", "story_a": "a", "story_b": "b"}) + "\n")
    judge = ["judge", "p.jsonl", "-o", "v.jsonl", "--model", "dummy:tiny-llama"]
    runner = CliRunner()
    assert runner.invoke(app, [*judge, "--aspects", "coherence"]).exit_code == 0
    again = runner.invoke(app, [*judge, "--aspects", "coherence", "--resume"])
    assert again.exit_code == 0 and "goes on from" not in again.stderr
    other = runner.invoke(app, [*judge, "--aspects", "surprise", "--resume"])
    assert other.exit_code == 0 and "the run that this one goes on from had other options" in other.stderr
    with Path("p.jsonl").open("a") as file:
        file.write(json.dumps({"prompt": "P", "story_a": "c", "story_b": "d"}) + "\n")
    for more in (["--resume"], ["--resume", "--limit", "1"]):  # the same rows, and one more or less
        assert "goes on from" not in runner.invoke(app, [*judge, "--aspects", "surprise", *more]).stderr
    Path("p.jsonl").write_text(json.dumps({"prompt": "P", "story_a": "c", "story_b": "d"}) + "\n")
    other = runner.invoke(app, [*judge, "--aspects", "surprise", "--resume"])
    assert other.exit_code == 0 and "the run that this one goes on from had other rows;" in other.stderr
    judge[-1] = "dummy:tiny-qwen2"
    other = runner.invoke(app, [*judge, "--aspects", "surprise", "--resume"])
    assert other.exit_code == 0 and "the run that this one goes on from had other model;" in other.stderr

    def interrupted(*what: Any) -> Any:
        raise KeyboardInterrupt

    Path("p.jsonl").write_text(json.dumps({"prompt": "P", "story_a": "e", "story_b": "f"}) + "\n")
    monkeypatch.setattr("adjudge.commands.judge.watched", interrupted)
    other = runner.invoke(app, [*judge, "--aspects", "surprise", "--resume"])
    assert other.exit_code == 130 and "the run that this one goes on from had other rows;" in other.stderr


def test_a_stopped_ranking_is_replayed_as_far_as_it_came(run: Run, tmp_path: Path) -> None:
    rows = [{"id": f"g{n}", "prompt": "p", "responses": [f"A {n}.", f"B {n}."]} for n in range(3)]
    write_lines(tmp_path / "g.jsonl", *rows)
    assert run("rank", "g.jsonl", "-o", "r.jsonl", *SHORT).returncode == 0
    with sqlite3.connect(tmp_path / "r.jsonl.journal") as db:
        (key,) = db.execute("SELECT key FROM verdicts ORDER BY written DESC LIMIT 1").fetchone()
        db.execute("DELETE FROM verdicts WHERE key = ?", (key,))
    replayed = run("replay", "r.jsonl")
    assert replayed.returncode == 1 and "1 of 3 rows have no verdict in the journal" in replayed.stderr
    assert [json.loads(line)["id"] for line in replayed.stdout.splitlines()] == ["g0", "g1"]
    whole = run("rank", "g.jsonl", "-o", "r.jsonl", "--resume", *SHORT)
    assert "2 pairs remembered" in whole.stdout


def test_a_run_that_is_stopped_before_its_command_is_known_ends_as_one_that_is_stopped_later(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(app: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("typer.main.get_command", stopped)
    ended = run("models")
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
