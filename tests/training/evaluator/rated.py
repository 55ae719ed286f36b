"""Small files of judged rows, and tiny recipes of judges that are trained on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adjudge.rewards.judges.aspects import Aspect, parse_aspects
from adjudge.training.evaluator.recipe import DirectRecipe, PreferenceRecipe
from adjudge.training.recipe import laid_over, recipe_of
from tests.jsonl import write_lines

WORDS = ("dull", "plain", "fair", "fine", "great")
STORIES: list[dict[str, Any]] = [
    {"id": f"s{n}", "prompt": f"p{n // 2}", "response": WORDS[n % 5] * 3, "ratings": {"Wit": [1 + n % 5, 1 + n % 5]}}
    for n in range(20)
]
PAIRS: list[dict[str, Any]] = [
    {"prompt": f"p{n}", "chosen": f"good good {n}", "rejected": f"bad bad {n}"} for n in range(16)
]


def direct_recipe(folder: Path, rows: Sequence[Mapping[str, Any]] = STORIES, **tables: Any) -> DirectRecipe:
    write_lines(folder / "rows.jsonl", *rows)
    usual: dict[str, Any] = {
        "output": "out",
        "policy": {"model": "dummy:tiny-llama", "lora": {"rank": 4}},
        "data": {"train": "rows.jsonl", "held_out": 0.3},
        "judge": {"options": {"aspects": "wit=Is it funny?"}},
        "scores": {"column": "ratings"},
        "optimiser": {"lr": 0.01, "rows_per_step": 4, "micro_batch": 2, "steps": 6},
    }
    if "scores" in tables:
        usual.pop("scores")
    return recipe_of(laid_over(usual, tables), DirectRecipe, folder)


def preference_recipe(folder: Path, rows: Sequence[Mapping[str, Any]] = PAIRS, **tables: Any) -> PreferenceRecipe:
    write_lines(folder / "rows.jsonl", *rows)
    usual: dict[str, Any] = {
        "output": "out",
        "policy": {"model": "dummy:tiny-llama", "lora": {"rank": 4}},
        "data": {"train": "rows.jsonl", "held_out": 0.3},
        "optimiser": {"lr": 0.01, "rows_per_step": 4, "micro_batch": 2, "steps": 6},
    }
    return recipe_of(laid_over(usual, tables), PreferenceRecipe, folder)


def prepared_aspects(recipe: DirectRecipe) -> tuple[Aspect, ...]:
    """The aspects that its judge is asked for."""
    return parse_aspects(recipe.judge.options["aspects"])
