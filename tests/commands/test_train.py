"""`adjudge train` as a user meets it."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.commands.train_policies import train_sft
from adjudge.engine.errors import AdjudgeError
from adjudge.training.grpo.recipe import GrpoRecipe
from adjudge.training.metrics import append_metrics, read_metrics
from adjudge.training.presets import preset_about, preset_names
from adjudge.training.prompts import read_prompts
from adjudge.training.recipe import read_recipe

pytestmark = pytest.mark.usefixtures("without_pictures")

EXAMPLE = Path(__file__).parents[2] / "examples" / "recipes" / "checkable.toml"

RECIPE = """
output = "out"
[policy]
model = "dummy:tiny-llama"
[data]
prompts = ["one", "two", "three"]
held_out = 1
[reward.parts.graded]
kind = "judge"
judge = "pointwise"
options = {aspects = "coherence", min_mass = 0.0}
engine = {model = "dummy:tiny-llama"}
[guards]
use = []
[generation]
group = 2
max_tokens = 4
[optimiser]
prompts_per_step = 2
steps = 2
"""


def run(*command: Any) -> str:
    result = CliRunner().invoke(app, list(map(str, command)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_recipe_is_trained_on_a_judge_with_the_seed_and_output_of_the_command(
    tmp_path: Path,
) -> None:
    pytest.importorskip("trl", reason="needs the extra train")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    said = run("train", "grpo", recipe, "--seed", "3", "-o", tmp_path / "run")
    assert "2 prompts to train on, 1 held out" in said and "reward on held-out prompts: " in said
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["seed"] == 3
    assert [line["step"] for line in lines] == [0, 1, 2, 2]
    assert all(0 <= line["reward"] <= 1 and line["reward/mean/graded/mass"] > 0 for line in lines)
    assert (tmp_path / "run" / "policy" / "tokenizer.json").is_file()
    with pytest.raises(AdjudgeError, match="holds an earlier run"):
        run("train", "grpo", recipe, "--seed", "3", "-o", tmp_path / "run")
    with pytest.raises(AdjudgeError, match='no guard is called "vibes": choose length, canary'):
        run("train", "grpo", recipe, "--stop-on", "length,vibes")


def test_a_judge_that_lacks_its_column_stops_the_run_with_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="needs the extra train")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.replace('"pointwise"', '"rubric"').replace('aspects = "coherence", ', ""))
    with pytest.raises(AdjudgeError, match='"rubric" is missing'):
        run("train", "grpo", recipe)


def test_a_mistake_in_a_table_of_the_recipe_is_told_with_the_name_of_its_file(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="needs the extra train")
    recipe = tmp_path / "bad.toml"
    recipe.write_text(RECIPE.replace("aspects =", "aspect ="))
    with pytest.raises(AdjudgeError, match=r"^bad.toml: \[reward.parts.graded\] aspect is no option of pointwise"):
        run("train", "grpo", recipe, "-o", tmp_path / "run")


def test_presets_are_listed_and_shown() -> None:
    listed = run("train", "presets")
    assert all(name in listed for name in ("evolvr-story", "evolvr-evaluator", "igniting", "qurl"))
    assert "lr = 3e-7  # paper, A.1" in run("train", "presets", "igniting")


def test_the_help_of_supervised_training_names_all_its_presets() -> None:
    about = train_sft.__doc__ or ""
    supervised = [name for name in preset_names() if "adjudge train sft" in preset_about(name)]
    assert supervised and all(f'"{name}"' in about for name in supervised)


def test_curves_of_a_run_are_drawn_where_the_user_says(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra report")
    append_metrics(tmp_path / "metrics.jsonl", {"step": 1, "split": "train", "reward": 0.5})
    run("train", "curves", tmp_path, "-o", tmp_path / "c.svg")
    assert (tmp_path / "c.svg").is_file()
    with pytest.raises(AdjudgeError, match="c.txt is no picture: name a .png, .svg or .pdf"):
        run("train", "curves", tmp_path, "-o", tmp_path / "c.txt")


def test_several_runs_share_a_picture_and_a_table_of_what_became_of_held_out_prompts(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra report")
    for run_, last in (("one", 0.75), ("two", 0.7)):
        for step, reward in ((0, 0.5), (4, last)):
            tmp_path.joinpath(run_).mkdir(exist_ok=True)
            line = {"step": step, "split": "held_out", "reward": reward, "reward/mean/sea": 0.5}
            append_metrics(tmp_path / run_ / "metrics.jsonl", line)
    folders = (tmp_path / "one", tmp_path / "two")
    with pytest.raises(AdjudgeError, match="several runs share one picture: name it with -o"):
        run("train", "curves", *folders)
    shown = run("train", "curves", *folders, "-o", tmp_path / "c.svg")
    assert (tmp_path / "c.svg").is_file()
    assert "+0.225 ± 0.318" in shown and "unclear  +0.250 +0.200" in shown and "+0.000 ± 0.000" in shown


def test_runs_that_the_table_leaves_out_are_told_with_the_reason(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra report")
    for name, steps in (("short", (0, 6)), ("long", (0, 60)), ("untested", ())):
        append_metrics(tmp_path / f"{name}.jsonl", {"step": 1, "split": "train", "reward": 0.5})
        for step in steps:
            append_metrics(tmp_path / f"{name}.jsonl", {"step": step, "split": "held_out", "reward": 0.5})
        tmp_path.joinpath(name).mkdir()
        tmp_path.joinpath(f"{name}.jsonl").rename(tmp_path / name / "metrics.jsonl")
    short, long, untested = (tmp_path / name for name in ("short", "long", "untested"))
    shown = run("train", "curves", short, long, untested, "-o", tmp_path / "c.svg")
    assert f"{short} ends at step 6, {long} at 60: runs of one length are compared" in shown
    assert f"without held-out answers before and after training: {untested}" in shown
    assert "left out" not in run("train", "curves", long, "-o", tmp_path / "c.svg")


def test_runs_of_several_commands_are_not_drawn_together(tmp_path: Path) -> None:
    records = {"paid": {"reward": {}}, "imitated": {"response": {}}, "preferred": {"kind": "preference"}}
    for name, record in records.items():
        tmp_path.joinpath(name).mkdir()
        append_metrics(tmp_path / name / "metrics.jsonl", {"step": 1, "split": "train", "loss": 0.5})
        (tmp_path / name / "recipe.json").write_text(json.dumps(record))
    paid, imitated, preferred = (tmp_path / name for name in records)
    for one, other, said in ((paid, imitated, ("sft", "grpo")), (imitated, preferred, ("reward", "sft"))):
        told = f"{other} is a run of train {said[0]}, {one} of train {said[1]}: draw them apart"
        with pytest.raises(AdjudgeError, match=re.escape(told)):
            run("train", "curves", one, other, "-o", tmp_path / "new" / "c.svg")
    assert not (tmp_path / "new").exists()


def test_curves_of_no_run_leave_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(AdjudgeError, match="name the output folder of a run"):
        run("train", "curves", tmp_path / "typo")
    assert not (tmp_path / "typo").exists()


def test_without_the_extra_the_mend_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == "trl" else found(name, *rest))
    (tmp_path / "recipe.toml").write_text(RECIPE)
    with pytest.raises(AdjudgeError, match=r"training needs trl: pip install 'adjudge\[train\]'"):
        run("train", "grpo", tmp_path / "recipe.toml")


def test_the_example_is_a_recipe_whose_prompts_are_there() -> None:
    recipe = read_recipe(EXAMPLE, GrpoRecipe)
    prompts = read_prompts(recipe.data)
    assert len(prompts.train) == 32 and len(prompts.held_out) == 8
    assert recipe.reward.open(recipe.policy.model, "journal").name == "reward"
