from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.training.evaluator.recipe import PreferenceRecipe
from adjudge.training.grpo.recipe import GrpoRecipe
from adjudge.training.presets import preset_about, preset_names, preset_record, preset_text
from adjudge.training.recipe import laid_over, recipe_of
from adjudge.training.sft_recipe import SftRecipe

GRPO = ["evolvr-evaluator", "evolvr-story", "igniting", "qurl"]
OWN = {"output": "out", "data": {"prompts": ["a"]}}


@pytest.mark.parametrize("name", GRPO)
def test_a_preset_is_a_whole_recipe_once_data_and_output_are_named(name: str) -> None:
    whole = laid_over(preset_record(name), OWN)
    recipe = recipe_of(whole, GrpoRecipe, Path())
    ready = "[guards] form"  # there for the guards that a recipe may add
    assert [said for said in recipe.idle(whole) if not (name == "qurl" and said.startswith(ready))] == []
    assert recipe.reward.open(recipe.written(), "journal").name == "reward"
    assert preset_about(name) and not preset_about(name).startswith("#")


@pytest.mark.parametrize("name", ["evolvr-evaluator-sft", "evolvr-generator-sft", "perse", "qurl-cold-start"])
def test_a_supervised_preset_is_too(name: str) -> None:
    recipe = recipe_of(laid_over(preset_record(name), OWN), SftRecipe, Path())
    assert recipe.policy.model and preset_about(name).startswith("Supervised: ")


def test_the_preset_of_a_reward_model_is_too() -> None:
    recipe = recipe_of(laid_over(preset_record("igniting-reward"), {"output": "out"}), PreferenceRecipe, Path())
    assert (recipe.policy.method, recipe.policy.lora.rank, recipe.policy.lora.targets) == ("lora", 16, "all")
    assert preset_about("igniting-reward").startswith("Reward model: ")


@pytest.mark.parametrize("name", preset_names())
def test_every_value_says_whose_it_is(name: str) -> None:
    section = ""
    for line in preset_text(name).splitlines():
        if line.startswith("["):
            section = line
        elif "=" in line and not line.startswith("#"):
            exempt = line.split(" =")[0] in ("kind", "columns", "combine")
            assert exempt or "# paper" in line or "# ours" in line, f"{section} {line}"


@pytest.mark.parametrize(
    ("name", "option", "whose"),
    [
        ("evolvr-evaluator-sft", "model", "paper, Table 1;"),  # which Table 3 does not have
        ("evolvr-evaluator", "model", "paper, Table 1:"),
        ("qurl", "model", "paper, Table 1: Qwen2.5-7B; that it is the instruct model is our reading"),
        ("qurl-cold-start", "model", "paper, Table 1: Qwen2.5-7B; that it is the instruct model is our reading"),
        ("qurl", "form", "ours"),
        ("qurl", "mode", "ours"),
        ("evolvr-story", "options", "ours"),
        ("igniting", "options", "ours"),
    ],
)
def test_what_is_the_papers_and_what_is_our_reading_is_told_apart(name: str, option: str, whose: str) -> None:
    lines = [line for line in preset_text(name).splitlines() if line.startswith(f"{option} = ")]
    assert lines[0].partition("  # ")[2].startswith(whose)


def value(record: dict[str, Any], path: str) -> Any:
    for name in path.split("."):
        record = record[name]
    return record


@pytest.mark.parametrize(
    ("preset", "path", "expected"),
    [
        ("igniting", "optimiser.lr", 3e-7),
        ("igniting", "optimiser.prompts_per_step", 32),
        ("igniting", "optimiser.epochs", 5.0),
        ("igniting", "optimiser.beta", 1e-3),
        ("igniting", "optimiser.entropy", 0.0),
        ("igniting", "generation.max_tokens", 512),
        ("igniting", "data.max_prompt_tokens", 256),
        ("qurl", "optimiser.lr", 1e-6),
        ("qurl", "optimiser.prompts_per_step", 32),
        ("qurl", "optimiser.epochs", 2.0),
        ("qurl", "optimiser.advantage", "group_std"),
        ("qurl", "optimiser.loss", "dr_grpo"),
        ("qurl", "generation.group", 8),
        ("perse", "optimiser.lr", 1e-5),
        ("perse", "optimiser.rows_per_step", 4),
        ("perse", "optimiser.steps", 2000),
        ("perse", "optimiser.max_tokens", 4096),
        ("qurl-cold-start", "optimiser.lr", 1e-6),
        ("qurl-cold-start", "optimiser.rows_per_step", 16),
        ("qurl-cold-start", "optimiser.epochs", 2.0),
        ("igniting-reward", "optimiser.lr", 2e-4),
        ("igniting-reward", "optimiser.warmup", 0.1),
        ("igniting-reward", "optimiser.rows_per_step", 16 * 8),
        ("igniting-reward", "optimiser.epochs", 5.0),
        ("evolvr-generator-sft", "select.above", 3.5),
        ("evolvr-story", "optimiser.advantage", "none"),
        ("evolvr-story", "reward.parts.story.components", {"advantage": 0.1, "absolute": 0.8, "length": 0.1}),
        ("evolvr-story", "reward.parts.story.reference", "dynamic"),
    ],
)
def test_the_figures_are_the_papers(preset: str, path: str, expected: Any) -> None:
    assert value(preset_record(preset), path) == expected


def test_an_unknown_preset_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(AdjudgeError, match='there is no preset "../qurl": choose .*evolvr-story'):
        preset_text("../qurl")
