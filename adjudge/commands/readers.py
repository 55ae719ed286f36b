"""`adjudge readers`: reviews in, questions about readers and rows to tune on out (PerSE)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from adjudge.commands.lazy import Commands
from adjudge.commands.options.files import Columns, OverwriteFile, Plot, output_beside
from adjudge.commands.options.judges import ReaderAspects
from adjudge.commands.options.runs import RunToWrite
from adjudge.commands.options.writing import Writing, tell_texts, written
from adjudge.commands.runs.output import beside, check_new, check_output
from adjudge.commands.runs.resumable import check_paths
from adjudge.commands.runs.rows import columns_of, columns_suggested
from adjudge.commands.runs.stage_run import check_beside, check_left, part_beside, stage_run, write_parts
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

readers = Commands(help="Prepare the reviews of single readers for judges of their taste.", no_args_is_help=True)

PromptLanguage = Annotated[str, typer.Option(help="Language of the prompts.")]


@readers.command("anonymise")
def anonymise_plots(
    reviews: Annotated[
        Path, typer.Argument(help="JSONL, JSON, CSV or Parquet of rows with a plot, and a review where there is one.")
    ],
    output: Annotated[Path | None, output_beside("The rows with new names, JSONL", ".anonymous.jsonl")] = None,
    language: PromptLanguage = "en",
    *,
    writing: Annotated[Writing, written(1024)],
    run_options: RunToWrite,
    columns: Columns = None,
) -> None:
    """Give the people and places of published plots new names, so that a model does not know the plots.

    In two steps: the model writes a JSON map of names for each plot, then the names are replaced in the plot and in all
    of its reviews, as whole words and the longest first. A map is written again, and at last the plot's rows are
    dropped, where it renames nothing, renames ordinary words, keeps a name, or gives one that is in the plot already.

    Rows that were dropped stand in OUTPUT.dropped.jsonl with the reason, the maps in OUTPUT.names.jsonl. A run can be
    stopped at any time and continued with --resume; nothing is asked twice.
    """
    output = output or beside(reviews, ".anonymous.jsonl")
    with columns_suggested(columns):
        rows = read_plots(reviews, columns_of(columns))
    with stage_run("the reviews", reviews, output, run_options, others=("dropped", "names")) as run:
        texts = writing.texts(run.open(), run.book, SCHEMA)
        made = anonymise(texts, rows, language)
        maps = {one.columns["plot"]: one.names for one in made.kept}
        write_stage(part_beside(output, "names"), ({"plot": plot, "names": names} for plot, names in maps.items()))
        write_parts(output, [one.columns for one in made.kept], [made])
    tell([made], f"Rows of {reviews.name} with new names")
    tell_texts(texts.counts)
    names = sum(map(len, maps.values()))
    print(
        f"{counted(len(maps), 'plot')}, {counted(names, 'name')}: {part_beside(output, 'names')}",
        f"rows: {output}",
        sep="\n",
    )
    check_left(output, made.kept, "more --attempts or --max-tokens, or a larger --model")


@readers.command("summarise")
def summarise_plots(
    reviews: Annotated[Path, typer.Argument(help="JSONL, JSON, CSV or Parquet of rows with a plot.")],
    output: Annotated[Path | None, output_beside("The rows with summaries, JSONL", ".summaries.jsonl")] = None,
    words: Annotated[int, typer.Option(help="Words of a summary at most.", min=10)] = 250,
    language: PromptLanguage = "en",
    *,
    writing: Annotated[Writing, written(512)],
    run_options: RunToWrite,
    columns: Columns = None,
) -> None:
    """Have plots retold in few words, so that a model does not know them by their wording, and several fit a prompt.

    A retelling that is too long is written again, and at last the plot's rows are dropped (OUTPUT.dropped.jsonl). A run
    can be stopped at any time and continued with --resume; nothing is asked twice.
    """
    output = output or beside(reviews, ".summaries.jsonl")
    with columns_suggested(columns):
        rows = read_plots(reviews, columns_of(columns))
    with stage_run("the reviews", reviews, output, run_options) as run:
        texts = writing.texts(run.open(), run.book)
        made = summarise(texts, rows, words, language)
        write_parts(output, made.kept, [made])
    tell([made], f"Rows of {reviews.name}, their plots in at most {words} words")
    tell_texts(texts.counts)
    say(f"rows: {output}")
    check_left(output, made.kept, "more --words or --attempts, or a larger --model")


@readers.command("group")
def group(
    reviews: Annotated[Path, typer.Argument(help="JSONL, CSV or Parquet of reviews; see above.")],
    output: Annotated[Path | None, output_beside("The questions, JSONL", ".items.jsonl")] = None,
    k: Annotated[int | None, typer.Option(help="Earlier reviews in each (3; of choices 1).", min=1, max=5)] = None,
    n: Annotated[int | None, typer.Option(help="Questions of each reader at most (10; of choices 50).", min=1)] = None,
    least: Annotated[
        int | None, typer.Option(help="Readers with fewer reviews are dropped (6; of choices 2).", min=2)
    ] = None,
    budget: Annotated[int, typer.Option(help="Words of a prompt at most.", min=1)] = 2500,
    test: Annotated[float, typer.Option(help="Share of the readers that is kept unseen.", min=0.0, max=0.99)] = 0.1,
    aspects: ReaderAspects = None,
    seed: Annotated[int, typer.Option(help="Another seed draws others.")] = 0,
    columns: Columns = None,
    plot: Plot = None,
    overwrite: OverwriteFile = False,
) -> None:
    """Group reviews by reader into questions for `adjudge judge --judge personal`, split by reader.

    A row has `reviewer`, `plot`, `review` and `score` (1 to 10), or `reviewer`, `a`, `b`, `aspect` and `preferred` (a,
    b, both or neither; the last two are dropped); optionally `id`, and `split` (train, valid, test), which must put
    each reviewer on one side. Without it --test draws the readers who are kept unseen.

    A question has one plot (or pair) of a reader and --k others of theirs, all drawn at random. Where its prompt has
    more words than --budget, its longest texts are shortened to one length, their first and last words kept. Its
    answer stands in `expected` and `review`. What was dropped, and why, stands in OUTPUT.dropped.jsonl.
    """
    output = output or beside(reviews, ".items.jsonl")
    check_picture(plot)
    _check_files("the reviews", reviews, output, overwrite, plot)
    chosen = _aspects(aspects)
    with columns_suggested(columns):
        read = read_reviews(reviews, chosen, columns_of(columns))
    check_aspects(aspects, read)
    given = {"k": k, "n": n, "least": least}
    rules = {name: value for name, value in given.items() if value is not None}
    grouped = _grouped(read, {**rules, "budget": budget, "test": test, "seed": seed}, chosen)
    _write(output, grouped.questions, grouped.stages)
    tell(grouped.stages, f"What each stage left of the reviews in {reviews.name}", plot)
    sides = Counter(question.split for question in grouped.questions)
    for side, number in grouped.readers.items():
        print(f"{side}: {counted(number, 'reader')}, {counted(sides[side], 'question')}")
    questions, texts = grouped.shortened
    print(f"{counted(questions, 'question')} had {counted(texts, 'text')} shortened to the budget of {budget} words")
    say(f"questions: {output}")
    check_left(output, grouped.questions, "a lower --least or --k")


@readers.command("instruct")
def instruct(
    items: Annotated[Path, typer.Argument(help="Questions, as `adjudge readers group` writes them.")],
    output: Annotated[Path | None, output_beside("The rows, JSONL", ".sft.jsonl")] = None,
    split: Annotated[
        Literal["train", "valid", "test", "all"], typer.Option(help="The side of the split to take.")
    ] = "train",
    k: Annotated[int | None, typer.Option(help="Reviews to show (default: all that a row has).", min=0, max=5)] = None,
    without: Annotated[
        Literal["texts"] | None, typer.Option(help="texts: show earlier plots and scores only, no review texts.")
    ] = None,
    aspects: ReaderAspects = None,
    overwrite: OverwriteFile = False,
) -> None:
    """Write rows for `adjudge train sft` (preset "perse"): the judge's own question, and what the reader said.

    For scores the question is that of --judge personal with --mode reasoned, and the answer the reader's review and
    then the score; for choices, which have no reasons in people's words, that of --mode direct, and the choice, in both
    orders. --aspects ending takes the choices on that aspect only.
    """
    output = output or beside(items, ".sft.jsonl")
    _check_files("the questions", items, output, overwrite)
    questions = read_questions(items)
    check_aspects(aspects, questions)
    side = "" if split == "all" else split
    made = tuning_rows(questions, split=side, k=k, texts=without is None, aspects=_aspects(aspects))
    _write(output, made.rows, made.stages)
    tell(made.stages, f"Questions of {items.name} to tune on")
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
