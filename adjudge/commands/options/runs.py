"""Options of runs whose stages ask a model: whom they ask, what becomes of an earlier run, and where answers stay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from adjudge.commands.options.files import run_option
from adjudge.commands.options.groups import Group, with_groups
from adjudge.commands.options.models import Asked, AskedToWrite
from adjudge.commands.options.source import Source
from adjudge.engine.errors import AdjudgeError

Earlier = Literal["resume", "overwrite", "refuse"]
"""What becomes of an earlier run of the same output."""


class RunOptions(msgspec.Struct, frozen=True):
    """Whom a run asks, what becomes of an earlier one, and where its answers are kept (None: beside the output)."""

    source: Source
    earlier: Earlier = "refuse"
    journal: Path | None = None


_Resume = Annotated[bool, run_option("--resume", help="Continue an earlier run of the same output.")]
_Overwrite = Annotated[bool, run_option("--overwrite", help="Forget an earlier run of the same output.")]
_OverwritePolicy = Annotated[
    bool,
    run_option("--overwrite", help="Delete an earlier run of the same output: its checkpoints and the trained policy."),
]


def _earlier(resume: _Resume = False, overwrite: _Overwrite = False) -> Earlier:
    if resume and overwrite:
        raise AdjudgeError("--resume continues an earlier run and --overwrite forgets it: leave one out")
    return "resume" if resume else "overwrite" if overwrite else "refuse"


def _earlier_training(resume: _Resume = False, overwrite: _OverwritePolicy = False) -> Earlier:
    return _earlier(resume, overwrite)


EarlierRun = Annotated[Earlier, Group(_earlier)]
"""What becomes of an earlier run of the same output."""
EarlierTraining = Annotated[Earlier, Group(_earlier_training)]
"""The same of a training run, which has trained a policy there."""
_JournalFile = Annotated[Path | None, run_option(help="Where finished verdicts are kept (default: beside the output).")]


@with_groups
def _judging(*, source: Asked, earlier: EarlierRun, journal: _JournalFile = None) -> RunOptions:
    return RunOptions(source, earlier, journal)


@with_groups
def _writing(*, source: AskedToWrite, earlier: EarlierRun, journal: _JournalFile = None) -> RunOptions:
    return RunOptions(source, earlier, journal)


RunToJudge = Annotated[RunOptions, Group(_judging)]
"""What a command takes whose stages ask a model that judges."""
RunToWrite = Annotated[RunOptions, Group(_writing)]
"""What a command takes whose stages ask a model that writes."""

# Of a training run.
Seed = Annotated[int | None, typer.Option(help="In the place of the recipe's own.", min=0, max=2**31 - 1)]
RunOutput = Annotated[
    Path | None, typer.Option("-o", "--output", help="The run's folder, in the place of the recipe's own.")
]
