"""Pairs, items and groups of rows in, lines of JSON out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, get_args

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.group import Group, GroupVerdict
from adjudge.rewards.records.rows import Row, as_json, empty, encodable, given, id_of, id_text, missing, number_of
from adjudge.rewards.records.rubric import Rubric, rubric_of, rubric_of_checklist
from adjudge.rewards.records.verdict import Comparison, Example, Item, Pair, PairVerdict, Review, Verdict, WritingTask

Earlier = TypeVar("Earlier", Review, Comparison)

LABEL_SEPARATOR = "|"
"""Between the labels of a CSV column."""

PAIR_COLUMNS = ("id", "prompt", "prompt_a", "prompt_b", "story_a", "story_b", "reviews")
ITEM_COLUMNS = ("id", "prompt", "response", "reference", "rubric", "checklist", "reviews")
GROUP_COLUMNS = ("id", "prompt", "responses", "reference")

_CHOICE = '{"a", "b", "preferred": "a" or "b"}, with an "aspect" or without'


def pair_of(row: Row, number: int, reads: Iterable[str] = ()) -> Pair:
    """The pair of a row, with its reader's choices where "reviews" are read; its id is the row's number without one."""
    judge = "a pairwise judge"
    prompt_a, prompt_b = (row.optional_text(name, judge) for name in ("prompt_a", "prompt_b"))
    if missing(row.columns.get("prompt")) and (prompt_a is None or prompt_b is None):
        raise row.without("prompt", f'or "prompt_a" and "prompt_b"; needed by {judge}')
    return Pair(
        a=row.text("story_a", judge),
        b=row.text("story_b", judge),
        prompt=row.optional_text("prompt", judge) or "",
        prompt_a=prompt_a,
        prompt_b=prompt_b,
        id=id_of(row, number),
        reviews=_reviews(row, Comparison, _CHOICE) if "reviews" in reads else (),
    )


def group_of_row(row: Row, number: int) -> Group:
    """The group of a row; its id is the row's number where it has none."""
    tournament = "a tournament"
    responses = row.columns.get("responses")
    if missing(responses):
        raise row.without("responses", f'or "response", one a row; needed by {tournament}')
    if isinstance(responses, str):  # a cell of a table
        with suppress(ValueError, RecursionError):
            responses = json.loads(responses)
    if not isinstance(responses, list) or not all(isinstance(text, str) for text in responses):
        form = '(a cell of CSV has its JSON: ["a", "b"])'
        raise AdjudgeError(f'{row.place}: "responses" is {as_json(responses)}, not a list of strings {form}')
    if not responses:
        raise AdjudgeError(f'{row.place}: "responses" is empty: give at least one')
    return Group(
        prompt=row.text("prompt", tournament),
        responses=tuple(responses),
        reference=row.optional_text("reference", tournament),
        id=id_of(row, number),
    )


def gathered(rows: Sequence[Row]) -> list[Row]:
    """Rows of groups: as they are, or, of rows that have a `response` each, one for all those of a prompt.

    It stands where the first of them does. A column that is not the same in all of them is a list; `ids` are theirs,
    and their own column of that name is `input_ids`. Raises AdjudgeError for a prompt with several references.
    """
    if any("responses" in row.columns for row in rows) or not any("response" in row.columns for row in rows):
        return [*rows]
    of_prompt: dict[str, list[Row]] = {}
    for row in rows:
        of_prompt.setdefault(row.text("prompt", "a tournament"), []).append(row)
    return [_gathered(together) for together in of_prompt.values()]


def _gathered(together: Sequence[Row]) -> Row:
    responses = [row.text("response", 'a tournament, or "responses", a list') for row in together]
    columns: dict[str, Any] = {"responses": responses, "reference": _one_reference(together)}
    for name in dict.fromkeys(name for row in together for name in row.columns):
        values = [row.columns.get(name) for row in together]
        same = all(value == values[0] for value in values)
        if name == "id":
            columns |= {"ids": [*map(id_text, values)]} | ({"id": values[0]} if same else {})
        elif name not in ("response", "reference"):
            columns["input_ids" if name == "ids" else name] = values[0] if same else values
    return Row(together[0].place, columns)


def _one_reference(together: Sequence[Row]) -> str | None:
    """The reference of rows with one prompt, some of which may have none."""
    texts = [(row.place, row.optional_text("reference", "a tournament")) for row in together]
    found = [(place, text) for place, text in texts if text is not None]
    for place, text in found:
        if text != found[0][1]:
            said = f"{place}: another reference than {found[0][0]}, whose prompt it has"
            raise AdjudgeError(f"{said}: give each prompt one")
    return found[0][1] if found else None


def item_of(row: Row, number: int, reads: Iterable[str] = ()) -> Item:
    """The item of a row, with what `reads` names; its id is the row's number where it has none.

    What is not one of `READERS` is a column of its `columns`, which each row must have.
    """
    judge = "a judge of single texts; pairs have story_a and story_b"
    return Item(
        prompt=row.text("prompt", judge),
        response=row.text("response", judge),
        id=id_of(row, number),
        reference=row.optional_text("reference", judge),
        columns={name: _column(row, name) for name in reads if name not in READERS},
        **{field: READERS[field][1](row) for field in reads if field in READERS},
    )


def columns_read(reads: Iterable[str]) -> list[str]:
    """The columns that say what `reads` names: those of `READERS`, and its own."""
    return [column for field in reads for column in (READERS[field][0] if field in READERS else (field,))]


def example_of(row: Row) -> Example:
    """A good text, and the prompt it answers, of a row."""
    return Example(row.text("prompt", "an example"), row.text("response", "an example"))


def label_of(row: Row) -> bool | None:
    """What people said of a row's text in its column `label`: 1 for good, 0 for not; None where it says nothing."""
    value = row.columns.get("label")
    if empty(value):
        return None
    if (number := number_of(value)) not in (0, 1):
        raise AdjudgeError(f'{row.place}: "label" is {as_json(value)}: write 1 for good, 0 for not good')
    return number == 1


def verdict_record(verdict: PairVerdict | Verdict, row: Row) -> dict[str, Any]:
    """A verdict as it is written, with the row's further columns passed through.

    One that has the name of a verdict's own goes by "input_…", see `with_columns`.
    """
    if isinstance(verdict, PairVerdict):
        return with_columns(msgspec.to_builtins(verdict), row, PAIR_COLUMNS)
    return with_columns({**msgspec.to_builtins(verdict), "mass": verdict.mass}, row, ITEM_COLUMNS)


def verdict_line(verdict: PairVerdict | Verdict, row: Row) -> bytes:
    """The same as one line of JSON."""
    return json_line(verdict_record(verdict, row))


def group_line(verdict: GroupVerdict, row: Row) -> bytes:
    """The same for a group, with the ranks of its responses."""
    record = {**msgspec.to_builtins(verdict), "ranks": verdict.ranks}
    return json_line(with_columns(record, row, GROUP_COLUMNS))


def preference_line(group: Group, verdict: GroupVerdict) -> bytes | None:
    """The best and the worst response of a group as trainers of preferences read them, and how far they lie apart.

    None where no two responses differ in strength.
    """
    best, worst = verdict.best, verdict.worst
    if best is None or worst is None or verdict.ranks[best] == verdict.ranks[worst]:
        return None
    strengths = [strength or 0.0 for strength in verdict.strengths]
    return json_line(
        {
            "id": verdict.id,
            "prompt": group.prompt,
            "chosen": group.responses[best],
            "rejected": group.responses[worst],
            "margin": strengths[best] - strengths[worst],
        }
    )


def with_columns(record: dict[str, Any], row: Row, known: Sequence[str]) -> dict[str, Any]:
    """A record after the row's columns but for the `known`; one that has a name of the record's goes by "input_…".

    So does one that poses as the adapter of a verdict, which those of a bare model have not.
    """
    further: dict[str, Any] = {}
    taken = {*record, "adapter"}
    for name, value in row.columns.items():
        called = name
        while called in taken or (called != name and called in row.columns):
            called = f"input_{called}"
        if name not in known:
            further[called] = value
    return {**further, **record}


def json_line(record: Mapping[str, Any]) -> bytes:
    """One line of JSON that is always valid UTF-8; NaN and infinity become null."""
    return msgspec.json.encode(encodable(record)) + b"\n"


def labels_of_row(row: Row, labels: Sequence[str] | None) -> tuple[str, ...]:
    """The labels of a free prompt: its own column (a list, or a CSV cell like `1|2|3`), else the command's."""
    own = labels if empty(row.columns.get("labels")) else row.columns["labels"] or labels
    if isinstance(own, str):
        own = own.split(LABEL_SEPARATOR)
    if not own or not isinstance(own, (list, tuple)) or not all(isinstance(label, str) for label in own):
        raise AdjudgeError(f'{row.place}: "labels" is missing or not a list of strings (or give --labels for all rows)')
    return tuple(own)


def _column(row: Row, name: str) -> Any:
    if name not in row.columns:
        raise row.without(name, "its judge reads it")
    return encodable(row.columns[name])


def _task(row: Row) -> str | None:
    task = row.optional_text("task", "a tree judge")
    if task is not None and task not in (tasks := get_args(WritingTask)):
        raise AdjudgeError(f'{row.place}: "task" is "{task[:40]}": write {" or ".join(tasks)}, or leave it out')
    return task


def _rubric(row: Row) -> Rubric | None:
    found = {name: row.columns[name] for name in ("rubric", "checklist") if not empty(row.columns.get(name))}
    if len(found) > 1:
        raise AdjudgeError(f'{row.place} has both "rubric" and "checklist": leave one out')
    for name, value in found.items():
        if isinstance(value, Rubric):
            return value
        place = f'{row.place}: "{name}"'
        if isinstance(value, str):  # a cell of a table
            try:
                value = json.loads(value)
            except (ValueError, RecursionError) as error:
                raise AdjudgeError(f"{place} is not JSON: write the {name} as JSON") from error
        try:
            value = encodable(given(value))
        except RecursionError as error:
            raise AdjudgeError(f"{place} is nested too deeply: make it flatter") from error
        return (rubric_of if name == "rubric" else rubric_of_checklist)(value, place)
    return None


def _reviews(row: Row, kind: type[Earlier], form: str) -> tuple[Earlier, ...]:
    """A reader's earlier reviews: a list of objects, or its JSON text (in a CSV cell); none if absent or empty."""
    value = row.columns.get("reviews")
    if empty(value):
        return ()
    try:
        entries = given(json.loads(value) if isinstance(value, str) else value)
        if isinstance(entries, list):
            entries = [{"review": None} | entry if isinstance(entry, dict) else entry for entry in entries]  # no text
        return msgspec.convert(entries, tuple[kind, ...])  # type: ignore[valid-type]
    except (ValueError, RecursionError) as error:
        detail = "not JSON" if isinstance(error, json.JSONDecodeError) else str(error)
        raise AdjudgeError(f'{row.place}: "reviews" cannot be read ({detail}): give a list of {form}') from error


READERS: dict[str, tuple[tuple[str, ...], Callable[[Row], Any]]] = {
    "rubric": (("rubric", "checklist"), _rubric),
    "reviews": (("reviews",), lambda row: _reviews(row, Review, '{"plot", "review", "score"}')),
    "genre": (("genre",), lambda row: row.optional_text("genre", "a tree judge")),
    "task": (("task",), _task),
}
"""What an item may have besides its texts: the columns that say it, and what reads them (reviews, also without texts).

A rubric stands as `rubric_of` or, in `checklist`, as `rubric_of_checklist` reads it; genre and task pass through to the
output besides.
"""


def builtin(value: Any) -> Any:
    """The value as JSON would have it, without arrays and numbers of libraries, at any depth."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        return {name: builtin(item) for name, item in value.items()}
    return [builtin(item) for item in value] if isinstance(value, (list, tuple)) else value
