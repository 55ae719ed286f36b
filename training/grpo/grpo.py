"""GRPO on a recipe: a policy learns what a reward of adjudge's pays for."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.imported import is_own, source_of
from adjudge.rewards.judges.kinds import FILES
from adjudge.rewards.records.rows import Row, as_json
from adjudge.rewards.reward import Reward
from adjudge.training.grpo.judges import Paying
from adjudge.training.grpo.recipe import GrpoRecipe, batch_of
from adjudge.training.prompts import Prompts, fingerprint, read_prompts
from adjudge.training.reward_log import check_columns
from adjudge.training.run import Run, Status, begin, heard_once, processes
from adjudge.training.run_folder import RunFolder

if TYPE_CHECKING:
    from transformers import TrainerCallback

DEEPEST = 32
"""Lists and tables in each other that a column may hold: the trainer's tables fail at some fifty."""


def train_grpo(
    recipe: GrpoRecipe,
    *,
    resume: bool = False,
    overwrite: bool = False,
    reward: Reward | None = None,
    status: Status = lambda line: None,
    callbacks: Sequence[TrainerCallback] = (),
) -> Run:
    """Train the policy of a recipe, and leave it with its metrics and curves in the recipe's output folder.

    The same call in each process of `accelerate launch` trains one policy together. `reward` stands in for the
    recipe's own. A resumed run goes on as if it had never stopped, to the last bit on the same machine with the same
    number of processes: order of prompts, optimiser, schedule and random states are restored, and what was logged
    after the checkpoint is logged anew; guards go on from what they knew. A run that a guard is to stop is logged and
    saved before GuardTripped is raised. Raises AdjudgeError for what can be mended, before the policy is loaded where
    possible, and at the end of a run in which no completion got a reward (Unrewarded).
    """
    prompts = read_prompts(recipe.data)
    _check_written((*prompts.train, *prompts.held_out))
    record = _record(recipe, prompts)
    if recipe.reward.journal:
        check_columns(prompts)
    paying = Paying(recipe, reward, prompts, RunFolder(Path(recipe.output)))
    state = processes()
    batch = batch_of(recipe, state.num_processes)
    _check_extras(recipe, gpu=state.device.type == "cuda")
    models = (recipe.policy.model, *paying.models)
    with begin(state, recipe, record, models, paying.adapters, resume=resume, overwrite=overwrite) as begun:
        from adjudge.training.grpo.trainer import train  # TRL takes seconds, for which no mistake is to wait

        return train(recipe, paying, prompts, batch, begun, heard_once(status), callbacks)


def _record(recipe: GrpoRecipe, prompts: Prompts) -> dict[str, Any]:
    """What a resumed run must have in common with the one it continues, but for what `RunFolder.check` leaves free.

    That is all that decides a number, be it a last bit, as settings of memory and batches may; how long a judge is
    waited for, and what becomes of one that fails, are no part of it.
    """
    told: dict[str, Any] = msgspec.to_builtins(recipe)
    told["guards"].pop("stop_on")
    for name in ("sleep", "deadline", "on_failure"):
        told["reward"].pop(name)
    return {**told, "prompts": fingerprint(prompts), "files": _digests(told)}


def _digests(told: Any) -> list[str]:
    """Of the files that judges and guards are given or come from, in order: paths do not tell a change."""
    found: list[str] = []
    for name, value in told.items() if isinstance(told, dict) else ():
        if name in (*FILES, "canaries") and isinstance(value, str) and Path(value).is_file():
            found.append(hashlib.sha256(Path(value).read_bytes()).hexdigest())
        if name in ("judge", "function") and is_own(value) and (source := source_of(value)) is not None:
            found.append(hashlib.sha256(source.read_bytes()).hexdigest())
        found += _digests(value)
    return found


def _check_written(rows: Sequence[Row]) -> None:
    for row in rows:
        prompt = row.columns["prompt"]
        if not (prompt if isinstance(prompt, str) else prompt[-1]["content"]):
            raise AdjudgeError(f"{row.place}: the prompt is empty: write one, or leave the row out")
        for name, value in row.columns.items():
            if "\0" in name:
                raise AdjudgeError(f"{row.place}: the name of column {as_json(name)} holds a NUL: rename it")
            _check_value(value, f'{row.place}: "{name}"', DEEPEST)


def _check_value(value: Any, place: str, levels: int) -> None:
    """Refuse what the trainer's tables cannot hold."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise AdjudgeError(f"{place} is {value}, of more than 64 bits: write it as a text")
    inner = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    if inner and not levels:
        raise AdjudgeError(f"{place} is nested more than {DEEPEST} deep: make it flatter, or write it as a text")
    for name in value if isinstance(value, dict) else ():
        if "\0" in name:
            raise AdjudgeError(f"{place} has the name {as_json(name)}, which holds a NUL: rename it")
    for one in inner:
        _check_value(one, place, levels - 1)


def _check_extras(recipe: GrpoRecipe, *, gpu: bool) -> None:
    if recipe.generation.engine == "vllm" and importlib.util.find_spec("vllm") is None:
        raise AdjudgeError('[generation] engine is "vllm", which is not installed: install it, or write "transformers"')
    if recipe.optimiser.liger is True and not gpu:
        raise AdjudgeError(
            '[optimiser] liger is true, and its kernels need a GPU, of which torch sees none: write "auto"'
        )
    if recipe.optimiser.liger is True and importlib.util.find_spec("liger_kernel") is None:
        raise AdjudgeError('[optimiser] liger is true: pip install liger-kernel, or write liger = "auto"')
