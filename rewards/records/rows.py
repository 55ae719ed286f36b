"""Rows of a file: what they hold, and what is wrong with them."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from adjudge.engine.checking import shown
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.text.tokenizer import well_formed

BREAK = re.compile(r"<br ?/?>|<newline>")
"""How public files write the end of a line."""

COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")
"""A number with a comma for its point, which is none here: it may be two numbers."""

READ = {"prompt", "response", "responses", "story_a", "story_b"}
"""What judges read: a column of such a name is meant as it is called."""


class ColumnMissing(AdjudgeError):
    """A row without a column that a judge needs, and nothing else wrong with it; one of the `others` may be meant."""

    def __init__(self, message: str, column: str, others: Sequence[str]) -> None:
        super().__init__(message)
        self.column = column
        self.others = others


class Row(msgspec.Struct, frozen=True):
    """A line of input: where it stands, for error messages, and its columns."""

    place: str
    columns: dict[str, Any]

    def text(self, name: str, needed_by: str) -> str:
        """A column that must be there and be a string (None and numbers are mistakes)."""
        value = self.columns.get(name)
        if missing(value):
            raise self.without(name, f"needed by {needed_by}")
        if not isinstance(value, str):
            raise AdjudgeError(f'{self.place}: "{name}" is {as_json(value)}, not a string')
        return value

    def optional_text(self, name: str, needed_by: str) -> str | None:
        """The same for a column that may be absent, null or an empty cell."""
        return None if empty(self.columns.get(name)) else self.text(name, needed_by)

    def without(self, name: str, why: str) -> AdjudgeError:
        """What is wrong where a column is missing: which are there, and which of them may be meant."""
        if name in self.columns:
            return AdjudgeError(
                f'{self.place}: "{name}" is missing ({why}): it is null, fill it in or take the row out'
            )
        there = [str(column) for column, value in self.columns.items() if value is not None]
        named = {column.strip().lower(): column for column in there if column not in READ}
        mend, near = "", list[str]()
        if "responses" in there and name in READ - {"prompt"}:
            mend = "; `adjudge rank` reads such rows"
        elif name.startswith("story_") and "response" in there:
            mend = "; the judge pointwise reads such rows"
        elif near := difflib.get_close_matches(name, named, 1):
            mend = f'; is "{named[near[0]]}" meant?'
        listed = json.dumps(there, ensure_ascii=False)[1:-1][:200] or "none"
        texts = [column for column in named.values() if column != "id" and isinstance(self.columns[column], str)]
        said = f'{self.place}: "{name}" is missing ({why}): its columns are {listed}{mend}'
        return ColumnMissing(said, name, [named[near[0]]] if near else texts)


def renamed(rows: Sequence[Row], columns: Mapping[str, str], named_by: str) -> list[Row]:
    """Rows whose columns go by other names: `columns` has, for each name of ours, theirs.

    What had such a name of ours before is left out. Raises AdjudgeError for a column that no row has; `named_by` is
    where the user named it.
    """
    if not columns:
        return [*rows]
    for ours, theirs in columns.items():
        if rows and not any(theirs in row.columns for row in rows):
            raise rows[0].without(theirs, f"{named_by} takes it as {ours}")
    taken = {theirs: ours for ours, theirs in columns.items()}
    return [
        Row(
            row.place,
            {
                taken.get(name, name): value
                for name, value in row.columns.items()
                if name in taken or name not in columns
            },
        )
        for row in rows
    ]


def id_of(row: Row, number: int) -> str:
    """What a row goes by: its `id`, or its number where it has none."""
    return id_text(row.columns.get("id")) or str(number)


def id_text(value: Any) -> str | None:
    """An id as a text, None where there is none: what is `missing`, and "".

    Tables hold whole numbers as 1.0 where other rows have none.
    """
    if missing(value):
        return None
    return str(int(value) if isinstance(value, float) and value.is_integer() else value) or None


def missing(value: Any) -> bool:
    """Whether a value is none: None, or what tables hold in its place, NaN and pandas' NA."""
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))


def empty(value: Any) -> bool:
    """Whether a cell says nothing: what is `missing`, and an empty text."""
    return missing(value) or (isinstance(value, str) and not value)


def number_of(value: Any) -> float | None:
    """The finite number that a column holds, in a CSV file as text; None for what is none, and for true and false."""
    try:
        number = math.nan if type(value).__name__ in ("bool", "bool_") else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def with_point(value: Any) -> str:
    """What to say besides of a value that is no number but for its comma; "" of others."""
    return ", with a point for the comma" if isinstance(value, str) and COMMA.fullmatch(value) else ""


def lines_of(text: str) -> str:
    """A text whose lines end where a public file says that they do."""
    return BREAK.sub("\n", text)


def as_json(value: Any) -> str:
    """The beginning of a value, as a file has it where it can, for error messages."""
    try:
        return json.dumps(value, default=shown)[:40]
    except (TypeError, ValueError):  # keys that are no texts, numbers of thousands of digits
        return shown(value)


def given(value: Any) -> Any:
    """The value without what is null in its objects: tables of objects have every name in each of them."""
    if isinstance(value, Mapping):
        return {name: given(item) for name, item in value.items() if item is not None}
    return [given(item) for item in value] if isinstance(value, (list, tuple)) else value


def encodable(value: Any) -> Any:
    """Strings made encodable, at any depth, also in Structs."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.asdict(value)
        return msgspec.structs.replace(value, **{name: encodable(field) for name, field in fields.items()})
    if isinstance(value, Mapping):
        return {well_formed(str(name)): encodable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        made = map(encodable, value)
        return tuple(made) if isinstance(value, tuple) else list(made)
    return value
