"""`adjudge train`: recipes in, trained policies and their curves out."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.table import Table
from safetensors import SafetensorError

from adjudge.commands.output import FULL, check_writable
from adjudge.commands.resumable import keeping
from adjudge.commands.rows import recipe_columns_suggested
from adjudge.commands.run_options import Earlier
from adjudge.engine.errors import AdjudgeError
from adjudge.training.changes import Change, changes, last_steps
from adjudge.training.curves import draw_curves
from adjudge.training.evaluator.recipe import JudgedRecipe
from adjudge.training.grpo.recipe import GrpoRecipe
from adjudge.training.metrics import read_metrics
from adjudge.training.pictures import can_draw, check_picture
from adjudge.training.presets import preset_about, preset_names, preset_text
from adjudge.training.recipe import Recipe, RowsRecipe, read_recipe
from adjudge.training.run_folder import RunFolder
from adjudge.training.sft_recipe import SftRecipe
from adjudge.training.terminal import counted, open_console, plain_table, say

if TYPE_CHECKING:
    from adjudge.training.run import Run

NEEDED = ("trl", "peft", "datasets", "accelerate")


def train_grpo_file(
    path: Path, *, earlier: Earlier, stop_on: str | None = None, seed: int | None = None, output: Path | None = None
) -> None:
    """Train the policy of a GRPO recipe; mistakes in the recipe are found before any model is loaded."""
    recipe = read_recipe(path, GrpoRecipe).changed(seed, output)
    if stop_on is not None:
        recipe = msgspec.structs.replace(recipe, guards=recipe.guards.stopping_on(stop_on))
    need_extras()
    from adjudge.training.grpo.grpo import train_grpo

    carry_out(train_grpo, recipe, "reward on held-out prompts", earlier)


def train_sft_file(path: Path, *, earlier: Earlier, seed: int | None = None, output: Path | None = None) -> None:
    """Train the policy of a supervised recipe; mistakes in the recipe are found before any model is loaded."""
    recipe = read_recipe(path, SftRecipe).changed(seed, output)
    need_extras()
    from adjudge.training.sft import train_sft

    carry_out(train_sft, recipe, "loss on held-out rows", earlier)


def carry_out(train: Callable[..., Run], recipe: Recipe, measured: str, earlier: Earlier) -> Run:
    """Train, and print what the run came to, `measured` before and after, and where it stands."""
    columns = recipe.data.columns if isinstance(recipe, RowsRecipe | JudgedRecipe) else {}
    with stoppable(recipe.output), recipe_columns_suggested(columns):
        told = partial(say, stderr=True)
        run = train(recipe, resume=earlier == "resume", overwrite=earlier == "overwrite", status=told)
    if run.main:
        if run.before is not None and run.after is not None:
            print(f"{measured}: {run.before:.4f} before, {run.after:.4f} after {counted(run.step, 'step')}")
        say(f"policy: {run.folder.policy}")
        say(f"metrics: {run.folder.metrics}")
        if run.folder.curves.exists():
            say(f"curves: {run.folder.curves}")
    return run


@contextlib.contextmanager
def stoppable(output: str) -> Iterator[None]:
    """Within the block Ctrl-C and a full disk end the run in one sentence that says how to go on."""
    if not can_draw():
        mend = "pip install 'adjudge[report]', then draw them with: adjudge train curves FOLDER"
        say(f"no curves will be drawn: {mend}", stderr=True)
    other: Exception | None = None
    with keeping(Path(output), lambda: "what there is stands in its folder"):
        try:
            yield
        except Exception as error:
            if (number := _full(error)) is not None:
                raise OSError(number, os.strerror(number)) from error
            other = error
    if other is not None:
        raise other


def _full(error: Exception) -> int | None:
    """The number of an error which says that a disk or a quota is full, also as the writers of weights say it."""
    if isinstance(error, OSError):
        return error.errno if error.errno in FULL else None
    if isinstance(error, SafetensorError) and (found := re.search(r"\(os error (\d+)\)", str(error))):
        return int(found[1]) if int(found[1]) in FULL else None
    writer = isinstance(error, RuntimeError) and re.search(
        r"PytorchStreamWriter|inline_container.*unexpected pos", str(error)
    )
    return errno.ENOSPC if writer else None


def draw_runs(folders: Sequence[Path], output: Path | None) -> None:
    """Draw the curves of runs that are there, or under way, and show what became of their held-out prompts."""
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


def print_presets(name: str | None) -> None:
    """List the presets, or print the file of one."""
    if name is not None:
        print(preset_text(name), end="")
        return
    table = plain_table("preset", "what")
    for preset in preset_names():
        table.add_row(preset, preset_about(preset))
    open_console(120).print(table)
    print('\nLay a recipe over one with preset = "NAME"; `adjudge train presets NAME` shows what it says.')


def need_extras() -> None:
    """Raise AdjudgeError where a package of the extra `train` is absent."""
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        raise AdjudgeError(f"training needs {', '.join(absent)}: pip install 'adjudge[train]'")
