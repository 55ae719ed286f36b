"""`adjudge train direct` and `adjudge train reward`: recipes in, trained judges out."""

from __future__ import annotations

from pathlib import Path

from adjudge.commands.train import need_extras, say, show, stoppable
from adjudge.training.evaluator.recipe import DirectRecipe, PreferenceRecipe, read_judge_recipe


def train_direct_file(
    path: Path, *, data: Path | None, resume: bool, overwrite: bool, seed: int | None, output: Path | None
) -> None:
    """Train the direct evaluator of a recipe; mistakes in the recipe are found before any model is loaded."""
    recipe = read_judge_recipe(path, DirectRecipe, data=data, seed=seed, output=output)
    need_extras()
    from adjudge.training.evaluator.direct import train_direct

    with stoppable(recipe.output):
        run = train_direct(recipe, resume=resume, overwrite=overwrite and not resume, status=say)
    show(run, "loss on held-out rows")


def train_reward_file(
    path: Path, *, data: Path | None, resume: bool, overwrite: bool, seed: int | None, output: Path | None
) -> None:
    """Train the reward model of a recipe; mistakes in the recipe are found before any model is loaded."""
    recipe = read_judge_recipe(path, PreferenceRecipe, data=data, seed=seed, output=output)
    need_extras()
    from adjudge.training.evaluator.preference import train_reward

    with stoppable(recipe.output):
        run = train_reward(recipe, resume=resume, overwrite=overwrite and not resume, status=say)
    show(run, "share of held-out pairs in people's order")
