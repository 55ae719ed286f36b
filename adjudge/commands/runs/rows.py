"""Rows to judge: those of a file, or those of an earlier run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import ANOTHER_FILE, Journal, is_journal
from adjudge.rewards.records.row_files import read_rows
from adjudge.rewards.records.rows import READ, ColumnMissing, Row, id_of, renamed
from adjudge.rewards.run import run_of
from adjudge.training.terminal import say

TEXTS = ("response", "story_a", "story_b")
"""Columns of what is judged."""


def columns_of(option: str | None) -> dict[str, str]:
    """The columns of a file by the names that judges know: "prompt=question,response=answer", or None for none.

    Raises AdjudgeError for what does not read so, and for a name that is given twice.
    """
    columns: dict[str, str] = {}
    for entry in [] if option is None else option.split(","):
        ours, equals, theirs = (part.strip() for part in entry.partition("="))
        if not (ours and equals and theirs):
            raise AdjudgeError(
                f'--columns has "{entry[:60]}": write name=column, as in prompt=question,response=answer'
            )
        if ours in columns or theirs in columns.values():
            raise AdjudgeError(f'--columns names "{ours if ours in columns else theirs}" twice: leave one out')
        columns[ours] = theirs
    return columns


def named_rows(path: Path, columns: str | None) -> list[Row]:
    """The rows of a file under the names that judges know; `columns` as in `columns_of`."""
    named = columns_of(columns)  # a mistake in it is found before a large file is read
    return renamed(_read(path, named), named, "--columns")


def _read(path: Path, named: Mapping[str, str]) -> list[Row]:
    """The rows of a file as it calls their columns; those that are texts go by the names in `named`."""
    return read_rows(path, [named.get(name, name) for name in READ])


@contextmanager
def columns_suggested(columns: str | None = None) -> Iterator[None]:
    """Say that a column may go by another name, where one is missing and nothing else is known of it.

    Of one that already does, as `columns` says, which name that is; nothing of one that nobody has by that name.
    """
    try:
        yield
    except ColumnMissing as error:
        others = columns_of(columns)
        if error.column in others.values():
            raise
        if named := others.get(error.column):
            raise AdjudgeError(f'{error}; --columns takes "{named}" for it, which others have') from error
        raise AdjudgeError(f"{error}; --columns {error.column}=NAME takes one of another name") from error


@contextmanager
def recipe_columns_suggested(columns: Mapping[str, str]) -> Iterator[None]:
    """The same of a recipe's rows, whose [data] has these `columns`; only where a row has another that may be meant."""
    try:
        yield
    except ColumnMissing as error:
        if error.column in columns.values() or not error.others:
            raise
        if named := columns.get(error.column):
            raise AdjudgeError(f'{error}; [data] columns takes "{named}" for it, which others have') from error
        other = error.others[0] if len(error.others) == 1 else "NAME"
        mend = f"write [data] columns = {{{error.column} = {json.dumps(other, ensure_ascii=False)}}}"
        raise AdjudgeError(f"{error}; {mend}") from error


def holds_run(journal: Path) -> bool:
    """Whether a journal is of a judge's run, and not of a stage, which keeps its answers alone."""
    with Journal(journal, mend=ANOTHER_FILE) as book:
        return bool(book.runs())


def rows_of(
    path: Path,
    limit: int | None = None,
    columns: str | None = None,
    *,
    form: Callable[[Sequence[Row]], Sequence[Row]] = list,
) -> list[Row]:
    """The rows of a file, or, of a journal, those of its latest run; raises what these do.

    With a `limit` only the first ones that `form` makes of them; `columns` as in `columns_of`. Rows that go by one name
    are told, and those without a text to judge.
    """
    named = columns_of(columns)
    if is_journal(path):
        with Journal(path, mend=ANOTHER_FILE) as book:
            rows = run_of(book).read_rows(book)
    else:
        rows = _read(path, named)
    rows = [*form(renamed(rows, named, "--columns"))[:limit]]
    _tell_namesakes(rows)
    _tell_empty(rows)
    return rows


def _tell_empty(rows: Sequence[Row]) -> None:
    """Say which rows have an empty text, which a policy may have written, but a table has where a value is missing."""
    empty = [(row, name) for row in rows for name in TEXTS if row.columns.get(name) == ""]
    if empty:
        row, name = empty[0]
        more = f", and {len(empty) - 1} more" if len(empty) > 1 else ""
        say(f'adjudge: {row.place}: "{name}" is empty{more}: judged as an empty text', stderr=True)


def _tell_namesakes(rows: Sequence[Row]) -> None:
    """Say which rows cannot be told apart by their `id`, or by the number that stands for one."""
    first: dict[str, Row] = {}
    again = [
        (first[name], row, name)
        for number, row in enumerate(rows, 1)
        if first.setdefault(name := id_of(row, number), row) is not row
    ]
    if again:
        one, other, name = again[0]
        more = f", and {len(again) - 1} more" if len(again) > 1 else ""
        say(
            f'adjudge: {one.place} and {other.place} go by the same id, "{name[:40]}"{more}:'
            " their verdicts are told apart by their order",
            stderr=True,
        )
