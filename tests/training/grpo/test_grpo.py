from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra train")

import msgspec
import torch
from transformers import TrainerCallback
from trl.trainer.grpo_trainer import GRPOTrainer

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models import dummy
from adjudge.engine.models.sources import open_source, resolve
from adjudge.engine.text.prompt import Message, Prompt
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.rewards.engines.specification import EngineSpec
from adjudge.training.grpo import trainer
from adjudge.training.grpo.grpo import train_grpo
from adjudge.training.grpo.recipe import GrpoRecipe
from adjudge.training.recipe import Data, read_recipe
from adjudge.training.run_folder import RunFolder
from tests.jsonl import write_lines
from tests.training.runs import PROMPTS, Vowels, curve, tiny_recipe, weights

TINY = "dummy:tiny-llama"


def test_an_epoch_is_once_through_the_prompts(tmp_path: Path) -> None:
    optimiser = {"prompts_per_step": 2, "epochs": 2.0, "iterations": 2}  # of three prompts: three rounds of two steps
    data = {"prompts": PROMPTS[:3], "held_out": 0}
    lines = curve(
        train_grpo(tiny_recipe(tmp_path, data=data, optimiser={"steps": None} | optimiser), reward=Vowels()).folder
    )
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [line["epoch"] for line in lines] == pytest.approx([step / 3 for step in range(1, 7)])


def test_the_policy_moves_and_its_metrics_and_curves_are_kept(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra report")
    run = train_grpo(tiny_recipe(tmp_path, optimiser={"beta": 0.1}), reward=Vowels())
    first, last = curve(run.folder)[0], curve(run.folder)[-1]
    assert first["kl"] == 0 and last["kl"] > 0
    assert {"reward", "completions/mean_length", "vowels/abstained", "frac_reward_zero_std"} <= last.keys()
    begun, trained = weights(TINY), weights(run.folder.policy)
    assert any(not torch.equal(begun[name], trained[name]) for name in begun)
    assert run.folder.curves.read_bytes().startswith(b"\x89PNG")
    assert (run.before, run.after) == (None, None)


def test_every_prompt_is_answered_once_before_one_is_answered_again(tmp_path: Path) -> None:
    reward = Vowels()
    train_grpo(tiny_recipe(tmp_path, optimiser={"steps": 7}), reward=reward)
    asked = [group.prompt for group in reward.groups]
    assert sorted(asked[:7]) == sorted(asked[7:]) == sorted(PROMPTS)
    assert all(len(group.responses) == 2 for group in reward.groups)


def test_groups_that_abstain_teach_nothing_and_are_counted(tmp_path: Path) -> None:
    rows = "".join(json.dumps({"prompt": prompt, "odd": True}) + "\n" for prompt in PROMPTS)
    tmp_path.joinpath("rows.jsonl").write_text(rows)
    recipe = tiny_recipe(tmp_path, data={"train": "rows.jsonl", "prompts": []}, optimiser={"steps": 2})
    for how in ({}, {"resume": True}):
        with pytest.raises(AdjudgeError, match=r'no completion of the run was given a reward \("low_mass"\)'):
            train_grpo(recipe, reward=Vowels(), **how)
    folder = RunFolder(tmp_path / "out")
    lines = curve(folder)
    assert [line["vowels/abstained/low_mass"] for line in lines] == [1.0, 1.0]
    assert all(line["reward"] is None and line["grad_norm"] == 0 for line in lines)
    begun, trained = weights(TINY), weights(folder.policy)
    assert all(torch.equal(begun[name], trained[name]) for name in begun)


def test_how_many_completions_got_no_reward_is_told_at_the_end(tmp_path: Path) -> None:
    rows = [{"prompt": prompt, "odd": place < 2} for place, prompt in enumerate(PROMPTS[:4])]
    write_lines(tmp_path / "rows.jsonl", *rows)
    data, told = {"train": "rows.jsonl", "prompts": []}, list[str]()
    train_grpo(tiny_recipe(tmp_path, data=data, optimiser={"steps": 2}), reward=Vowels(), status=told.append)
    assert told[-1].startswith('50% of the completions got no reward, most often as "low_mass" (vowels/abstained')


FAILING = """
def asks(prompts):
    if "two" in prompts:
        raise OSError("the server is gone")
    return list(range(len(prompts)))
"""


def test_a_function_that_fails_costs_the_groups_it_fails_on_where_a_recipe_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_asking.py").write_text(FAILING)
    (tmp_path / "recipe.toml").write_text("""
        output = "out"
        policy.model = "dummy:tiny-llama"
        data.prompts = ["one", "two"]
        reward.deadline = 60
        reward.on_failure = "abstain"
        reward.parts.own = { kind = "function", function = "own_asking:asks" }
        guards.use = []
        generation = { group = 2, max_tokens = 6 }
        optimiser = { prompts_per_step = 2, steps = 1 }
    """)
    [line] = curve(train_grpo(read_recipe(tmp_path / "recipe.toml", GrpoRecipe)).folder)
    assert line["reward/abstained/cancelled"] == 0.5 and line["reward"] == 0.5


@pytest.mark.skipif(torch.cuda.is_available(), reason="is of machines without a GPU")
def test_kernels_that_need_a_gpu_are_refused_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "liger_kernel").mkdir()
    (tmp_path / "liger_kernel" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)  # installed
    with pytest.raises(AdjudgeError, match=r'\[optimiser\] liger is true, and its kernels need a GPU.*: write "auto"'):
        train_grpo(tiny_recipe(tmp_path, optimiser={"liger": True}), reward=Vowels())
    assert not (tmp_path / "out").exists()


def test_without_the_standard_deviation_the_advantage_is_the_difference_to_the_mean(tmp_path: Path) -> None:
    """The gradient scales with the rewards then; divided by the deviation it would not."""

    class Scaled(Vowels):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def _group(self, group: Any) -> Any:
            found = super()._group(group)
            return type(found)(tuple(self.factor * value for value in found.rewards), found.abstained)

    norms = {}
    for factor in (1.0, 8.0):
        tables = {"optimiser": {"advantage": "none", "steps": 1}, "generation": {"group": 4}}
        run = train_grpo(tiny_recipe(tmp_path / str(factor), **tables), reward=Scaled(factor))
        norms[factor] = curve(run.folder)[0]["grad_norm"]
    assert norms[8.0] == pytest.approx(8 * norms[1.0], rel=1e-3) and norms[1.0] > 0


def test_an_adapter_is_trained_and_its_base_stays(tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="needs the extra train")
    tables = {"policy": {"method": "lora", "lora": {"rank": 2}}, "optimiser": {"beta": 0.1, "lr": 0.1}}
    run = train_grpo(tiny_recipe(tmp_path, **tables), reward=Vowels())
    assert (run.folder.policy / "adapter_model.safetensors").is_file()
    assert not (run.folder.policy / "model.safetensors").exists()
    assert curve(run.folder)[-1]["kl"] > 0


def test_the_policys_first_weights_judge_it_asleep_between_calls_as_a_model_of_their_own_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("peft", reason="needs the extra train")
    judge = {"kind": "judge", "judge": "pointwise", "options": {"min_mass": 0.0, "aspects": "coherence"}}
    engines = {"policy": {"model": "policy", "kv_cache_gb": 0.05}, "own": {"model": TINY, "kv_cache_gb": 0.05}}
    curves = {}
    for name, engine in engines.items():
        tables: dict[str, Any] = {
            "policy": {"method": "lora", "lora": {"rank": 2}},
            "optimiser": {"steps": 3, "lr": 0.1},
        }
        reward = {"parts": {"judge": judge}, "engine": engine, "sleep": True}
        seen = Sleeping(monkeypatch)
        run = train_grpo(tiny_recipe(tmp_path / name, reward=reward, **tables), callbacks=[seen])
        assert seen.asleep == [True] * 3
        curves[name] = [
            {key: value for key, value in line.items() if not key.endswith("seconds")} for line in curve(run.folder)
        ]
    assert curves["policy"] == curves["own"]
    assert len({line["reward"] for line in curves["own"]}) == 3 and curves["own"][0]["reward/abstained"] == 0


class Sleeping(TrainerCallback):
    """Notes after each step whether the engines that were opened since are all asleep."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asleep: list[bool] = []
        self.opened: list[Engine] = []
        opening = Engine.__init__

        def opens(engine: Engine, *how: Any, **named: Any) -> None:
            opening(engine, *how, **named)
            self.opened.append(engine)

        monkeypatch.setattr(Engine, "__init__", opens)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.asleep.append(bool(self.opened) and all(engine.asleep for engine in self.opened))


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({}, "line 2 of rows.jsonl: \"score\" is 'good': give people's score, from 1 to 5"),
        ({"guards": {"use": ["collapse"], "collapse": {"parts": ["acuracy"]}}}, 'has no part "acuracy": choose from'),
    ],
)
def test_scores_that_cannot_be_read_and_parts_that_are_not_there_are_found_before_the_policy_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(trainer, "open_policy", lambda *_, **__: pytest.fail("the policy was loaded"))
    last = "good" if not tables else 2
    rows = [{"prompt": "a", "score": "4"}, {"prompt": "b", "score": last}]
    write_lines(tmp_path / "rows.jsonl", *rows)
    recipe = tiny_recipe(tmp_path, reward={"parts": {"accuracy": {"kind": "accuracy", "columns": ["score"]}}}, **tables)
    recipe = msgspec.structs.replace(recipe, data=Data(train=str(tmp_path / "rows.jsonl")))
    with pytest.raises(AdjudgeError, match=message):
        train_grpo(recipe)


def test_the_systems_turn_of_the_recipe_is_not_part_of_what_is_judged(tmp_path: Path) -> None:
    reward = Vowels()
    train_grpo(tiny_recipe(tmp_path, data={"system": "Use tags."}, optimiser={"steps": 1}), reward=reward)
    [one, *_] = reward.groups
    assert one.prompt in PROMPTS and one.conversation == (("system", "Use tags."), ("user", one.prompt))


PARTS = "{% for turn in messages %}{% for part in turn['content'] %}{{ part['text'] }}|{% endfor %}{% endfor %}"
PLAIN = "{% for turn in messages %}{{ turn['content'] }}|{% endfor %}"
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + PLAIN
OPEN = PLAIN + "{{ '<think>\\n' if add_generation_prompt }}"
DATED = "{{ strftime_now('%d %b %Y') }}|" + PLAIN
THINKING = PLAIN + "{{ '<nothing>' if enable_thinking is false else '<think>' }}"
ASKED: dict[str, tuple[Any, ...]] = {  # a chat template, what its policy is asked, and what one is that is to think
    "parts": (PARTS, "Be brief.|Hi.|", "Be brief.|Hi.|"),
    "no system": (NO_SYSTEM, "Be brief.\n\nHi.|"),
    "open thought": (OPEN, "Be brief.|Hi.|<think>\n\n</think>\n\n", "Be brief.|Hi.|<think>\n"),
    "day": (DATED, "26 Jul 2024|Be brief.|Hi.|"),
    "thinking": (THINKING, "Be brief.|Hi.|<nothing>", "Be brief.|Hi.|<think>"),
    "no chat": (None, "<|im_start|>Hi."),
}


@pytest.mark.parametrize(
    ("kind", "thinks"),
    [*((kind, False) for kind in ASKED), *((kind, True) for kind in ("parts", "open thought", "thinking"))],
)
def test_the_policy_is_asked_what_engines_ask_token_for_token_unless_what_follows_its_thoughts_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, thinks: bool
) -> None:
    template, *expected = ASKED[kind]
    source = open_source(resolve(TINY), dtype=torch.float32)
    source.tokenizer.chat_template = template
    source.model.save_pretrained(tmp_path / "policy")
    source.tokenizer.save_pretrained(tmp_path / "policy")
    words = Tokenizer(source.tokenizer)
    limit = len(words.prompt(expected[thinks]))
    read: list[Any] = []
    write = GRPOTrainer._generate_single_turn
    monkeypatch.setattr(
        GRPOTrainer,
        "_generate_single_turn",
        lambda trainer, ids, *rest: (read.extend(map(tuple, ids)), write(trainer, ids, *rest))[1],
    )
    parts = {"x": {"kind": "check", "ends_with": ["."], **({"after": "think"} if thinks else {})}}
    data: dict[str, Any] = {"prompts": ["Hi."], "system": "Be brief."} if template else {"prompts": ["<|im_start|>Hi."]}
    tables = {"reward": {"parts": parts}, "data": {**data, "chat": template is not None, "max_prompt_tokens": limit}}
    reward = Vowels()
    train_grpo(tiny_recipe(tmp_path, policy={"model": "./policy"}, optimiser={"steps": 1}, **tables), reward=reward)
    turns = [
        Message("system", Prompt.template("{it}", it="Be brief.")),
        Message("user", Prompt.template("{it}", it="Hi.")),
    ]
    asked = words.prompt(words.chat(turns) if template else "<|im_start|>Hi.")
    assert {words.decode(ids) for ids in read} == {expected[thinks]}
    assert set(read) == {asked} or thinks
    assert {group.prompt for group in reward.groups} == set(data["prompts"])


def test_a_prompt_that_the_chat_template_does_not_take_is_named_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dummy, "CHATML", "{{ messages[-1]['content'] }}")
    turns = [{"role": role, "content": role} for role in ("user", "assistant", "user")]
    write_lines(tmp_path / "rows.jsonl", {"prompt": "a"}, {"prompt": turns})
    recipe = tiny_recipe(tmp_path, data={"train": "rows.jsonl", "prompts": []})
    with pytest.raises(AdjudgeError, match=r"line 2 of rows.jsonl: the model's chat template drops a message"):
        train_grpo(recipe, reward=Vowels(), callbacks=[Begun()])


class Begun(TrainerCallback):
    """Fails a test whose training begins."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        pytest.fail("the training began")


def test_the_text_of_a_conversation_is_what_is_judged(tmp_path: Path) -> None:
    user, reply = {"role": "user", "content": "One?"}, {"role": "assistant", "content": "Two."}
    rows = [{"prompt": [user]}, {"prompt": [user, reply, user]}]
    write_lines(tmp_path / "rows.jsonl", *rows)
    reward = Vowels()
    data = {"train": "rows.jsonl", "prompts": [], "system": "Use tags."}
    train_grpo(tiny_recipe(tmp_path, data=data, optimiser={"steps": 1}), reward=reward)
    assert {group.prompt for group in reward.groups} == {"One?", "user: One?\n\nassistant: Two.\n\nuser: One?"}
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": [{"role": "user", "content": ""}]}) + "\n")
    with pytest.raises(AdjudgeError, match="line 1 of rows.jsonl: the prompt is empty"):
        train_grpo(tiny_recipe(tmp_path, data=data), reward=reward, overwrite=True)


def test_models_of_judges_and_references_are_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    own = EngineSpec.open_anew
    monkeypatch.setattr(EngineSpec, "open_anew", lambda spec: (opened.append(str(spec.model)), own(spec))[1])
    part = {"kind": "judge", "judge": "pointwise of pairs", "reference": "dynamic", "options": {"min_mass": 0.0}}
    reward = {"parts": {"x": part, "y": part}, "engine": {"model": "dummy:tiny-qwen3", "kv_cache_gb": 0.05}}
    train_grpo(tiny_recipe(tmp_path, reward=reward, optimiser={"steps": 1}))
    assert opened == ["dummy:tiny-qwen3", TINY]


def test_a_run_that_ends_before_anything_is_logged_has_ended_well(tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path, optimiser={"steps": 2}, logging={"every": 10, "save_every": 10})
    run = train_grpo(recipe, reward=Vowels())
    assert run.folder.policy.is_dir() and (run.before, run.after) == (None, None)
    said: list[str] = []
    assert train_grpo(recipe, reward=Vowels(), resume=True, status=said.append).step == 2
    assert "continuing after step 2" in said
    shutil.rmtree(run.folder.checkpoint() or "")
    train_grpo(recipe, reward=Vowels(), resume=True, status=said.append)
    assert said[-1] == "no checkpoint to continue from yet ([logging] save_every): from the first step again"
