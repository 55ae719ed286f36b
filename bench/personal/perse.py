"""PerSE's published files, Per-MPST and Per-DOC: readers' earlier reviews, and what is to be foretold from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.aspects import PERSE
from adjudge.rewards.records.rows import Row, id_of
from adjudge.rewards.records.verdict import Comparison, Item, Pair, Review
from adjudge.training.readers.questions import ChoiceQuestion, RatingQuestion

PLOT = re.compile(r"\[The Start of Plot ([AB])\]\n(.*?)\n\[The End of Plot \1\]", re.DOTALL)
CHOICE = re.compile(r'"Choice"\s*:\s*"Plot ([AB])"')
ASPECTS = {aspect.name[0].upper(): aspect.name for aspect in PERSE}
"""Per-DOC has a file for each aspect, by its first letter: PerDOC.I holds interestingness."""


class Rating(msgspec.Struct, frozen=True):
    """A score that a reviewer gave a plot."""

    reviewer: str
    plot: str
    score: float


class Example(msgspec.Struct, frozen=True):
    """One review as Per-MPST has it: of a plot with other names, summed up."""

    reviewer_name: str
    summ_plot: str
    clean_review: str
    score: float


def read_rated(rows: Sequence[Row]) -> list[RatingQuestion]:
    """The questions of a Per-MPST file's rows; the last of a row's examples is the one to foretell.

    Raises AdjudgeError naming the line that is not of that form.
    """
    return [_rated(row, number) for number, row in enumerate(rows, 1)]


def read_chosen(rows: Sequence[Row], path: Path, aspect: str | None = None) -> list[ChoiceQuestion]:
    """The questions of a Per-DOC file's rows, read out of their prompts; by default the file's name tells the aspect.

    Raises AdjudgeError for a name that does not, and naming the line that is not of that form.
    """
    letter = path.name.split(".")[1] if path.name.count(".") > 1 else ""
    name = aspect or ASPECTS.get(letter)
    if name is None:
        raise AdjudgeError(f"{path.name} does not name its aspect as PerDOC.I does: say which it is about")
    return [_chosen(row, number, name) for number, row in enumerate(rows, 1)]


def ratings(rated: Iterable[RatingQuestion]) -> list[Rating]:
    """What is known before: the earlier scores of all rows, each once, without those that any row is to foretell."""
    rows = list(rated)
    asked = {(row.reviewer, row.item.response) for row in rows}
    given = {(row.reviewer, review.plot): review.score for row in rows for review in row.item.reviews}
    return [Rating(*key, score) for key, score in given.items() if key not in asked]


def _rated(row: Row, number: int) -> RatingQuestion:
    try:
        *earlier, last = msgspec.convert(row.columns.get("examples"), list[Example])
    except ValueError as error:  # msgspec's are such, and so is an empty list
        raise AdjudgeError(f'{row.place}: "examples" are not those of Per-MPST ({error}): give its file') from error
    reviews = tuple(Review(example.summ_plot, example.clean_review, example.score) for example in earlier)
    item = Item(prompt="", response=last.summ_plot, id=id_of(row, number), reviews=reviews)
    return RatingQuestion(item, last.reviewer_name, "", last.clean_review, last.score)


def _chosen(row: Row, number: int, aspect: str) -> ChoiceQuestion:
    prompt, completion = row.columns.get("prompt"), row.columns.get("completion")
    text = prompt[0] if isinstance(prompt, list) and len(prompt) == 1 else prompt
    if not isinstance(text, str) or not isinstance(completion, str):
        raise AdjudgeError(f'{row.place}: "prompt" and "completion" are not those of Per-DOC: give its file')
    plots, choices = PLOT.findall(text), [*CHOICE.findall(text), *CHOICE.findall(completion)]
    if len(plots) != 2 * len(choices) or [place for place, _ in plots] != ["A", "B"] * len(choices) or not choices:
        raise AdjudgeError(
            f"{row.place} has {len(plots)} plots and {len(choices)} choices, not Plot A, Plot B and one choice each"
            " time: give a Per-DOC file"
        )
    texts = [plot for _, plot in plots]
    *earlier, last = [
        Comparison(a, b, "a" if choice == "A" else "b", aspect)
        for a, b, choice in zip(texts[::2], texts[1::2], choices, strict=True)
    ]
    pair = Pair(last.a, last.b, id=id_of(row, number), reviews=tuple(earlier))
    return ChoiceQuestion(pair, str(row.columns.get("review_id", "")), "", aspect, last.preferred)
