"""The journal: every verdict by the content that led to it, so that nothing is judged twice and nothing is lost."""

from __future__ import annotations

import hashlib
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from adjudge.engine.errors import AdjudgeError

TABLES = (
    "CREATE TABLE IF NOT EXISTS verdicts (key TEXT PRIMARY KEY, verdict BLOB NOT NULL, written REAL NOT NULL)",
    "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answers BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS contents (hash TEXT PRIMARY KEY, content BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS runs (key TEXT PRIMARY KEY, run BLOB NOT NULL, written REAL NOT NULL)",
)
"""What each verdict was concluded from (answers), and which run asked for which verdicts on which texts (contents)."""

VERSION = 1
"""Of the tables. Journals of version 0 hold verdicts alone; they are read as they are, and grow the other tables."""

MAGIC = b"SQLite format 3\0"

WAL_ATTEMPTS = 200


def content_key(**content: Any) -> str:
    """A key for everything that decides a verdict: equal content, equal key, whatever the order of the names."""
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()


def content_hash(content: bytes) -> str:
    """The name under which a journal keeps a content."""
    return hashlib.sha256(content).hexdigest()[:32]


def is_journal(path: Path) -> bool:
    """Whether the file looks like a journal, and not like rows."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


class Journal:
    """A SQLite file in WAL mode. What `put` has returned from survives kill -9; several processes may write at once.

    Raises AdjudgeError when the file cannot be opened, is not a journal, or is one of a later version.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._db = sqlite3.connect(self.path, timeout=30.0, isolation_level=None, check_same_thread=False)
            self._enter_wal()
            self._db.execute("PRAGMA synchronous=FULL")
            version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
            if version < VERSION:
                for table in TABLES:
                    self._db.execute(table)
                self._db.execute(f"PRAGMA user_version={VERSION}")
        except sqlite3.Error as error:
            raise AdjudgeError(f"cannot use {self.path} as a journal ({error}): name another with --journal") from error
        if version > VERSION:
            self.close()
            raise AdjudgeError(
                f"{self.path} was written by a later adjudge (journal version {version}, this one reads {VERSION}):"
                " upgrade, or name another with --journal"
            )

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
        found: dict[str, bytes] = {}
        for key in set(keys):
            row = self._db.execute("SELECT verdict FROM verdicts WHERE key = ?", (key,)).fetchone()
            if row is not None:
                found[key] = row[0]
        return found

    def put(self, key: str, verdict: bytes) -> None:
        """Store a verdict durably; the first one written for a key stays."""
        self._db.execute("INSERT OR IGNORE INTO verdicts VALUES (?, ?, ?)", (key, verdict, time.time()))

    def keep(self, key: str, answers: bytes) -> None:
        """Store what the verdict of that key is concluded from; the first one written stays."""
        self._db.execute("INSERT OR IGNORE INTO answers VALUES (?, ?)", (key, zlib.compress(answers)))

    def answers(self, key: str) -> bytes | None:
        """What the verdict of that key was concluded from, None where that was not kept."""
        row = self._db.execute("SELECT answers FROM answers WHERE key = ?", (key,)).fetchone()
        return None if row is None else zlib.decompress(row[0])

    def record(self, run: bytes, contents: Mapping[str, bytes]) -> None:
        """Store a run with the contents it names by their hashes, all or nothing; an equal one is the latest again."""
        packed = [(name, zlib.compress(content, level=1)) for name, content in contents.items()]
        with self._transaction():
            self._db.executemany("INSERT OR IGNORE INTO contents VALUES (?, ?)", packed)
            self._db.execute(
                "INSERT INTO runs VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET written = excluded.written",
                (content_hash(run), run, time.time()),
            )

    def runs(self) -> list[tuple[float, bytes]]:
        """The runs and when each was last begun, the latest last."""
        return list(self._db.execute("SELECT written, run FROM runs ORDER BY written, rowid"))

    def content(self, name: str) -> bytes:
        """A content by its hash; raises KeyError."""
        row = self._db.execute("SELECT content FROM contents WHERE hash = ?", (name,)).fetchone()
        if row is None:
            raise KeyError(name)
        return zlib.decompress(row[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All that is written meanwhile, or nothing of it."""
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
            for table in ("verdicts", "answers", "runs", "contents"):
                self._db.execute(f"DELETE FROM {table}")

    def __len__(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM verdicts").fetchone()[0])

    def close(self) -> None:
        """Fold the write-ahead log into the file and close it."""
        self._db.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
