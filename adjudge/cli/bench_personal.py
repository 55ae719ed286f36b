"""`adjudge bench personal-studies`: what a reader's earlier reviews are worth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adjudge.cli.groups import Analyses, RunToJudge, Wording, with_groups
from adjudge.cli.options import ReaderAspects, beside, judge_options, output_beside
from adjudge.engine.errors import AdjudgeError


@with_groups
def bench_personal(
    items: Annotated[Path, typer.Argument(help="Questions, as `adjudge readers group` writes them.")],
    output: Annotated[Path | None, output_beside("The table as CSV", ".studies.csv")] = None,
    k: Annotated[
        str | None, typer.Option(help="Numbers of reviews to show, after commas (default: 0 to all there are).")
    ] = None,
    shuffles: Annotated[int, typer.Option(help="Orders of the reviews to try; 0 for none.", min=0)] = 3,
    limit: Annotated[int | None, typer.Option(help="Only the first questions.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Another seed draws other orders.")] = 0,
    aspects: ReaderAspects = None,
    *,
    analyses: Analyses,
    wording: Wording,
    run_options: RunToJudge,
) -> None:
    """Ask for unseen readers' scores (or choices) after k = 0 to 5 of their reviews, and hold them against theirs.

    With review texts and without, with the reviews in several orders (the mean of each correlation with its standard
    deviation, and how far the orders' scores of a plot lie apart), beside the reviewer's mean, matrix factorisation (of
    choices: the prior choice again) and the paper's own figures, which are of other plots. Questions on the test side
    of the split are asked, all where nothing is split; matrix factorisation learns from the train side.

    A run can be stopped at any time and continued with --resume; nothing is asked twice.
    """
    given = {name: value for name, value in locals().items() if name not in ("k", "seed")}
    options = judge_options(given)
    from adjudge.commands.bench_personal import study_file

    study_file(
        items,
        output or beside(items, ".studies.csv"),
        ks=None if k is None else _numbers(k),
        shuffles=shuffles,
        limit=limit,
        seed=seed,
        options=options,
        run_options=run_options,
    )


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise AdjudgeError(f'--k is "{text}": write whole numbers after commas, such as 0,1,3') from error
