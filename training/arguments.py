"""What recipes of every kind tell transformers' trainer."""

from __future__ import annotations

from typing import Any

from adjudge.engine.errors import AdjudgeError
from adjudge.training.policy import computes_bfloat16
from adjudge.training.recipe import Optimiser, Recipe
from adjudge.training.run import Begun
from adjudge.training.sft_recipe import SftOptimiser


def parts(optimiser: SftOptimiser, processes: int) -> int:
    """In how many parts each process takes its rows of a step; raises AdjudgeError where they cannot be shared."""
    micro = optimiser.at_once(processes)
    count, left = divmod(optimiser.rows_per_step, micro * processes)
    if left:
        raise AdjudgeError(
            f"a step has {optimiser.rows_per_step} rows, which {processes} processes cannot share in parts of"
            f" {micro}: change [optimiser] rows_per_step or micro_batch"
        )
    return count


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
