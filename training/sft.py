"""Supervised training on a recipe: a policy learns to write as the responses of a file do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.training.prompts import Prompts, fingerprint, read_prompts
from adjudge.training.run import Run, Status, begin, heard_once, processes
from adjudge.training.sft_recipe import SftRecipe

if TYPE_CHECKING:
    from transformers import TrainerCallback


def train_sft(
    recipe: SftRecipe,
    *,
    resume: bool = False,
    overwrite: bool = False,
    status: Status = lambda line: None,
    callbacks: Sequence[TrainerCallback] = (),
) -> Run:
    """Train the policy of a recipe on its rows' responses; only what the policy itself would write is learnt.

    Folder, processes and resuming are those of `train_grpo`, but that TRL counts `num_tokens` from where it resumes.
    Raises AdjudgeError for what can be mended, before the policy is loaded where possible.
    """
    rows = _selected(recipe, read_prompts(recipe.data))
    record = {**msgspec.to_builtins(recipe), "prompts": fingerprint(rows)}
    state = processes()
    recipe.optimiser.parts(state.num_processes)  # raises
    with begin(state, recipe, record, [recipe.policy.model], resume=resume, overwrite=overwrite) as begun:
        from adjudge.training.sft_trainer import train  # TRL takes seconds, for which no mistake is to wait

        return train(recipe, rows, begun, heard_once(status), callbacks)


def _selected(recipe: SftRecipe, rows: Prompts) -> Prompts:
    """The rows that the recipe selects, whose responses are all there."""
    select = recipe.select
    kept = rows if select is None else rows.only(select.takes, "left out by [select]")
    for row in (*kept.train, *kept.held_out):
        recipe.response.of(row)
    if not kept.train:
        raise AdjudgeError("[select] leaves no rows to train on: lower above")
    return kept
