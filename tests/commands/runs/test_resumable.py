from __future__ import annotations

import errno
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.commands.options.runs import RunOptions
from adjudge.commands.options.source import Source
from adjudge.commands.runs.resumable import keeping
from adjudge.commands.runs.stage_run import stage_run
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
RUBRIC = 'points = 10\n[[criteria]]\nname = "plot"\ntext = "Is there one?"\npoints = 10\n'


@pytest.mark.parametrize(
    ("stopped_by", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "stopped; 2 of 9 are kept; run again with --resume"),
        (FULL, 1, f"cannot write o.jsonl ({FULL.strerror}): make room; 2 of 9 are kept; run again with --resume"),
        (OSError(errno.EDQUOT, "quota"), 1, "o.jsonl (quota): delete files of yours there, or have the quota raised;"),
        (OSError(errno.EFBIG, "large"), 1, "o.jsonl (large): raise the limit on the size of files (ulimit -f), or"),
        (sqlite3.OperationalError("disk is full"), 1, "cannot write the journal of o.jsonl (disk is full): make room;"),
    ],
)
def test_a_stopped_run_says_in_one_line_what_is_kept(
    stopped_by: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = [1]
    with pytest.raises(SystemExit) as stopped, keeping(Path("o.jsonl"), lambda: f"{len(done)} of 9 are kept"):
        done.append(2)
        raise stopped_by
    assert stopped.value.code == code
    assert message in capsys.readouterr().err


def test_a_journal_that_another_program_holds_is_to_be_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "j")) as one, closing(sqlite3.connect(tmp_path / "j", timeout=0)) as other:
        one.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SystemExit), keeping(Path("o.jsonl"), lambda: "2 of 9 are kept"):
            other.execute("BEGIN EXCLUSIVE")
    assert "(database is locked): another program holds it, wait for that; 2 of 9 are kept" in capsys.readouterr().err


def test_a_journal_over_a_limit_that_is_not_the_disks_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    with pytest.raises(SystemExit), keeping(Path("o.jsonl"), lambda: "2 of 9 are kept"):
        raise error
    assert "(disk I/O error): have the quota or the limit on the size of files (ulimit -f) " in capsys.readouterr().err


def test_a_run_that_is_not_stopped_and_a_mistake_pass_through(capsys: pytest.CaptureFixture[str]) -> None:
    with keeping(Path("o.jsonl"), lambda: ""):
        pass
    with pytest.raises(ValueError, match="mine"), keeping(Path("o.jsonl"), lambda: ""):
        raise ValueError("mine")
    with pytest.raises(BrokenPipeError), keeping(Path("-"), lambda: ""):  # whoever reads has read enough
        raise BrokenPipeError
    assert capsys.readouterr().err == ""


def test_a_shared_journal_is_not_forgotten_for_one_of_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        Path(f"{name}.jsonl").write_text(json.dumps({"prompt": "p", "response": name}))

    def judge(name: str, *how: str) -> Result:
        fixed = ("--judge", "pointwise", "--aspects", "coherence", "--min-mass", "0", "--model", "dummy:tiny-llama")
        return CliRunner().invoke(app, ["judge", f"{name}.jsonl", "-o", f"{name}.out", "--journal", "j", *fixed, *how])

    assert judge("one").exit_code == 0
    assert str(judge("two").exception).startswith("j exists: --resume continues that run,")
    assert judge("two", "--resume").exit_code == 0
    assert str(judge("two", "--overwrite").exception) == (
        "j holds runs on one.jsonl too, which --overwrite would forget: --resume adds to it, --journal names another"
    )
    assert [len(Path(f"{name}.out").read_text().splitlines()) for name in ("one", "two")] == [1, 1]
    with Journal("j") as book:
        assert len(book) == len(book.runs()) == 2
    stage = RunOptions(Source("dummy:tiny-llama"), "overwrite", Path("j"))
    with (
        pytest.raises(AdjudgeError, match=r"j holds runs on one.jsonl, two.jsonl too, which --overwrite would forget"),
        stage_run("the texts", Path("one.jsonl"), Path("stage.jsonl"), stage),
    ):
        pass
    with stage_run(
        "the texts", Path("one.jsonl"), Path("stage.jsonl"), RunOptions(stage.source, journal=Path("k"))
    ) as s:
        s.open()
        s.book.put("question", b"answer")
    monkeypatch.chdir(tmp_path)
    assert "k holds answers that no judge's run asked for too" in str(
        judge("one", "--journal", "k", "--overwrite").exception
    )


def test_a_report_is_written_over_where_it_is_one_and_nothing_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("i.jsonl").write_text(json.dumps({"prompt": "p", "response": "r"}))
    Path("r.toml").write_text(RUBRIC)
    fixed = (
        "judge",
        "i.jsonl",
        "-o",
        "v.jsonl",
        "--judge",
        "rubric",
        "--rubric",
        "r.toml",
        "--model",
        "dummy:tiny-llama",
    )

    def judge(*how: str) -> Result:
        return CliRunner().invoke(app, [*fixed, *how])

    assert str(judge("--report", "r.toml", "--overwrite").exception) == "r.toml is what is read: name another file"
    for how in ("refuse", "resume"):
        assert judge("--report", "p.html", *(["--resume"] if how == "resume" else [])).exit_code == 0
    Path("notes.html").write_text("<!doctype html>\n<html>mine</html>\n")
    assert "notes.html exists" in str(judge("--report", "notes.html", "--resume").exception)
    assert "mine" in Path("notes.html").read_text() and Path("r.toml").read_text() == RUBRIC
