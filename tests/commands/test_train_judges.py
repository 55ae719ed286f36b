"""`adjudge train direct` and `adjudge train reward` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.errors import AdjudgeError
from adjudge.training.evaluator.recipe import DirectRecipe, PreferenceRecipe, read_judge_recipe
from tests.jsonl import write_lines
from tests.training.evaluator.rated import PAIRS, STORIES

pytestmark = pytest.mark.usefixtures("without_pictures")

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"

DIRECT = """
output = "out"
policy.model = "dummy:tiny-llama"
judge.options = {aspects = "wit=Is it funny?", min_mass = 0.0}
scores.column = "ratings"
optimiser = {steps = 1, rows_per_step = 2, micro_batch = 2}
"""
REWARD = """
output = "out"
policy.model = "dummy:tiny-llama"
optimiser = {steps = 1, rows_per_step = 2, micro_batch = 2}
"""


def run(*command: Any) -> str:
    result = CliRunner().invoke(app, list(map(str, command)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(("kind", "text", "rows"), [("direct", DIRECT, STORIES), ("reward", REWARD, PAIRS)])
def test_a_judge_is_trained_and_judges(kind: str, text: str, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="needs the extra train")
    (tmp_path / "recipe.toml").write_text(text)
    data = write_lines(tmp_path / "rows.jsonl", *rows)
    said = run("train", kind, tmp_path / "recipe.toml", "--data", data, "-o", tmp_path / "other", "--seed", 3)
    assert "held out" in said and f"policy: {tmp_path / 'other' / 'policy'}" in said
    recipe = json.loads((tmp_path / "other" / "recipe.json").read_text())
    assert (recipe["seed"], recipe["data"]["train"]) == (3, str(data))
    assert "judge with it: adjudge judge items.jsonl --judge " in said and "beside people: adjudge train" in said
    items = write_lines(tmp_path / "items.jsonl", {"prompt": "p", "response": "r"})
    judge = ["--judge", "pointwise", "--aspects", "wit=Is it funny?", "--min-mass", "0"]
    chosen = judge if kind == "direct" else ["--judge", "scalar"]
    adapter = ["--model", "dummy:tiny-llama", "--adapter", tmp_path / "other" / "policy"]
    run("judge", items, "-o", tmp_path / "v.jsonl", *chosen, *adapter)
    assert isinstance(json.loads((tmp_path / "v.jsonl").read_text())["score"], float)


def test_a_recipe_without_rows_names_the_mend(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(REWARD)
    with pytest.raises(AdjudgeError, match=r"recipe.toml names no rows: write \[data\] train = .*or give --data"):
        run("train", "reward", tmp_path / "recipe.toml")
    (tmp_path / "recipe.toml").write_text(REWARD + "[scores]\ncolumn = 'x'\n")
    with pytest.raises(AdjudgeError, match='a recipe of this kind has no field "scores"'):
        run("train", "reward", tmp_path / "recipe.toml")


@pytest.mark.parametrize(
    ("row", "mend"),
    [
        ({"prompt": "p", "tale": "t", "id": "", "n": 5}, r'; write \[data\] columns = {response = "tale"}$'),
        ({"prompt": "p", "tale": "t", "saga": "s"}, r'; write \[data\] columns = {response = "NAME"}$'),
        ({"prompt": "p", "reponse": "t", "saga": "s"}, r'meant\?; write \[data\] columns = {response = "reponse"}$'),
        ({"question": "p", "response": "t"}, r'; write \[data\] columns = {prompt = "question"}$'),
        ({"prompt": "p", "n": 5}, r'its columns are "prompt", "n"(, "ratings")?$'),
    ],
)
def test_a_recipe_s_rows_without_a_column_are_told_how_to_name_another(
    tmp_path: Path, row: dict[str, Any], mend: str
) -> None:
    pytest.importorskip("trl", reason="needs the extra train")
    (tmp_path / "recipe.toml").write_text(DIRECT)
    rows = [{**row, "prompt": f"p{n}"} if "prompt" in row else row for n in range(4)]
    data = write_lines(tmp_path / "rows.jsonl", *rows)
    with pytest.raises(AdjudgeError, match=mend):
        run("train", "direct", tmp_path / "recipe.toml", "--data", data)


def test_a_name_that_data_columns_have_themselves_is_not_to_be_renamed(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="needs the extra train")
    data = write_lines(tmp_path / "rows.jsonl", *({"prompt": f"p{n}", "tale": "t"} for n in range(4)))
    (tmp_path / "recipe.toml").write_text(DIRECT + "data.columns = {response = 'tael'}\n")
    with pytest.raises(AdjudgeError, match=r'columns takes it as response\): .* is "tale" meant\?$'):
        run("train", "direct", tmp_path / "recipe.toml", "--data", data)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("openmeva-direct", DirectRecipe), ("hanna-direct", DirectRecipe), ("greetings-reward", PreferenceRecipe)],
)
def test_the_examples_are_recipes(name: str, kind: Any) -> None:
    recipe = read_judge_recipe(RECIPES / f"{name}.toml", kind, data=Path("rows.jsonl"))
    assert recipe.policy.method == "lora" and recipe.output.endswith(f"out/{name}")
