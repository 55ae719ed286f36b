"""`adjudge rank`: groups of responses, ranked by comparing pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from adjudge.cli.groups import Analyses, RunToJudge, Wording, with_groups
from adjudge.cli.options import (
    Columns,
    JudgeAspects,
    JudgeOrders,
    Limit,
    Report,
    beside,
    judge_options,
    output_beside,
    run_option,
)


@with_groups
def rank(
    groups: Annotated[Path, typer.Argument(help="JSONL, JSON, CSV or Parquet of groups: the responses to one prompt.")],
    output: Annotated[Path | None, output_beside("Rankings, JSONL in input order", ".ranks.jsonl")] = None,
    pairing: Annotated[
        Literal["all", "circular", "uncertain"],
        typer.Option(help="Every pair; each with k others; or those pairs that tell most, round by round."),
    ] = "all",
    k: Annotated[
        int | None,
        typer.Option(help="How many others each text meets (circular; uncertain: on average; default: 4)."),
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="Pairs a group (uncertain; default: what circular asks).", min=1)
    ] = None,
    ranking: Annotated[
        Literal["bradley_terry", "borda"], typer.Option(help="How preferences become strengths.")
    ] = "bradley_terry",
    judge: Annotated[
        str | None,
        typer.Option(
            help="pairwise shows both texts of a pair together, pointwise reads each alone; or package.module:name for"
            " one of your own, of pairs (default: pointwise for house, pairwise for other models and where --orders is"
            " given).",
            metavar="JUDGE",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides who meets whom, and which analyses are drawn.")] = 0,
    *,
    run_options: RunToJudge,
    aspects: JudgeAspects = None,
    orders: JudgeOrders = None,
    analyses: Analyses,
    wording: Wording,
    columns: Columns = None,
    limit: Limit = None,
    report: Report = None,
    preferences: Annotated[
        Path | None,
        run_option(
            help="Also write the best and the worst response of each group here, as `prompt`, `chosen` and `rejected`:"
            " JSONL that `adjudge train reward` and TRL's DPOTrainer read. Groups without a difference are left out."
        ),
    ] = None,
) -> None:
    """Rank the responses to each prompt by comparing pairs of them.

    Each row has `prompt`, `responses` (a list of texts), optionally `reference` (a text that takes part) and `id`;
    further columns pass through. Or each has one `response`: those of a prompt are a group, which has their ids as
    `ids`, and for its `id` the one that all of them have, or else its number. Each line of the output has `strengths`,
    one for each response (log-odds; null where no answered pairs join it to the largest part of the group), their
    standard `errors`, their `ranks` (1 is best, equals share one), `preferences` (the probability of being better than
    the reference), and `outcomes`, every pair that was asked.

    A run can be stopped at any time (Ctrl-C, kill -9) and continued with --resume; no pair is lost or judged twice.
    """
    options = judge_options(locals())
    from adjudge.commands.contest import Contest, without_contest
    from adjudge.commands.rank import rank_file
    from adjudge.engine.errors import AdjudgeError

    if k is not None and pairing == "all":
        raise AdjudgeError("--k is for pairings that leave pairs out: add --pairing circular, or leave it out")
    rank_file(
        groups,
        output or beside(groups, ".ranks.jsonl"),
        judge=judge,
        contest=Contest(pairing, 4 if k is None else k, budget, ranking, seed),
        options=without_contest(options),
        run_options=run_options,
        report=report,
        preferences=preferences,
        limit=limit,
        columns=columns,
    )
