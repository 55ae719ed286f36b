"""`adjudge replay`: an earlier run again, from its journal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from adjudge.cli.options import (
    Columns,
    OverwriteFile,
    Report,
    Rubric,
    RunAspects,
    RunForm,
    RunMinMass,
    RunOrders,
    RunWeights,
    Scheme,
    Without,
    judge_options,
)
from adjudge.engine.errors import AdjudgeError


def replay(
    source: Annotated[
        Path, typer.Argument(help="The journal of a run, the output beside it, or the folder of a training run.")
    ],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="JSONL (default: standard output).")] = None,
    rows: Annotated[Path | None, typer.Option(help="Only these rows, as they were judged (default: all).")] = None,
    columns: Columns = None,
    run: Annotated[int | None, typer.Option(help="Which run of the journal (default: the latest).", min=1)] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the runs of the journal instead.")] = False,
    aspects: RunAspects = None,
    orders: RunOrders = None,
    rubric: Rubric = None,
    scheme: Scheme = None,
    without: Without = None,
    weights: RunWeights = None,
    form: RunForm = None,
    min_mass: RunMinMass = None,
    ranking: Annotated[
        Literal["bradley_terry", "borda"] | None, typer.Option(help="How preferences become strengths (rank).")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="Reward as this recipe does, from the same verdicts (a training run).")
    ] = None,
    step: Annotated[int | None, typer.Option(help="The rewards of this step alone (a training run).", min=0)] = None,
    report: Report = None,
    overwrite: OverwriteFile = False,
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
    changes = judge_options(locals()) | ({} if ranking is None else {"ranking": ranking})
    if source.is_dir():
        from adjudge.commands.replay_training import list_steps, replay_training

        if list_:
            list_steps(source)
            return
        if any(given is not None for given in (rows, columns, run, report)) or changes:
            raise AdjudgeError(
                "the rewards of a training run are replayed as they were: leave out all options but --output,"
                " --recipe, --step and --list"
            )
        replay_training(source, output, recipe, step, overwrite)
        return
    from adjudge.commands.replay import list_runs, replay_file

    if list_:
        list_runs(source)
        return
    if columns is not None and rows is None:
        raise AdjudgeError("--columns are for --rows: give a file, or leave it out")
    for name, value in (("recipe", recipe), ("step", step)):
        if value is not None:
            raise AdjudgeError(f"--{name} is for the folder of a training run: name one, or leave it out")
    replay_file(
        source,
        output,
        rows=rows,
        columns=columns,
        number=run,
        changes=changes,
        report=report,
        overwrite=overwrite,
    )
