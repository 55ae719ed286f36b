from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from adjudge.commands.resumable import keeping

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("stopped_by", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "stopped; 2 of 9 are kept; run again with --resume"),
        (FULL, 1, f"cannot write o.jsonl ({FULL.strerror}): make room; 2 of 9 are kept; run again with --resume"),
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


def test_a_run_that_is_not_stopped_and_a_mistake_pass_through(capsys: pytest.CaptureFixture[str]) -> None:
    with keeping(Path("o.jsonl"), lambda: ""):
        pass
    with pytest.raises(ValueError, match="mine"), keeping(Path("o.jsonl"), lambda: ""):
        raise ValueError("mine")
    assert capsys.readouterr().err == ""
