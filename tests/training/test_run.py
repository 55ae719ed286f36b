from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra train")

import torch
from safetensors import SafetensorError
from transformers import TrainerCallback
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.commands.runs.training_run import stoppable
from adjudge.engine.errors import AdjudgeError, ModelUnsupported
from adjudge.engine.models.adapters import Base, check_base
from adjudge.engine.models.sources import open_source, resolve
from adjudge.training.evaluator.direct import train_direct
from adjudge.training.grpo.grpo import train_grpo
from adjudge.training.metrics import read_metrics
from adjudge.training.run_folder import RunFolder
from adjudge.training.sft import train_sft
from adjudge.training.trainer import calm
from tests.jsonl import write_lines
from tests.training.evaluator.rated import direct_recipe
from tests.training.runs import KillAfter, Killed, Vowels, recipe_in, tiny_recipe

LORA: dict[str, Any] = {"method": "lora", "lora": {"rank": 4}}


def saved_model(folder: Path, seed: int = 0) -> str:
    """A tiny model in a folder, its weights drawn by the seed."""
    opened = open_source(resolve("dummy:tiny-llama"), dtype=torch.float32)
    torch.manual_seed(seed)
    for weights in opened.model.parameters():
        weights.data.normal_(std=0.02)
    opened.model.save_pretrained(folder)
    opened.tokenizer.save_pretrained(folder)
    return str(folder)


MISTAKES = [
    (
        {"policy": {"method": "lora", "lora": {"targets": ["q_proj", "v_prj"]}}},
        r'targets has "v_prj", .* they are q_proj',
    ),
    ({"policy": {"method": "lora", "lora": {"targets": ["lm_head"]}}}, r'targets has "lm_head", which is no layer'),
    ({"data": {"max_prompt_tokens": 1}}, "no prompt has 1 tokens or fewer"),
    ({"logging": {"report_to": ["wandbb"]}}, r'report_to names "wandbb": choose from .*wandb'),
    ({"logging": {"report_to": ["neptune"]}}, r'report_to names "neptune", which is not installed'),
    ({"data": {"prompts": ["a", ""], "chat": False}}, "prompt 2: the prompt is empty"),
    ({"data": {"prompts": ["a", ""]}}, "prompt 2: the prompt is empty: write one, or leave the row out"),
]


@pytest.mark.parametrize(("tables", "message"), MISTAKES, ids=[message[:20] for _, message in MISTAKES])
def test_a_mistake_forgets_no_earlier_run_and_leaves_none_of_its_own(
    tmp_path: Path, tables: dict[str, Any], message: str
) -> None:
    with pytest.raises(AdjudgeError, match=message):
        train_grpo(tiny_recipe(tmp_path, **tables), reward=Vowels())
    right = tiny_recipe(tmp_path, optimiser={"steps": 1})
    folder = train_grpo(right, reward=Vowels()).folder  # the mended recipe meets no earlier run
    before = folder.metrics.read_bytes()
    with pytest.raises(AdjudgeError, match=message):
        train_grpo(tiny_recipe(tmp_path, **tables), reward=Vowels(), overwrite=True)
    assert folder.metrics.read_bytes() == before and (folder.policy / "model.safetensors").is_file()


def nested(levels: int) -> Any:
    """A number in lists and tables in turn, so many of them in each other."""
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": 2**64}, '"x" is 18446744073709551616, of more than 64 bits: write it as a text'),
        ({"x": {"a": [2**64]}}, '"x" is 18446744073709551616, of more than 64 bits: write it as a text'),
        ({"x": nested(33)}, '"x" is nested more than 32 deep: make it flatter, or write it as a text'),
        ({"x": nested(400)}, '"x" is nested more than 32 deep: make it flatter, or write it as a text'),
        ({"a\0b": 1}, r'the name of column "a\\u0000b" holds a NUL: rename it'),
        ({"x": [{"a\0b": 1}]}, r'"x" has the name "a\\u0000b", which holds a NUL: rename it'),
    ],
)
def test_a_column_that_no_table_of_the_trainer_holds_is_refused(
    tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    write_lines(tmp_path / "rows.jsonl", {"prompt": "a"}, {"prompt": "b", **columns})
    recipe = tiny_recipe(tmp_path, data={"prompts": [], "train": "rows.jsonl"})
    with pytest.raises(AdjudgeError, match=f"line 2 of rows.jsonl: {message}"):
        train_grpo(recipe, reward=Vowels())


def test_columns_as_deep_as_may_be_and_one_called_self_train_a_policy(tmp_path: Path) -> None:
    write_lines(tmp_path / "rows.jsonl", *({"prompt": prompt, "x": nested(32), "self": "I"} for prompt in "ab"))
    data, reward = {"prompts": [], "train": "rows.jsonl"}, {"journal": True}
    assert train_grpo(tiny_recipe(tmp_path, data=data, reward=reward, optimiser={"steps": 1})).step == 1


@pytest.mark.parametrize(
    "tables",
    [
        {"output": "o", "seed": 2**31},
        {"output": "o", "optimiser": {"lr": float("inf")}},
        {"output": "o", "optimiser": {"epochs": float("inf")}},
        {"output": "o", "policy": {"method": "lora", "lora": {"targets": []}}},
        {"output": "o", "data": {"system": "Use tags.", "chat": False}},
    ],
)
def test_numbers_that_no_trainer_takes_and_tables_without_effect_are_refused(
    tmp_path: Path, tables: dict[str, Any]
) -> None:
    with pytest.raises(AdjudgeError, match=r"seed|lr|epochs|targets|system"):
        tiny_recipe(tmp_path, **tables)


def test_what_a_run_is_to_start_from_is_not_forgotten_by_it(tmp_path: Path) -> None:
    folder = train_grpo(tiny_recipe(tmp_path, policy=LORA, optimiser={"steps": 1}), reward=Vowels()).folder
    for model in ("./out/policy", "./out/checkpoint-1"):
        with pytest.raises(AdjudgeError, match=r"is in the folder of this run, which forgets it: name another output"):
            train_grpo(tiny_recipe(tmp_path, policy={"model": model}), reward=Vowels(), overwrite=True)
    judge = {"parts": {"judge": {"kind": "judge", "judge": "pointwise"}}, "engine": {"adapter": str(folder.policy)}}
    with pytest.raises(AdjudgeError, match="is in the folder of this run"):
        train_grpo(tiny_recipe(tmp_path, reward=judge), overwrite=True)
    assert (folder.policy / "adapter_model.safetensors").is_file()


def test_a_run_goes_on_over_the_weights_that_it_began_with_alone(tmp_path: Path) -> None:
    model = saved_model(tmp_path / "model")
    recipe = tiny_recipe(tmp_path, policy={"model": model, **LORA})
    with pytest.raises(Killed):
        train_grpo(recipe, reward=Vowels(), callbacks=[KillAfter(3)])
    saved_model(tmp_path / "model", seed=1)
    with pytest.raises(AdjudgeError, match="weights is not what the run in .* began with"):
        train_grpo(recipe, reward=Vowels(), resume=True)
    saved_model(tmp_path / "model")
    assert train_grpo(recipe, reward=Vowels(), resume=True).step == 4


def test_one_run_at_a_time_writes_in_a_folder(tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path, optimiser={"steps": 3}, logging={"save_every": 1})
    seen: list[str] = []

    class Second(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 1:
                with pytest.raises(AdjudgeError, match="another run is under way in") as refused:
                    train_grpo(recipe, reward=Vowels(), resume=True)
                seen.append(str(refused.value))

    run = train_grpo(recipe, reward=Vowels(), callbacks=[Second()])
    assert len(seen) == 1 and [line["step"] for line in read_metrics(run.folder.metrics)] == [1, 2, 3]


def test_weights_that_are_not_finite_are_no_policy(tmp_path: Path) -> None:
    class Spoilt(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            next(model.parameters()).data.fill_(float("nan"))

    with pytest.raises(
        AdjudgeError, match=r"the weights after step 2 are not finite, and no policy was written: lower"
    ):
        train_sft(recipe_in(tmp_path, optimiser={"steps": 2}), callbacks=[Spoilt()])
    assert not (tmp_path / "out" / "policy").exists() and not (tmp_path / "out" / "policy.making").exists()


def test_a_policy_that_is_half_written_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = direct_recipe(tmp_path, optimiser={"steps": 1})

    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("transformers.PreTrainedTokenizerBase.save_pretrained", full)
        with pytest.raises(OSError, match="No space left"):
            train_direct(recipe)
    assert not RunFolder(tmp_path / "out").policy.exists()
    run = train_direct(recipe, resume=True)
    assert (run.folder.policy / "adapter_model.safetensors").is_file() and not run.folder.making.exists()


def test_an_adapter_over_a_dummy_says_so_by_its_name_and_is_opened_over_that_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    adapter = train_sft(recipe_in(tmp_path, policy=LORA, optimiser={"steps": 1})).folder.policy
    config = json.loads((adapter / "adapter_config.json").read_bytes())
    assert config["base_model_name_or_path"] == "dummy:tiny-llama"
    check_base(adapter, Base("dummy:tiny-llama", resolve("dummy:tiny-llama").fingerprint))
    assert not caplog.records
    with pytest.raises(ModelUnsupported, match="was trained over dummy:tiny-llama, and this is dummy:tiny-qwen2"):
        check_base(adapter, Base("dummy:tiny-qwen2", resolve("dummy:tiny-qwen2").fingerprint))


def test_a_folder_of_ones_own_stands_where_a_run_writes_a_dummys_weights(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, output=".", optimiser={"steps": 1})
    folder = RunFolder(tmp_path)
    for theirs in (tmp_path / "start", folder.making):
        theirs.mkdir()
        (theirs / "poem.txt").write_text("mine")
    with pytest.raises(AdjudgeError, match=r"holds policy\.making, but no recipe\.json of a run: name another"):
        train_sft(recipe)
    assert (folder.making / "poem.txt").exists()
    (folder.making / "poem.txt").unlink()
    folder.making.rmdir()
    for overwrite in (False, True):
        train_sft(recipe, overwrite=overwrite)
        assert (tmp_path / "start" / "poem.txt").read_text() == "mine" and not folder.making.exists()


def test_a_run_is_not_resumed_and_forgotten_at_once(tmp_path: Path) -> None:
    train_sft(recipe_in(tmp_path, optimiser={"steps": 1}))
    for steps in (1, 2):
        with pytest.raises(AdjudgeError, match="resume goes on with the run in .* overwrite forgets it: leave one out"):
            train_sft(recipe_in(tmp_path, optimiser={"steps": steps}, seed=1), resume=True, overwrite=True)


@pytest.mark.parametrize("prompt", ["policy", "start", "run/\0", "\ud800/x", "out"])
def test_a_text_that_is_no_path_of_the_run_stands_in_no_ones_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prompt: str
) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / "policy").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    folder.check_inputs({"prompts": [prompt], "output": str(tmp_path)})
    inside = ("./policy", f"~/{tmp_path.name}/policy/x", "dummy:" + str(tmp_path / "policy"))
    for name in inside:
        with pytest.raises(AdjudgeError, match="is in the folder of this run"):
            folder.check_inputs({"data": {"prompts": [prompt], "train": name}})


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file or directory", "/data/judge.txt"),
        ConnectionError("wandb is not reachable"),
        SafetensorError("Error while deserializing header"),
        RuntimeError("a matrix of the wrong shape"),
    ],
)
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, stoppable("out"):
        raise error
    assert raised.value is error


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe_in(tmp_path)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        'output = "out"\npolicy.model = "dummy:tiny-llama"\ndata.train = "rows.jsonl"\n'
        "optimiser = {rows_per_step = 2, steps = 1, micro_batch = 1}\nlogging.save_every = 1\n"
    )

    said = "Error while serializing: I/O error: No space left on device (os error 28)"
    for error in (SafetensorError(said), Exception(said)):  # as tokenizers' own is
        with pytest.raises(SystemExit), stoppable("out"):
            raise error

    def full(*args: Any, **options: Any) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 662")

    monkeypatch.setattr("torch.save", full)
    result = CliRunner().invoke(app, ["train", "sft", str(recipe)])
    assert result.exit_code == 1 and "Traceback" not in result.output
    assert "cannot write" in result.output and "run again with --resume to go on" in result.output


def test_the_record_tells_the_weights_of_judges_too(tmp_path: Path) -> None:
    judge = {"parts": {"j": {"kind": "judge", "judge": "pointwise", "options": {"aspects": "wit=Funny?"}}}}
    engine = {"engine": {"model": "dummy:tiny-qwen3", "device": "cpu"}}
    run = train_grpo(tiny_recipe(tmp_path, reward=judge | engine, optimiser={"steps": 1}))
    record = json.loads(run.folder.recipe.read_bytes())
    names = ("dummy:tiny-llama", "dummy:tiny-qwen3")
    assert record["weights"] == [resolve(name).fingerprint for name in names]


def test_a_folder_of_somebody_elses_is_neither_emptied_nor_gone_on_in(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path)
    theirs = Path(recipe.output) / "checkpoint-500"
    theirs.mkdir(parents=True)
    (theirs / "trainer_state.json").write_text("{}")
    for how in ({}, {"resume": True}):
        with pytest.raises(AdjudgeError, match=r"holds checkpoint-500, but no recipe\.json of a run: name another"):
            train_sft(recipe, **how)
    assert (theirs / "trainer_state.json").exists()
    assert train_sft(recipe, overwrite=True).folder.policy.exists() and not theirs.exists()


def test_a_run_that_is_to_answer_held_out_rows_from_now_on_answers_them_at_its_end(tmp_path: Path) -> None:
    def recipe(every: int) -> Any:
        logging = {"save_every": 2, "evaluate_every": every}
        return recipe_in(tmp_path, data={"held_out": 2}, optimiser={"steps": 4}, logging=logging)

    class KillOnceSaved(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 4:
                raise Killed

    with pytest.raises(Killed):
        train_sft(recipe(0), callbacks=[KillOnceSaved()])
    run = train_sft(recipe(2), resume=True)
    assert run.after is not None
    assert [line["step"] for line in read_metrics(run.folder.metrics) if line["split"] == "held_out"] == [0, 4]


def test_what_libraries_warn_of_in_a_run_is_not_heard_and_is_after_it(caplog: pytest.LogCaptureFixture) -> None:
    loggers = [logging.getLogger(name) for name in ("trl.trainer", "liger_kernel.backends.registry")]
    for context in (calm(), nullcontext()):
        with context:
            for logger in loggers:
                logger.warning("cannot be imported")
    assert caplog.messages == ["cannot be imported"] * 2
