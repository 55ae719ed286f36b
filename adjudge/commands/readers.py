"""`adjudge readers`: reviews in, questions about readers and rows to tune on out (PerSE)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adjudge.commands.output import check_new, check_output
from adjudge.commands.resumable import check_paths
from adjudge.commands.run_options import RunOptions
from adjudge.commands.stage_run import check_beside, check_left, part_beside, stage_run, write_parts
from adjudge.commands.writing_options import Writing, tell_texts
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.aspects import PERSE, Aspect, parse_aspects
from adjudge.training.attrition import tell
from adjudge.training.pictures import check_picture
from adjudge.training.readers.grouping import Grouped, Rules, group_choices, group_reviews
from adjudge.training.readers.names import SCHEMA
from adjudge.training.readers.questions import RatingQuestion, read_questions
from adjudge.training.readers.reviews import PlotChoice, PlotReview, read_reviews
from adjudge.training.readers.tuning import tuning_rows
from adjudge.training.readers.writing import anonymise, read_plots, summarise
from adjudge.training.stages import Passed, write_stage
from adjudge.training.terminal import counted, say


def anonymise_file(
    path: Path,
    output: Path,
    *,
    language: str,
    writing: Writing,
    run_options: RunOptions,
) -> None:
    """Give the names in the plots of `path` new ones; mistakes in it are found before the model is loaded."""
    rows = read_plots(path)
    with stage_run("the reviews", path, output, run_options, others=("dropped", "names")) as run:
        texts = writing.texts(run.open(), run.book, SCHEMA)
        made = anonymise(texts, rows, language)
        maps = {one.columns["plot"]: one.names for one in made.kept}
        write_stage(part_beside(output, "names"), ({"plot": plot, "names": names} for plot, names in maps.items()))
        write_parts(output, [one.columns for one in made.kept], [made])
    tell([made], f"Rows of {path.name} with new names")
    tell_texts(texts.counts)
    names = sum(map(len, maps.values()))
    print(
        f"{counted(len(maps), 'plot')}, {counted(names, 'name')}: {part_beside(output, 'names')}",
        f"rows: {output}",
        sep="\n",
    )
    check_left(output, made.kept, "more --attempts or --max-tokens, or a larger --model")


def summarise_file(
    path: Path,
    output: Path,
    *,
    words: int,
    language: str,
    writing: Writing,
    run_options: RunOptions,
) -> None:
    """Have the plots of `path` retold; mistakes in it are found before the model is loaded."""
    rows = read_plots(path)
    with stage_run("the reviews", path, output, run_options) as run:
        texts = writing.texts(run.open(), run.book)
        made = summarise(texts, rows, words, language)
        write_parts(output, made.kept, [made])
    tell([made], f"Rows of {path.name}, their plots in at most {words} words")
    tell_texts(texts.counts)
    say(f"rows: {output}")
    check_left(output, made.kept, "more --words or --attempts, or a larger --model")


def group_file(
    path: Path, output: Path, *, rules: Mapping[str, Any], aspects: str | None, plot: Path | None, overwrite: bool
) -> None:
    """Group the reviews of `path` into questions."""
    check_picture(plot)
    _check_files("the reviews", path, output, overwrite, plot)
    chosen = _aspects(aspects)
    reviews = read_reviews(path, chosen)
    check_aspects(aspects, reviews)
    grouped = _grouped(reviews, rules, chosen)
    _write(output, grouped.questions, grouped.stages)
    tell(grouped.stages, f"What each stage left of the reviews in {path.name}", plot)
    sides = Counter(question.split for question in grouped.questions)
    for side, number in grouped.readers.items():
        print(f"{side}: {counted(number, 'reader')}, {counted(sides[side], 'question')}")
    questions, texts = grouped.shortened
    print(
        f"{counted(questions, 'question')} had {counted(texts, 'text')} shortened to the budget of"
        f" {rules.get('budget', 2500)} words"
    )
    say(f"questions: {output}")
    check_left(output, grouped.questions, "a lower --least or --k")


def instruct_file(
    path: Path, output: Path, *, split: str, k: int | None, texts: bool, aspects: str | None, overwrite: bool
) -> None:
    """Write rows to tune on from the questions of `path`."""
    _check_files("the questions", path, output, overwrite)
    questions = read_questions(path)
    check_aspects(aspects, questions)
    made = tuning_rows(questions, split=split, k=k, texts=texts, aspects=_aspects(aspects))
    _write(output, made.rows, made.stages)
    tell(made.stages, f"Questions of {path.name} to tune on")
    say(f"{counted(len(made.rows), 'row')}: {output}")


def check_aspects(aspects: str | None, rows: Sequence[object]) -> None:
    """Refuse aspects of rows that are ratings, of a plot as a whole; raises AdjudgeError."""
    if aspects is not None and isinstance(rows[0], PlotReview | RatingQuestion):
        raise AdjudgeError("--aspects are of choices, and these are ratings of whole plots: leave it out")


def _grouped(
    reviews: list[PlotReview] | list[PlotChoice], rules: Mapping[str, Any], aspects: Sequence[Aspect]
) -> Grouped:
    scores = [one for one in reviews if isinstance(one, PlotReview)]
    if scores:
        return group_reviews(scores, Rules.ratings(**rules))
    choices = [one for one in reviews if isinstance(one, PlotChoice)]
    return group_choices(choices, Rules.choices(**rules), aspects)


def _check_files(what: str, path: Path, output: Path, overwrite: bool, plot: Path | None = None) -> None:
    """Refuse an output, a file beside it or a plot that is the input, cannot be written, or is there already."""
    check_paths(what, path, output, plot=plot)
    check_output(output, overwrite)
    plots = () if plot is None else (plot,)
    check_beside([path, *plots], output, "dropped")
    if not overwrite:
        for written in (part_beside(output, "dropped"), *plots):
            check_new(written)


def _write(output: Path, rows: Sequence[Any], stages: Sequence[Passed[Any]]) -> None:
    try:
        write_parts(output, rows, stages)
    except OSError as error:
        raise AdjudgeError(f"cannot write {output} ({error.strerror}): make room, or name another with -o") from error


def _aspects(text: str | None) -> tuple[Aspect, ...]:
    return parse_aspects(text, PERSE) if text else PERSE
