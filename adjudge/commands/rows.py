"""Rows to judge: those of a file, or those of an earlier run."""

from __future__ import annotations

from pathlib import Path

from adjudge.rewards.journal import Journal, is_journal
from adjudge.rewards.rows import Row, read_rows
from adjudge.rewards.run import run_of


def holds_run(journal: Path) -> bool:
    """Whether a journal is of a judge's run, and not of a stage, which keeps its answers alone."""
    with Journal(journal) as book:
        return bool(book.runs())


def rows_of(path: Path) -> list[Row]:
    """The rows of a JSONL or CSV file, or, of a journal, those of its latest run; raises what these do."""
    if not is_journal(path):
        return read_rows(path)
    with Journal(path) as book:
        return run_of(book).read_rows(book)
