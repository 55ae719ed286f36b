from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, ModelUnsupported
from adjudge.rewards.pairwise import PairwiseJudge
from adjudge.rewards.pointwise import PointwiseJudge
from adjudge.rewards.verdict import Item, Pair
from adjudge.training.house.card import card as card_of
from adjudge.training.house.disturbances import DISTURBANCES
from adjudge.training.house.house import train_house
from adjudge.training.house.recipe import HouseRecipe
from adjudge.training.house.texts import stories_of
from adjudge.training.recipe import read_recipe, recipe_of
from adjudge.training.sft_recipe import read_sft_recipe
from tests.training.house.stories import OWN

RECIPES = Path(__file__).parents[3] / "examples" / "recipes"


def recipe(tmp_path: Path, name: str, **changes: Any) -> HouseRecipe:
    record: dict[str, Any] = {
        "output": name,
        "policy": {"model": "dummy:tiny-llama", "lora": {"rank": 4}},
        "sources": [{"path": str(OWN / "everyday.jsonl"), "licence": "Apache-2.0", "attribution": "the authors"}],
        "excerpts": {"count": 24, "held_out": 0.2, "longest": 4},
        "optimiser": {"lr": 0.01, "rows_per_step": 4, "micro_batch": 4, "steps": 4},
        "logging": {"save_every": 2},
        **changes,
    }
    return recipe_of(record, HouseRecipe, tmp_path)


def test_a_judge_is_trained_resumed_and_asked(tmp_path: Path) -> None:
    told: list[str] = []
    run = train_house(recipe(tmp_path, "whole"), status=told.append)
    assert run.after is not None and run.step == 4
    rows = [json.loads(line) for line in (tmp_path / "whole" / "rows.jsonl").read_text().splitlines()]
    assert len({row["id"].rstrip("ab") for row in rows}) == 24 and any("story_a" in row for row in rows)
    card = (run.folder.policy / "README.md").read_text()
    assert "everyday.jsonl" in card and "Apache-2.0" in card and "Licences of the texts: Apache-2.0." in card

    policy = {"model": "dummy:tiny-llama", "adapter": str(run.folder.policy)}
    further = card_of(recipe(tmp_path, "further", policy=policy), [1, 1], {}, run)
    assert "of this run" in further and "## Before this run" in further and "#### Texts" in further
    unknown = card_of(recipe(tmp_path, "further", policy={"adapter": str(tmp_path)}), [1, 1], {}, run)
    assert "Nothing is known of its texts" in unknown

    for changes, message in (
        ({"keep": 0.5}, "keep averages with the adapter to go on from"),
        ({"policy": policy, "keep_of": "whole/policy"}, "keep_of has no share"),
    ):
        with pytest.raises(AdjudgeError, match=message):
            recipe(tmp_path, "none", **changes)
    for excerpts, message in (
        ({"anchored": 1.0}, "set scored as well"),
        ({"anchored": 1, "scored": 1}, "name the one"),
    ):
        with pytest.raises(AdjudgeError, match=message):
            recipe(tmp_path, "none", excerpts=excerpts)
    kept = train_house(recipe(tmp_path, "kept", policy=policy, keep=1.0))
    said = (kept.folder.policy / "README.md").read_text()
    assert "100% of what it went on from" in said and "not yet averaged, with the known" in said
    adapter = "policy/adapter_model.safetensors"
    assert (tmp_path / "kept" / adapter).read_bytes() == (tmp_path / "whole" / adapter).read_bytes()

    short: dict[str, Any] = {
        "excerpts": {"count": 4, "held_out": 0.2, "longest": 4},
        "optimiser": {"lr": 0.01, "rows_per_step": 4, "micro_batch": 4, "steps": 1},
    }
    later = train_house(recipe(tmp_path, "later", policy=policy, **short))
    policy_later = {**policy, "adapter": str(later.folder.policy)}
    other = train_house(recipe(tmp_path, "other", policy=policy_later, keep=1.0, keep_of="whole/policy", **short))
    said = (other.folder.policy / "README.md").read_text()
    assert "100% of whole/policy is kept" in said and "It is averaged" not in said  # it stands among what came before
    aside = recipe(tmp_path, "aside", policy=policy, keep=0.5, keep_of=str(other.folder.policy))
    assert "It is averaged with another adapter, other/policy:" in card_of(aside, [1, 1], {}, run)
    assert (tmp_path / "later" / adapter).read_bytes() != (tmp_path / "whole" / adapter).read_bytes()
    assert (tmp_path / "other" / adapter).read_bytes() == (tmp_path / "whole" / adapter).read_bytes()
    narrow = train_house(recipe(tmp_path, "narrow", policy={"model": "dummy:tiny-llama", "lora": {"rank": 2}}, **short))
    with pytest.raises(ModelUnsupported, match="differ in form"):
        train_house(recipe(tmp_path, "never", policy=policy, keep=0.5, keep_of=str(narrow.folder.policy)))
    shutil.copytree(run.folder.policy, tmp_path / "another")
    (tmp_path / "another" / "base.json").write_text('{"name": "another", "fingerprint": "0"}')
    with pytest.raises(ModelUnsupported, match="was trained over another"):
        train_house(recipe(tmp_path, "never", policy=policy, keep=0.5, keep_of="another"))
    assert not (tmp_path / "never").exists()

    engine = Engine(str(run.folder.start), adapter=run.folder.policy)
    assert PointwiseJudge(engine).judge([Item("p", "A story.", "1")])[0].score is not None
    assert PairwiseJudge(engine).judge([Pair(a="One.", b="Two.", prompt="p", id="1")])[0].preference is not None

    cut = recipe(tmp_path, "cut")
    stopped = train_house(cut, status=told.append)
    for folder in (tmp_path / "cut").glob("checkpoint-4"):
        (folder / "trainer_state.json").unlink()
    resumed = train_house(cut, resume=True)
    assert resumed.step == stopped.step
    assert (tmp_path / "cut" / adapter).read_bytes() == (tmp_path / "whole" / adapter).read_bytes()


@pytest.mark.parametrize("path", sorted(RECIPES.glob("house*.toml")), ids=lambda path: path.stem)
def test_the_examples_are_recipes(path: Path) -> None:
    found = read_recipe(path, HouseRecipe)
    assert found.output.endswith(f"out/{path.stem}") and set(found.excerpts.often) <= set(DISTURBANCES)
    ours = [one for one in found.sources if "/house/" in one.path]
    assert ours and stories_of(ours).texts
    if found.policy.adapter is not None:
        for before in (Path(found.policy.adapter), found.kept or Path(found.policy.adapter)):
            assert before.name == "policy" and (RECIPES / f"{before.parent.name}.toml").is_file()


def test_so_is_that_of_the_small_writer() -> None:
    recipe = read_sft_recipe(RECIPES / "everyday.toml")
    assert Path(recipe.data.train or "").samefile(OWN / "everyday.jsonl") and recipe.response.column == "text"
