"""`adjudge readers`: reviews of readers with a taste of their own, made into questions and into rows to tune on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from adjudge.cli.groups import RunToWrite, with_groups, written
from adjudge.cli.options import OverwriteFile, Plot, ReaderAspects, beside, output_beside
from adjudge.commands.writing_options import Writing

readers = typer.Typer(help="Prepare the reviews of single readers for judges of their taste.", no_args_is_help=True)

PromptLanguage = Annotated[str, typer.Option(help="Language of the prompts.")]


@readers.command("anonymise")
@with_groups
def readers_anonymise(
    reviews: Annotated[
        Path, typer.Argument(help="JSONL, JSON, CSV or Parquet of rows with a plot, and a review where there is one.")
    ],
    output: Annotated[Path | None, output_beside("The rows with new names, JSONL", ".anonymous.jsonl")] = None,
    language: PromptLanguage = "en",
    *,
    writing: Annotated[Writing, written(1024)],
    run_options: RunToWrite,
) -> None:
    """Give the people and places of published plots new names, so that a model does not know the plots.

    In two steps: the model writes a JSON map of names for each plot, then the names are replaced in the plot and in all
    of its reviews, as whole words and the longest first. A map is written again, and at last the plot's rows are
    dropped, where it renames nothing, renames ordinary words, keeps a name, or gives one that is in the plot already.

    Rows that were dropped stand in OUTPUT.dropped.jsonl with the reason, the maps in OUTPUT.names.jsonl. A run can be
    stopped at any time and continued with --resume; nothing is asked twice.
    """
    from adjudge.commands.readers import anonymise_file

    anonymise_file(
        reviews,
        output or beside(reviews, ".anonymous.jsonl"),
        language=language,
        writing=writing,
        run_options=run_options,
    )


@readers.command("summarise")
@with_groups
def readers_summarise(
    reviews: Annotated[Path, typer.Argument(help="JSONL, JSON, CSV or Parquet of rows with a plot.")],
    output: Annotated[Path | None, output_beside("The rows with summaries, JSONL", ".summaries.jsonl")] = None,
    words: Annotated[int, typer.Option(help="Words of a summary at most.", min=10)] = 250,
    language: PromptLanguage = "en",
    *,
    writing: Annotated[Writing, written(512)],
    run_options: RunToWrite,
) -> None:
    """Have plots retold in few words, so that a model does not know them by their wording, and several fit a prompt.

    A retelling that is too long is written again, and at last the plot's rows are dropped (OUTPUT.dropped.jsonl). A run
    can be stopped at any time and continued with --resume; nothing is asked twice.
    """
    from adjudge.commands.readers import summarise_file

    summarise_file(
        reviews,
        output or beside(reviews, ".summaries.jsonl"),
        words=words,
        language=language,
        writing=writing,
        run_options=run_options,
    )


@readers.command("group")
def readers_group(
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
    from adjudge.commands.readers import group_file

    given = {"k": k, "n": n, "least": least}
    rules = {name: value for name, value in given.items() if value is not None}
    group_file(
        reviews,
        output or beside(reviews, ".items.jsonl"),
        rules={**rules, "budget": budget, "test": test, "seed": seed},
        aspects=aspects,
        plot=plot,
        overwrite=overwrite,
    )


@readers.command("instruct")
def readers_instruct(
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
    from adjudge.commands.readers import instruct_file

    instruct_file(
        items,
        output or beside(items, ".sft.jsonl"),
        split="" if split == "all" else split,
        k=k,
        texts=without is None,
        aspects=aspects,
        overwrite=overwrite,
    )
