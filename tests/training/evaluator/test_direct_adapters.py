"""Adapters that `train direct` goes on from: anchored, left in part as they are, kept in float32."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("trl", reason="needs the extra train")

import torch
from rich.progress import Progress
from safetensors.torch import load_file
from transformers import TrainerCallback

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.adapters import attach, read_adapter
from adjudge.engine.models.sources import open_source, resolve
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.wire import item_of
from adjudge.training import progress
from adjudge.training.evaluator import trainer
from adjudge.training.evaluator.direct import SlotTask, train_direct
from adjudge.training.evaluator.questions import rated_rows
from adjudge.training.evaluator.recipe import DirectRecipe
from adjudge.training.recipe import Lora
from adjudge.training.run import Run
from tests.training.evaluator.rated import STORIES, direct_recipe, preference_recipe, prepared_aspects
from tests.training.runs import KillAfter, Killed, curve


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run whose adapter others go on from."""
    return train_direct(direct_recipe(tmp_path_factory.mktemp("first")))


def test_what_is_anchored_is_to_be_answered_as_the_model_did_when_the_run_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: Run
) -> None:
    rows = [{**row, "together": row["prompt"], "anchored": n % 4 == 1} for n, row in enumerate(STORIES)]
    recipe = recipe_on(tmp_path / "second", first.folder.policy, rows)
    rated = rated_rows([Row("x", row) for row in rows], recipe.judge, recipe.scores)
    source = resolve("dummy:tiny-llama")
    opened = open_source(source, dtype=torch.float32)
    task = SlotTask(recipe, opened, recipe.optimiser, [(recipe.judge, rated, rated[:3])])
    people = [slot.target for example in task.train for slot in example.slots]
    model = attach(opened.model, read_adapter(first.folder.policy)).train()
    bars, bar = list[Progress](), progress.bar
    monkeypatch.setattr(progress, "bar", lambda **how: bars.append(bar(**how)) or bars[-1])
    task.begin(model, torch.device("cpu"), 3)
    assert model.training
    [about] = bars[0].tasks
    asked = sum(any(slot.anchored for slot in example.slots) for example in task.train)
    assert about.total == about.completed == math.ceil(asked / 3) and 3 < asked < len(task.train)
    slots = [slot for example in task.train for slot in example.slots]
    engine = Engine("dummy:tiny-llama", adapter=first.folder.policy, kv_cache_gb=0.05)
    judge = PointwiseJudge(engine, prepared_aspects(recipe), min_mass=0)
    verdicts = judge.judge([item_of(Row("x", row), n) for n, row in enumerate(rows)])
    for slot, before, row, verdict in zip(slots, people, rows, verdicts, strict=True):
        assert slot.anchored == row["anchored"]
        if slot.anchored:
            assert slot.score == pytest.approx(verdict.score, abs=1e-3) and slot.target != before
        else:
            assert slot.target == before
    assert 0 < sum(slot.anchored for slot in slots) < len(slots)
    assert [slot.target for example in task.held_out for slot in example.slots] == people[:3]
    for said, anchored in (("TRUE", True), (1, True), ("false", False), (None, False), ("", False)):
        [one] = rated_rows([Row("x", {**rows[0], "anchored": said})], recipe.judge, recipe.scores)
        assert one.anchored is anchored
    with pytest.raises(AdjudgeError, match="x: \"anchored\" is 'perhaps': write true or false"):
        rated_rows([Row("x", {**rows[0], "anchored": "perhaps"})], recipe.judge, recipe.scores)
    whole = train_direct(recipe)
    again = recipe_on(tmp_path / "killed", first.folder.policy, rows)
    with pytest.raises(Killed):
        train_direct(again, callbacks=[KillAfter(3)])
    assert curve(train_direct(again, resume=True).folder) == curve(whole.folder)


def test_a_run_goes_on_from_the_adapter_of_another(tmp_path: Path, first: Run) -> None:
    second = train_direct(recipe_on(tmp_path / "second", first.folder.policy))
    assert second.before == pytest.approx(first.after, abs=1e-5) and second.after != second.before
    names = [run.folder.policy / "adapter_model.safetensors" for run in (first, second)]
    assert names[0].read_bytes() != names[1].read_bytes()
    assert Engine("dummy:tiny-llama", adapter=second.folder.policy, kv_cache_gb=0.05).adapter
    with pytest.raises(AdjudgeError, match="adapter goes on as it is"):
        direct_recipe(tmp_path / "ranked", policy={"adapter": "x", "lora": {"rank": 8}})
    with pytest.raises(AdjudgeError, match="holds no adapter"):
        train_direct(recipe_on(tmp_path / "second", tmp_path), overwrite=True)
    assert names[1].is_file()  # a recipe that cannot begin costs no earlier run
    with pytest.raises(AdjudgeError, match="a reward model is trained from the start"):
        preference_recipe(tmp_path / "reward", policy={"adapter": "x", "lora": {"rank": Lora().rank}})


def test_the_lower_layers_of_an_adapter_may_be_left_as_they_are(tmp_path: Path, first: Run) -> None:
    upper = laid_over_policy(recipe_on(tmp_path / "upper", first.folder.policy), first_layer=1)
    with pytest.raises(Killed):
        train_direct(upper, callbacks=[KillAfter(3)])
    resumed = train_direct(upper, resume=True)
    before, after = (load_file(run.folder.policy / "adapter_model.safetensors") for run in (first, resumed))
    moved = {name for name, weights in before.items() if not torch.equal(weights, after[name])}
    assert moved == {name for name in before if ".layers.1." in name}
    with pytest.raises(AdjudgeError, match=r"has no layer 2: lower \[policy\] first_layer"):
        train_direct(laid_over_policy(recipe_on(tmp_path / "none", first.folder.policy), first_layer=2))
    with pytest.raises(AdjudgeError, match="name it with adapter"):
        direct_recipe(tmp_path / "new", policy={"first_layer": 1})


def laid_over_policy(recipe: DirectRecipe, **changes: Any) -> DirectRecipe:
    return msgspec.structs.replace(recipe, policy=msgspec.structs.replace(recipe.policy, **changes))


def test_an_adapter_is_trained_in_float32_whether_new_gone_on_from_or_resumed(tmp_path: Path) -> None:
    seen: list[set[torch.dtype]] = []

    class Look(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            seen.append({weights.dtype for weights in model.parameters() if weights.requires_grad})

    new = train_direct(half(tmp_path / "new", steps=1), callbacks=[Look()])
    on = half(tmp_path / "on", adapter=new.folder.policy, steps=2)
    with pytest.raises(Killed):
        train_direct(on, callbacks=[Look(), KillAfter(2)])
    train_direct(on, resume=True, callbacks=[Look()])
    assert seen == [{torch.float32}] * 4


def test_an_adapter_gone_on_from_is_not_rounded(tmp_path: Path, first: Run) -> None:
    on = half(tmp_path / "on", adapter=first.folder.policy, steps=1)
    came_to = train_direct(laid_over_policy(on, first_layer=1)).folder.policy
    before, after = (load_file(folder / "adapter_model.safetensors") for folder in (first.folder.policy, came_to))
    lower = [name for name in before if ".layers.0." in name]
    assert lower and all(torch.equal(before[name], after[name]) for name in lower)


def test_inputs_left_in_bfloat16_change_no_bit_of_an_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, left = [], []
    text = "It rained. Ann ran."
    rows = [{**row, "response": text, "places": [[10, True], [len(text), n % 2 > 0]]} for n, row in enumerate(STORIES)]
    kept = trainer._uncast
    for name, uncast in (("left", lambda model: left.append(kept(model))), ("cast", lambda model: None)):
        monkeypatch.setattr(trainer, "_uncast", uncast)
        runs.append(train_direct(half(tmp_path / name, rows, steps=2, places=0.5)).folder.policy)
    one, other = (folder / "adapter_model.safetensors" for folder in runs)
    assert left and one.read_bytes() == other.read_bytes()


def half(
    folder: Path, rows: Sequence[Mapping[str, Any]] = STORIES, *, adapter: Path | None = None, **optimiser: Any
) -> DirectRecipe:
    """A recipe whose model computes in bfloat16, which takes long on many CPUs: few rows, and none held out."""
    return direct_recipe(
        folder,
        rows,
        policy={"adapter": adapter and str(adapter), "dtype": "bfloat16", "lora": {"rank": Lora().rank}},
        data={"held_out": 0},
        optimiser={"rows_per_step": 2, **optimiser},
        logging={"save_every": 1},
    )


def recipe_on(folder: Path, adapter: Path, rows: Sequence[Mapping[str, Any]] = STORIES) -> DirectRecipe:
    """A recipe that goes on from an adapter, whose rank is its own."""
    return direct_recipe(
        folder,
        rows,
        policy={"adapter": str(adapter), "lora": {"rank": Lora().rank}},
        optimiser={"steps": 4},
        logging={"evaluate_every": 3, "save_every": 2},
    )
