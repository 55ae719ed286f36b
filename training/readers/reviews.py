"""Files of what readers said: scores of single plots, or choices between two (PerSE, 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.aspects import Aspect
from adjudge.rewards.records.rows import Row, id_of, number_of, with_point
from adjudge.training.stages import read_stage

NEEDED_BY = "a reader's review"

SPLITS = ("train", "valid", "test")
CHOICES = ("a", "b", "both", "neither")


class PlotReview(msgspec.Struct, frozen=True):
    """What a reader wrote about a plot, and the score they gave it, 1 to 10; `split` is the side they were put on."""

    id: str
    reviewer: str
    plot: str
    review: str
    score: float
    split: str | None = None


class PlotChoice(msgspec.Struct, frozen=True):
    """Which of two plots a reader preferred on one aspect, if not both or neither."""

    id: str
    reviewer: str
    a: str
    b: str
    aspect: str
    preferred: Literal["a", "b", "both", "neither"]
    split: str | None = None

    @property
    def plots(self) -> frozenset[str]:
        """The two, in whatever order they were shown."""
        return frozenset((self.a, self.b))


def read_reviews(
    path: Path, aspects: Sequence[Aspect], columns: Mapping[str, str] = {}
) -> list[PlotReview] | list[PlotChoice]:
    """The reviews of a file: its first row says whether it holds scores (`plot`) or choices (`a`, `b`).

    `columns` are as `read_stage` takes them. Raises AdjudgeError naming the line: a column that is missing, a score
    that is no number from 1 to 10, an aspect that is not among `aspects`, an id that comes twice, and a reader who is
    on two sides of the split.
    """
    rows = read_stage(path, needs=("reviewer",), columns=columns)
    single = "plot" in rows[0].columns
    known = {aspect.name for aspect in aspects}
    if single:
        reviews: list[Any] = [_review(row, number) for number, row in enumerate(rows, 1)]
    else:
        reviews = [_choice(row, number, known) for number, row in enumerate(rows, 1)]
    _check_sides(rows, reviews)
    return reviews


def score_of(row: Row, name: str) -> float:
    """The score in a column, 1 to 10; raises AdjudgeError naming the row."""
    value = row.columns.get(name)
    if (score := number_of(value)) is None or not 1 <= score <= 10:
        raise AdjudgeError(f'{row.place}: "{name}" is {str(value)[:40]}: give a score from 1 to 10{with_point(value)}')
    return score


def _review(row: Row, number: int) -> PlotReview:
    review = row.columns.get("review")
    return PlotReview(
        *_who(row, number),
        _plot(row, "plot"),
        "" if review is None else row.text("review", NEEDED_BY),
        score_of(row, "score"),
        _split(row),
    )


def _choice(row: Row, number: int, known: set[str]) -> PlotChoice:
    aspect = row.text("aspect", NEEDED_BY).strip().lower()
    if aspect not in known:
        raise AdjudgeError(
            f'{row.place}: the aspect "{aspect[:40]}" is none of {", ".join(sorted(known))}: mend it, or give --aspects'
        )
    preferred = row.text("preferred", NEEDED_BY).strip().lower()
    if preferred not in CHOICES:
        raise AdjudgeError(f'{row.place}: "preferred" is "{preferred[:40]}": write {", ".join(CHOICES)}')
    a, b = _plot(row, "a"), _plot(row, "b")
    if a == b:
        raise AdjudgeError(f'{row.place}: "a" and "b" are the same plot: give two')
    return PlotChoice(*_who(row, number), a, b, aspect, preferred, _split(row))  # type: ignore[arg-type]


def _who(row: Row, number: int) -> tuple[str, str]:
    reader = str(row.columns["reviewer"]).strip()
    if not reader:
        raise AdjudgeError(f'{row.place}: "reviewer" is empty: say whose review it is')
    return id_of(row, number), reader


def _plot(row: Row, name: str) -> str:
    plot = row.text(name, NEEDED_BY).strip()
    if not plot:
        raise AdjudgeError(f'{row.place}: "{name}" is empty: give a plot')
    return plot


def _split(row: Row) -> str | None:
    split = row.optional_text("split", NEEDED_BY)
    if split is not None and split not in SPLITS:
        raise AdjudgeError(f'{row.place}: "split" is "{split[:40]}": write {", ".join(SPLITS)}, or leave it out')
    return split


def _check_sides(rows: Sequence[Row], reviews: Sequence[PlotReview | PlotChoice]) -> None:
    """A split is given for all rows or for none, and every reader is on one side of it."""
    if all(review.split is None for review in reviews):
        return
    sides: dict[str, tuple[str | None, str]] = {}
    for row, review in zip(rows, reviews, strict=True):
        if review.split is None:
            raise AdjudgeError(f'{row.place}: "split" is missing, which other rows have: give all of them one, or none')
        side, place = sides.setdefault(review.reviewer, (review.split, row.place))
        if side != review.split:
            raise AdjudgeError(
                f'{row.place}: the reviewer "{review.reviewer}" is in {review.split}, but in {side} at {place}:'
                " what is learnt of a reader must not be tested on, so put each on one side"
            )
