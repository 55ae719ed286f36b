"""`adjudge readers`: reviews in, questions about readers and rows to tune on out (PerSE)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from adjudge.commands.output import check_writable, make_folder_of
from adjudge.commands.resumable import Earlier, alone, check_earlier, check_paths, keeping
from adjudge.commands.source import Source
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.rewards.aspects import PERSE, Aspect, parse_aspects
from adjudge.rewards.journal import Journal
from adjudge.training.attrition import Count, check_picture, draw_attrition, show_attrition
from adjudge.training.readers.grouping import Grouped, Rules, group_choices, group_reviews
from adjudge.training.readers.names import SCHEMA
from adjudge.training.readers.questions import read_questions
from adjudge.training.readers.reviews import PlotChoice, PlotReview, read_reviews
from adjudge.training.readers.tuning import tuning_rows
from adjudge.training.readers.writing import anonymise, read_plots, summarise
from adjudge.training.stages import Passed, Texts, write_stage


class Writing(msgspec.Struct, frozen=True):
    """How the model writes, and the language of its prompts."""

    max_tokens: int
    temperature: float
    attempts: int
    seed: int
    language: str


def anonymise_file(
    path: Path, output: Path, *, writing: Writing, source: Source, earlier: Earlier, journal: Path | None
) -> None:
    """Give the names in the plots of `path` new ones; mistakes in it are found before the model is loaded."""
    rows = read_plots(path)
    with _writing(path, output, writing, source, earlier, journal, SCHEMA) as texts:
        made = anonymise(texts, rows, writing.language)
        maps = {one.columns["plot"]: one.names for one in made.kept}
        write_stage(beside(output, "names"), ({"plot": plot, "names": names} for plot, names in maps.items()))
        _write(output, [one.columns for one in made.kept], [made])
    _show([made], f"Rows of {path.name} with new names")
    _tell(texts)
    print(f"{len(maps)} plots, {sum(map(len, maps.values()))} names: {beside(output, 'names')}\nrows: {output}")


def summarise_file(
    path: Path, output: Path, *, words: int, writing: Writing, source: Source, earlier: Earlier, journal: Path | None
) -> None:
    """Have the plots of `path` retold; mistakes in it are found before the model is loaded."""
    rows = read_plots(path)
    with _writing(path, output, writing, source, earlier, journal) as texts:
        made = summarise(texts, rows, words, writing.language)
        _write(output, made.kept, [made])
    _show([made], f"Rows of {path.name}, their plots in at most {words} words")
    _tell(texts)
    print(f"rows: {output}")


def group_file(path: Path, output: Path, *, rules: Mapping[str, Any], aspects: str | None, plot: Path | None) -> None:
    """Group the reviews of `path` into questions."""
    if plot is not None:
        check_picture(plot)
    _check_output(path, output)
    chosen = _aspects(aspects)
    grouped = _grouped(read_reviews(path, chosen), rules, chosen)
    _write(output, grouped.questions, grouped.stages)
    title = f"What each stage left of the reviews in {path.name}"
    counts = _show(grouped.stages, title)
    if plot is not None:
        draw_attrition(counts, plot, title)
    sides = Counter(question.split for question in grouped.questions)
    for side, number in grouped.readers.items():
        print(f"{side}: {number} readers, {sides[side]} questions")
    questions, texts = grouped.shortened
    print(f"{questions} questions had {texts} texts shortened to the budget of {rules.get('budget', 2500)} words")
    print(f"questions: {output}")


def instruct_file(path: Path, output: Path, *, split: str, k: int | None, texts: bool, aspects: str | None) -> None:
    """Write rows to tune on from the questions of `path`."""
    _check_output(path, output)
    made = tuning_rows(read_questions(path), split=split, k=k, texts=texts, aspects=_aspects(aspects))
    _write(output, made.rows, made.stages)
    _show(made.stages, f"Questions of {path.name} to tune on")
    print(f"{len(made.rows)} rows: {output}")


def beside(output: Path, name: str) -> Path:
    """The file of that name that goes with an output."""
    return output.with_name(f"{output.stem}.{name}{output.suffix}")


def _grouped(
    reviews: list[PlotReview] | list[PlotChoice], rules: Mapping[str, Any], aspects: Sequence[Aspect]
) -> Grouped:
    scores = [one for one in reviews if isinstance(one, PlotReview)]
    if scores:
        return group_reviews(scores, Rules.ratings(**rules))
    choices = [one for one in reviews if isinstance(one, PlotChoice)]
    return group_choices(choices, Rules.choices(**rules), aspects)


@contextmanager
def _writing(
    path: Path,
    output: Path,
    writing: Writing,
    source: Source,
    earlier: Earlier,
    journal: Path | None,
    schema: Mapping[str, Any] | None = None,
) -> Iterator[Texts]:
    """What has texts written in a run that may be stopped at any time, alone with its files."""
    journal = journal or output.with_name(output.name + ".journal")
    check_paths("the reviews", path, output, journal)
    _check_output(path, output)
    sampling = Sampling(max_tokens=writing.max_tokens, temperature=writing.temperature)
    with alone(journal), Journal(journal) as book:
        if earlier == "refuse":
            check_earlier(output, book, earlier)
        elif earlier == "overwrite":
            book.clear()
        with keeping(output, lambda: f"{len(book)} texts are kept in {journal}"), source.open() as engine:
            yield Texts(engine, sampling, book, schema=schema, attempts=writing.attempts, seed=writing.seed)


def _check_output(path: Path, output: Path) -> None:
    """Refuse an output, or a file beside it, that is the input or cannot be written."""
    if path.resolve() in {file.resolve() for file in (output, beside(output, "dropped"), beside(output, "names"))}:
        raise AdjudgeError(f"{path} would be overwritten: name another output with -o")
    make_folder_of(output)
    check_writable(output)


def _write(output: Path, rows: Sequence[Any], stages: Sequence[Passed[Any]]) -> None:
    """The dropped rows first: where the kept ones stand, both do."""
    write_stage(beside(output, "dropped"), (drop.record for stage in stages for drop in stage.dropped))
    write_stage(output, (getattr(row, "record", row) for row in rows))


def _show(stages: Sequence[Passed[Any]], title: str) -> list[Count]:
    counts = [Count.of(stage) for stage in stages]
    show_attrition(counts, title)
    return counts


def _tell(texts: Texts) -> None:
    asked = f"{texts.asked} written, {texts.rewritten} of them again, {texts.remembered} from the journal"
    Console(highlight=False).print(f"texts: {asked}")


def _aspects(text: str | None) -> tuple[Aspect, ...]:
    return parse_aspects(text, PERSE) if text else PERSE
