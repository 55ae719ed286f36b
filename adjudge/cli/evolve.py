"""`adjudge evolve`: rationales for human scores, made, filtered and validated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from adjudge.cli.groups import RunToWrite, with_groups, written
from adjudge.cli.options import Plot, beside, output_beside
from adjudge.commands.writing_options import Writing

evolve = typer.Typer(help="Make rationales for human scores, and keep the sound ones (EvolvR).", no_args_is_help=True)

Mode = Annotated[
    Literal["direct", "reasoned"],
    typer.Option(help="How the model judges: at once, by the label distribution, or after an analysis in writing."),
]


@evolve.command("synthesize")
@with_groups
def evolve_synthesize(
    stories: Annotated[Path, typer.Argument(help="JSONL: prompt, story and scores (or HANNA's ratings) by aspect.")],
    output: Annotated[Path | None, output_beside("Rationales, JSONL", ".rationales.jsonl")] = None,
    aspects: Annotated[str | None, typer.Option(help="hanna (default), storyer, or names after commas.")] = None,
    personas: Annotated[str | None, typer.Option(help="Names after commas (default: all five).")] = None,
    each: Annotated[int, typer.Option(help="Pairs for each combination of scores of an aspect.", min=1)] = 4,
    pointwise: Annotated[bool, typer.Option("--pointwise", help="Single stories instead of pairs.")] = False,
    raters: Annotated[
        Literal["mean", "each"], typer.Option(help="Several raters: their mean, rounded, or each a score of its own.")
    ] = "mean",
    examples: Annotated[Path | None, typer.Option(help="Rationales, as this command writes them, to show.")] = None,
    shots: Annotated[int, typer.Option(help="How many of them are shown before each question.", min=0)] = 1,
    structured: Annotated[
        bool,
        typer.Option("--structured", help="Hold each text to its form, so that a small model's ends in scores too."),
    ] = False,
    *,
    writing: Annotated[Writing, written(512)],
    run_options: RunToWrite,
) -> None:
    """Have rationales written that lead to the scores people gave.

    Pairs are drawn evenly over all combinations of scores of each aspect, each comes in both orders, and each persona
    writes about it, told the scores. Every row has the stories with their scores, the judge's own question (`system`,
    `prompt`) and the rationale (`response`), as `adjudge train sft` takes them. What could not be used stands in
    OUTPUT.dropped.jsonl, with the reason, and so do stories that the file holds before.
    """
    from adjudge.commands.evolve import synthesize_file

    synthesize_file(
        stories,
        output or beside(stories, ".rationales.jsonl"),
        aspects=aspects,
        personas=personas,
        each=each,
        pointwise=pointwise,
        raters=raters,
        examples=examples,
        shots=shots,
        structured=structured,
        writing=writing,
        run_options=run_options,
    )


@evolve.command("filter")
@with_groups
def evolve_filter(
    rationales: Annotated[
        Path, typer.Argument(help="JSONL, JSON, CSV or Parquet, as `adjudge evolve synthesize` writes them.")
    ],
    output: Annotated[Path | None, output_beside("Those that are left, JSONL", ".evolved.jsonl")] = None,
    stages: Annotated[
        str | None, typer.Option(help="In any order, after commas (default: rule,refine,rule,attack,confidence).")
    ] = None,
    plot: Plot = None,
    mode: Mode = "direct",
    *,
    writing: Annotated[Writing, written(512)],
    run_options: RunToWrite,
) -> None:
    """Take rationales through stages, and keep those that pass all.

    **rule** keeps those whose own scores are the human ones. **refine** has them written again, better argued.
    **attack** inverts the scores, and keeps those in which the model sees the contradiction. **confidence** keeps
    those at whose score places the model gives the human score the highest probability of 1 to 5; nothing is
    generated for it. Every row that a stage dropped stands in OUTPUT.dropped.jsonl, with the stage and the reason.

    A row needs `aspect`, `prompt_a`, `story_a`, `score_a`, the same of b (of pairs) and `response`.
    """
    from adjudge.commands.evolve import filter_file

    filter_file(
        rationales,
        output or beside(rationales, ".evolved.jsonl"),
        stages=stages,
        mode=mode,
        writing=writing,
        run_options=run_options,
        plot=plot,
    )


@evolve.command("validate")
@with_groups
def evolve_validate(
    evolved: Annotated[Path, typer.Argument(help="What `adjudge evolve filter` has left.")],
    dropped: Annotated[Path | None, typer.Option(help="What it has dropped (default: EVOLVED.dropped.jsonl).")] = None,
    output: Annotated[Path | None, output_beside("The table as JSONL", ".validation.jsonl")] = None,
    sample: Annotated[int, typer.Option(help="Rationales, and pairs, of each stage at most.", min=1)] = 1000,
    mode: Mode = "direct",
    *,
    writing: Annotated[Writing, written(512)],
    run_options: RunToWrite,
) -> None:
    """Ask a judge from outside whether the filtering kept the better rationales.

    For each stage it rates what the stage left, from 1 to 5, and compares rationales that the stage kept with ones of
    the same question that it dropped, in both orders. Take another model than the one that wrote and filtered them.
    """
    from adjudge.commands.evolve import validate_file

    validate_file(
        evolved,
        output or beside(evolved, ".validation.jsonl"),
        dropped=dropped,
        sample=sample,
        mode=mode,
        writing=writing,
        run_options=run_options,
    )
