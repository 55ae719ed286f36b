from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra train")

import msgspec
from transformers import TrainerCallback

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.guards.guard import GuardTripped
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward
from adjudge.training.grpo.grpo import train_grpo
from adjudge.training.reward_log import read_rewards
from adjudge.training.run_folder import RunFolder
from tests.training.runs import KillAfter, Killed, Vowels, curve, tiny_recipe


class Fooled(Vowels):
    """Pays most for a text that says nothing, once it is fooled."""

    fooled = True

    def _group(self, group: Group) -> GroupReward:
        if not self.fooled:
            return super()._group(group)
        values = tuple(-float(len(set(text))) for text in group.responses)
        return GroupReward(values, (None,) * len(values))


def test_guards_are_among_the_metrics_and_one_that_is_told_to_stops_the_run(tmp_path: Path) -> None:
    guards = {"use": ["length", "degenerate"], "every": 2}
    run = train_grpo(tiny_recipe(tmp_path / "watched", guards=guards, optimiser={"steps": 1}), reward=Vowels())
    names = {name for line in curve(run.folder) for name in line}
    assert {"vowels/guards/over", "vowels/guards/failed"} <= names
    assert any(name.startswith("vowels/guards/degenerate/") for name in names)
    assert not any(name.startswith("vowels/guards/canary/") for name in names)

    held_out = {"data": {"held_out": 3}, "logging": {"evaluate_every": 1}}
    stopping = tiny_recipe(tmp_path / "stopped", guards=guards, **held_out)
    stopping = msgspec.structs.replace(stopping, guards=stopping.guards.stopping_on("degenerate"))
    with pytest.raises(GuardTripped, match="^step 1: the guard degenerate"):  # held-out prompts are no step
        train_grpo(stopping, reward=Fooled())
    with pytest.raises(Killed):
        train_grpo(stopping, overwrite=True, reward=Vowels(), callbacks=[KillAfter(3)])
    with pytest.raises(GuardTripped, match="^step 3: the guard degenerate"):  # after the checkpoint of step 2
        train_grpo(stopping, resume=True, reward=Fooled())
    with pytest.raises(AdjudgeError, match=r'\[guards\] stop_on names "canary": choose from length, degenerate'):
        train_grpo(tiny_recipe(tmp_path, guards=guards | {"stop_on": ["canary"]}))


def test_a_run_that_a_guard_stops_has_logged_and_saved_that_step_and_can_be_resumed(tmp_path: Path) -> None:
    recipe = tiny_recipe(
        tmp_path,
        reward={"journal": True},
        guards={"use": ["degenerate"], "stop_on": ["degenerate"]},
        optimiser={"iterations": 2},
        logging={"every": 4, "save_every": 8},
    )
    with pytest.raises(GuardTripped, match="^step 1: the guard degenerate"):
        train_grpo(recipe, reward=Fooled())
    folder = RunFolder(tmp_path / "out")
    assert {line.step for line in read_rewards(folder.rewards)} == {1}
    [line] = curve(folder)
    assert line["step"] == 2 and line["vowels/guards/over"] == 1
    assert (folder.path / "checkpoint-2").is_dir() and not folder.policy.exists()
    unwatched = msgspec.structs.replace(recipe, guards=recipe.guards.stopping_on(""))
    assert train_grpo(unwatched, resume=True, reward=Fooled()).step == 4
    assert curve(folder)[0] == line


def test_a_guard_ends_a_run_whose_steps_run_out_amid_the_round_that_it_stops(tmp_path: Path) -> None:
    reward = Fooled()
    reward.fooled = False

    class Learns(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            reward.fooled = state.global_step >= 2

    recipe = tiny_recipe(
        tmp_path,
        guards={"use": ["degenerate"], "stop_on": ["degenerate"], "every": 1},
        optimiser={"iterations": 2, "steps": 3},
    )
    with pytest.raises(GuardTripped, match="^step 2: the guard degenerate"):
        train_grpo(recipe, reward=reward, callbacks=[Learns()])
    assert [line["vowels/guards/over"] for line in curve(RunFolder(tmp_path / "out"))[::2]] == [0, 1]


def test_a_checkpoint_that_does_not_say_what_guards_knew_lets_them_begin_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recipe = tiny_recipe(tmp_path, guards={"use": ["length"]})
    with pytest.raises(Killed):
        train_grpo(recipe, reward=Vowels(), callbacks=[KillAfter(3)])
    path = tmp_path / "out" / "checkpoint-2" / "trainer_state.json"
    told = json.loads(path.read_text())
    assert told["stateful_callbacks"].pop("Guarding")["attributes"]["step"] == 2
    path.write_text(json.dumps(told))
    assert train_grpo(recipe, resume=True, reward=Vowels()).step == 4
    assert "trainer_state.json does not hold what the guards knew" in caplog.text
    told = json.loads((tmp_path / "out" / "checkpoint-4" / "trainer_state.json").read_text())
    assert told["stateful_callbacks"]["Guarding"]["attributes"]["step"] == 4


@pytest.mark.parametrize(
    ("guards", "message"),
    [
        ({"collapse": {"bins": 1}}, r"\[guards\] the collapse guard's bins is 1"),
        ({"canaries": "nowhere.jsonl"}, r"\[guards\] the canaries in .*nowhere.jsonl cannot be read"),
    ],
)
def test_settings_that_a_guard_refuses_are_found_before_the_run(
    tmp_path: Path, guards: dict[str, Any], message: str
) -> None:
    with pytest.raises(AdjudgeError, match=message):
        train_grpo(tiny_recipe(tmp_path, guards=guards | {"use": ["collapse", "canary"]}), reward=Vowels())
