"""Supervised training on a recipe, TRL underneath: a policy learns to write as the responses of a file do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from transformers import TrainerCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.wire import Row
from adjudge.training.arguments import arguments, parts
from adjudge.training.callbacks import Watch
from adjudge.training.policy import lora_config, open_policy
from adjudge.training.prompts import Prompts, asked, fingerprint, read_prompts, shuffled, within
from adjudge.training.run import Begun, Run, begin, calm, processes, trained
from adjudge.training.run_folder import RunFolder
from adjudge.training.sft_recipe import SftRecipe


def train_sft(
    recipe: SftRecipe,
    *,
    resume: bool = False,
    overwrite: bool = False,
    status: Callable[[str], None] = lambda line: None,
    callbacks: Sequence[TrainerCallback] = (),
) -> Run:
    """Train the policy of a recipe on its rows' responses; only what the policy itself would write is learnt.

    Folder, processes and resuming are those of `train_grpo`, but that TRL counts `num_tokens` from where it resumes.
    Raises AdjudgeError for what can be mended, before the policy is loaded where possible.
    """
    folder, rows = RunFolder(Path(recipe.output)), _selected(recipe, read_prompts(recipe.data))
    record = {**msgspec.to_builtins(recipe), "prompts": fingerprint(rows)}
    state, optimiser = processes(), recipe.optimiser
    local = parts(optimiser, state.num_processes)
    begun = begin(state, folder, record, resume=resume, overwrite=overwrite)
    with calm():
        policy = open_policy(recipe.policy, folder.start, gpu=begun.gpu)
        short = _short(recipe, within(rows, recipe.data, policy.tokenizer), policy.tokenizer)
        steps = optimiser.count(len(short.train))
        if state.is_main_process:
            dropped = len(rows.train) - len(short.train)
            status(f"{len(short.train)} rows to train on ({dropped} left out), {len(short.held_out)} held out")
            status(f"{steps} steps of {optimiser.rows_per_step} rows" + f", from {begun.step} on" * bool(begun.step))
        watch = Watch(folder)
        trainer = _Trainer(
            model=policy.model,
            processing_class=policy.tokenizer,
            args=_arguments(recipe, local, steps, begun, held_out=bool(short.held_out)),
            train_dataset=_dataset(recipe, shuffled(short.train, steps * optimiser.rows_per_step, recipe.seed)),
            eval_dataset=_dataset(recipe, short.held_out) if short.held_out else None,
            peft_config=lora_config(recipe.policy.lora) if recipe.policy.method == "lora" else None,
            callbacks=[watch, *callbacks],
        )
        return trained(trainer, watch, begun, recipe, metric="loss")


class _Trainer(SFTTrainer):
    """TRL's trainer, without the card it writes of a model."""

    def create_model_card(self, *args: Any, **options: Any) -> None:
        """Write none: recipe.json says what was done, and a card would only name a folder of this machine."""


def _arguments(recipe: SftRecipe, accumulate: int, steps: int, begun: Begun, *, held_out: bool) -> Any:
    """The recipe in TRL's words."""
    how = arguments(recipe, recipe.optimiser, accumulate, steps, begun, held_out=held_out)
    return SFTConfig(max_length=None, completion_only_loss=True, **how)


def _selected(recipe: SftRecipe, rows: Prompts) -> Prompts:
    """The rows that the recipe selects, whose responses are all there."""
    select = recipe.select
    train, held_out = (
        tuple(row for row in part if select is None or select.takes(row)) for part in (rows.train, rows.held_out)
    )
    for row in (*train, *held_out):
        recipe.response.of(row)
    if not train:
        raise AdjudgeError("[select] leaves no rows to train on: lower above")
    return Prompts(train, held_out)


def _short(recipe: SftRecipe, rows: Prompts, tokenizer: Any) -> Prompts:
    """The rows that are no longer than the recipe allows, prompt and response together."""
    limit = recipe.optimiser.max_tokens

    def fits(row: Row) -> bool:
        prompt = asked(row, recipe.data)
        response = recipe.response.of(row)
        if isinstance(prompt, str):
            return len(tokenizer(prompt + response)["input_ids"]) <= limit
        messages = [*prompt, {"role": "assistant", "content": response}]
        return len(tokenizer.apply_chat_template(messages, return_dict=True)["input_ids"]) <= limit

    train, held_out = (tuple(filter(fits, part)) for part in (rows.train, rows.held_out))
    if not train:
        raise AdjudgeError(f"no row has {limit} tokens or fewer: raise [optimiser] max_tokens")
    return Prompts(train, held_out)


def _dataset(recipe: SftRecipe, rows: Sequence[Row]) -> Any:
    from datasets import Dataset

    responses = [recipe.response.of(row) for row in rows]
    return Dataset.from_dict(
        {
            "prompt": [asked(row, recipe.data) for row in rows],
            "completion": [[{"role": "assistant", "content": text}] for text in responses]
            if recipe.data.chat
            else responses,
        }
    )
