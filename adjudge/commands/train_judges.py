"""`adjudge train direct` and `adjudge train reward`: recipes in, trained judges out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adjudge.commands.run_options import Earlier
from adjudge.commands.train import carry_out, need_extras
from adjudge.training.evaluator.recipe import DirectRecipe, JudgeRecipe, PreferenceRecipe, read_judge_recipe
from adjudge.training.house.recipe import read_house_recipe

if TYPE_CHECKING:
    from adjudge.training.run import Run


def train_direct_file(
    path: Path, *, data: Path | None, earlier: Earlier, seed: int | None, output: Path | None
) -> None:
    """Train the direct evaluator of a recipe; mistakes in the recipe are found before any model is loaded."""
    recipe = read_judge_recipe(path, DirectRecipe, data=data).changed(seed, output)
    need_extras()
    from adjudge.training.evaluator.direct import train_direct

    run = carry_out(train_direct, recipe, "loss on held-out rows", earlier)
    if run.main:
        options = {"judge": recipe.judge.name, **recipe.judge.options}
        _show_use(recipe, run, [text for name, value in options.items() for text in (_option(name), str(value))])


def train_reward_file(
    path: Path, *, data: Path | None, earlier: Earlier, seed: int | None, output: Path | None
) -> None:
    """Train the reward model of a recipe; mistakes in the recipe are found before any model is loaded."""
    recipe = read_judge_recipe(path, PreferenceRecipe, data=data).changed(seed, output)
    need_extras()
    from adjudge.training.evaluator.preference import train_reward

    run = carry_out(train_reward, recipe, "share of held-out pairs in people's order", earlier)
    if run.main:
        _show_use(recipe, run, ["--judge", "scalar"])


def train_house_file(path: Path, *, data: Path | None, earlier: Earlier, seed: int | None, output: Path | None) -> None:
    """Train the house judge of a recipe; mistakes in the recipe are found before any model is loaded."""
    recipe = read_house_recipe(path, data=data).changed(seed, output)
    need_extras()
    from adjudge.training.house.house import train_house

    run = carry_out(train_house, recipe, "rank correlation on held-out texts", earlier)
    if run.main:
        _show_model(recipe, run, ["--judge", "pointwise"])


def _show_use(recipe: DirectRecipe | PreferenceRecipe, run: Run, options: Sequence[str]) -> None:
    """Print how the judge is asked, and how it is held against people."""
    _show_model(recipe, run, options)
    if run.before is not None:
        print(f"beside people: {shlex.join(['adjudge', 'train', 'agreement', str(run.folder.path)])}")


def _show_model(recipe: JudgeRecipe, run: Run, options: Sequence[str]) -> None:
    policy = str(run.folder.policy)
    whole = recipe.policy.method == "full"
    model = ["--model", policy] if whole else ["--model", recipe.policy.model, "--adapter", policy]
    print(f"judge with it: {shlex.join(['adjudge', 'judge', 'items.jsonl', *options, *model])}")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
