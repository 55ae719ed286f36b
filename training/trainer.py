"""What runs of all kinds have of transformers' trainer: its arguments, and training itself from first step to last."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from datasets import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from transformers import PrinterCallback

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.adapters import CONFIG, Base, write_base
from adjudge.engine.models.quiet import quiet
from adjudge.engine.models.sources import resolve
from adjudge.training.callbacks import Watch
from adjudge.training.metrics import last_answered
from adjudge.training.policy import computes_bfloat16
from adjudge.training.recipe import Optimiser, Recipe
from adjudge.training.run import Begun, Run


def arguments(
    recipe: Recipe, optimiser: Optimiser, micro: int, accumulate: int, steps: int, begun: Begun, *, held_out: bool
) -> dict[str, Any]:
    """The recipe in transformers' words: fields of its TrainingArguments, `micro` rows at once."""
    log = recipe.logging
    return {
        "output_dir": str(begun.folder.path),
        "seed": recipe.seed,
        "data_seed": recipe.seed,
        "use_cpu": not begun.gpu,
        "bf16": computes_bfloat16(recipe.policy, gpu=begun.gpu),
        "train_sampling_strategy": "sequential",
        "max_steps": steps,
        "per_device_train_batch_size": micro,
        "per_device_eval_batch_size": micro,
        "gradient_accumulation_steps": accumulate,
        "learning_rate": optimiser.lr,
        "lr_scheduler_type": "constant_with_warmup" if optimiser.schedule == "constant" else optimiser.schedule,
        "warmup_steps": round(optimiser.warmup * steps),
        "weight_decay": optimiser.weight_decay,
        "max_grad_norm": optimiser.max_grad_norm,
        "gradient_checkpointing": optimiser.gradient_checkpointing,
        "ddp_find_unused_parameters": False,
        "logging_steps": log.every,
        "logging_nan_inf_filter": False,
        "save_steps": log.save_every,
        "save_total_limit": log.keep,
        "eval_strategy": "steps" if held_out and log.evaluate_every else "no",
        "eval_steps": log.evaluate_every or None,
        "eval_on_start": held_out and begun.checkpoint is None,
        "report_to": list(log.report_to) or "none",
        "disable_tqdm": True,
    }


def trained(
    trainer: Any,
    watch: Watch,
    begun: Begun,
    recipe: Recipe,
    *,
    metric: str,
    begins: Callable[[], None] = lambda: None,
    finish: Callable[[Path, Run], None] = lambda folder, run: None,
) -> Run:
    """Train to the last step, answer the held-out rows where that is due, and leave the policy in its folder.

    `begins` is called when an earlier run is forgotten, `finish` completes the folder of the policy before it takes its
    name. Raises AdjudgeError, with no policy left, for weights that are not finite any more.
    """
    trainer.remove_callback(PrinterCallback)
    folder, main = begun.folder, begun.state.is_main_process
    begun.clear()
    if main:
        begins()
    try:
        trainer.train(resume_from_checkpoint=begun.checkpoint and str(begun.checkpoint))
        begun.state.wait_for_everyone()
        if trainer.eval_dataset is not None and last_answered(folder.metrics) != trainer.args.max_steps:
            trainer.evaluate()
    finally:
        watch.close()
    if not all(bool(torch.isfinite(one).all()) for one in trainer.model.parameters() if one.requires_grad):
        raise AdjudgeError(
            f"the weights after step {trainer.state.global_step} are not finite, and no policy was written: lower"
            " [optimiser] lr, and begin anew with --overwrite"
        )
    if main:
        shutil.rmtree(folder.making, ignore_errors=True)
    begun.state.wait_for_everyone()
    trainer.save_model(str(folder.making))
    run = begun.finished(trainer.state.global_step, metric)
    if main:
        if (folder.making / CONFIG).is_file():
            name = recipe.policy.model
            write_base(folder.making, Base(name, resolve(name).fingerprint))
        finish(folder.making, run)
        shutil.rmtree(folder.policy, ignore_errors=True)
        folder.making.rename(folder.policy)
        watch.draw()
    begun.state.wait_for_everyone()
    return run


@contextlib.contextmanager
def calm() -> Iterator[None]:
    """Within the block transformers, TRL, datasets and Liger say nothing.

    What they warn of is among the metrics; Liger warns of kernels that are for other cards.
    """
    loggers = [logging.getLogger(name) for name in ("trl", "liger_kernel")]
    levels, bars = [logger.level for logger in loggers], not are_progress_bars_disabled()
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    disable_progress_bars()
    try:
        with quiet():
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if bars:
            enable_progress_bars()
