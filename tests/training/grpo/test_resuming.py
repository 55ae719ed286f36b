from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra train")

import torch
from transformers import TrainerCallback

from adjudge.engine.errors import AdjudgeError, ModelNotFound
from adjudge.rewards.records.rows import Row
from adjudge.training.grpo import trainer
from adjudge.training.grpo.grpo import _record, train_grpo
from adjudge.training.prompts import Prompts
from adjudge.training.recipe import laid_over
from adjudge.training.run_folder import RunFolder
from tests.training.runs import PROMPTS, KillAfter, Killed, Vowels, curve, tiny_recipe, weights

TINY = "dummy:tiny-llama"


def test_a_killed_run_that_is_resumed_has_the_curve_and_the_weights_of_one_that_never_stopped(tmp_path: Path) -> None:
    guards = {"use": ["length", "canary", "collapse"], "every": 3, "collapse": {"enough": 4}}
    tables: dict[str, Any] = {
        "data": {"held_out": 1},
        "optimiser": {"beta": 0.04, "steps": 5},
        "logging": {"save_every": 2},
        "guards": guards,
    }
    whole = train_grpo(tiny_recipe(tmp_path / "whole", **tables), reward=Vowels())
    recipe = tiny_recipe(tmp_path / "killed", **tables)
    with pytest.raises(Killed):
        train_grpo(recipe, reward=Vowels(), callbacks=[KillAfter(4)])
    with pytest.raises(AdjudgeError, match="holds an earlier run: continue it with --resume, or forget it by --over"):
        train_grpo(recipe, reward=Vowels())
    resumed = train_grpo(recipe, resume=True, reward=Vowels())
    assert [line["step"] for line in curve(whole.folder) if line["split"] == "train"] == [1, 2, 3, 4, 5]
    assert curve(resumed.folder) == curve(whole.folder)
    assert {"vowels/guards/canary/moved", "vowels/guards/collapse/zero_variance"} <= curve(whole.folder)[-2].keys()
    assert [line["step"] for line in curve(whole.folder) if line["split"] == "held_out"] == [0, 5]
    one, other = weights(whole.folder.policy), weights(resumed.folder.policy)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert (resumed.before, resumed.after) == (whole.before, whole.after) and whole.before is not None


def test_a_finished_run_is_resumed_to_what_it_was_and_held_out_prompts_leave_training_alone(tmp_path: Path) -> None:
    data = {"prompts": PROMPTS[:4], "held_out": 0}
    without = train_grpo(tiny_recipe(tmp_path / "without", data=data), reward=Vowels())
    data = {"prompts": [*PROMPTS[:4], "held out"], "held_out": 1}
    recipe = tiny_recipe(tmp_path / "often", data=data, logging={"evaluate_every": 3})
    often = curve(train_grpo(recipe, reward=Vowels()).folder)
    assert [line["step"] for line in often if line["split"] == "held_out"] == [0, 3, 4]
    assert [line for line in often if line["split"] == "train"] == curve(without.folder)
    assert curve(train_grpo(recipe, resume=True, reward=Vowels()).folder) == often


def test_a_finished_run_goes_on_to_more_steps_as_one_of_so_many_would_have(tmp_path: Path) -> None:
    def recipe(folder: str, **optimiser: Any) -> Any:
        tables: dict[str, Any] = {"data": {"held_out": 1}, "logging": {"save_every": 9}}
        return tiny_recipe(tmp_path / folder, optimiser={"beta": 0.04, "steps": 3, **optimiser}, **tables)

    def trained(folder: RunFolder) -> list[dict[str, Any]]:  # an epoch is rounded by how many steps there are
        return [{**line, "epoch": 0} for line in curve(folder) if line["split"] == "train"]

    whole = train_grpo(recipe("whole"), reward=Vowels())
    assert train_grpo(recipe("short", steps=2), reward=Vowels()).step == 2
    longer = train_grpo(recipe("short"), resume=True, reward=Vowels())
    assert longer.step == 3 and trained(longer.folder) == trained(whole.folder)
    assert [line["step"] for line in curve(longer.folder) if line["split"] == "held_out"] == [0, 2, 3]
    one, other = weights(whole.folder.policy), weights(longer.folder.policy)
    assert all(torch.equal(one[name], other[name]) for name in one)
    for changed in ({"steps": 2}, {"steps": 9, "schedule": "linear"}):
        with pytest.raises(AdjudgeError, match=r"optimiser\.(steps|schedule) is not what the run in .* began with"):
            train_grpo(recipe("short", **changed), resume=True, reward=Vowels())


@pytest.mark.parametrize("optimiser", [{"schedule": "linear"}, {"warmup": 0.5}, {"iterations": 2}])
def test_a_run_whose_steps_depend_on_how_many_there_are_does_not_go_on_to_more(
    tmp_path: Path, optimiser: dict[str, Any]
) -> None:
    train_grpo(tiny_recipe(tmp_path, optimiser={"steps": 1, **optimiser}), reward=Vowels())
    with pytest.raises(AdjudgeError, match=r"optimiser\.steps is not what .* began with .it can be raised where"):
        train_grpo(tiny_recipe(tmp_path, optimiser={"steps": 3, **optimiser}), resume=True, reward=Vowels())


def test_a_run_is_resumed_by_its_own_recipe_only(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        train_grpo(tiny_recipe(tmp_path), reward=Vowels(), callbacks=[KillAfter(3)])
    other = tiny_recipe(tmp_path, optimiser={"lr": 0.5})
    with pytest.raises(AdjudgeError, match=r"optimiser\.lr is not what the run in .* began with: put it back"):
        train_grpo(other, resume=True, reward=Vowels())
    assert curve(RunFolder(tmp_path / "out"))[-1]["step"] == 2
    (tmp_path / "out").rename(tmp_path / "moved")
    moved = tiny_recipe(tmp_path, output="moved", logging={"save_every": 1, "keep": 1, "evaluate_every": 3})
    run = train_grpo(moved, resume=True, reward=Vowels(), callbacks=[saved := Saved()])
    assert (run.step, saved.steps) == (4, [3, 4])
    assert json.loads(run.folder.recipe.read_bytes())["output"] == str(tmp_path / "moved")
    anew = train_grpo(other, overwrite=True, reward=Vowels())
    assert [line["step"] for line in curve(anew.folder)] == [1, 2, 3, 4]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of one step."""
    recipe = tiny_recipe(tmp_path_factory.mktemp("run"), optimiser={"steps": 1})
    return train_grpo(recipe, reward=Vowels()).folder.path


@pytest.fixture
def earlier(trained: Path, tmp_path: Path) -> RunFolder:
    """A run where the recipes of `tmp_path` have theirs."""
    return RunFolder(Path(shutil.copytree(trained, tmp_path / "out")))


def test_a_run_is_not_forgotten_for_one_whose_models_are_not_there(tmp_path: Path, earlier: RunFolder) -> None:
    before = earlier.metrics.read_bytes()
    judge = {"parts": {"judge": {"kind": "judge", "judge": "pointwise"}}, "engine": {"model": "./absent"}}
    for tables in ({"policy": {"model": "./absent"}}, {"reward": judge}):
        with pytest.raises(ModelNotFound, match="absent"):
            train_grpo(tiny_recipe(tmp_path, **tables), overwrite=True)
    assert earlier.metrics.read_bytes() == before and earlier.policy.is_dir()


ABSENT = {"url": "http://localhost:1", "retries": 0}
UNOPENED: list[tuple[dict[str, Any], str]] = [
    ({"engine": ABSENT}, "http://localhost:1 cannot be reached"),
    ({"engine": {"model": "dummy:tiny-mamba"}}, "MambaForCausalLM has layers of the kind"),
    ({"engine": {"model": TINY, "device": "cuda:99"}}, 'device is "cuda:99"'),
    ({"engine": {"model": TINY}, "parts": {"judge": {"judge": "scalar"}}}, "reward"),
    ({"engine": ABSENT, "on_failure": "abstain"}, "http://localhost:1 cannot be reached"),
]


@pytest.mark.parametrize(("tables", "message"), UNOPENED, ids=[message[:20] for _, message in UNOPENED])
def test_a_judge_that_cannot_be_opened_is_found_before_a_run_is_forgotten_or_a_policy_loaded(
    tmp_path: Path, earlier: RunFolder, monkeypatch: pytest.MonkeyPatch, tables: dict[str, Any], message: str
) -> None:
    def times() -> dict[Path, int]:  # most versions of filelock empty a lock anew
        kept = (path for path in earlier.path.rglob("*") if path.is_file() and path.suffix != ".lock")
        return {path: path.stat().st_mtime_ns for path in kept}

    before = times()
    monkeypatch.setattr(trainer, "open_policy", lambda *_, **__: pytest.fail("the policy was loaded"))
    reward = laid_over({"parts": {"judge": {"kind": "judge", "judge": "pointwise"}}}, tables)
    with pytest.raises(AdjudgeError, match=message):
        train_grpo(tiny_recipe(tmp_path, reward=reward), overwrite=True)
    assert times() == before


class Saved(TrainerCallback):
    """Notes the steps after which the run was saved."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.steps.append(state.global_step)


def test_what_decides_a_reward_is_the_same_in_a_resumed_run_and_guards_and_deadlines_may_change(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"criteria": [{"name": "a", "text": "?", "points": 10}]}')
    judge = {"kind": "judge", "judge": "rubric", "options": {"rubric": str(tmp_path / "r.json")}}
    prompts = Prompts((Row("row 1", {"prompt": "p"}),), ())

    def told(reward: dict[str, Any] | None = None, **guards: Any) -> dict[str, Any]:
        recipe = tiny_recipe(tmp_path, reward={"parts": {"judge": judge}, **(reward or {})}, guards=guards)
        return _record(recipe, prompts)

    before = told()
    assert told(stop_on=["length"]) == before != told(every=7)
    assert told({"deadline": 60.0, "on_failure": "abstain", "sleep": False}) == before != told({"journal": True})
    (tmp_path / "r.json").write_text('{"criteria": [{"name": "b", "text": "?", "points": 10}]}')
    assert told() != before


def test_the_file_of_code_of_ones_own_is_part_of_what_a_run_is_resumed_by(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    prompts = Prompts((Row("row 1", {"prompt": "p"}),), ())
    parts = ({"kind": "function", "function": "own_counted:f"}, {"kind": "judge", "judge": "own_counted:Mine"})
    for part in parts:
        (tmp_path / "own_counted.py").unlink(missing_ok=True)
        recipe = tiny_recipe(tmp_path, reward={"parts": {"x": part}})
        assert _record(recipe, prompts)["files"] == []  # where it cannot be found the reward says so
        told = []
        for text in ("f = 1", "f = 2"):
            (tmp_path / "own_counted.py").write_text(text)
            importlib.invalidate_caches()
            told += _record(recipe, prompts)["files"]
        assert len(set(told)) == 2 and "own_counted" not in sys.modules
