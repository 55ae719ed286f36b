"""LoRA adapters over the base weights, put on and taken off."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, ModelCorrupt, ModelNotFound, ModelUnsupported
from adjudge.engine.models.adapters import attach, read_adapter
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.records.verdict import Pair
from tests.engine.adapted import (
    EMBEDDING,
    LABELS,
    PROMPTS,
    TINY,
    assert_agree,
    assert_untouched,
    changed,
    full_logprobs,
    save_adapter,
    saved_with_tokenizer,
    whole,
)
from tests.engine.reference import open_reference


@pytest.fixture
def engine() -> Engine:
    return Engine(TINY, kv_cache_gb=0.05)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two adapters, to be copied."""
    folder = tmp_path_factory.mktemp("adapters")
    save_adapter(folder / "good", seed=1)
    save_adapter(folder / "bad", seed=2)
    return folder


@pytest.mark.parametrize(
    ("model", "how"),
    [
        (TINY, {}),
        (TINY, {"use_dora": True, "r": 3}),
        (TINY, {"lora_bias": True}),
        ("dummy:tiny-gemma2", {"use_rslora": True}),
    ],
)
def test_an_adapter_scores_as_peft_does_and_taken_off_leaves_every_bit(
    model: str, how: dict[str, Any], tmp_path: Path
) -> None:
    reference = save_adapter(tmp_path, model, **how)
    engine = Engine(model, kv_cache_gb=0.05)
    bare = full_logprobs(engine)
    engine.update_weights(adapter=tmp_path)
    assert engine.adapter and engine.runner.batch_invariant
    assert_agree(engine, reference)
    assert full_logprobs(engine) != bare
    assert Engine(model, adapter=tmp_path, kv_cache_gb=0.05).score(PROMPTS, LABELS) == engine.score(PROMPTS, LABELS)
    assert [engine.score([prompt], LABELS)[0].full_logprobs for prompt in PROMPTS] == full_logprobs(engine)
    engine.update_weights(adapter=None)
    assert engine.adapter is None
    assert full_logprobs(engine) == bare


@pytest.mark.parametrize("how", [{}, {"use_dora": True}])
def test_in_half_precision_an_adapter_leaves_the_base_what_it_keeps_in_float32(
    how: dict[str, Any], tmp_path: Path
) -> None:
    name = "dummy:tiny-glm4_moe"
    save_adapter(tmp_path, name, target_modules=["q_proj", "v_proj"], **how)
    engine = Engine(name, dtype="bfloat16", kv_cache_gb=0.05)
    model = engine.runner.model
    base = {id(tensor): tensor.dtype for tensor in (*model.parameters(), *model.buffers())}
    assert set(base.values()) == {torch.bfloat16, torch.float32}
    engine.update_weights(adapter=tmp_path)
    states = {id(tensor): tensor.dtype for tensor in (*model.parameters(), *model.buffers())}
    assert base.items() <= states.items()
    assert {dtype for place, dtype in states.items() if place not in base} == {torch.bfloat16}
    bias = next(name for name in engine.runner.weights.after({}) if name.endswith("e_score_correction_bias"))
    engine.update_weights({bias: torch.full_like(model.state_dict()[bias], 3.0)})
    assert (model.state_dict()[bias] == 3.0).all()


def test_one_adapter_takes_the_place_of_another_and_names_itself(engine: Engine, tmp_path: Path) -> None:
    save_adapter(tmp_path / "first", seed=1)
    second = save_adapter(tmp_path / "second", seed=2)
    engine.update_weights(adapter=tmp_path / "first")
    first = engine.adapter
    engine.update_weights(adapter=tmp_path / "second")
    assert_agree(engine, second)
    assert len({None, first, engine.adapter}) == 3
    engine.update_weights(adapter=tmp_path / "first")
    assert engine.adapter == first


def test_what_was_judged_with_an_adapter_is_not_taken_for_the_bare_models(engine: Engine, tmp_path: Path) -> None:
    judge, pair = PairwiseJudge(engine), Pair(a="A lamp.", b="A moth.", prompt="Write.")
    bare = judge.key(pair)
    save_adapter(tmp_path)
    engine.update_weights(adapter=tmp_path)
    assert judge.key(pair) != bare
    engine.update_weights(adapter=None)
    assert judge.key(pair) == bare


def spoil_config(folder: Path, **fields: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def spoil_weights(folder: Path) -> None:
    path = folder / "adapter_model.safetensors"
    save_file({name: tensor * torch.nan for name, tensor in load_file(path).items()}, path)


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (shutil.rmtree, ModelNotFound, "holds no adapter"),
        (lambda folder: (folder / "adapter_model.safetensors").write_bytes(b"no"), ModelCorrupt, "unreadable"),
        (lambda folder: (folder / "adapter_config.json").write_text("{"), ModelCorrupt, "unreadable"),
        (lambda folder: spoil_weights(folder), ModelCorrupt, "not finite"),
        (lambda folder: spoil_config(folder, lora_alpha=1e30), ModelUnsupported, "not finite"),
        (
            lambda folder: spoil_config(folder, rank_pattern={"v_proj": 0}, init_lora_weights=False),
            ModelUnsupported,
            "does not fit .* positive",  # at the second layer that it replaces
        ),
        (lambda folder: spoil_config(folder, r=2), ModelUnsupported, "does not fit"),
        (lambda folder: spoil_config(folder, target_modules=["nothing"]), ModelUnsupported, "does not fit"),
        (lambda folder: spoil_config(folder, target_modules=["q_proj"]), ModelUnsupported, "does not fit"),
        (lambda folder: spoil_config(folder, modules_to_save=["lm_head"]), ModelUnsupported, "merge it"),
        (lambda folder: save_adapter(folder, "dummy:tiny-gpt_neox"), ModelUnsupported, "does not fit"),
        (lambda folder: save_adapter(folder, target_modules=["lm_head"]), ModelUnsupported, "head: merge it"),
        (
            lambda folder: spoil_config(folder, bias="lora_only"),
            ModelUnsupported,
            "its base model .bias lora_only.: merge",
        ),
        (lambda folder: spoil_config(folder, alora_invocation_tokens=[3, 4]), ModelUnsupported, "on some tokens alone"),
        (lambda folder: spoil_config(folder, init_lora_weights="pissa"), ModelUnsupported, "init_lora_weights pissa"),
        (
            lambda folder: spoil_config(folder, layer_replication=[[0, 2], [1, 2]]),
            ModelUnsupported,
            "layer_replication",
        ),
    ],
)
def test_an_adapter_that_cannot_be_used_is_one_sentence_and_the_present_one_stays(
    engine: Engine, spoil: Any, error: type[AdjudgeError], words: str, saved: Path, tmp_path: Path
) -> None:
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    good, bad = tmp_path / "good", tmp_path / "bad"
    spoil(bad)
    bare = full_logprobs(engine)
    with pytest.raises(error, match=words):
        engine.update_weights(adapter=bad)
    assert (engine.adapter, full_logprobs(engine)) == (None, bare)
    assert not any("lora" in name for name, _ in engine.runner.model.named_parameters())
    engine.update_weights(adapter=good)
    before = engine.adapter, full_logprobs(engine)
    shutil.rmtree(good)  # what is in place does not need its folder
    with pytest.raises(error, match=words):
        engine.update_weights(adapter=bad)
    assert (engine.adapter, full_logprobs(engine)) == before
    assert engine.runner.batch_invariant
    assert not any(type(module) is torch.nn.Linear for module in engine.runner.decoder.modules())


def test_an_adapter_in_the_home_of_nobody_is_not_there() -> None:
    with pytest.raises(ModelNotFound, match="~nobody-here/adapter holds no adapter"):
        read_adapter("~nobody-here/adapter")


def test_an_adapter_over_the_embeddings_is_put_on_and_taken_off(engine: Engine, tmp_path: Path) -> None:
    save_adapter(tmp_path, target_modules=["embed_tokens", "q_proj"])
    before = full_logprobs(engine)
    engine.update_weights(adapter=tmp_path)
    assert full_logprobs(engine) != before
    engine.update_weights(adapter=None)
    assert full_logprobs(engine) == before


@pytest.mark.parametrize("model", ["dummy:tiny-llama-untied", "dummy:tiny-llama-tied"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_an_adapter_repeats_of_its_base_is_left_out_and_not_written(
    model: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    reference = save_adapter(tmp_path, model, target_modules=["embed_tokens", "q_proj"])
    path = tmp_path / "adapter_model.safetensors"
    saved = load_file(path)
    assert any(name.endswith("embed_tokens.base_layer.weight") for name in saved)
    save_file({name: tensor if "lora_" in name else tensor.to(dtype) for name, tensor in saved.items()}, path)
    engine = Engine(model, kv_cache_gb=0.05)
    before = whole(engine)
    engine.update_weights(adapter=tmp_path)
    assert_agree(engine, reference)
    assert_untouched(engine, before)
    engine.update_weights(adapter=None)
    assert_untouched(engine, before)


def without_a_pair(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in weights.items() if "layers.1.self_attn.q_proj.lora_A" not in name}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            lambda weights: weights | {f"base_model.model.{EMBEDDING}": torch.ones(272, 64)},
            f"weights .{EMBEDDING}.: me",
        ),
        (
            lambda weights: weights | {"base_model.model.model.norm.weight": torch.ones(64)},
            "weights .model.norm.weight",
        ),
        (
            lambda weights: weights | {"base_model.model.model.norm.weight": torch.ones(65)},
            "weights .model.norm.weight",
        ),
        (lambda weights: weights | {"base_model.model.strange.weight": torch.ones(1)}, "weights .strange.weight"),
        (without_a_pair, "does not fit"),
    ],
)
def test_a_refused_adapter_leaves_every_bit_of_the_base(spoil: Any, words: str, tmp_path: Path) -> None:
    name = "dummy:tiny-llama-untied"
    save_adapter(tmp_path, name, target_modules=["embed_tokens", "q_proj"])
    path = tmp_path / "adapter_model.safetensors"
    engine = Engine(name, kv_cache_gb=0.05)
    before = whole(engine)
    save_file(spoil(load_file(path)), path)
    with pytest.raises(ModelUnsupported, match=words):
        engine.update_weights(adapter=tmp_path)
    assert_untouched(engine, before)
    with pytest.raises(ModelUnsupported, match=words):
        attach(engine.runner.model, read_adapter(tmp_path))
    assert_untouched(engine, before)


@pytest.mark.parametrize("model", ["dummy:tiny-llama-untied", "dummy:tiny-llama-tied"])
def test_an_adapter_that_repeats_another_base_than_there_is_by_now_is_refused(model: str, tmp_path: Path) -> None:
    save_adapter(tmp_path / "old", model, target_modules=["embed_tokens", "q_proj"])
    engine, policy = Engine(model, kv_cache_gb=0.05), changed(model)
    policy.save_pretrained(tmp_path / "policy")
    for together in (False, True):
        engine.update_weights(open_reference(model).state_dict())
        if together:
            before = whole(engine)
            with pytest.raises(ModelUnsupported, match="replaces whole weights"):
                engine.update_weights(tmp_path / "policy", adapter=tmp_path / "old")
        else:
            engine.update_weights(policy.state_dict())
            before = whole(engine)
            with pytest.raises(ModelUnsupported, match=f"replaces whole weights .{EMBEDDING}.: merge it"):
                engine.update_weights(adapter=tmp_path / "old")
        assert_untouched(engine, before)
    engine.update_weights(open_reference(model).state_dict(), adapter=tmp_path / "old")
    engine.update_weights(policy.state_dict())
    with pytest.raises(ModelNotFound):
        engine.update_weights(adapter=tmp_path / "none")
    assert engine.adapter, "the one that fitted when it was put on stays"
    again = Engine(model, kv_cache_gb=0.05)
    save_adapter(tmp_path / "new", str(saved_with_tokenizer(tmp_path / "policy")), target_modules=["embed_tokens"])
    again.update_weights(tmp_path / "policy", adapter=tmp_path / "new")
    again.update_weights(adapter=None)
    assert_agree(again, policy)
