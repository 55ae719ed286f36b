from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PretrainedConfig, TrainerCallback

pytest.importorskip("trl", reason="needs the extra train")

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.scalar import ScalarJudge
from adjudge.rewards.records.verdict import Item
from adjudge.training.evaluator.preference import PairTask, preferences_of, train_reward
from adjudge.training.evaluator.recipe import PreferenceRecipe
from adjudge.training.evaluator.split import read_split
from adjudge.training.metrics import read_metrics
from adjudge.training.run import Run
from tests.training.evaluator.rated import PAIRS, preference_recipe
from tests.training.runs import KillAfter, Killed, curve


def served(run: Run, recipe: PreferenceRecipe, engine: Engine) -> dict[str, float]:
    """What the judge gives the held-out pairs, as the trainer measures it."""
    judge = ScalarJudge(engine)
    held_out = preferences_of(read_split(recipe.data, recipe.seed).held_out)
    chosen, rejected = (
        [
            verdict.score or 0.0
            for verdict in judge.judge([Item(prompt=one.prompt, response=text(one)) for one in held_out])
        ]
        for text in (lambda one: one.chosen, lambda one: one.rejected)
    )
    return {"reward_chosen": sum(chosen) / len(chosen), "reward_rejected": sum(rejected) / len(rejected)}


def measured(run: Run) -> dict[str, Any]:
    [*_, line] = [line for line in read_metrics(run.folder.metrics) if line["split"] == "held_out"]
    return {name: line[name] for name in ("reward_chosen", "reward_rejected")}


def test_an_adapter_with_its_head_gives_a_scalar_judge_the_rewards_that_were_trained(tmp_path: Path) -> None:
    recipe = preference_recipe(tmp_path, optimiser={"steps": 8})
    run = train_reward(recipe)
    assert (run.before, run.after) == (0.5, 1.0)
    engine = Engine("dummy:tiny-llama", adapter=run.folder.policy, kv_cache_gb=0.05)
    assert served(run, recipe, engine) == pytest.approx(measured(run), abs=1e-3)
    assert measured(run)["reward_chosen"] > measured(run)["reward_rejected"] + 1


@pytest.mark.parametrize("model", ["dummy:tiny-gpt2", "dummy:tiny-qwen3-reward"])
def test_whole_weights_do_too_and_a_reward_model_keeps_its_head(model: str, tmp_path: Path) -> None:
    policy = {"model": model, "method": "full"}
    recipe = preference_recipe(tmp_path, policy=policy, optimiser={"steps": 3, "lr": 0.001})
    run = train_reward(recipe)
    engine = Engine(str(run.folder.policy), kv_cache_gb=0.05)
    assert served(run, recipe, engine) == pytest.approx(measured(run), abs=1e-3)
    assert (run.before == 0.5) == (model == "dummy:tiny-gpt2")
    assert json.loads((run.folder.policy / "config.json").read_text()).get("pad_token_id") is None


def test_training_goes_on_with_its_padding_after_a_save_that_failed() -> None:
    task = PairTask.__new__(PairTask)
    task.config, task.own_pad, task.pad = PretrainedConfig(pad_token_id=5), None, 5
    with pytest.raises(OSError, match="full"), task.as_saved():
        assert task.config.pad_token_id is None
        raise OSError("full")
    assert task.config.pad_token_id == 5


def test_a_killed_run_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    tables = {"optimiser": {"steps": 4}, "logging": {"save_every": 2}}
    whole = train_reward(preference_recipe(tmp_path / "whole", **tables))
    recipe = preference_recipe(tmp_path / "killed", **tables)
    with pytest.raises(Killed):
        train_reward(recipe, callbacks=[KillAfter(3)])
    resumed = train_reward(recipe, resume=True)
    assert curve(resumed.folder) == curve(whole.folder)
    names = [run.folder.policy / "adapter_model.safetensors" for run in (whole, resumed)]
    assert names[0].read_bytes() == names[1].read_bytes()


def test_pairs_that_are_one_text_are_left_out_and_counted(tmp_path: Path) -> None:
    said: list[str] = []
    rows = [*PAIRS, {"prompt": "q", "chosen": "same", "rejected": "same"}]
    train_reward(preference_recipe(tmp_path, rows, optimiser={"steps": 1}), status=said.append)
    assert said[0] == "1 row left out: chosen and rejected are the same text"
    with pytest.raises(AdjudgeError, match="chosen response equal to the rejected one: nothing to learn"):
        train_reward(preference_recipe(tmp_path / "none", [{**row, "chosen": row["rejected"]} for row in PAIRS]))


def test_a_row_without_a_rejected_text_is_named_before_a_model_is_opened(tmp_path: Path) -> None:
    rows = [{"prompt": row["prompt"], "chosen": row["chosen"]} for row in PAIRS]
    with pytest.raises(AdjudgeError, match=r'of rows.jsonl: "rejected" is missing \(needed by a reward model\)'):
        train_reward(preference_recipe(tmp_path, rows, policy={"model": "nowhere"}))


def test_what_is_trained_of_an_adapter_with_its_head_is_in_float32(tmp_path: Path) -> None:
    seen: set[torch.dtype] = set()

    class Look(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            seen.update(weights.dtype for weights in model.parameters() if weights.requires_grad)

    policy = {"dtype": "bfloat16"}
    run = train_reward(preference_recipe(tmp_path, policy=policy, optimiser={"steps": 2}), callbacks=[Look()])
    assert seen == {torch.float32}
    assert Engine("dummy:tiny-llama", adapter=run.folder.policy, kv_cache_gb=0.05).reward(["a"])


def test_what_is_too_long_however_it_is_shortened_is_refused_and_what_becomes_one_text_is_left_out(
    tmp_path: Path,
) -> None:
    with pytest.raises(AdjudgeError, match=r"shortened as far as .* allow 4: raise max_tokens"):
        train_reward(preference_recipe(tmp_path, optimiser={"max_tokens": 4}))
    said: list[str] = []
    long = {"prompt": "p", "chosen": "a" * 3000 + "b" + "a" * 3000, "rejected": "a" * 6001}
    tables = {"optimiser": {"max_tokens": 600, "steps": 1}, "data": {"held_out": 0}}
    recipe = preference_recipe(tmp_path, [*PAIRS, long], **tables)
    train_reward(recipe, status=said.append)
    assert "1 row left out: chosen and rejected are the same text once they are shortened" in said
