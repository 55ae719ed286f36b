"""Tiny training runs: a llama of random weights, a few prompts, a reward without a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from adjudge.rewards.group import Group
from adjudge.rewards.reward import GroupReward, Reward
from adjudge.training.grpo_recipe import GrpoRecipe
from adjudge.training.recipe import laid_over, recipe_of

PROMPTS = ["one", "two", "three", "four", "five", "six", "seven"]


class Vowels(Reward):
    """The share of vowels in a response; the `odd` column, where there is one, makes the reward abstain."""

    name = "vowels"

    def __init__(self) -> None:
        self.groups: list[Group] = []

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        self.groups += groups
        return [self._group(group) for group in groups]

    def _group(self, group: Group) -> GroupReward:
        count = len(group.responses)
        if group.columns.get("odd"):
            return GroupReward((None,) * count, ("timeout",) * count)
        values = tuple(sum(letter in "aeiou" for letter in text) / max(1, len(text)) for text in group.responses)
        return GroupReward(values, (None,) * count)


class Trainer:
    """As much of TRL's trainer as a reward function sees."""

    def __init__(self, group: int = 2) -> None:
        self.model, self.num_generations, self.num_generations_eval = SimpleNamespace(training=True), group, group
        self.state = SimpleNamespace(global_step=0)

    def log_metric(self, name: str, value: float) -> None: ...


def tiny_recipe(folder: Path, **tables: Any) -> GrpoRecipe:
    """A recipe of four steps of two prompts with groups of two, with `tables` laid over it."""
    usual: dict[str, Any] = {
        "output": "out",
        "policy": {"model": "dummy:tiny-llama"},
        "data": {"prompts": PROMPTS},
        "reward": {"parts": {"ends": {"kind": "check", "ends_with": list("aeiou")}}},
        "guards": {"use": []},
        "generation": {"group": 2, "max_tokens": 6},
        "optimiser": {"lr": 0.01, "prompts_per_step": 2, "steps": 4},
        "logging": {"save_every": 2},
    }
    return recipe_of(laid_over(usual, tables), GrpoRecipe, folder)
