"""`adjudge train curves`: what runs have written of their steps, drawn, and held-out prompts in a table."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from adjudge.commands.runs.output import check_writable
from adjudge.engine.errors import AdjudgeError
from adjudge.training.changes import Change, changes, last_steps
from adjudge.training.curves import draw_curves
from adjudge.training.metrics import read_metrics
from adjudge.training.pictures import check_picture
from adjudge.training.run_folder import RunFolder
from adjudge.training.terminal import open_console, plain_table, say


def train_curves(
    folders: Annotated[list[Path], typer.Argument(help="Output folders of runs, finished or under way.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A .png, .svg or .pdf (curves.png).")] = None,
) -> None:
    """Draw a policy's reward, KL, length and abstention over its steps, or a judge's loss and agreement.

    What the reward and each of its parts came to on held-out prompts, before the first step and after the last, is
    printed. Several runs (the same recipe with other seeds) are drawn beside each other with their mean, and what they
    came to has its interval.
    """
    runs = [RunFolder(folder) for folder in folders]
    if output is None and len(runs) > 1:
        raise AdjudgeError("several runs share one picture: name it with -o, a .png, .svg or .pdf")
    path = output or runs[0].curves
    check_picture(path)
    lines = [read_metrics(run.metrics) for run in runs]
    _check_alike(runs)
    check_writable(path)
    draw_curves(lines, path, ", ".join(folder.resolve().name for folder in folders))
    if found := changes(lines):
        open_console(120).print(_held_out(found))
        for line in _left_out(folders, last_steps(lines)):
            say(line)
    say(f"curves: {path}")


def _check_alike(runs: Sequence[RunFolder]) -> None:
    """Raise AdjudgeError for runs of several commands: what they measure by one name is not the same."""
    known = [(run.path, command) for run in runs if (command := run.command) is not None]
    for path, command in known:
        if command != known[0][1]:
            raise AdjudgeError(f"{path} is a run of {command}, {known[0][0]} of {known[0][1]}: draw them apart")


def _left_out(folders: Sequence[Path], steps: Sequence[int | None]) -> Iterator[str]:
    """What a user is told of runs that are not in the table; `steps` are those of their last held-out answers."""
    known = {folder: step for folder, step in zip(folders, steps, strict=True) if step is not None}
    last = max(known.values(), default=0)
    if shorter := ", ".join(f"{folder} ends at step {step}" for folder, step in known.items() if step != last):
        longest = next(folder for folder, step in known.items() if step == last)
        yield f"left out of the table: {shorter}, {longest} at {last}: runs of one length are compared"
    if names := ", ".join(str(folder) for folder, step in zip(folders, steps, strict=True) if step is None):
        yield f"left out of the table, without held-out answers before and after training: {names}"


def _held_out(found: Sequence[Change]) -> Table:
    """The changes on held-out prompts: means over the runs, and the rise of each."""
    table = plain_table(title="on held-out prompts")
    for column in ("", "before", "after", "rise, 95 % of runs", "", "run by run"):
        table.add_column(column)
    for change in found:
        before, after = (f"{statistics.fmean(values):z.3f}" for values in (change.before, change.after))
        rise = f"{change.mean:+z.3f}" + (f" ± {change.margin:z.3f}" if change.margin is not None else "")
        single = " ".join(f"{one:+z.3f}" for one in change.rises)
        table.add_row(change.name.rpartition("/")[2], before, after, rise, change.verdict, single)
    return table
