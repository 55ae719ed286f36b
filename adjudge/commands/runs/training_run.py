"""A training run of a recipe, which can be stopped and says what it came to."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from adjudge.commands.options.runs import Earlier
from adjudge.commands.runs.resumable import keeping
from adjudge.commands.runs.rows import recipe_columns_suggested
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.whole_file import no_room
from adjudge.training.evaluator.recipe import JudgedRecipe
from adjudge.training.pictures import can_draw
from adjudge.training.recipe import Recipe, RowsRecipe
from adjudge.training.terminal import counted, say

if TYPE_CHECKING:
    from adjudge.training.run import Run

NEEDED = ("trl", "peft", "datasets", "accelerate")


def carry_out(train: Callable[..., Run], recipe: Recipe, measured: str, earlier: Earlier, *, file: Path | None) -> Run:
    """Train, and print what the run came to, `measured` before and after, and where it stands.

    A mistake in one of the recipe's tables is told with the name of its `file`.
    """
    columns = recipe.data.columns if isinstance(recipe, RowsRecipe | JudgedRecipe) else {}
    with _of_file(file), stoppable(recipe.output), recipe_columns_suggested(columns):
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
def _of_file(file: Path | None) -> Iterator[None]:
    try:
        yield
    except AdjudgeError as error:
        if file is None or not str(error).startswith("["):
            raise
        raise AdjudgeError(f"{file.name}: {error}") from error


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
            if (full := _full(error)) is not None:
                raise full from error
            other = error
    if other is not None:
        raise other


def _full(error: Exception) -> OSError | None:
    """The error which says that a disk or a quota is full, where this is one, also as the writers of weights say it."""
    writer = isinstance(error, RuntimeError) and re.search(
        r"PytorchStreamWriter|inline_container.*unexpected pos", str(error)
    )
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if writer else no_room(error)


def need_extras() -> None:
    """Raise AdjudgeError where a package of the extra `train` is absent."""
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        raise AdjudgeError(f"training needs {', '.join(absent)}: pip install 'adjudge[train]'")
