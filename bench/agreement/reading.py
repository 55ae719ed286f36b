"""Rows of public files: JSONL, CSV, Parquet, and JSON that is one list or one object of entries; and their numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.row_files import read_rows
from adjudge.rewards.records.rows import READ, Row, missing, renamed


def read_entries(path: Path, columns: Mapping[str, str] = {}) -> list[Row]:
    """The rows of a file, each with its place; an object of objects gives each its key as the column `key`.

    `columns` has, for each name of a format's column, the file's own (`--columns`). Raises AdjudgeError for a file that
    cannot be read, naming the line where there is one, and for a column that no row has.
    """
    return renamed(_read(path, [columns.get(name, name) for name in READ]), columns, "--columns")


def _read(path: Path, texts: Sequence[str]) -> list[Row]:
    if path.suffix.lower() != ".json":
        return read_rows(path, texts)
    try:
        content = json.loads(path.read_bytes().decode("utf-8-sig", "replace"))
    except OSError as error:
        raise AdjudgeError(f"cannot read {path} ({error.strerror}): name a file that can be read") from error
    except (ValueError, RecursionError) as error:
        if "Extra data" in str(error):  # one object a line, whatever its name says
            return read_rows(path, texts)
        raise AdjudgeError(f"{path.name} is not JSON ({error}): mend it there") from error
    rows = list(_entries(path, content))
    if not rows:
        raise AdjudgeError(f"{path} is empty: give at least one row")
    return rows


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
    try:
        found = float(given) if not isinstance(given, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
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


def _entries(path: Path, content: Any) -> Iterator[Row]:
    named: list[tuple[str, dict[str, Any], Any]]
    if isinstance(content, list):
        named = [(f"entry {number}", {}, entry) for number, entry in enumerate(content, 1)]
    elif isinstance(content, dict) and content and all(isinstance(entry, dict) for entry in content.values()):
        named = [(f'entry "{key}"', {"key": key}, entry) for key, entry in content.items()]
    else:
        named = [("the whole", {}, content)]
    for place, key, entry in named:
        if not isinstance(entry, dict):
            raise AdjudgeError(f"{place} of {path.name} is {json.dumps(entry)[:40]}, not an object")
        yield Row(f"{place} of {path.name}", {**key, **entry})
