"""`adjudge bench agreement`: how far a judge agrees with people."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

import typer

from adjudge.cli.groups import Analyses, Asked, EarlierRun, Wording, with_groups
from adjudge.cli.options import (
    Columns,
    Form,
    HowMany,
    JudgeAspects,
    JudgeOrders,
    Partners,
    Principles,
    Rubric,
    Scheme,
    TreeWeights,
    Without,
    judge_options,
)
from adjudge.engine.errors import AdjudgeError


@with_groups
def bench_agreement(
    files: Annotated[list[Path], typer.Argument(help="Files that people have rated, of one public format.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the tables, plots and verdicts.")],
    judge: Annotated[
        str | None,
        typer.Option(
            help="pointwise, pairwise, ensemble, rubric, tree, principle, debate, personal, scalar, or"
            " package.module:name for one of your own (default: pointwise; for pairs pairwise, unless the model is"
            " house; or the protocol's).",
            metavar="JUDGE",
        ),
    ] = None,
    protocol: Annotated[
        Literal["evolvr", "tree", "qurl"] | None,
        typer.Option(
            help="A paper's table beside its own figures: evolvr: 0 to 16 partners and both orders; tree: each node"
            " left out, and one rubric; qurl: three ways to score a rubric."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Prompts to judge, with all their texts (default: all).", min=1)
    ] = None,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines",
            help="Also a regression on words, fitted on other prompts, and how likely the bare model finds the texts.",
        ),
    ] = False,
    format: Annotated[
        str | None, typer.Option(help="Which public format (default: told by the columns); a wrong name lists them.")
    ] = None,
    columns: Columns = None,
    scale: Annotated[
        str | None, typer.Option(help="People's worst and best score, such as 1,10, or 6,1 (default: the format's).")
    ] = None,
    characters: Annotated[
        int | None, typer.Option(help="HoWToBench: longest text; the middle goes (default: any).", min=2)
    ] = None,
    draw_seed: Annotated[int, typer.Option(help="Another seed draws other prompts, and folds of --baselines.")] = 0,
    draws: Annotated[int, typer.Option(help="Draws of prompts that intervals come from.", min=100)] = 1000,
    *,
    source: Asked,
    aspects: JudgeAspects = None,
    orders: JudgeOrders = None,
    partners: Partners = None,
    rubric: Rubric = None,
    scheme: Scheme = None,
    principles: Principles = None,
    without: Without = None,
    weights: TreeWeights = None,
    k: HowMany = None,
    form: Form = None,
    analyses: Analyses,
    seed: Annotated[int | None, typer.Option(help="Another seed draws other analyses, and other partners (0).")] = None,
    wording: Wording,
    earlier: EarlierRun,
) -> None:
    """Judge texts that people have rated, and say how far the judge agrees with them.

    Formats, told by their columns: HANNA (annotations table, or `ratings` in JSONL), OpenMEVA, StoryER, Per-MPST,
    Per-DOC, HoWToBench, WritingBench (requests and responses in two files), Auto-J, MT-Bench's human judgements,
    preference files (`prompt`, `chosen`, `rejected`), good and bad texts (`label`), and rows of `adjudge judge` with
    `scores` or `expected`; as JSONL, CSV, JSON or Parquet.

    Texts: Pearson, Spearman, Kendall's tau-b, MSE and F1 (both sides in [0, 1], F1 above 0.5) and the calibration of
    the label distribution (ECE), by aspect, over all aspects in one list, over all, and by system. Pairs: accuracy
    without and with ties (a judge's tie is where its orders differ), the share decided alike in both orders, the bias
    for the first place in log-odds, ECE. Each with a bootstrap interval over prompts, beside the length of the text
    alone. A judge of single texts decides a pair by the higher score.

    The folder gets agreement.csv, agreement.json, scores.png, reliability.png, the texts, the verdicts and their
    journal; a run can be stopped and continued with --resume, and figures of other --draws cost nothing anew.
    """
    options = judge_options(locals())
    from adjudge.commands.agreement import measure_agreement

    measure_agreement(
        files,
        output,
        judge=judge,
        options=options,
        source=source,
        earlier=earlier,
        format=format,
        scale=None if scale is None else _ends(scale),
        characters=characters,
        columns=columns,
        limit=limit,
        draw_seed=draw_seed,
        draws=draws,
        baselines=baselines,
        protocol=protocol,
    )


def _ends(text: str) -> tuple[float, float]:
    try:
        worst, best = (float(part) for part in text.split(","))
    except ValueError as error:
        raise AdjudgeError(f'--scale is "{text}": write the worst and the best score, such as 1,5') from error
    if worst == best or not (math.isfinite(worst) and math.isfinite(best)):
        raise AdjudgeError(f'--scale is "{text}": write two different numbers, the worst score first')
    return worst, best
