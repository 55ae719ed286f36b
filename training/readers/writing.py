"""The stages in which a model writes: new names for those in plots, and plots summed up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.text.prompt import Prompt
from adjudge.rewards.judges import template
from adjudge.rewards.records.rows import Row
from adjudge.rewards.words import count_words
from adjudge.training.readers.names import likely_names, read_names, rename
from adjudge.training.readers.reviews import NEEDED_BY
from adjudge.training.stages import Passed, Texts, Unusable, grouped, passed, read_stage

PROMPTS = Path(__file__).parent / "prompts"

T = TypeVar("T")


class Anonymous(msgspec.Struct, frozen=True):
    """A row whose plot and review have new names, and the names that were replaced."""

    columns: Mapping[str, Any]
    names: Mapping[str, str]


def read_plots(path: Path, columns: Mapping[str, str] = {}) -> list[Row]:
    """The rows of a file of plots, with reviews or without; raises AdjudgeError naming the line.

    `columns` are as `read_stage` takes them.
    """
    rows = read_stage(path, columns=columns)
    for row in rows:
        if "a" in row.columns and "plot" not in row.columns:
            raise AdjudgeError(f'{row.place} compares "a" and "b": only published plots, in "plot", are rewritten')
        if not row.text("plot", NEEDED_BY).strip():
            raise AdjudgeError(f'{row.place}: "plot" is empty: give a plot')
        row.optional_text("review", NEEDED_BY)
    return rows


def anonymise(texts: Texts, rows: Sequence[Row], language: str = "en") -> Passed[Anonymous]:
    """The rows with new names in plot and review, the same in all reviews of a plot, which is asked about once.

    A plot that the model cannot read whole is dropped ("too_long"): names in what it does not see would stay.
    """

    def renamed(row: Row, names: Mapping[str, str]) -> Anonymous:
        changed = {name: rename(row.columns[name], names) for name in ("plot", "review") if row.columns.get(name)}
        return Anonymous({**row.columns, **changed}, names)

    form = template.load("names", language, PROMPTS)

    def ask(plot: str) -> Prompt:
        likely = ", ".join(likely_names(plot))
        data = {"plot": plot, "likely": likely}
        return texts.prompt(*form.render(data=data, cut="never", has_likely=bool(likely)))

    return _of_plots("anonymise", texts, rows, ask, read_names, renamed)


def summarise(texts: Texts, rows: Sequence[Row], words: int, language: str = "en") -> Passed[Mapping[str, Any]]:
    """The rows with each plot retold in at most `words` words; what is longer is "over_length".

    A retelling that is the plot itself ("copied") would keep its wording. Raises AdjudgeError for too few words.
    """
    if words < 10:
        raise AdjudgeError(f"a plot in {words} words: allow at least 10")

    def retold(row: Row, summary: str) -> Mapping[str, Any]:
        return {**row.columns, "plot": summary}

    form = template.load("summary", language, PROMPTS)

    def ask(plot: str) -> Prompt:
        return texts.prompt(*form.render(data={"plot": plot}, cut="never", words=words))

    return _of_plots("summarise", texts, rows, ask, partial(read_summary, words=words), retold)


def read_summary(text: str, plot: str, words: int) -> str:
    """A retelling; raises Unusable for one that is too long, or the plot itself."""
    summary = text.strip()
    if summary.split() == plot.split():
        raise Unusable("copied")
    if count_words(summary) > words:
        raise Unusable("over_length")
    return summary


def _of_plots(
    stage: str,
    texts: Texts,
    rows: Sequence[Row],
    ask: Callable[[str], Prompt],
    read: Callable[..., Any],
    made: Callable[[Row, Any], T],
) -> Passed[T]:
    """What is made of each row with what the model wrote about its plot; each plot is asked about once.

    `read` takes the text and, by name, the plot.
    """
    places = grouped(range(len(rows)), lambda place: rows[place].columns["plot"].strip())
    plots = list(places)

    def results() -> Iterator[tuple[int, T | Unusable]]:
        for number, found in texts.write([ask(plot) for plot in plots], [partial(read, plot=plot) for plot in plots]):
            for place in places[plots[number]]:
                yield place, found if isinstance(found, Unusable) else made(rows[place], found)

    return passed(stage, [row.columns for row in rows], results())
