from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adjudge.bench.policy.policies import Asked, Policy, asked_of, base_of, policy_of
from adjudge.engine.errors import AdjudgeError

DATA = {"prompts": ["p"], "system": "Be brief."}


def run_folder(path: Path, model: str = "smollm2-135m", *, adapter: bool = False, data: Any = DATA) -> Path:
    """What a finished run leaves behind, but for the weights."""
    (path / "policy").mkdir(parents=True)
    (path / "recipe.json").write_text(json.dumps({"policy": {"model": model}, "data": data}))
    name = "adapter_config.json" if adapter else "config.json"
    (path / "policy" / name).write_text(json.dumps({"base_model_name_or_path": "/cache/of/another/machine"}))
    return path


def test_a_run_folder_is_its_policy_and_tells_what_it_was_trained_from_and_how_it_was_asked(tmp_path: Path) -> None:
    whole = policy_of(str(run_folder(tmp_path / "whole")))
    asked = Asked(chat=True, system="Be brief.")
    place = str(tmp_path / "whole")
    assert whole == Policy(place, f"{place}/policy", None, "smollm2-135m", asked)
    lora = policy_of(str(run_folder(tmp_path / "lora", adapter=True)))
    assert (lora.model, lora.adapter) == ("smollm2-135m", f"{tmp_path}/lora/policy")
    assert (lora.base, lora.asked) == ("smollm2-135m", asked)


def test_a_checkpoint_of_a_run_is_read_with_its_recipe(tmp_path: Path) -> None:
    checkpoint = run_folder(tmp_path / "out") / "checkpoint-20"
    checkpoint.mkdir()
    assert policy_of(str(checkpoint)).base == "smollm2-135m"
    assert policy_of(str(checkpoint)).model == str(checkpoint)


def test_an_adapter_by_itself_lies_over_the_base_it_names_and_a_model_over_nothing(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "org/model"}')
    lora = policy_of(str(tmp_path))
    assert (lora.model, lora.adapter, lora.base, lora.asked) == ("org/model", str(tmp_path), "org/model", None)
    assert policy_of("dummy:tiny-llama") == Policy("dummy:tiny-llama", "dummy:tiny-llama")
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(AdjudgeError, match="does not name its base model"):
        policy_of(str(tmp_path))


def test_a_run_without_a_policy_is_named_with_what_there_is(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "out")
    (run / "policy" / "config.json").unlink()
    (run / "policy").rmdir()
    with pytest.raises(AdjudgeError, match="has no policy yet: let it train first"):
        policy_of(str(run))
    (run / "checkpoint-4").mkdir()
    (run / "checkpoint-4" / "trainer_state.json").write_text("{}")
    with pytest.raises(AdjudgeError, match="or name .*checkpoint-4"):
        policy_of(str(run))


def test_all_are_compared_with_the_model_they_share_or_the_one_that_is_named(tmp_path: Path) -> None:
    one, other = (policy_of(str(run_folder(tmp_path / name, name))) for name in ("first", "second"))
    assert base_of([one, one, policy_of("dummy:tiny-llama")], None).model == "first"
    assert base_of([one, other], "dummy:tiny-llama").model == "dummy:tiny-llama"
    with pytest.raises(AdjudgeError, match="were trained from first and second: name what to compare"):
        base_of([one, other], None)
    with pytest.raises(AdjudgeError, match=r"do not say what they were trained from \(out/run: no folder here\): name"):
        base_of([policy_of(str(tmp_path)), policy_of("out/run")], None)


def test_policies_are_asked_as_in_training_unless_that_differs_or_the_user_says_otherwise(tmp_path: Path) -> None:
    plain = policy_of(str(run_folder(tmp_path / "plain")))
    chatty = policy_of(str(run_folder(tmp_path / "chatty", data={"prompts": ["p"], "chat": False})))
    assert asked_of([plain, policy_of("dummy:tiny-llama")], None, None) == Asked(chat=True, system="Be brief.")
    assert asked_of([plain], False, None) == Asked(chat=False, system="Be brief.")
    assert asked_of([plain], None, "") == Asked(chat=True, system="")
    assert asked_of([], None, None) == Asked()
    assert asked_of([plain, chatty], True, "Hm.") == Asked(chat=True, system="Hm.")
    with pytest.raises(AdjudgeError, match="asked their policies in different ways"):
        asked_of([plain, chatty], None, "Hm.")


@pytest.mark.parametrize(("kind", "command"), [("preference", "reward"), ("direct", "direct"), ("house", "house")])
def test_a_run_that_ends_in_a_judge_is_none_that_writes(tmp_path: Path, kind: str, command: str) -> None:
    run = run_folder(tmp_path / "out", adapter=True)
    (run / "recipe.json").write_text(json.dumps({"kind": kind, "policy": {"model": "smollm2-135m"}}))
    (run / "checkpoint-2").mkdir()
    for name in (run, run / "policy", run / "checkpoint-2"):
        with pytest.raises(
            AdjudgeError, match=rf"{name} is a judge \(adjudge train {command}\).*runs of train grpo or"
        ):
            policy_of(str(name))
