"""What all training runs share: how they begin in their folder, alone or in several processes, and how they end."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from accelerate import PartialState
from datasets import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from transformers import PrinterCallback

from adjudge.engine.adapters import CONFIG, Base, write_base
from adjudge.engine.quiet import quiet
from adjudge.engine.sources import resolve
from adjudge.training.callbacks import Watch
from adjudge.training.metrics import cut_metrics, last_answered, read_metrics
from adjudge.training.recipe import Recipe
from adjudge.training.reward_log import cut_rewards
from adjudge.training.run_folder import RunFolder


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
    """A run that has begun, or goes on after a `checkpoint`; `answered` is the last step with held-out rows logged."""

    folder: RunFolder
    state: PartialState
    checkpoint: Path | None
    answered: int | None

    @property
    def gpu(self) -> bool:
        """Whether it trains on one."""
        return str(self.state.device.type) == "cuda"

    @property
    def resumed(self) -> str | None:
        """The checkpoint as trainers take it."""
        return None if self.checkpoint is None else str(self.checkpoint)

    @property
    def step(self) -> int:
        """The step it goes on after."""
        return step_of(self.checkpoint)

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
    return PartialState(cpu=not torch.cuda.is_available())


def begin(
    state: PartialState,
    folder: RunFolder,
    record: Mapping[str, Any],
    models: Sequence[str],
    *,
    resume: bool,
    overwrite: bool,
) -> Begun:
    """Begin in the folder, or go on in it, where all `models` can be found.

    Raises AdjudgeError as `RunFolder.check`, `resolve` and `RunFolder.begin` do: an earlier run is forgotten last.
    """
    folder.check(resume, overwrite, record)
    for model in models:
        resolve(model)
    checkpoint = folder.checkpoint() if resume else None
    state.wait_for_everyone()  # all have looked before the first changes anything
    if state.is_main_process:
        folder.begin(record, resume=resume)
        cut(folder, checkpoint)
    state.wait_for_everyone()
    return Begun(folder, state, checkpoint, last_answered(folder.metrics))


def cut(folder: RunFolder, checkpoint: Path | None) -> None:
    """Forget what was logged after the checkpoint; without one the run begins anew, held-out prompts before it too."""
    if checkpoint is None:
        folder.metrics.unlink(missing_ok=True)
        folder.rewards.unlink(missing_ok=True)
        return
    step = step_of(checkpoint)
    cut_metrics(folder.metrics, step)
    cut_rewards(folder.rewards, step, last_answered(folder.metrics))


def trained(trainer: Any, watch: Watch, begun: Begun, recipe: Recipe, *, metric: str) -> Run:
    """Train to the last step, answer the held-out rows where that is due, and leave the policy in its folder."""
    trainer.remove_callback(PrinterCallback)
    try:
        trainer.train(resume_from_checkpoint=begun.resumed)
        # With evaluate_every the trainer itself does so after the last step.
        due = not recipe.logging.evaluate_every and begun.answered != trainer.args.max_steps
        if trainer.eval_dataset is not None and due:
            trainer.evaluate()
    finally:
        watch.close()
    trainer.save_model(str(begun.folder.policy))
    if begun.state.is_main_process:
        if (begun.folder.policy / CONFIG).is_file() and not begun.folder.start.exists():
            name = recipe.policy.model
            write_base(begun.folder.policy, Base(name, resolve(name).fingerprint))
        watch.draw()
    return begun.finished(trainer.state.global_step, metric)


def step_of(checkpoint: Path | None) -> int:
    """The step after which a checkpoint was written; 0 without one."""
    return 0 if checkpoint is None else int(checkpoint.name.rpartition("-")[2])


@contextlib.contextmanager
def calm() -> Iterator[None]:
    """Within the block transformers, TRL and datasets say nothing: what they warn of is among the metrics."""
    logger = logging.getLogger("trl")
    level, bars = logger.level, not are_progress_bars_disabled()
    logger.setLevel(logging.ERROR)
    disable_progress_bars()
    try:
        with quiet():
            yield
    finally:
        logger.setLevel(level)
        if bars:
            enable_progress_bars()
