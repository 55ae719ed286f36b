"""Which public file a file is, told by its own columns or by name, and its rows as rated texts or pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from adjudge.bench.agreement import rated_pairs, rated_texts
from adjudge.bench.agreement.dataset import DataSet, RatedPair, RatedText, checked, joined, turned
from adjudge.bench.agreement.reading import read_entries
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.rows import Row

Read = Callable[[Sequence[Row], Path], Iterable[RatedText | RatedPair]]


class Format(msgspec.Struct, frozen=True):
    """A public file format: it is told by having all of `columns`, and its scores lie on `scale`."""

    what: Literal["items", "pairs"]
    read: Read
    columns: tuple[str, ...]
    scale: tuple[float, float] = (1.0, 5.0)
    aspects: str | None = None


MT_BENCH = ("question_id", "model_a", "model_b", "conversation_a", "conversation_b", "winner")

FORMATS: dict[str, Format] = {
    "hanna": Format("items", rated_texts.hanna_table, ("Story ID", "Prompt", "Story", "Relevance"), aspects="hanna"),
    "ratings": Format("items", rated_texts.ratings, ("prompt", "story", "ratings"), aspects="hanna"),
    "openmeva": Format("items", rated_texts.openmeva, ("prompt", "gen")),
    "openmeva-lines": Format("items", rated_texts.openmeva_lines, ("prompt", "story", "human")),
    "storyer": Format("items", rated_texts.storyer, ("prompt", "story", "comments"), aspects="storyer"),
    "per-mpst": Format("items", rated_texts.per_mpst, ("examples",), (1.0, 10.0)),
    "howtobench": Format("items", rated_texts.howtobench, ("reference", "outputs"), (0.0, 10.0)),
    "howtobench-authors": Format("items", rated_texts.howtobench, ("reference", "infers"), (0.0, 10.0)),
    "writingbench": Format("items", rated_texts.writingbench, ("index", "query"), (1.0, 10.0)),
    "autoj": Format("pairs", rated_pairs.autoj, ("prompt", "response 1", "response 2", "label")),
    "mt-bench": Format("pairs", rated_pairs.mt_bench, MT_BENCH),
    "preferences": Format("pairs", rated_pairs.preferences, ("chosen", "rejected")),
    "per-doc": Format("pairs", rated_pairs.per_doc, ("review_id", "prompt", "completion"), aspects="perse"),
    "labels": Format("items", rated_texts.labelled, ("response", "label"), (0.0, 1.0)),
    "scores": Format("items", rated_texts.scored, ("prompt", "response", "scores")),
    "expected": Format("pairs", rated_pairs.expected, ("story_a", "story_b", "expected")),
}
"""By name; the first whose columns are all there is a file's: in its first row, or else in any."""

OWN = ("scores", "labels", "preferences", "expected")
"""The formats of files that somebody writes, and no data set has."""

RATINGS = {"scores": "scores", "labels": "label", "expected": "expected"}
"""By formats of one's own, the column of what people said, which a row that nobody rated may lack."""

RATED_OR_NOT = ("storyer", *RATINGS)
"""The formats in which a row without a rating is one that nobody rated."""

RESPONSES = ("index", "response")
"""Rows that belong to requests of WritingBench in another file."""


def load(
    paths: Sequence[Path],
    *,
    named: str | None = None,
    scale: tuple[float, float] | None = None,
    characters: int | None = None,
    columns: Mapping[str, str] = {},
) -> DataSet:
    """The rows of all files, of one kind and scale, checked; `scale`, worst score first, overrides the format's.

    Where the worst score is the highest number, as of some school grades, scores come back turned round.
    `characters` shortens long texts of HoWToBench out of their middle; `columns` has, by a format's names, the columns
    that go by others. Rows of one's own that nobody rated are left out, and counted. Of several files, the rows without
    an id are called by their file and number; all of WritingBench's count as one. Raises AdjudgeError naming file, line
    and column: an unknown format or name, rows of another form, scores outside the scale, ids that stand twice, no
    rows.
    """
    if named is not None and named not in FORMATS:
        raise AdjudgeError(f'no format is called "{named[:40]}": choose {", ".join(FORMATS)}')
    read = _writingbench_together({path: read_entries(path, columns) for path in paths}, named)
    ends = None if scale is None else (min(scale), max(scale))
    sets = {path: checked(_loaded(path, rows, named, ends, characters)) for path, rows in read.items()}
    if scale is not None and scale != ends:
        sets = {path: turned(one) for path, one in sets.items()}
    return joined([_apart(one, read[path], path) if len(sets) > 1 else one for path, one in sets.items()])


def format_of(rows: Sequence[Row], path: Path) -> str:
    """The name of a file's format, by the columns of its first row or else of all; raises AdjudgeError if none fits."""
    columns = rows[0].columns.keys()
    for there in (columns, {column for row in rows for column in row.columns}):
        for name, one in FORMATS.items():
            if there >= set(one.columns):
                return name
    own = " or ".join(", ".join(FORMATS[name].columns) for name in OWN)
    raise AdjudgeError(
        f"{rows[0].place} has the columns {', '.join(map(str, columns))[:200]}, which are those of no known data set:"
        f" in a file of your own name them {own}, or say with --columns which are meant; --help lists the data sets"
    )


def _writingbench_together(read: dict[Path, list[Row]], named: str | None) -> dict[Path, list[Row]]:
    """The same, with all of WritingBench in its first file of requests: a response may answer one of any file."""
    responses = [path for path, rows in read.items() if _is_responses(rows)]
    others = [path for path in read if path not in responses]
    requests = [path for path in others if (named or format_of(read[path], path)) == "writingbench"]
    if not requests:
        return read
    first, *more = requests
    whole = [row for path in (*requests, *responses) for row in read[path]]
    return {path: whole if path == first else read[path] for path in others if path not in more}


def _loaded(
    path: Path,
    rows: list[Row],
    named: str | None,
    scale: tuple[float, float] | None,
    characters: int | None,
) -> DataSet:
    name = named or format_of(rows, path)
    one = FORMATS[name]
    _check_columns(rows, one, name)
    if scale is not None and one.what == "pairs":
        raise AdjudgeError(f"--scale is of scores, and {path.name} has pairs: leave it out")
    read: Read = one.read
    if one.read is rated_texts.howtobench:
        read = partial(rated_texts.howtobench, characters=characters)
    elif characters is not None:
        raise AdjudgeError(f"--characters is for HoWToBench, and {path.name} is of another format: leave it out")
    found = tuple(read(rows, path))
    if not found:
        raise AdjudgeError(f"{path.name} has no text that people have judged: give another file")
    unrated = len(rows) - len(found) if name in RATED_OR_NOT else 0
    title = path.stem if name in ("scores", "expected") else name
    return DataSet(title, one.what, found, scale or one.scale, one.aspects, unrated)


def _apart(dataset: DataSet, rows: Sequence[Row], path: Path) -> DataSet:
    """The same, with the file's name before ids that are mere numbers, which rows of other files have too."""
    own = {row.place for row in rows if any(row.columns.get(name) not in (None, "") for name in rated_texts.IDS)}
    named = (
        row.called(f"{path}:{row.id}") if row.id.isdecimal() and row.place not in own else row for row in dataset.rows
    )
    return msgspec.structs.replace(dataset, rows=tuple(named))


def _check_columns(rows: Sequence[Row], one: Format, name: str) -> None:
    for row in rows:
        for column in one.columns:
            if column in row.columns or column == RATINGS.get(name):
                continue
            if not (name == "writingbench" and "response" in row.columns):
                raise AdjudgeError(f'{row.place}: "{column}" is missing (needed by {name} files)')


def _is_responses(rows: Sequence[Row]) -> bool:
    return rows[0].columns.keys() >= set(RESPONSES) and "query" not in rows[0].columns
