"""`adjudge rank`: groups of responses, ranked by comparing pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from adjudge.cli.options import (
    DEFAULT_MODEL,
    Adapter,
    Aspects,
    CutTexts,
    Device,
    Dtype,
    JournalFile,
    Model,
    Orders,
    Overwrite,
    Report,
    Resume,
    earlier_of,
)


def rank(
    groups: Annotated[Path, typer.Argument(help="JSONL of groups: the responses to one prompt.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Rankings, JSONL in input order.")] = None,
    pairing: Annotated[
        Literal["all", "circular", "uncertain"],
        typer.Option(help="Every pair; each with k others; or those pairs that tell most, round by round."),
    ] = "all",
    k: Annotated[int, typer.Option(help="How many others each text meets (circular; uncertain: on average).")] = 4,
    budget: Annotated[
        int | None, typer.Option(help="Pairs a group (uncertain; default: what circular asks).", min=1)
    ] = None,
    ranking: Annotated[
        Literal["bradley_terry", "borda"], typer.Option(help="How preferences become strengths.")
    ] = "bradley_terry",
    seed: Annotated[int, typer.Option(help="Decides who meets whom.")] = 0,
    model: Model = DEFAULT_MODEL,
    adapter: Adapter = None,
    aspects: Aspects = "hanna",
    orders: Orders = "both",
    cut: CutTexts = "middle",
    resume: Resume = False,
    overwrite: Overwrite = False,
    report: Report = None,
    journal: JournalFile = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Rank the responses to each prompt by comparing pairs of them.

    Each row has `prompt`, `responses` (a list of texts), optionally `reference` (a text that takes part) and `id`;
    further columns pass through. Each line of the output has `strengths`, one for each response (log-odds; null where
    nothing was answered), their standard `errors`, `preferences` (the probability of being better than the reference),
    and `outcomes`, every pair that was asked.

    A run can be stopped at any time (Ctrl-C, kill -9) and continued with --resume; no pair is lost or judged twice.
    """
    from adjudge.commands.rank import rank_file

    rank_file(
        groups,
        output or groups.with_suffix(".ranks.jsonl"),
        pairing=pairing,
        k=k,
        budget=budget,
        ranking=ranking,
        seed=seed,
        model=model,
        adapter=adapter,
        aspects=aspects,
        orders=orders,
        cut=cut,
        earlier=earlier_of(resume, overwrite),
        report=report,
        journal=journal,
        device=device,
        dtype=dtype,
    )
