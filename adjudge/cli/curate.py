"""`adjudge curate`: data for judges of good and bad texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adjudge.cli.options import (
    Adapter,
    Attempts,
    Device,
    Dtype,
    Examples,
    JournalFile,
    JudgeCut,
    JudgeModel,
    Language,
    Layout,
    MaxTokens,
    MinMass,
    Mode,
    Override,
    Overwrite,
    Replicas,
    Resume,
    Samples,
    Temperature,
    Url,
    earlier_of,
    judge_options,
    source_of,
)

curate = typer.Typer(help="Make data for judges of good and bad texts.", no_args_is_help=True)

Plot = Annotated[Path | None, typer.Option(help="Also draw it: a .png, .svg or .pdf.")]


@curate.command("pairs")
def curate_pairs(
    texts: Annotated[Path, typer.Argument(help="JSONL or CSV of texts, several to each prompt.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The pairs, JSONL.")] = None,
    examples: Examples = None,
    without: Annotated[
        str | None,
        typer.Option(help="Agents to leave out, after commas: retrieval, positive, negative, judge or reflect."),
    ] = None,
    per_prompt: Annotated[int, typer.Option(help="Pairs of a prompt at most; 0: all of good with bad.", min=0)] = 1,
    margin: Annotated[
        float, typer.Option(help="How far from 0.5 the probability of being good must be, either way.")
    ] = 0.0,
    model: JudgeModel = None,
    adapter: Adapter = None,
    url: Url = None,
    k: Annotated[int | None, typer.Option(help="Good texts to find for each text (3).", min=1)] = None,
    override: Override = None,
    mode: Mode = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    samples: Samples = None,
    attempts: Attempts = None,
    seed: Annotated[int | None, typer.Option(help="Another seed draws other arguments (0).")] = None,
    language: Language = None,
    layout: Layout = None,
    min_mass: MinMass = None,
    cut: JudgeCut = None,
    plot: Plot = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    journal: JournalFile = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    replicas: Replicas = 1,
) -> None:
    """Have agents debate several texts to each prompt, and make preference pairs of what they rule.

    A row has `prompt` and `response`, optionally `id` and `label` (1 good, 0 not, as people said). Each text is judged
    as by `adjudge judge --judge debate`. A pair has `prompt`, `chosen` (ruled good) and `rejected` (ruled bad), as
    `adjudge train reward` takes them, with the ids and scores of both.

    Beside the pairs stand every verdict (.verdicts.jsonl), every text that is in no pair, with the stage and reason
    (.dropped.jsonl), and the numbers (.summary.json): what each stage left, how debates ended, and, where rows have
    labels, accuracy, precision, recall and F1 of the verdicts.

    A run can be stopped at any time (Ctrl-C, kill -9) and continued with --resume; nothing is asked twice.
    """
    options, source = judge_options(locals()), source_of(locals())
    from adjudge.commands.curate import curate_pairs_file
    from adjudge.training.curate.pairs import Rules

    curate_pairs_file(
        texts,
        output or texts.with_suffix(".pairs.jsonl"),
        rules=Rules(per_prompt, margin),
        options=options,
        source=source,
        earlier=earlier_of(resume, overwrite),
        plot=plot,
        journal=journal,
    )
