"""`adjudge curate`: data for judges of good and bad texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from adjudge.cli.groups import Analyses, RunToWrite, Wording, with_groups
from adjudge.cli.options import (
    Attempts,
    Examples,
    Mode,
    Override,
    Plot,
    Principles,
    beside,
    judge_options,
    output_beside,
)

curate = typer.Typer(
    help="Make preference pairs and principles, with which judges are trained and told (Igniting).",
    no_args_is_help=True,
)


@curate.command("pairs")
@with_groups
def curate_pairs(
    texts: Annotated[Path, typer.Argument(help="JSONL, JSON, CSV or Parquet of texts, several to each prompt.")],
    output: Annotated[Path | None, output_beside("The pairs, JSONL", ".pairs.jsonl")] = None,
    examples: Examples = None,
    without: Annotated[
        str | None,
        typer.Option(help="Agents to leave out, after commas: retrieval, positive, negative, judge or reflect."),
    ] = None,
    by: Annotated[
        Literal["rulings", "scores"],
        typer.Option(help="rulings: good against bad; scores: better against worse, whatever was ruled."),
    ] = "rulings",
    per_prompt: Annotated[int, typer.Option(help="Pairs of a prompt at most; 0: all there are.", min=0)] = 1,
    margin: Annotated[
        float,
        typer.Option(help="How far the probability of being good must be from 0.5 (scores: from the other text's)."),
    ] = 0.0,
    *,
    run_options: RunToWrite,
    k: Annotated[int | None, typer.Option(help="Good texts to find for each text (3).", min=1)] = None,
    override: Override = None,
    analyses: Analyses,
    seed: Annotated[int | None, typer.Option(help="Another seed draws other arguments (0).")] = None,
    wording: Wording,
    plot: Plot = None,
) -> None:
    """Have agents debate several texts to each prompt, and make preference pairs of what they rule.

    A row has `prompt` and `response`, optionally `id` and `label` (1 good, 0 not, as people said). Each text is judged
    as by `adjudge judge --judge debate`. A pair has `prompt`, `chosen` (ruled good) and `rejected` (ruled bad), as
    `adjudge train reward` takes them, with the ids and scores of both. --by scores makes pairs with a judge that finds
    everything good, or nothing.

    Beside the pairs stand every verdict (.verdicts.jsonl), every text that is in no pair, with the stage and reason
    (.dropped.jsonl), and the numbers (.summary.json): what each stage left, how debates ended, and, where rows have
    labels, accuracy, precision, recall and F1 of the verdicts.

    A run can be stopped at any time (Ctrl-C, kill -9) and continued with --resume; nothing is asked twice.
    """
    options = judge_options(locals())
    from adjudge.commands.curate import curate_pairs_file
    from adjudge.training.curate.pairs import Rules

    curate_pairs_file(
        texts,
        output or beside(texts, ".pairs.jsonl"),
        rules=Rules(per_prompt, margin, by),
        options=options,
        run_options=run_options,
        plot=plot,
    )


@curate.command("principles")
@with_groups
def curate_principles(
    texts: Annotated[
        Path, typer.Argument(help="JSONL, JSON, CSV or Parquet of texts that people called good (1) or not (0).")
    ],
    output: Annotated[Path | None, output_beside("The principles found, TOML", ".principles.toml")] = None,
    principles: Principles = None,
    rounds: Annotated[int, typer.Option(help="How long to search.", min=1)] = 10,
    written: Annotated[int, typer.Option(help="Bad texts that are written in a round.", min=1)] = 8,
    looked_at: Annotated[int, typer.Option(help="Labelled texts that are judged in a round.", min=1)] = 32,
    held_out: Annotated[float, typer.Option(help="Share of the prompts whose texts choose the best round.")] = 0.3,
    most: Annotated[int, typer.Option(help="Principles at most.", min=1)] = 12,
    without: Annotated[str | None, typer.Option(help="reflect: learn from bad texts alone (the ablation).")] = None,
    *,
    run_options: RunToWrite,
    mode: Mode = None,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens of what is written at most (1024).", min=1)] = None,
    temperature: Annotated[float | None, typer.Option(help="How freely agents write (0.8).", min=0.0)] = None,
    attempts: Attempts = None,
    seed: Annotated[int, typer.Option(help="Decides what is held out, drawn and written.")] = 0,
    wording: Wording,
    plot: Plot = None,
) -> None:
    """Sharpen the principles of `adjudge judge --judge principle` on texts that people have labelled.

    A row has `prompt`, `response` and `label` (1 good, 0 not), optionally `id`. In every round an agent writes texts
    that are bad and hard to tell, and the judge judges them: the principles are revised from those it misses, the
    writer's strategy from those it catches. Then labelled texts are judged, and the principles revised from what an
    agent finds out about each mistake. Those of the round that does best on texts held out are kept; start from
    --principles of your own, or from those shipped for the language.

    The output is what --principles of `adjudge judge` takes. Beside it stand each round (.rounds.jsonl: principles,
    strategy, accuracy, precision, recall, F1) and whatever came to no use, with its reason (.dropped.jsonl).

    A run can be stopped at any time (Ctrl-C, kill -9) and continued with --resume; nothing is asked twice.
    """
    options = judge_options(locals())
    from adjudge.commands.curate import curate_principles_file
    from adjudge.training.curate.search import Plan, checked_reflection

    curate_principles_file(
        texts,
        output or beside(texts, ".principles.toml"),
        plan=Plan(rounds, written, looked_at, checked_reflection(without), seed),
        held_out=held_out,
        most=most,
        options=options,
        run_options=run_options,
        plot=plot,
    )
