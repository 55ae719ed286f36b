"""`adjudge replay`: an earlier run again, from its journal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from adjudge.cli.options import (
    Form,
    JudgeAspects,
    JudgeOrders,
    MinMass,
    Report,
    Rubric,
    Scheme,
    TreeWeights,
    Without,
    judge_options,
)


def replay(
    source: Annotated[
        Path, typer.Argument(help="The journal of a run, the output beside it, or the folder of a training run.")
    ],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="JSONL (default: standard output).")] = None,
    rows: Annotated[Path | None, typer.Option(help="Only these rows, as they were judged (default: all).")] = None,
    run: Annotated[int | None, typer.Option(help="Which run of the journal (default: the latest).", min=1)] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the runs of the journal instead.")] = False,
    aspects: JudgeAspects = None,
    orders: JudgeOrders = None,
    rubric: Rubric = None,
    scheme: Scheme = None,
    without: Without = None,
    weights: TreeWeights = None,
    form: Form = None,
    min_mass: MinMass = None,
    ranking: Annotated[
        Literal["bradley_terry", "borda"] | None, typer.Option(help="How preferences become strengths (rank).")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="Reward as this recipe does, from the same verdicts (a training run).")
    ] = None,
    step: Annotated[int | None, typer.Option(help="The rewards of this step alone (a training run).", min=0)] = None,
    report: Report = None,
) -> None:
    """Give the verdicts of an earlier run again, from its journal alone: the same lines, byte for byte, and no model.

    With options of the judge the old answers are scored anew, as if it had been run with them: other weights
    (`--aspects "coherence*3,surprise"`), fewer aspects, one order, a rubric with other weights, another `--min-mass`.
    What was never asked cannot be scored: for another wording or new criteria judge the texts again, which the journal
    holds (`adjudge judge JOURNAL`). Rankings (`adjudge rank`) are replayed alike.

    Of a training run whose recipe has `journal = true` in [reward], every reward, or of one `--step`, is computed again
    and compared with what the trainer was given; with `--recipe` it is what another [reward] of the same judges would
    have paid.
    """
    from adjudge.commands.replay import list_runs, replay_file

    if list_:
        list_runs(source)
        return
    changes = judge_options(locals()) | ({} if ranking is None else {"ranking": ranking})
    replay_file(source, output, rows=rows, number=run, changes=changes, report=report, recipe=recipe, step=step)
