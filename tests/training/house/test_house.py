from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, ModelUnsupported
from adjudge.engine.models.merging import ADAPTER
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.records.verdict import Item, Pair
from adjudge.training.house.card import card as card_of
from adjudge.training.house.disturbances import DISTURBANCES
from adjudge.training.house.house import train_house
from adjudge.training.house.recipe import HouseRecipe, TextFile
from adjudge.training.house.rows import OTHER_PROMPT
from adjudge.training.house.texts import stories_of
from adjudge.training.recipe import read_recipe, recipe_of
from adjudge.training.run import Run
from adjudge.training.run_folder import RunFolder
from tests.jsonl import read_lines
from tests.training.house.stories import OWN

RECIPES = Path(__file__).parents[3] / "examples" / "recipes"
EXAMPLES = sorted(RECIPES.glob("house*.toml"))


def recipe(tmp_path: Path, name: str, **changes: Any) -> HouseRecipe:
    record: dict[str, Any] = {
        "output": name,
        "policy": {"model": "dummy:tiny-llama", "lora": {"rank": 4}},
        "sources": [{"path": str(OWN / "everyday.jsonl"), "licence": "Apache-2.0", "attribution": "the authors"}],
        "excerpts": {"count": 12, "held_out": 0.2, "longest": 4},
        "optimiser": {"lr": 0.01, "rows_per_step": 2, "micro_batch": 2, "steps": 2},
        "logging": {"save_every": 1},
        **changes,
    }
    return recipe_of(record, HouseRecipe, tmp_path)


def adapter_of(folder: Path, card: str) -> Path:
    """An adapter's folder, as far as a card looks at it."""
    folder.mkdir(parents=True)
    (folder / "README.md").write_text(card)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of two steps."""
    return train_house(recipe(tmp_path_factory.mktemp("house"), "whole"))


@pytest.fixture
def going_on(trained: Run) -> dict[str, Any]:
    """A recipe of one step from what that run came to."""
    return {
        "policy": {"model": "dummy:tiny-llama", "adapter": str(trained.folder.policy)},
        "excerpts": {"count": 4, "held_out": 0.2, "longest": 4},
        "optimiser": {"lr": 0.01, "rows_per_step": 2, "micro_batch": 2, "steps": 1},
    }


def test_a_judge_is_trained_and_asked(trained: Run) -> None:
    assert trained.after is not None and trained.step == 2
    rows = read_lines(trained.folder.made_rows)
    assert len({row["id"].rstrip("ab") for row in rows}) == 12 and any("story_a" in row for row in rows)
    card = (trained.folder.policy / "README.md").read_text()
    assert "everyday.jsonl" in card and "Apache-2.0" in card and "Licences of the texts: Apache-2.0." in card
    engine = Engine("dummy:tiny-llama", adapter=trained.folder.policy)
    assert PointwiseJudge(engine).judge([Item("p", "A story.", "1")])[0].score is not None
    assert PairwiseJudge(engine).judge([Pair(a="One.", b="Two.", prompt="p", id="1")])[0].preference is not None


def test_texts_in_the_folder_of_a_run_are_not_written_over(tmp_path: Path) -> None:
    own = shutil.copy(OWN / "everyday.jsonl", tmp_path / "rows.jsonl")
    told = {"licence": "Apache-2.0", "attribution": "the authors"}
    how: dict[str, Any] = {"excerpts": {"count": 4, "held_out": 0.2}, "optimiser": {"rows_per_step": 1, "steps": 1}}
    for overwrite in (False, True):
        run = train_house(recipe(tmp_path, ".", sources=[{"path": str(own), **told}], **how), overwrite=overwrite)
        assert Path(own).read_bytes() == (OWN / "everyday.jsonl").read_bytes() and run.folder.made_rows.is_file()
    own = shutil.move(own, run.folder.made_rows)
    with pytest.raises(AdjudgeError, match="is in the folder of this run, which forgets it"):
        train_house(recipe(tmp_path, ".", sources=[{"path": str(own), **told}], **how), overwrite=True)


def test_a_run_that_was_stopped_comes_to_the_same_adapter(trained: Run, tmp_path: Path) -> None:
    shutil.copytree(trained.folder.path, tmp_path / "cut")
    (tmp_path / "cut" / "checkpoint-2" / "trainer_state.json").unlink()
    shutil.rmtree(tmp_path / "cut" / "policy")
    resumed = train_house(recipe(tmp_path, "cut"), resume=True)
    assert resumed.step == trained.step
    assert (resumed.folder.policy / ADAPTER).read_bytes() == (trained.folder.policy / ADAPTER).read_bytes()


def test_what_it_went_on_from_is_kept_in_its_weights(trained: Run, going_on: dict[str, Any], tmp_path: Path) -> None:
    kept = train_house(recipe(tmp_path, "kept", keep=1.0, **going_on))
    assert (kept.folder.policy / ADAPTER).read_bytes() == (trained.folder.policy / ADAPTER).read_bytes()


def test_an_average_is_rounded_once(trained: Run, going_on: dict[str, Any], tmp_path: Path) -> None:
    kept = train_house(recipe(tmp_path, "kept", keep=0.5, **going_on)).folder
    before, came_to = load_file(trained.folder.policy / ADAPTER), load_file(kept.path / "checkpoint-1" / ADAPTER)
    for name, found in load_file(kept.policy / ADAPTER).items():
        assert torch.equal(found, (0.5 * before[name].float() + 0.5 * came_to[name]).bfloat16())


def test_another_adapter_is_kept_in_its_weights(trained: Run, going_on: dict[str, Any], tmp_path: Path) -> None:
    shutil.copytree(trained.folder.policy, tmp_path / "other")
    halved = {name: tensor / 2 for name, tensor in load_file(tmp_path / "other" / ADAPTER).items()}
    save_file(halved, tmp_path / "other" / ADAPTER)
    kept = train_house(recipe(tmp_path, "kept", keep=1.0, keep_of="other", **going_on))
    found = load_file(kept.folder.policy / ADAPTER)
    assert found.keys() == halved.keys() and all(torch.equal(found[name], halved[name]) for name in halved)


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("adapter_config.json", {"lora_alpha": 1}, "differ in form"),
        ("base.json", {"name": "another", "fingerprint": "0"}, "was trained over another"),
    ],
)
def test_an_adapter_that_is_no_mean_of_both_is_refused_before_training(
    trained: Run, going_on: dict[str, Any], tmp_path: Path, file: str, changes: dict[str, Any], message: str
) -> None:
    shutil.copytree(trained.folder.policy, tmp_path / "another")
    about = tmp_path / "another" / file
    about.write_text(json.dumps(json.loads(about.read_bytes()) | changes))
    with pytest.raises(ModelUnsupported, match=message):
        train_house(recipe(tmp_path, "never", keep=0.5, keep_of="another", **going_on))
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"keep": 0.5}, "keep averages with the adapter to go on from"),
        ({"policy": {"adapter": "whole/policy"}, "keep_of": "whole/policy"}, "keep_of has no share"),
        ({"excerpts": {"anchored": 1.0}}, "set scored as well"),
        ({"excerpts": {"anchored": 1, "scored": 1}}, "name the one"),
    ],
)
def test_mistakes_in_a_recipe_are_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        recipe(tmp_path, "none", **changes)


def test_a_share_that_leaves_a_side_without_texts_is_named_with_both_numbers(tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text(json.dumps({"prompt": "Rain.", "text": "It rained. It went on. It stopped."}) + "\n")
    source = {"path": str(texts), "licence": "Apache-2.0", "attribution": "the authors"}
    with pytest.raises(AdjudgeError, match=r"held_out = 0.\d+ leaves [01] of 1 text to train on and holds out [01]: "):
        train_house(recipe(tmp_path, "none", sources=[source]))


def test_a_run_says_once_of_which_sources_texts_are_split_by_first_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    licensed = {"licence": "Apache-2.0", "attribution": "the authors"}
    bare = tmp_path / "bare.jsonl"
    rows = [json.loads(line) for line in (OWN / "everyday.jsonl").read_text().splitlines()]
    bare.write_text("".join(json.dumps({"text": row["text"]}) + "\n" for row in rows))
    sources = [{"path": str(path), **licensed} for path in (OWN / "everyday.jsonl", bare)]
    policy = {"model": "dummy:no-such-model"}
    with pytest.raises(AdjudgeError):
        train_house(recipe(tmp_path, "none", sources=sources, policy=policy), status=said.append)
    assert [line for line in said if "split" in line] == [
        f"no prompts in {bare}: its texts are split by their first sentences"
    ]
    told = list(said)
    monkeypatch.setattr("adjudge.training.run.processes", lambda: SimpleNamespace(is_main_process=False))
    with pytest.raises(AdjudgeError):
        train_house(recipe(tmp_path, "none", sources=sources, policy=policy), status=said.append)
    assert said == told  # another process of the same run says nothing


def test_a_card_tells_what_was_known_of_the_adapters_before(tmp_path: Path) -> None:
    run = Run(RunFolder(tmp_path / "out"), 4, 0.1, 0.2, True)

    def card(name: str, **changes: Any) -> str:
        return card_of(recipe(tmp_path, name, **changes), [1, 1], {}, run)

    first = {"adapter": str(adapter_of(tmp_path / "whole" / "policy", card("whole")))}
    further = card("further", policy=first)
    assert "of this run" in further and "## Before this run" in further and "#### Texts" in further
    assert "Nothing is known of its texts" in card("further", policy={"adapter": str(tmp_path)})
    kept = card("kept", policy=first, keep=1.0)
    assert "100% of what it went on from" in kept and "not yet averaged, with the known" in kept
    later = {"adapter": str(adapter_of(tmp_path / "later" / "policy", further))}
    other = card("other", policy=later, keep=1.0, keep_of="whole/policy")
    assert "100% of whole/policy is kept" in other and "It is averaged" not in other  # it stands among what came before
    beside = str(adapter_of(tmp_path / "other" / "policy", other))
    aside = card("aside", policy=first, keep=0.5, keep_of=beside)
    assert "It is averaged with another adapter, other/policy:" in aside


def own_sources(recipe: HouseRecipe) -> set[TextFile]:
    """Those of its sources that come with the project."""
    return {source for source in recipe.sources if "/house/" in source.path}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_recipes(path: Path) -> None:
    found = read_recipe(path, HouseRecipe)
    assert found.output.endswith(f"out/{path.stem}") and set(found.excerpts.often) <= {*DISTURBANCES, OTHER_PROMPT}
    assert own_sources(found)
    if found.policy.adapter is not None:
        for before in (Path(found.policy.adapter), found.kept or Path(found.policy.adapter)):
            assert before.name == "policy" and (RECIPES / f"{before.parent.name}.toml").is_file()


def test_texts_that_are_no_stories_and_their_share_want_each_other(tmp_path: Path) -> None:
    told = {"licence": "Apache-2.0", "attribution": "the authors"}
    stories, others = ({"path": str(OWN / f"{name}.jsonl"), **told} for name in ("everyday", "no-stories"))
    share = {"excerpts": {"count": 4, "held_out": 0.2, "no_story": 0.5}}
    with pytest.raises(AdjudgeError, match=r"no source has any: add one with stories = false, or drop it$"):
        train_house(recipe(tmp_path, "a", sources=[stories], **share))
    with pytest.raises(AdjudgeError, match=r"240 texts of sources .* would stand nowhere: set \[excerpts\] no_story"):
        train_house(recipe(tmp_path, "b", sources=[stories, {**others, "stories": False}]))


def test_their_own_sources_have_texts() -> None:
    for source in set[TextFile]().union(*(own_sources(read_recipe(path, HouseRecipe)) for path in EXAMPLES)):
        found = stories_of([source, msgspec.structs.replace(source, stories=True)])
        assert found.texts and bool(found.others) != source.stories
