"""What all training runs share: how they begin in their folder, alone or in several processes, and how they end."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from filelock import FileLock, Timeout

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.sources import resolve
from adjudge.training.metrics import cut_metrics, last_answered, read_metrics
from adjudge.training.recipe import Recipe
from adjudge.training.reward_log import cut_rewards
from adjudge.training.run_folder import RunFolder

if TYPE_CHECKING:
    from accelerate import PartialState

Status = Callable[[str], None]
"""Told what a run is about to do, a line at a time."""


class Run(msgspec.Struct, frozen=True):
    """What a run came to: its folder, its last step, and a mean on held-out rows before and after (reward, or loss).

    `main` is false in all processes of a run but one.
    """

    folder: RunFolder
    step: int
    before: float | None
    after: float | None
    main: bool


class Begun(msgspec.Struct, frozen=True):
    """A run that has begun, or goes on after a `checkpoint`; `answered` is the last step with held-out rows logged.

    `record` is what it may be resumed by, `resume` whether it was to be, and `again` whether there was one before.
    """

    folder: RunFolder
    state: PartialState
    record: Mapping[str, Any]
    resume: bool
    checkpoint: Path | None
    answered: int | None
    again: bool = False

    @property
    def gpu(self) -> bool:
        """Whether it trains on one."""
        return str(self.state.device.type) == "cuda"

    @property
    def step(self) -> int:
        """The step it goes on after."""
        return step_of(self.checkpoint)

    @property
    def where(self) -> Iterator[str]:
        """Where a run that is resumed goes on, in a line."""
        if self.checkpoint is not None:
            yield f"continuing after step {self.step}"
        elif self.resume and self.again:
            yield "no checkpoint to continue from yet ([logging] save_every): from the first step again"

    def clear(self) -> None:
        """Forget an earlier run where this one does not go on from its checkpoint; one to be resumed keeps verdicts."""
        self.state.wait_for_everyone()  # all have built their trainers, which read a dummy's weights
        if self.checkpoint is None and self.state.is_main_process:
            self.folder.begin(self.record, resume=self.resume)
            self.folder.metrics.unlink(missing_ok=True)
            self.folder.rewards.unlink(missing_ok=True)
        self.state.wait_for_everyone()

    def finished(self, step: int, metric: str) -> Run:
        """What it came to, once all processes are here; `metric` is what held-out rows are measured by."""
        self.state.wait_for_everyone()
        logged = read_metrics(self.folder.metrics) if self.folder.metrics.exists() else []
        lines = [line for line in logged if line["split"] == "held_out"]
        held_out = [line.get(metric) for line in lines]
        before, after = (held_out[0], held_out[-1]) if len(held_out) > 1 else (None, None)
        return Run(self.folder, step, before, after, self.state.is_main_process)


def processes() -> PartialState:
    """The processes of this run: one, or as many as accelerate or torchrun have started."""
    import torch
    from accelerate import PartialState

    return PartialState(cpu=not torch.cuda.is_available())


def heard_once(status: Status) -> Status:
    """The same in the main process of a run, and nothing in the others: all would say the same."""
    return lambda line: status(line) if processes().is_main_process else None


@contextlib.contextmanager
def begin(
    state: PartialState,
    recipe: Recipe,
    record: Mapping[str, Any],
    models: Sequence[str],
    adapters: Sequence[str] = (),
    *,
    resume: bool,
    overwrite: bool,
) -> Iterator[Begun]:
    """Within the block the recipe's folder is this run's, where all `models` and `adapters` can be found.

    Their weights are part of the record. A run that goes on is cut to its last checkpoint; one that begins anew forgets
    an earlier one in `trained`, when nothing else is left to go wrong. Raises AdjudgeError as `RunFolder.check`,
    `resolve` and `read_adapter` do, and where another run is under way in the folder.
    """
    from adjudge.engine.models.adapters import read_adapter  # and torch

    folder = RunFolder(Path(recipe.output))
    folder.check_inputs(record)
    _check_trackers(recipe.logging.report_to)
    weights = [resolve(model).fingerprint for model in models] + [read_adapter(one).fingerprint for one in adapters]
    record = {**record, "weights": weights}
    folder.check(resume, overwrite, record)
    again = folder.recipe.exists()
    checkpoint = folder.checkpoint() if resume else None
    state.wait_for_everyone()  # all have looked before the first changes anything
    with _alone(folder) if state.is_main_process else contextlib.nullcontext():
        if state.is_main_process:
            shutil.rmtree(folder.making, ignore_errors=True)
            if checkpoint is not None:
                folder.begin(record, resume=True)
                cut(folder, checkpoint)
        state.wait_for_everyone()
        answered = None if checkpoint is None else last_answered(folder.metrics)
        try:
            yield Begun(folder, state, record, resume, checkpoint, answered, again)
        finally:
            if state.is_main_process:
                shutil.rmtree(folder.making, ignore_errors=True)


@contextlib.contextmanager
def _alone(folder: RunFolder) -> Iterator[None]:
    """Within the block no other run writes in the folder: each would cut away what the other has logged."""
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.path / "run.lock")
        lock.acquire(blocking=False)
    except Timeout as error:
        raise AdjudgeError(f"another run is under way in {folder.path}: wait for it, or name another output") from error
    except OSError as error:
        raise AdjudgeError(f"cannot write {folder.path} ({error.strerror}): name another output") from error
    try:
        yield
    finally:
        lock.release()


def _check_trackers(names: Sequence[str]) -> None:
    """Raise AdjudgeError for a tracker that transformers does not know, or whose package is absent."""
    if not names or list(names) == ["all"]:
        return
    from transformers.integrations import integration_utils

    known: Mapping[str, Any] = integration_utils.INTEGRATION_TO_CALLBACK
    installed: Any = integration_utils.get_available_reporting_integrations
    for name in names:
        if name not in known:
            raise AdjudgeError(f'[logging] report_to names "{name}": choose from {", ".join(known)}')
        if name not in installed() and name != "flyte":  # of which transformers does not tell
            raise AdjudgeError(f'[logging] report_to names "{name}", which is not installed: install it')


def cut(folder: RunFolder, checkpoint: Path) -> None:
    """Forget what was logged after the checkpoint."""
    step = step_of(checkpoint)
    cut_metrics(folder.metrics, step)
    cut_rewards(folder.rewards, step, last_answered(folder.metrics))


def step_of(checkpoint: Path | None) -> int:
    """The step after which a checkpoint was written; 0 without one."""
    return 0 if checkpoint is None else int(checkpoint.name.rpartition("-")[2])
