"""Rows of public files, among them JSON that is one object, of entries or of one row; and their numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.row_files import read_rows
from adjudge.rewards.records.rows import READ, Row, encodable, missing, number_of, renamed


def read_entries(path: Path, columns: Mapping[str, str] = {}) -> list[Row]:
    """The rows of a file, each with its place; an object of objects gives each its key as the column `key`.

    `columns` has, for each name of a format's column, the file's own (`--columns`). Raises AdjudgeError for a file that
    cannot be read, naming the line where there is one, and for a column that no row has.
    """
    return renamed(_read(path, [columns.get(name, name) for name in READ]), columns, "--columns")


def _read(path: Path, texts: Sequence[str]) -> list[Row]:
    text = ""
    if path.suffix.lower() == ".json" and path.is_file():
        with suppress(OSError):  # which is said below
            text = path.read_bytes().decode("utf-8-sig", "replace")
    if not text.lstrip().startswith("{"):
        return read_rows(path, texts)
    try:
        content = encodable(json.loads(text))
    except (ValueError, RecursionError) as error:
        if "Extra data" in str(error):  # one object a line, whatever its name says
            return read_rows(path, texts)
        raise AdjudgeError(f"{path.name} is not JSON ({error}): mend it there") from error
    if content and all(isinstance(entry, dict) for entry in content.values()):
        return [Row(f'entry "{key}" of {path.name}', {"key": key, **entry}) for key, entry in content.items()]
    return [Row(f"the whole of {path.name}", content)]


def rating_of(row: Row, name: str) -> Any:
    """What people said in a column, JSON in a cell of a table too, without what is null in it; None for nothing."""
    value = row.columns.get(name)
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if isinstance(value, dict):
        said = {aspect: _given(score) for aspect, score in value.items()}
        return {aspect: score for aspect, score in said.items() if score is not None} or (None if value else value)
    return _given(value)


def given_number(row: Row, name: str, value: Any = None) -> float:
    """A number in a column, or `value` of it; text that is one counts (CSV). Raises AdjudgeError naming the place."""
    given = row.columns.get(name) if value is None else value
    if given is None or given == "":
        raise AdjudgeError(f'{row.place}: "{name}" is missing: every row needs its score')
    if (found := number_of(given)) is None:
        raise AdjudgeError(f'{row.place}: "{name}" is {json.dumps(given, default=str)[:40]}, not a number')
    return found


def numbers_of(row: Row, name: str, value: Any) -> tuple[float, ...]:
    """A number, or a list of them that is not empty, each a rater's."""
    values: Sequence[Any] = value if isinstance(value, list) else [value]
    if not values:
        raise AdjudgeError(f'{row.place}: "{name}" is an empty list: every row needs its score')
    return tuple(given_number(row, name, one) for one in values)


def _given(value: Any) -> Any:
    """A score, or those of a list of raters that there are; None for none."""
    if isinstance(value, list) and value:
        return [one for one in value if not missing(one)] or None
    return None if missing(value) or value == "" else value
