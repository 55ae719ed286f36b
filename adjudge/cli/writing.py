"""`adjudge writing`: texts made worse on purpose, and benchmarks made of texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adjudge.cli.groups import RunToWrite, with_groups, written
from adjudge.cli.options import beside, output_beside
from adjudge.commands.writing_options import Writing

writing = typer.Typer(
    help="Disturb texts to test a judge, and build writing benchmarks from texts (Tree of Writing).",
    no_args_is_help=True,
)

Texts = Annotated[
    Path, typer.Argument(help="JSONL, JSON, CSV or Parquet of texts: response, text or story; other columns stay.")
]


@writing.command("disturb")
@with_groups
def writing_disturb(
    texts: Texts,
    output: Annotated[Path | None, output_beside("The texts and what became of them", ".disturbed.jsonl")] = None,
    kinds: Annotated[
        str | None,
        typer.Option(
            help="drop, repeat (no model), to_comment, to_letter, to_official, to_poem, after commas (default: all)."
        ),
    ] = None,
    most: Annotated[int, typer.Option(help="Passages that are dropped or repeated at most.", min=1)] = 3,
    *,
    writing: Annotated[Writing, written(1024)],
    run_options: RunToWrite,
) -> None:
    """Make texts worse in known ways: a judge must score each below the text it was made of.

    Every row comes as it is, and then once for each kind: some of its paragraphs (sentences, where it has few) left
    out or repeated elsewhere, or the whole written anew in another genre. The column `disturbance` says of which row
    (`of`), which `kind` and how much (`amount` of `unit`). What was too short stands in OUTPUT.dropped.jsonl. Next:
    `adjudge judge OUTPUT --judge tree`, then `adjudge bench tree`.
    """
    from adjudge.commands.writing import disturb_file

    disturb_file(
        texts,
        output or beside(texts, ".disturbed.jsonl"),
        kinds=kinds,
        most=most,
        writing=writing,
        run_options=run_options,
    )


@writing.command("build")
@with_groups
def writing_build(
    texts: Texts,
    output: Annotated[Path | None, output_beside("The benchmark, JSONL", ".benchmark.jsonl")] = None,
    tasks: Annotated[str | None, typer.Option(help="completion, guide, open, after commas (default: all).")] = None,
    least: Annotated[float, typer.Option(help="Quality of 1 to 5 that a text must have.", min=1.0, max=5.0)] = 4.0,
    min_mass: Annotated[
        float, typer.Option(help="Probability that the labels must have together.", min=0.0, max=1.0)
    ] = 0.01,
    *,
    writing: Annotated[Writing, written(768)],
    run_options: RunToWrite,
) -> None:
    """Make a writing benchmark of good texts: what must be asked for to get each of them?

    The model tells each text's genre (unless the row has a `genre`) and its quality, by label distributions alone, and
    writes theme, summary and requirements of the good ones. Each then gives up to three rows, with the text as the
    `reference`: **completion** (a gap to be filled), **guide** (instruction and requirements), **open** (the
    instruction). With a `response` they are rows for `adjudge judge --judge tree`. English and Chinese texts are asked
    about in their language. Every text that was dropped stands in OUTPUT.dropped.jsonl, with the stage and the reason.
    """
    from adjudge.commands.writing import build_file

    build_file(
        texts,
        output or beside(texts, ".benchmark.jsonl"),
        tasks=tasks,
        least=least,
        min_mass=min_mass,
        writing=writing,
        run_options=run_options,
    )
