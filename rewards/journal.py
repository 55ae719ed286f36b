"""The journal: every verdict by the content that led to it, so that nothing is judged twice and nothing is lost."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from types import MappingProxyType, TracebackType
from typing import Any
from weakref import WeakSet

import msgspec

from adjudge.engine.errors import AdjudgeError

TABLES = {
    "verdicts": "key TEXT PRIMARY KEY, verdict BLOB NOT NULL, written REAL NOT NULL",
    "answers": "key TEXT PRIMARY KEY, answers BLOB NOT NULL",
    "questions": "hash BLOB PRIMARY KEY, key TEXT NOT NULL, name TEXT NOT NULL",
    "contents": "hash TEXT PRIMARY KEY, content BLOB NOT NULL",
    "runs": "key TEXT PRIMARY KEY, run BLOB NOT NULL, written REAL NOT NULL",
}
"""What each verdict was concluded from (answers), among which verdict's answers that to each question is (questions),
and which run asked for which verdicts on which texts (contents)."""

VERSION = 2
"""Of the tables; 0 is that of a file in which they are not all made yet."""

ASKED = "SELECT answers, name FROM questions JOIN answers USING (key) WHERE hash = ?"

SOME = "SELECT rowid, key, verdict FROM verdicts WHERE rowid > ? AND rowid <= ? ORDER BY rowid LIMIT ?"

AT_ONCE = 1024
"""Verdicts that are read at once: a journal may have a million."""

ANOTHER = "name another with --journal"
"""What mends a journal that an option names."""

ANOTHER_FILE = "name another file"
"""What mends one that an argument names."""

AS_IT_WAS = "put it back as it was, or begin a new one"
"""What mends a journal that no option names."""

NOTHING: Mapping[bytes, str] = MappingProxyType({})

MAGIC = b"SQLite format 3\0"

WAL_ATTEMPTS = 200

DAMAGE = (
    *(sqlite3.DatabaseError, zlib.error, msgspec.MsgspecError),
    *(ValueError, TypeError, KeyError, OverflowError, RecursionError),
)
"""What goes wrong with bytes, types and references that are not as they were written."""


def content_key(**content: Any) -> str:
    """A key for everything that decides a verdict: equal content, equal key, whatever the order of the names."""
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()


def content_hash(content: bytes) -> str:
    """The name under which a journal keeps a content."""
    return hashlib.sha256(content).hexdigest()[:32]


def is_journal(path: Path) -> bool:
    """Whether the file looks like a journal, and not like rows; a pipe is none, and what it holds is read once."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


_USING = RLock()
"""Held while SQLite is asked: threads share a connection, and so a transaction, and no fork comes in the midst."""

_OPEN: WeakSet[Journal] = WeakSet()


class Journal:
    """A SQLite file in WAL mode. What `put` has returned from survives kill -9; several processes may write at once.

    Threads share it, and a process that is forked goes on with a connection of its own. Raises AdjudgeError when the
    file cannot be opened, is not a journal, or is one of a later version: then nothing in it is changed. Using a
    damaged one raises AdjudgeError as well. Such an error says to do what `mend` says.
    """

    def __init__(self, path: str | Path, *, mend: str = ANOTHER_FILE) -> None:
        self.path, self.mend = Path(path), mend
        self._forgetting = self._closed = self._left = False
        with _USING:
            self._connect()
            _OPEN.add(self)

    def _connect(self) -> None:
        """Open the file, and make its tables where they are not there; raises AdjudgeError."""
        try:
            if self.path.is_file() and not os.access(self.path.parent, os.W_OK):  # SQLite writes beside it even to read
                self._open_beside_nothing()
                return
            self._open(self.path)
            is_made = self._is_made()
            self._enter_wal()
            self._db.execute("PRAGMA synchronous=FULL")
            if not is_made:
                for table, columns in TABLES.items():
                    self._db.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
                self._db.execute(f"PRAGMA user_version={VERSION}")
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where SQLite quotes a damaged schema
            raise AdjudgeError(f"cannot use {self.path} as a journal ({error}): {self.mend}") from error
        except AdjudgeError:
            self.close()
            raise

    def _open_beside_nothing(self) -> None:
        """Open a journal whose folder cannot be written; raises AdjudgeError where it cannot be read without that."""
        log, copy = Path(f"{self.path}-wal"), "its folder cannot be written: copy it to another folder"
        self._open(f"{self.path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        if log.is_file() and log.stat().st_size:  # where newer verdicts are, which would be passed over
            raise AdjudgeError(f"{self.path} was left by a run that was killed, or goes on, and {copy} with {log.name}")
        if not self._is_made():
            raise AdjudgeError(f"{self.path} holds nothing yet, and {copy}")

    def _open(self, path: str | Path, *, uri: bool = False) -> None:
        self._db = sqlite3.connect(path, timeout=30.0, isolation_level=None, check_same_thread=False, uri=uri)

    def _is_made(self) -> bool:
        """Whether it has its tables; raises AdjudgeError for what is no journal, and for one of another version."""
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if version > VERSION and "verdicts" in tables:
            raise AdjudgeError(
                f"{self.path} was written by a later adjudge (journal version {version}, this one reads {VERSION}):"
                f" upgrade, or {self.mend}"
            )
        columns = {
            table: [name for (name,) in self._db.execute("SELECT name FROM pragma_table_info(?)", (table,))]
            for table in tables
        }
        ours = {table: [column.split()[0] for column in made.split(", ")] for table, made in TABLES.items()}
        if version > VERSION or any(columns[table] != ours.get(table) for table in tables):
            raise AdjudgeError(f"{self.path} is a database of something else, and no journal: name another file")
        if version and (absent := TABLES.keys() - tables):
            raise self.damaged(f"no table {', '.join(sorted(absent))}")
        return version > 0

    def _enter_wal(self) -> None:
        """SQLite does not wait for a lock here as it does elsewhere: two processes that make the file would clash."""
        for attempt in range(WAL_ATTEMPTS):
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or attempt == WAL_ATTEMPTS - 1:
                    raise
                time.sleep(0.05)

    def get(self, keys: Iterable[str]) -> dict[str, bytes]:
        """The stored verdicts (JSON) of those keys that have one."""
        with self._using():
            rows = ((key, self._one("SELECT verdict FROM verdicts WHERE key = ?", key)) for key in set(keys))
            return {key: verdict for key, verdict in rows if verdict is not None}

    def items(self) -> Iterator[tuple[str, bytes]]:
        """The keys and the verdicts (JSON) that there are by now, in the order in which they were written."""
        with self._using():
            [last] = self._db.execute("SELECT max(rowid) FROM verdicts").fetchone()
        place = 0
        while place < (last or 0):
            with self._using():
                some = self._db.execute(SOME, (place, last, AT_ONCE)).fetchall()
            if not some:  # forgotten meanwhile
                return
            yield from ((key, verdict) for _, key, verdict in some)
            place = some[-1][0]

    def put(
        self, key: str, verdict: bytes, answers: bytes | None = None, questions: Mapping[bytes, str] = NOTHING
    ) -> bytes:
        """Store a verdict durably, with the answers that it is concluded from; returns what the journal has.

        That is the first one written for the key: of processes that share a journal one is first. `questions` has the
        hashes of what was asked, and each one's name among the answers.
        """
        with self._transaction():
            row = (key, verdict, time.time())
            fresh = self._db.execute("INSERT OR IGNORE INTO verdicts VALUES (?, ?, ?)", row).rowcount
            if fresh and answers is not None:
                self._db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, zlib.compress(answers)))
                asked = [(question, key, name) for question, name in questions.items()]
                self._db.executemany("INSERT OR IGNORE INTO questions VALUES (?, ?, ?)", asked)
        return verdict if fresh else self.get([key])[key]

    def answers(self, key: str) -> bytes | None:
        """What the verdict of that key was concluded from, None where that was not kept."""
        with self._using():
            packed = self._one("SELECT answers FROM answers WHERE key = ?", key)
            return None if packed is None else zlib.decompress(packed)

    def asked(self, question: bytes) -> tuple[bytes, str] | None:
        """The answers among which that to the question of this hash is, and its name there."""
        with self._using():
            row = self._db.execute(ASKED, (question,)).fetchone()
            return None if row is None else (zlib.decompress(row[0]), row[1])

    def record(self, run: bytes, contents: Mapping[str, bytes]) -> None:
        """Store a run with the contents it names by their hashes, all or nothing; an equal one is the latest again.

        Its time is that of the clock, or just after that of the latest where the clock was set back.
        """
        packed = [(name, zlib.compress(content, level=1)) for name, content in contents.items()]
        with self._transaction():
            self._db.executemany("INSERT OR IGNORE INTO contents VALUES (?, ?)", packed)
            [latest] = self._db.execute("SELECT max(written) FROM runs").fetchone()
            self._db.execute(
                "INSERT INTO runs VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET written = excluded.written",
                (content_hash(run), run, max(time.time(), (latest or 0.0) + 1e-6)),
            )

    def runs(self) -> list[tuple[float, bytes]]:
        """The runs and when each was last begun, the latest last."""
        with self._using():
            return list(self._db.execute("SELECT written, run FROM runs ORDER BY written, rowid"))

    def content(self, name: str) -> bytes:
        """A content by its hash; raises KeyError."""
        with self._using():
            packed = self._one("SELECT content FROM contents WHERE hash = ?", name)
            if packed is not None:
                return zlib.decompress(packed)
        raise KeyError(name)

    def _one(self, query: str, key: str) -> bytes | None:
        """The one value of the one row that a query finds, if it finds any."""
        row = self._db.execute(query, (key,)).fetchone()
        return None if row is None else row[0]

    @contextmanager
    def naming_damage(self) -> Iterator[None]:
        """A block in which what is damaged, or cannot be written, is an AdjudgeError that names the file."""
        if self._closed:
            raise AdjudgeError(f"{self.path} was closed: open the journal again, or judge before its block ends")
        try:
            yield
        except AdjudgeError:
            raise
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY:
                raise AdjudgeError(f"{self.path} or its folder cannot be written: copy it to another folder") from error
            raise  # of the moment: it is locked, or the disk is full
        except DAMAGE as error:
            raise self.damaged(error) from error

    def damaged(self, what: object) -> AdjudgeError:
        """The error that says so, and `what` is wrong."""
        return AdjudgeError(f"{self.path} is damaged ({what}): {self.mend}")

    def decoded(self, kept: bytes, kind: Any) -> Any:
        """What the journal kept as JSON of that kind; raises AdjudgeError for what is not."""
        with self.naming_damage():
            return msgspec.json.decode(kept, type=kind)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """The same for all that asks SQLite, one thread at a time; a forked process opens the file anew."""
        with _USING, self.naming_damage():
            if self._left:
                self._connect()
                self._left = False
            yield

    @contextmanager
    def _using(self) -> Iterator[None]:
        """The same for all that looks for something or writes, before which is forgotten what was to be."""
        with self._reaching():
            if self._forgetting:
                self._forgetting = False
                self.clear()
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All that is written meanwhile, or nothing of it."""
        with self._using():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk has ended it already
                    self._db.execute("ROLLBACK")
                raise

    def __contains__(self, key: str) -> bool:
        return bool(self.get([key]))

    def clear(self) -> None:
        """Forget every verdict, and the runs that asked for them."""
        with self._transaction():
            for table in TABLES:
                self._db.execute(f"DELETE FROM {table}")

    def forget(self) -> None:
        """Forget all that once something is looked for or written: of a run that is refused before, nothing is lost."""
        self._forgetting = True

    def __len__(self) -> int:
        with self._reaching():
            return int(self._db.execute("SELECT count(*) FROM verdicts").fetchone()[0])

    def close(self) -> None:
        """Fold the write-ahead log into the file and close it."""
        with _USING:
            self._closed = True
            self._db.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _leave() -> None:
    """In a process that was forked: close what its parent holds the locks of, for SQLite would take them for its own.

    Not even a file that is opened anew would be locked here, and what is written would be lost when the parent closes.
    SQLite advises against it, as a last connection would fold the log in: this is none, its parent's holds the file.
    """
    try:
        for journal in _OPEN:
            journal._left = True
            with suppress(sqlite3.Error):
                journal._db.close()
    finally:
        _USING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_USING.acquire, after_in_parent=_USING.release, after_in_child=_leave)
