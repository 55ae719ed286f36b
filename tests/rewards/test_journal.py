from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards import journal as journal_module
from adjudge.rewards.journal import TABLES, Journal, content_key

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
        assert journal.put("a", b"1", b"because") == b"1"
        assert journal.put("a", b"2", b"but") == b"1"
    with Journal(tmp_path / "j") as journal:
        assert journal.get(["a", "b"]) == {"a": b"1"} and journal.answers("a") == b"because"
        assert len(journal) == 1


def test_all_that_a_journal_holds_comes_in_the_order_in_which_it_was_written(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        assert list(journal.items()) == []
        for key in ("b", "a", "c", "b"):
            journal.put(key, f'"{key}"'.encode())
        assert list(journal.items()) == [("b", b'"b"'), ("a", b'"a"'), ("c", b'"c"')]


def test_all_that_a_journal_holds_is_not_in_memory_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "AT_ONCE", 8)
    with Journal(tmp_path / "j") as journal:
        for place in range(41):
            journal.put(str(place), b"x" * 100_000)
        tracemalloc.start()
        for place, (key, verdict) in enumerate(journal.items()):
            assert (key, len(verdict)) == (str(place), 100_000)
            journal.put(f"after {place}", b"what is put meanwhile does not come, or there would be no end")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert place == 40 and peak < 3 * 8 * 100_000


def test_a_journal_that_was_closed_is_not_called_damaged(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.put("a", b"1")
    for use in (lambda: journal.get(["a"]), lambda: journal.put("b", b"2")):
        with pytest.raises(AdjudgeError, match="j was closed: open the journal again"):
            use()


def test_nor_is_one_that_is_closed_while_a_thread_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, lock = Journal(tmp_path / "j"), journal_module._USING

    @contextlib.contextmanager
    def waited() -> Iterator[None]:
        monkeypatch.setattr(journal_module, "_USING", lock)
        kept.close()
        with lock:
            yield

    monkeypatch.setattr(journal_module, "_USING", waited())
    with pytest.raises(AdjudgeError, match="j was closed: open the journal again"):
        kept.get(["a"])


def test_threads_that_share_a_journal_write_at_once(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal, ThreadPoolExecutor(4) as threads:
        names = [f"{number % 50}" for number in range(200)]
        kept = list(threads.map(lambda pair: journal.put(pair[1], str(pair[0]).encode(), b"!"), enumerate(names)))
        assert len(journal) == 50 and [journal.get([name])[name] for name in names] == kept


def forked(act: Callable[[], object]) -> int:
    """A process that does so and ends: what goes wrong there is its status, and it runs no other test."""
    if (child := os.fork()) == 0:
        signal.alarm(60)
        status = 1
        with contextlib.suppress(Exception):
            act()
            status = 0
        os._exit(status)
    return child


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_what_a_forked_process_puts_is_kept_though_its_parent_closes_before(tmp_path: Path) -> None:
    journal, (there, tell), (closed, close) = Journal(tmp_path / "j"), os.pipe(), os.pipe()
    journal.put("parent", b"{}")

    def puts() -> None:
        journal.put("before", b"{}")
        os.write(tell, b".")
        os.close(close)
        os.read(closed, 1)  # until the parent has closed it
        with Journal(tmp_path / "j") as another:
            another.put("anew", b"{}")
        journal.put("after", b"{}")

    child = forked(puts)
    os.close(tell)
    os.read(there, 1)
    journal.close()
    os.close(close)
    assert os.waitpid(child, 0)[1] == 0
    with Journal(tmp_path / "j") as journal:
        assert {key for key, _ in journal.items()} == {"parent", "before", "anew", "after"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_process_that_is_forked_while_a_thread_writes_waits_for_no_thread_of_its_parent(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal, ThreadPoolExecutor(1) as threads:
        written = threads.submit(lambda: [journal.put(f"{number}", b"{}") for number in range(500)])
        for _ in range(5):
            child = forked(lambda: journal.put(f"child {os.getpid()}", b"{}"))
            assert os.waitpid(child, 0)[1] == 0
        written.result()
        assert len(journal) == 505


def test_what_was_put_survives_kill_9(tmp_path: Path) -> None:
    process = writer(tmp_path / "j", 50, "x")
    assert process.stdout is not None
    while process.stdout.readline().strip() != "49":
        pass
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    with Journal(tmp_path / "j") as journal:
        assert len(journal) == 50


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "j").write_text("a file of another kind, long enough to be read as a page" * 100)
    with pytest.raises(AdjudgeError, match="as a journal"):
        Journal(tmp_path / "j")
    with pytest.raises(AdjudgeError, match="name another file"):
        Journal(tmp_path / "absent" / "j")


@pytest.mark.parametrize("version", [0, 1, 54])
def test_a_database_of_something_else_is_refused_and_left_as_it_was(tmp_path: Path, version: int) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as db:
        db.execute("CREATE TABLE runs (uuid TEXT PRIMARY KEY, name TEXT)")
        db.execute("INSERT INTO runs VALUES ('1', 'mine')")
        db.execute(f"PRAGMA user_version={version}")
        db.commit()
    before = (tmp_path / "mlflow.db").read_bytes()
    with pytest.raises(AdjudgeError, match=r"mlflow\.db is a database of something else"):
        Journal(tmp_path / "mlflow.db")
    assert (tmp_path / "mlflow.db").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]


def test_what_is_damaged_is_said_with_the_name_of_the_file(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        for number in range(400):
            journal.put(f"{number}", b"{}" * 300, b"answers")
    content = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(content[:12288] + b"\xff" * (len(content) - 12288))
    with Journal(tmp_path / "j") as journal, pytest.raises(AdjudgeError, match="j is damaged"):
        journal.get(map(str, range(400)))
    with Journal(tmp_path / "j") as journal, pytest.raises(AdjudgeError, match="j is damaged"):
        journal.put("new", b"{}")
    with contextlib.closing(sqlite3.connect(tmp_path / "k")) as db:
        Journal(tmp_path / "k").put("a", b"{}", b"answers")
        db.execute("UPDATE answers SET answers = x'00'")
        db.commit()
    with pytest.raises(AdjudgeError, match="k is damaged"):
        Journal(tmp_path / "k").answers("a")
    with Journal(tmp_path / "l") as journal, pytest.raises(AdjudgeError, match="l is damaged"):
        journal.decoded(b"[" * 100_000, list)


def test_to_count_the_verdicts_of_a_damaged_journal_is_one_sentence(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.put("a", b"1")
    with contextlib.closing(sqlite3.connect(tmp_path / "j")) as db:
        pages = [page for (page,) in db.execute("SELECT rootpage FROM sqlite_master WHERE tbl_name = 'verdicts'")]
    content = bytearray((tmp_path / "j").read_bytes())
    for page in pages:
        content[4096 * (page - 1) : 4096 * page] = bytes(4096)
    (tmp_path / "j").write_bytes(content)
    with Journal(tmp_path / "j") as journal, pytest.raises(AdjudgeError, match="j is damaged .*: name another"):
        len(journal)


def test_to_count_what_is_to_be_forgotten_forgets_nothing(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.put("a", b"1")
        journal.forget()
        assert len(journal) == 1
    with Journal(tmp_path / "j") as journal:
        assert "a" in journal


def test_a_damaged_schema_is_one_sentence(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.put("a", b"1")
    content = (tmp_path / "j").read_bytes()
    place = content.index(b"CREATE TABLE verdicts")
    (tmp_path / "j").write_bytes(content[: place - 12] + b"\xc1" + content[place - 11 :])
    with pytest.raises(AdjudgeError, match="cannot use .*j as a journal .*: name another file"):
        Journal(tmp_path / "j")


@pytest.mark.parametrize("table", TABLES)
def test_a_journal_without_one_of_its_tables_is_damaged(tmp_path: Path, table: str) -> None:
    Journal(tmp_path / "j").close()
    with contextlib.closing(sqlite3.connect(tmp_path / "j")) as db:
        db.execute(f"DROP TABLE {table}")
    with pytest.raises(AdjudgeError, match=rf"j is damaged \(no table {table}\): name another file"):
        Journal(tmp_path / "j")


def test_values_of_another_type_are_damage(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.put("a", b"1", b"answers")
        journal.record(b"run", {"name": b"content"})
        for table, column in (("answers", "answers"), ("contents", "content"), ("runs", "written")):
            journal._db.execute(f"UPDATE {table} SET {column} = 'text'")
        for use in (
            lambda: journal.answers("a"),
            lambda: journal.content("name"),
            lambda: journal.record(b"another", {}),
            lambda: journal.decoded(3, int),  # type: ignore[arg-type]
            lambda: journal.decoded(b'"\xff"', str),
        ):
            with pytest.raises(AdjudgeError, match="j is damaged .*: name another file"):
                use()


def test_a_key_depends_on_every_part_and_on_no_order() -> None:
    content = {"model": "m", "texts": ("a", "b"), "labels": ("1", "2")}
    key = content_key(**content)
    assert key == content_key(**dict(reversed(content.items())))
    assert len({key, *(content_key(**{**content, name: "other"}) for name in content)}) == 4
    assert content_key(texts=("a", "b")) != content_key(texts=("ab", ""))


RECORDER = """
import os, signal, sys
from adjudge.rewards.journal import Journal
journal = Journal(sys.argv[1])
journal.put("kept", b"{}", b"answers")

class Torn(dict):
    def items(self):
        for number in range(1000):
            yield str(number), b"x" * 1000
        yield "last", Trap()

class Trap(bytes):
    def __conform__(self, protocol):
        pass

import adjudge.rewards.journal as module
packed = module.zlib.compress
def compress(content, level):
    return Dying(packed(content)) if isinstance(content, Trap) else packed(content)

class Dying:
    def __init__(self, content):
        self.content = content
    def __conform__(self, protocol):  # asked by SQLite as it binds the last row, the others being written
        os.kill(os.getpid(), signal.SIGKILL)

module.zlib.compress = compress
journal.record(b"run", Torn())
"""


def test_kill_9_in_the_middle_of_a_write_leaves_what_was_committed_and_nothing_of_the_rest(tmp_path: Path) -> None:
    process = subprocess.run([sys.executable, "-c", RECORDER, str(tmp_path / "j")], capture_output=True, check=False)
    assert process.returncode == -signal.SIGKILL, process.stderr
    with Journal(tmp_path / "j") as journal:
        assert journal.get(["kept"]) == {"kept": b"{}"} and journal.answers("kept") == b"answers"
        assert journal.runs() == []
        with pytest.raises(KeyError):
            journal.content("0")
        journal.record(b"run", {"0": b"content"})
        assert journal.content("0") == b"content"


ALL_KINDS = """
import sys
from adjudge.rewards.journal import Journal
with Journal(sys.argv[1]) as journal:
    for number in range(40):
        journal.put(f"{sys.argv[2]}{number}", b"{}", sys.argv[2].encode())
        journal.record(f"run {number}".encode(), {f"{number}": b"same", sys.argv[2]: b"own"})
"""


def test_several_processes_write_answers_and_runs_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ALL_KINDS, str(tmp_path / "j")]
    processes = [subprocess.Popen([*command, name]) for name in "abc"]
    assert [process.wait() for process in processes] == [0, 0, 0]
    with Journal(tmp_path / "j") as journal:
        assert len(journal) == 120 and len(journal.runs()) == 40
        assert all(journal.answers(f"{name}{n}") == name.encode() for name in "abc" for n in range(40))
        assert [journal.content(name) for name in ("a", "b", "c", "39")] == [b"own", b"own", b"own", b"same"]


def test_a_run_that_is_repeated_is_the_latest_and_is_kept_once(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        for run in (b"first", b"second", b"first"):
            journal.record(run, {"text": b"A story."})
        assert [run for _, run in journal.runs()] == [b"second", b"first"]
        journal.clear()
        assert journal.runs() == [] and len(journal) == 0


def test_the_latest_run_is_the_latest_though_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(tmp_path / "j") as journal:
        for run, clock in ((b"first", 2e9), (b"second", 1.9e9), (b"first", 1.8e9)):
            monkeypatch.setattr("time.time", lambda clock=clock: clock)
            journal.record(run, {})
            assert journal.runs()[-1][1] == run
        assert [written for written, _ in journal.runs()] == pytest.approx([2e9, 2e9], abs=1e-5)


def test_a_journal_whose_making_was_cut_off_is_made_whole(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "j") as db:
        db.execute("CREATE TABLE verdicts (key TEXT PRIMARY KEY, verdict BLOB NOT NULL, written REAL NOT NULL)")
    with Journal(tmp_path / "j") as journal:
        journal.put("new", b"{}", b"answers")
    with Journal(tmp_path / "j") as journal:
        assert journal.answers("new") == b"answers"


def test_of_two_verdicts_that_rest_on_one_question_the_first_is_where_its_answer_is(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        for key in "ab":
            journal.put(key, b"{}", f"answers of {key}".encode(), {b"hash": key})
        assert journal.asked(b"hash") == (b"answers of a", "a")


def test_a_journal_of_a_later_version_is_refused_by_name(tmp_path: Path) -> None:
    Journal(tmp_path / "j").close()
    with sqlite3.connect(tmp_path / "j") as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(AdjudgeError, match="written by a later adjudge .journal version 99"):
        Journal(tmp_path / "j")


def test_a_run_that_is_refused_after_all_has_forgotten_nothing(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as book:
        book.put("a", b"1")
        book.forget()
    with Journal(tmp_path / "j") as book:
        assert "a" in book
        book.forget()
        assert book.put("b", b"2") == b"2" and "a" not in book and len(book) == 1


def test_a_journal_is_read_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(tmp_path / "j") as book:
        book.put("a", b"1")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    before = sorted(tmp_path.iterdir())
    with Journal(tmp_path / "j") as book:
        assert book.get(["a"]) == {"a": b"1"} and sorted(tmp_path.iterdir()) == before
        with pytest.raises(AdjudgeError, match="j or its folder cannot be written: copy it to another folder"):
            book.put("b", b"2")


def test_where_nothing_can_be_written_what_a_killed_run_left_beside_its_journal_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(tmp_path / "j") as book:
        book.put("a", b"1")
        for name in ("j", "j-wal"):
            shutil.copy(tmp_path / name, tmp_path / name.replace("j", "killed"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(AdjudgeError, match="killed, or goes on, .* copy it to another folder with killed-wal"):
        Journal(tmp_path / "killed")
    monkeypatch.undo()
    with Journal(tmp_path / "killed") as book:
        assert "a" in book


def test_a_journal_without_its_tables_is_refused_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(tmp_path / "j") as book:
        book._db.execute("DROP TABLE runs")
        book._db.execute("PRAGMA user_version=0")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(AdjudgeError, match="holds nothing yet, and its folder cannot be written"):
        Journal(tmp_path / "j")


@pytest.mark.parametrize("table", ["answers", "questions"])
def test_a_verdict_is_kept_with_its_answers_or_not_at_all(tmp_path: Path, table: str) -> None:
    with Journal(tmp_path / "j") as journal:
        with contextlib.closing(sqlite3.connect(tmp_path / "j")) as db:
            db.execute(f"CREATE TRIGGER full BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'no room'); END")
        with pytest.raises(AdjudgeError, match="no room"):
            journal.put("a", b"1", b"answers", {b"hash": "style"})
        assert "a" not in journal and journal.answers("a") is None
        with contextlib.closing(sqlite3.connect(tmp_path / "j")) as db:
            db.execute("DROP TRIGGER full")
        assert journal.put("a", b"2", b"answers") == b"2" and journal.answers("a") == b"answers"
