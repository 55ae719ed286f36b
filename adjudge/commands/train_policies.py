"""`adjudge train grpo` and `sft`: recipes in, trained policies out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from adjudge.commands.options.runs import EarlierTraining, RunOutput, Seed
from adjudge.commands.runs.training_run import carry_out, need_extras
from adjudge.training.grpo.recipe import GrpoRecipe
from adjudge.training.recipe import read_recipe
from adjudge.training.sft_recipe import SftRecipe


def train_grpo(
    recipe: Annotated[Path, typer.Argument(help="TOML: policy, prompts, reward, and how to train.")],
    seed: Seed = None,
    output: RunOutput = None,
    stop_on: Annotated[
        str | None, typer.Option(help="Guards that end it, by commas: length, canary, degenerate, injection, collapse.")
    ] = None,
    *,
    earlier: EarlierTraining,
) -> None:
    """Train a policy with GRPO on a reward of judges and checks.

    A recipe names the `policy`, the `data`, the parts of the `reward`, how the policy writes (`generation`) and how it
    is trained (`optimiser`); examples/recipes/checkable.toml is one that learns in minutes on a CPU. With
    `preset = "qurl"` it is laid over the recipe of a paper (see `adjudge train presets`). The output folder gets
    metrics.jsonl, curves.png, checkpoints and the policy.

    Guards watch the reward and warn when it is being fooled; those named by --stop-on end the run.

    Several processes train together with `accelerate launch -m adjudge train grpo recipe.toml`. A run that was stopped
    goes on with --resume as if it had not been.
    """
    said = read_recipe(recipe, GrpoRecipe).changed(seed, output)
    if stop_on is not None:
        said = msgspec.structs.replace(said, guards=said.guards.stopping_on(stop_on))
    need_extras()
    from adjudge.training.grpo.grpo import train_grpo as train

    carry_out(train, said, "reward on held-out prompts", earlier, file=recipe)


def train_sft(
    recipe: Annotated[Path, typer.Argument(help="TOML: policy, rows with prompt and response, and how to train.")],
    seed: Seed = None,
    output: RunOutput = None,
    *,
    earlier: EarlierTraining,
) -> None:
    """Train a policy on the responses of a file: a cold start before GRPO, or the baseline beside it.

    The presets are "qurl-cold-start" (rows with think and answer, which become QuRL's tags), "evolvr-generator-sft"
    (stories rated above 3.5), "evolvr-evaluator-sft" (rationales of `adjudge evolve`) and "perse" (rows of `adjudge
    readers instruct`). A row's own column `system` comes before the recipe's. Output, processes and --resume are those
    of `adjudge train grpo`.
    """
    said = read_recipe(recipe, SftRecipe).changed(seed, output)
    need_extras()
    from adjudge.training.sft import train_sft as train

    carry_out(train, said, "loss on held-out rows", earlier, file=recipe)
