"""EvolvR's evaluator from end to end: rationales are learnt, and then what the evaluator writes is paid for."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra train")

from adjudge.training.evolve.rationale import read_rationales
from adjudge.training.grpo.grpo import train_grpo
from adjudge.training.grpo.recipe import GrpoRecipe
from adjudge.training.presets import preset_record
from adjudge.training.recipe import laid_over, recipe_of
from adjudge.training.sft import train_sft
from adjudge.training.sft_recipe import SftRecipe
from adjudge.training.stages import write_stage
from tests.jsonl import write_lines
from tests.training.evolve.known_engine import line, rationale
from tests.training.runs import curve

TINY = {"model": "dummy:tiny-llama", "method": "lora", "lora": {"rank": 4}, "dtype": "float32"}
SCORES = [(1, 4), (5, 2), (3, 3), (2, 5), (4, 1), (1, 1)]


def rows_in(folder: Path, *, pairs: bool) -> str:
    """Rationales as `adjudge evolve filter` leaves them."""
    made = []
    for number, (a, b) in enumerate(SCORES):
        row = rationale(f"r{number}", a, b)
        if not pairs:
            row = {name: value for name, value in row.items() if not name.endswith("_b")}
            row["response"] = f"So. {line(a)}"
        made.append(row)
    path = folder / "evolved.jsonl"
    write_stage(path, read_rationales(write_lines(folder / "made.jsonl", *made)))
    return str(path)


@pytest.mark.parametrize("pairs", [True, False])
def test_rationales_are_learnt(tmp_path: Path, pairs: bool) -> None:
    recipe = {
        "output": "out",
        "policy": TINY,
        "data": {"train": rows_in(tmp_path, pairs=pairs), "held_out": 1},
        "optimiser": {"lr": 0.02, "rows_per_step": 5, "steps": 3, "micro_batch": 5},
    }
    run = train_sft(recipe_of(recipe, SftRecipe, tmp_path))
    assert run.before is not None and run.after is not None and run.after < run.before


def test_what_the_evaluator_writes_is_paid_for_and_watched_for_collapse(tmp_path: Path) -> None:
    changed = {
        "output": "out",
        "policy": TINY,
        "data": {"train": rows_in(tmp_path, pairs=True)},
        "generation": {"group": 2, "max_tokens": 6},
        "optimiser": {"prompts_per_step": 2, "epochs": 2 / 3, "gradient_checkpointing": False},
    }
    run = train_grpo(recipe_of(laid_over(preset_record("evolvr-evaluator"), changed), GrpoRecipe, tmp_path))
    lines = [one for one in curve(run.folder) if one["split"] == "train"]
    assert len(lines) == 2
    for one in lines:
        assert one["reward/mean/accuracy"] == one["reward/mean/accuracy/readable"] == 0.0  # it writes no scores yet
        assert one["reward/guards/failed"] == 0.0  # and what there is none of is not missing
