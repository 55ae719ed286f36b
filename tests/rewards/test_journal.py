from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal, content_key

WRITER = """
import sys
from adjudge.rewards.journal import Journal
with Journal(sys.argv[1]) as journal:
    for number in range(int(sys.argv[2])):
        journal.put(f"{sys.argv[3]}{number}", b"{}")
        print(number, flush=True)
    sys.stdin.read()
"""


def writer(path: Path, count: int, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), str(count), name]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_what_was_put_is_found_and_the_first_one_stays(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.put("a", b"1")
        journal.put("a", b"2")
    with Journal(tmp_path / "j") as journal:
        assert journal.get(["a", "b"]) == {"a": b"1"}
        assert len(journal) == 1


def test_what_was_put_survives_kill_9(tmp_path: Path) -> None:
    process = writer(tmp_path / "j", 50, "x")
    assert process.stdout is not None
    while process.stdout.readline().strip() != "49":
        pass
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    with Journal(tmp_path / "j") as journal:
        assert len(journal) == 50


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    processes = [writer(tmp_path / "j", 100, name) for name in "ab"]
    for process in processes:
        process.communicate("")
        assert process.returncode == 0
    with Journal(tmp_path / "j") as journal:
        assert len(journal) == 200


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "j").write_text("a file of another kind, long enough to be read as a page" * 100)
    with pytest.raises(AdjudgeError, match="as a journal"):
        Journal(tmp_path / "j")
    with pytest.raises(AdjudgeError, match="--journal"):
        Journal(tmp_path / "absent" / "j")


def test_a_key_depends_on_every_part_and_on_no_order() -> None:
    content = {"model": "m", "texts": ("a", "b"), "labels": ("1", "2")}
    key = content_key(**content)
    assert key == content_key(**dict(reversed(content.items())))
    assert len({key, *(content_key(**{**content, name: "other"}) for name in content)}) == 4
    assert content_key(texts=("a", "b")) != content_key(texts=("ab", ""))
