"""Files of pairs, items, groups and prompts in, lines of JSON out: JSONL, or CSV or Parquet with the same columns."""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.tokenizer import well_formed
from adjudge.rewards.group import Group, GroupVerdict
from adjudge.rewards.rubric import Rubric, rubric_of, rubric_of_checklist
from adjudge.rewards.verdict import Comparison, Example, Item, Pair, PairVerdict, Review, Verdict, WritingTask

Earlier = TypeVar("Earlier", Review, Comparison)


LABEL_SEPARATOR = "|"
"""Between the labels of a CSV column."""

PAIR_COLUMNS = ("id", "prompt", "prompt_a", "prompt_b", "story_a", "story_b", "reviews")
ITEM_COLUMNS = ("id", "prompt", "response", "reference", "rubric", "checklist", "reviews")

GROUP_COLUMNS = ("id", "prompt", "responses", "reference")


BREAK = re.compile(r"<br ?/?>|<newline>")
"""How public files write the end of a line."""


class Row(msgspec.Struct, frozen=True):
    """A line of input: where it stands, for error messages, and its columns."""

    place: str
    columns: dict[str, Any]

    def text(self, name: str, needed_by: str) -> str:
        """A column that must be there and be a string (None and numbers are mistakes)."""
        value = self.columns.get(name)
        if value is None:
            raise self.without(name, f"needed by {needed_by}")
        if not isinstance(value, str):
            raise AdjudgeError(f'{self.place}: "{name}" is {_shown(value)}, not a string')
        return value

    def optional_text(self, name: str, needed_by: str) -> str | None:
        """The same for a column that may be absent, null or an empty cell."""
        return self.text(name, needed_by) if self.columns.get(name) not in (None, "") else None

    def without(self, name: str, why: str) -> AdjudgeError:
        """What is wrong where a column is missing: which are there, and which of them may be meant."""
        if name in self.columns:
            return AdjudgeError(
                f'{self.place}: "{name}" is missing ({why}): it is null, fill it in or take the row out'
            )
        there = [str(column) for column, value in self.columns.items() if value is not None]
        named = {column.strip().lower(): column for column in there}
        mend = ""
        if "responses" in there and name != "prompt":
            mend = "; `adjudge rank` reads such rows"
        elif name.startswith("story_") and "response" in there:
            mend = "; of single texts, add --judge pointwise"
        elif near := difflib.get_close_matches(name, named, 1):
            mend = f'; if "{named[near[0]]}" is meant, rename it'
        listed = json.dumps(there, ensure_ascii=False)[1:-1][:200] or "none"
        return AdjudgeError(f'{self.place}: "{name}" is missing ({why}): its columns are {listed}{mend}')


def lines_of(text: str) -> str:
    """A text whose lines end where a public file says that they do."""
    return BREAK.sub("\n", text)


def read_rows(path: Path) -> list[Row]:
    """All rows of a `.csv`, of a `.parquet`, or of a file of JSON objects, one a line.

    Bytes that are not UTF-8, and lone surrogates, become U+FFFD in JSON, which programs write. Raises AdjudgeError
    naming the line: not JSON, not an object, no rows, a CSV row with too many columns or not in UTF-8; and for a file
    that cannot be read.
    """
    try:
        if path.suffix.lower() == ".csv":
            rows = list(_csv(path, io.StringIO(_decoded(path), newline="")))
        elif path.suffix.lower() == ".parquet":
            rows = list(_parquet(path))
        else:
            with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
                rows = list(_jsonl(path, file))
    except OSError as error:
        raise AdjudgeError(f"cannot read {path} ({error.strerror}): name a file that can be read") from error
    if not rows:
        raise AdjudgeError(f"{path} is empty: give at least one row")
    return rows


def pair_of(row: Row, number: int) -> Pair:
    """The pair of a row; its id is the row's number where it has none."""
    judge = "a pairwise judge"
    prompt_a, prompt_b = (row.optional_text(name, judge) for name in ("prompt_a", "prompt_b"))
    if row.columns.get("prompt") is None and (prompt_a is None or prompt_b is None):
        raise row.without("prompt", f'or "prompt_a" and "prompt_b"; needed by {judge}')
    return Pair(
        a=row.text("story_a", judge),
        b=row.text("story_b", judge),
        prompt=row.optional_text("prompt", judge) or "",
        prompt_a=prompt_a,
        prompt_b=prompt_b,
        id=id_of(row, number),
    )


def group_of(row: Row, number: int) -> Group:
    """The group of a row; its id is the row's number where it has none."""
    tournament = "a tournament"
    responses = row.columns.get("responses")
    if responses is None:
        raise row.without("responses", f"needed by {tournament}")
    if isinstance(responses, str):  # a cell of a table
        with suppress(ValueError, RecursionError):
            responses = json.loads(responses)
    if not isinstance(responses, list) or not all(isinstance(text, str) for text in responses):
        raise AdjudgeError(f'{row.place}: "responses" is {_shown(responses)}, not a list of strings')
    if not responses:
        raise AdjudgeError(f'{row.place}: "responses" is empty: give at least one')
    return Group(
        prompt=row.text("prompt", tournament),
        responses=tuple(responses),
        reference=row.optional_text("reference", tournament),
        id=id_of(row, number),
    )


def item_of(row: Row, number: int) -> Item:
    """The item of a row; its id is the row's number where it has none."""
    judge = "a judge of single texts"
    return Item(
        prompt=row.text("prompt", judge),
        response=row.text("response", judge),
        id=id_of(row, number),
        reference=row.optional_text("reference", judge),
    )


def reviewed_pair_of(row: Row, number: int) -> Pair:
    """The pair of a row with the earlier choices of its reader, the column `reviews`."""
    pair, form = pair_of(row, number), '{"a", "b", "preferred": "a" or "b"}, with an "aspect" or without'
    return msgspec.structs.replace(pair, reviews=_reviews(row, Comparison, form))


def reviewed_item_of(row: Row, number: int) -> Item:
    """The item of a row with the earlier reviews of its reader, the column `reviews`."""
    item = item_of(row, number)
    return msgspec.structs.replace(item, reviews=_reviews(row, Review, '{"plot", "review", "score"}'))


def rubric_item_of(row: Row, number: int) -> Item:
    """The item of a row with its own rubric: the column `rubric` (see `rubric_of`) or `checklist`, if one is there."""
    return msgspec.structs.replace(item_of(row, number), rubric=_rubric(row))


def writing_of(row: Row, number: int) -> Item:
    """The item of a row with the text's `genre` and `task`, which pass through to the output besides."""
    tree = "a tree judge"
    task = row.optional_text("task", tree)
    if task is not None and task not in (tasks := get_args(WritingTask)):
        raise AdjudgeError(f'{row.place}: "task" is "{task[:40]}": write {" or ".join(tasks)}, or leave it out')
    item = item_of(row, number)
    return msgspec.structs.replace(item, genre=row.optional_text("genre", tree), task=task)


def example_of(row: Row) -> Example:
    """A good text, and the prompt it answers, of a row."""
    return Example(row.text("prompt", "an example"), row.text("response", "an example"))


def label_of(row: Row) -> bool | None:
    """What people said of a row's text in its column `label`: 1 for good, 0 for not; None where it says nothing."""
    value = row.columns.get("label")
    if value is None or value == "":
        return None
    if isinstance(value, bool) or str(value) not in ("0", "1"):
        raise AdjudgeError(f'{row.place}: "label" is {_shown(value)}: write 1 for good, 0 for not good')
    return str(value) == "1"


def verdict_record(verdict: PairVerdict | Verdict, row: Row) -> dict[str, Any]:
    """A verdict as it is written, with the row's further columns passed through.

    One that has the name of a verdict's own goes by "input_…".
    """
    if isinstance(verdict, PairVerdict):
        return _record(msgspec.to_builtins(verdict), row, PAIR_COLUMNS)
    return _record({**msgspec.to_builtins(verdict), "mass": verdict.mass}, row, ITEM_COLUMNS)


def verdict_line(verdict: PairVerdict | Verdict, row: Row) -> bytes:
    """The same as one line of JSON."""
    return json_line(verdict_record(verdict, row))


def group_line(verdict: GroupVerdict, row: Row) -> bytes:
    """The same for a group."""
    return json_line(_record(msgspec.to_builtins(verdict), row, GROUP_COLUMNS))


def json_line(record: Mapping[str, Any]) -> bytes:
    """One line of JSON that is always valid UTF-8; NaN and infinity become null."""
    return msgspec.json.encode(encodable(record)) + b"\n"


def labels_of(row: Row, labels: Sequence[str] | None) -> tuple[str, ...]:
    """The labels of a free prompt: its own column (a list, or a CSV cell like `1|2|3`), else the command's."""
    own = row.columns.get("labels") or labels
    if isinstance(own, str):
        own = own.split(LABEL_SEPARATOR)
    if not own or not isinstance(own, (list, tuple)) or not all(isinstance(label, str) for label in own):
        raise AdjudgeError(f'{row.place}: "labels" is missing or not a list of strings (or give --labels for all rows)')
    return tuple(own)


def _rubric(row: Row) -> Rubric | None:
    found = {name: row.columns[name] for name in ("rubric", "checklist") if row.columns.get(name) not in (None, "")}
    if len(found) > 1:
        raise AdjudgeError(f'{row.place} has both "rubric" and "checklist": leave one out')
    for name, value in found.items():
        place = f'{row.place}: "{name}"'
        if isinstance(value, str):  # a cell of a table
            try:
                value = json.loads(value)
            except (ValueError, RecursionError) as error:
                raise AdjudgeError(f"{place} is not JSON: write the {name} as JSON") from error
        try:
            value = encodable(_given(value))
        except RecursionError as error:
            raise AdjudgeError(f"{place} is nested too deeply") from error
        return (rubric_of if name == "rubric" else rubric_of_checklist)(value, place)
    return None


def _reviews(row: Row, kind: type[Earlier], form: str) -> tuple[Earlier, ...]:
    """A reader's earlier reviews: a list of objects, or its JSON text (in a CSV cell); none if absent or empty."""
    value = row.columns.get("reviews")
    if value in (None, ""):
        return ()
    try:
        entries = json.loads(value) if isinstance(value, str) else value
        return msgspec.convert(_given(entries), tuple[kind, ...])  # type: ignore[valid-type]
    except (ValueError, RecursionError) as error:
        detail = "not JSON" if isinstance(error, json.JSONDecodeError) else str(error)
        raise AdjudgeError(f'{row.place}: "reviews" cannot be read ({detail}): give a list of {form}') from error


def _given(value: Any) -> Any:
    """The value without what is null in its objects: tables of objects have every name in each of them."""
    if isinstance(value, Mapping):
        return {name: _given(item) for name, item in value.items() if item is not None}
    return [_given(item) for item in value] if isinstance(value, (list, tuple)) else value


def _shown(value: Any) -> str:
    return json.dumps(value, default=repr)[:40]


def number_of(value: Any) -> float | None:
    """The finite number that a column holds, in a CSV file as text; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def id_of(row: Row, number: int) -> str:
    """What a row goes by: its `id`, or its number where it has none."""
    name = row.columns.get("id")
    return str(number if name in (None, "") else name)


def _record(record: dict[str, Any], row: Row, known: Sequence[str]) -> dict[str, Any]:
    further = {name: value for name, value in row.columns.items() if name not in known}
    return {**{f"input_{name}" if name in record else name: value for name, value in further.items()}, **record}


def _jsonl(path: Path, lines: Iterator[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"line {number} of {path.name}"
        try:
            columns = encodable(json.loads(line))  # no lone surrogates, and no deeper than the output's encoder will go
        except (ValueError, RecursionError) as error:
            detail = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
            if not isinstance(error, (json.JSONDecodeError, RecursionError)):
                detail = "a number of too many digits"
            raise AdjudgeError(f"{place} is not JSON ({detail}): write one JSON object a line") from error
        if not isinstance(columns, dict):
            raise AdjudgeError(f"{place} is {type(columns).__name__}, not a JSON object: write one object a line")
        yield Row(place, columns)


def _parquet(path: Path) -> Iterator[Row]:
    try:
        from pyarrow import ArrowException, parquet  # type: ignore[import-untyped]
    except ImportError:
        raise AdjudgeError(f"{path.name} is Parquet: pip install pyarrow, or convert it to JSONL") from None
    try:
        rows = parquet.read_table(path).to_pylist()
    except (OSError, ArrowException) as error:
        raise AdjudgeError(f"cannot read {path} ({error}): name a Parquet file that can be read") from error
    for number, row in enumerate(rows, 1):
        yield Row(f"row {number} of {path.name}", encodable(msgspec.to_builtins(row, enc_hook=str)))


def _decoded(path: Path) -> str:
    """The text of a table, which people save from programs that choose another encoding."""
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise AdjudgeError(f"line {line} of {path.name} is not UTF-8: save it as UTF-8") from error


def _csv(path: Path, lines: Iterator[str]) -> Iterator[Row]:
    csv.field_size_limit(1 << 30)
    reader = csv.reader(lines, strict=True)
    begun = 1
    try:
        names = next(reader, None) or [""]
        if len(names) == 1 and (found := re.search(r"[;\t]", names[0])):
            mark = "tabs" if found[0] == "\t" else "semicolons"
            said = f'line 1 of {path.name} has one column, "{names[0][:60]}"'
            raise AdjudgeError(f"{said}: if {mark} part its columns, save it with commas")
        if double := next((name for name, count in Counter(names).items() if count > 1), None):
            raise AdjudgeError(f'line 1 of {path.name} has the column "{double[:60]}" twice: rename one')
        begun = reader.line_num + 1
        for values in reader:
            place, begun = f"line {begun} of {path.name}", reader.line_num + 1
            if len(values) > len(names):
                raise AdjudgeError(f"{place} has more columns than the header: quote texts that hold commas")
            if any(values):  # tables have empty rows at their end
                yield Row(place, dict(zip_longest(names, values)))
    except csv.Error as error:
        mend = "close each quote, and double those inside a text"
        raise AdjudgeError(f"line {begun} of {path.name} is not CSV ({error}): {mend}") from error


def builtin(value: Any) -> Any:
    """The value as JSON would have it, without arrays and numbers of libraries, at any depth."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        return {name: builtin(item) for name, item in value.items()}
    return [builtin(item) for item in value] if isinstance(value, (list, tuple)) else value


def encodable(value: Any) -> Any:
    """Strings made encodable, at any depth."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, Mapping):
        return {well_formed(str(name)): encodable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encodable(item) for item in value]
    return value
