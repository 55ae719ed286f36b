"""Tiny training runs: a llama of random weights, a few prompts or rows, a reward without a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import TrainerCallback

from adjudge.engine.models.sources import open_source, resolve
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward
from adjudge.training.grpo.recipe import GrpoRecipe
from adjudge.training.metrics import read_metrics
from adjudge.training.recipe import laid_over, recipe_of
from adjudge.training.run_folder import RunFolder
from adjudge.training.sft_recipe import SftRecipe
from tests.jsonl import write_lines

CLOCKS = ("step_time", "runtime", "samples_per_second", "steps_per_second", "vowels/seconds", "vowels/guards/seconds")
ROWS: list[dict[str, Any]] = [
    {"prompt": f"Number {number}?", "response": "Yes. " * 4, "ratings": {"a": [number, number], "b": [number]}}
    for number in range(1, 7)
]
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
            return GroupReward((None,) * count, ("low_mass",) * count)
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


def recipe_in(folder: Path, rows: list[dict[str, Any]] = ROWS, **tables: Any) -> SftRecipe:
    """A recipe of five steps of two rows, with `tables` laid over it."""
    folder.mkdir(exist_ok=True)
    write_lines(folder / "rows.jsonl", *rows)
    usual: dict[str, Any] = {
        "output": "out",
        "policy": {"model": "dummy:tiny-llama"},
        "data": {"train": "rows.jsonl"},
        "optimiser": {"lr": 0.01, "rows_per_step": 2, "steps": 5, "micro_batch": 2},
        "logging": {"save_every": 2},
    }
    return recipe_of(laid_over(usual, tables), SftRecipe, folder)


class Killed(Exception):
    """Stands for kill -9 after a step."""


class KillAfter(TrainerCallback):
    """Ends the run after a step, before it is logged or saved."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise Killed


def curve(folder: RunFolder) -> list[dict[str, Any]]:
    """What was logged, without what clocks say."""
    return [
        {name: value for name, value in line.items() if name not in CLOCKS} for line in read_metrics(folder.metrics)
    ]


def weights(model: Path | str) -> dict[str, torch.Tensor]:
    """Those of a model, by name."""
    model = open_source(resolve(str(model)), dtype=torch.float32).model
    return dict(model.state_dict())
