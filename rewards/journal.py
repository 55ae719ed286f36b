"""The journal: every verdict by the content that led to it, so that nothing is judged twice and nothing is lost."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from adjudge.engine.errors import AdjudgeError

SCHEMA = "CREATE TABLE IF NOT EXISTS verdicts (key TEXT PRIMARY KEY, verdict BLOB NOT NULL, written REAL NOT NULL)"


WAL_ATTEMPTS = 200


def content_key(**content: Any) -> str:
    """A key for everything that decides a verdict: equal content, equal key, whatever the order of the names."""
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()


class Journal:
    """A SQLite file in WAL mode. What `put` has returned from survives kill -9; several processes may write at once.

    Raises AdjudgeError when the file cannot be opened or is not a journal.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._db = sqlite3.connect(self.path, timeout=30.0, isolation_level=None, check_same_thread=False)
            self._enter_wal()
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute(SCHEMA)
        except sqlite3.Error as error:
            raise AdjudgeError(f"cannot use {self.path} as a journal ({error}): name another with --journal") from error

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

    def __contains__(self, key: str) -> bool:
        return bool(self.get([key]))

    def clear(self) -> None:
        """Forget every verdict."""
        self._db.execute("DELETE FROM verdicts")

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
