"""Rows to judge: those of a file, or those of an earlier run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adjudge.engine.absent import AbsentEngine, ModelNeeded
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal, is_journal
from adjudge.rewards.kinds import Open
from adjudge.rewards.rows import Row, read_rows
from adjudge.rewards.run import run_of


def check_rows(open_judge: Open, rows: Sequence[Row], subjects: Sequence[Any]) -> None:
    """Find the mistakes in options and rows that only the judge itself finds, before its model is loaded.

    Raises AdjudgeError naming the row's place.
    """
    try:
        judge = open_judge(AbsentEngine(), None)
    except ModelNeeded:
        return
    for row, subject in zip(rows, subjects, strict=True):
        try:
            judge.key(subject)
        except AdjudgeError as error:
            raise AdjudgeError(f"{row.place}: {error}") from error


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
