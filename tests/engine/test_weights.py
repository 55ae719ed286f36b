"""Adapters beside the base weights, weights exchanged under an engine, and memory given back and fetched."""

from __future__ import annotations

import gc
import json
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from adjudge.engine import cache_memory
from adjudge.engine.adapters import attach, read_adapter
from adjudge.engine.dummy import tiny_tokenizer
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, ModelCorrupt, ModelNotFound, ModelUnsupported
from adjudge.rewards.pairwise import PairwiseJudge
from adjudge.rewards.verdict import Pair
from tests.engine.reference import next_logprobs, open_reference

TINY = "dummy:tiny-llama"
PROMPTS = [[7, 11, 13 + n, 200, n] * (n + 1) for n in range(6)]
LABELS = ["1", "2", "3"]


@pytest.fixture
def engine() -> Engine:
    return Engine(TINY, kv_cache_gb=0.05)


def save_adapter(folder: Path, model: str = TINY, seed: int = 0, **how: Any) -> Any:
    """A LoRA adapter that changes much, as PEFT saves it; returns the model with it in place."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    options: dict[str, Any] = {"r": 4, "target_modules": "all-linear", "task_type": "CAUSAL_LM"} | how
    peft: Any = get_peft_model(open_reference(model), LoraConfig(**options))
    for name, parameter in peft.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    peft.save_pretrained(folder)
    return peft.eval()


def full_logprobs(engine: Engine) -> list[tuple[float, ...] | None]:
    return [score.full_logprobs for score in engine.score(PROMPTS, LABELS)]


def assert_agree(engine: Engine, reference: Any) -> None:
    ids = engine.label_ids(PROMPTS[0], LABELS)
    for prompt, found in zip(PROMPTS, full_logprobs(engine), strict=True):
        assert found == pytest.approx(next_logprobs(reference, tuple(prompt))[ids].tolist(), abs=1e-4)


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
    engine: Engine, spoil: Any, error: type[AdjudgeError], words: str, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    save_adapter(good, seed=1)
    save_adapter(bad, seed=2)
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


def changed(model: str, **how: Any) -> Any:
    """The same architecture with other weights, final norm included."""
    reference = open_reference(model)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return reference


@pytest.mark.parametrize("model", [TINY, "dummy:tiny-llama-tied", "dummy:tiny-gemma2", "dummy:tiny-qwen2"])
def test_new_weights_are_used_everywhere_and_empty_the_cache(model: str, tmp_path: Path) -> None:
    reference = changed(model)
    engine = Engine(model, kv_cache_gb=0.05)
    old, fingerprint = full_logprobs(engine), engine.fingerprint
    engine.update_weights(reference.state_dict())
    assert_agree(engine, reference)
    assert full_logprobs(engine) != old
    assert engine.fingerprint != fingerprint
    engine.update_weights(open_reference(model).state_dict())
    assert full_logprobs(engine) == old
    reference.save_pretrained(tmp_path)
    engine.update_weights(tmp_path)
    assert_agree(engine, reference)
    engine.update_weights(open_reference(model).state_dict())
    path = tmp_path / "model.safetensors"
    wrapped = {name.replace("q_proj.", "q_proj.base_layer."): tensor for name, tensor in load_file(path).items()}
    save_file(wrapped, path)  # as under an adapter
    engine.update_weights(tmp_path)
    assert_agree(engine, reference)


@pytest.mark.parametrize("model", ["mixtral", "mixtral-tied", "gemma3", "qwen3_moe"])
def test_a_folder_in_which_transformers_renames_weights_is_taken_whole_or_not_at_all(
    model: str, tmp_path: Path
) -> None:
    reference = changed(f"dummy:tiny-{model}")
    reference.save_pretrained(saved_with_tokenizer(tmp_path))
    path = tmp_path / "model.safetensors"
    saved = load_file(path)
    engine = Engine(f"dummy:tiny-{model}", kv_cache_gb=0.05)
    assert saved.keys() - whole(engine).keys(), "or the test proves nothing"
    before, fingerprint = whole(engine), engine.fingerprint
    last, embedding = list(saved)[-1], next(name for name in saved if "embed_tokens" in name)
    expert = next((name for name in saved if ".experts.3." in name), last)
    for bad, words in (
        (saved | {"strange.weight": torch.ones(1)}, "no weights called .*strange.weight"),
        (saved | {embedding: torch.ones(9, 9)}, r"embed_tokens.weight has shape \(9, 9\), in the model \(272, 64\)"),
        ({name: tensor for name, tensor in saved.items() if name != embedding}, "no weights for .*incomplete"),
        ({name: tensor for name, tensor in saved.items() if name != expert}, "incomplete|cannot open|has shape"),
    ):
        save_file(bad, path, {"format": "pt"})
        with pytest.raises(AdjudgeError, match=words):
            engine.update_weights(tmp_path)
        assert_untouched(engine, before)
    assert engine.fingerprint == fingerprint
    save_file(saved, path, {"format": "pt"})
    (tmp_path / "config.json").rename(tmp_path / "elsewhere.json")
    engine.update_weights(tmp_path)
    assert engine.fingerprint != fingerprint
    (tmp_path / "elsewhere.json").rename(tmp_path / "config.json")
    assert full_logprobs(engine) == full_logprobs(Engine(str(tmp_path), kv_cache_gb=0.05))
    assert_agree(engine, reference)


def test_base_weights_change_under_an_adapter(engine: Engine, tmp_path: Path) -> None:
    save_adapter(tmp_path)
    reference = changed(TINY)
    engine.update_weights(reference.state_dict(), adapter=tmp_path)
    with_adapter = full_logprobs(engine)
    engine.update_weights(open_reference(TINY).state_dict())
    assert full_logprobs(engine) != with_adapter
    engine.update_weights(reference.state_dict())
    assert full_logprobs(engine) == with_adapter
    engine.update_weights(adapter=None)
    assert_agree(engine, reference)


def test_weights_that_do_not_fit_change_nothing(engine: Engine, tmp_path: Path) -> None:
    before, fingerprint = full_logprobs(engine), engine.fingerprint
    name = "model.layers.0.mlp.up_proj.weight"
    good = {name: torch.zeros(128, 64)}
    tied = Engine("dummy:tiny-llama-tied", kv_cache_gb=0.05)
    embedding = torch.zeros(272, 64)
    for wrong, words in (
        ({"layers.0.weight": torch.zeros(1)}, "no weights called layers.0.weight"),
        ({"model.norm.weight": torch.zeros(1)}, "has shape"),
    ):
        with pytest.raises(ModelUnsupported, match=words):
            engine.update_weights(good | wrong)
    with pytest.raises(ModelUnsupported, match="one tensor here"):
        tied.update_weights({"model.embed_tokens.weight": embedding, "lm_head.weight": embedding + 1})
    with pytest.raises(ModelNotFound, match="holds no weights"):
        engine.update_weights(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no")
    with pytest.raises(ModelCorrupt, match="unreadable"):
        engine.update_weights(tmp_path)
    with pytest.raises(ModelNotFound, match="holds no adapter"):
        engine.update_weights(good, adapter=tmp_path)
    assert (full_logprobs(engine), engine.fingerprint) == (before, fingerprint)


def test_nothing_changes_under_a_call_that_is_under_way(engine: Engine) -> None:
    call = engine.generate_call(PROMPTS, max_tokens=40, ignore_eos=True)
    engine.start(call)
    engine.step()
    for change in (engine.sleep, lambda: engine.update_weights(adapter=None)):
        with pytest.raises(AdjudgeError, match="under way"):
            change()
    engine.cancel(call)
    engine.update_weights(adapter=None)


def test_a_sleeping_engine_holds_no_cache_and_wakes_as_it_was(engine: Engine) -> None:
    before = full_logprobs(engine)
    for _ in range(50):
        caches = [weakref.ref(cache) for cache in engine.runner._layers.values()]
        assert caches
        engine.sleep()
        engine.sleep()
        gc.collect()
        assert not any(cache() for cache in caches)
        assert engine.cache.pool.free == engine.cache.pool.usable
        for call in (lambda: engine.score(PROMPTS, LABELS), lambda: engine.update_weights(adapter=None)):
            with pytest.raises(AdjudgeError, match="asleep"):
                call()
        engine.wake()
        assert full_logprobs(engine) == before


def test_the_cache_is_sized_anew_at_every_waking_and_never_grows_beyond_what_is_free(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before, usual, longest = full_logprobs(engine), engine.cache.pool.count, engine.max_prompt_tokens
    half = (usual - 1) // 2 * engine.runner._block_bytes
    with monkeypatch.context() as patch:
        for free, blocks in ((half, 1 + (usual - 1) // 2), (2 * half, 1 + (usual - 1) // 2 * 2)) * 3:
            patch.setattr(cache_memory, "promise", lambda *_, free=free: free)
            pool = weakref.ref(engine.cache.pool)
            engine.sleep()
            engine.wake()
            gc.collect()
            assert pool() is None
            assert engine.runner.blocks == engine.cache.pool.count == blocks
            assert full_logprobs(engine) == before
            assert {cache.key.shape[0] for cache in engine.runner._layers.values()} == {blocks}
        patch.setattr(cache_memory, "promise", lambda *_: 3 * engine.runner._block_bytes)
        engine.sleep()
        engine.wake()
        assert "room for prompts of 32 tokens, not" in caplog.text
        assert engine.max_prompt_tokens == longest, "texts are shortened alike all along"
        with pytest.raises(AdjudgeError, match="woke with room for 32 tokens, and this needs 4.: leave it more memory"):
            engine.score([list(range(5, 45))], [" a", " b"])
        with pytest.raises(AdjudgeError, match="woke with room for 32 tokens, and this needs 36"):
            engine.generate([[5, 6]], max_tokens=34)
        engine.generate([[5, 6]], max_tokens=5)
        [whole] = engine.generate([[5, 6]], max_tokens=longest, ignore_eos=True)
        assert (len(whole.token_ids), whole.finish_reason) == (30, "length")
        patch.setattr(cache_memory, "promise", lambda *_: 0)
        engine.sleep()
        with pytest.raises(ModelUnsupported, match="no room for one block of LlamaForCausalLM"):
            engine.wake()
        assert engine.asleep and not engine.runner._layers
    engine.wake()
    assert engine.cache.pool.count == usual and full_logprobs(engine) == before


def test_texts_are_as_long_as_before_where_an_engine_wakes_to_more_room(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_memory, "promise", lambda *_: 5 * engine.runner._block_bytes)
    crowded = Engine(TINY)
    longest = crowded.max_prompt_tokens
    monkeypatch.undo()
    crowded.sleep()
    crowded.wake()
    assert crowded._room() > longest == crowded.max_prompt_tokens
    for left, most in ((3, 3), (3, 2), (4, 500)):
        [text] = crowded.generate([[7] * (longest - left)], max_tokens=most, ignore_eos=True)
        assert len(text.token_ids) == min(left, most)


def test_what_is_promised_to_one_engine_is_not_free_for_another_until_its_cache_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Owner:
        pass

    gpu, free = torch.device("cuda", 0), [1000]
    monkeypatch.setattr(cache_memory, "_free", lambda device: free[0])
    one, other = Owner(), Owner()
    assert cache_memory.promise(one, gpu, None) == 800
    assert cache_memory.promise(other, gpu, None) == 160
    assert cache_memory.promise(other, torch.device("cuda", 1), None) == 800, "another device's memory is its own"
    assert cache_memory.promise(one, gpu, None) == 800, "an engine's own promise is not in its way"
    free[0] = 200
    cache_memory.settle(one)  # its 800 are taken: they are no longer among what is free
    assert cache_memory.promise(other, gpu, None) == 160
    del other
    gc.collect()
    assert cache_memory.promise(one, gpu, None) == 160


def test_an_engine_s_promise_ends_with_its_first_step_and_with_its_sleep(engine: Engine) -> None:
    promised = cache_memory._promised
    engine.sleep()
    assert engine.runner not in promised
    engine.wake()
    assert engine.runner in promised
    full_logprobs(engine)
    assert engine.runner not in promised


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_beside_a_growing_neighbour_the_cache_takes_less_and_gives_all_of_it_back() -> None:
    neighbour = [torch.zeros(torch.cuda.mem_get_info()[0] - (6 << 30), dtype=torch.uint8, device="cuda")]
    engine = Engine(TINY, device="cuda")
    before, sizes, free = full_logprobs(engine), [engine.cache.pool.count], []
    for _ in range(3):
        engine.sleep()
        neighbour.append(torch.zeros(1 << 30, dtype=torch.uint8, device="cuda"))
        free.append(torch.cuda.mem_get_info()[0])
        engine.wake()
        assert full_logprobs(engine) == before
        sizes.append(engine.cache.pool.count)
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] < sizes[0]
    neighbour.clear()
    engine.sleep()
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] >= free[0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_sleeping_engine_gives_the_gpu_back_and_does_not_grow() -> None:
    engine = Engine(TINY, kv_cache_gb=1.0, device="cuda")
    before = full_logprobs(engine)
    awake, _ = torch.cuda.mem_get_info()
    free = []
    for _ in range(50):
        engine.sleep()
        free.append(torch.cuda.mem_get_info()[0])
        engine.wake()
        assert full_logprobs(engine) == before
    assert min(free) >= awake + (1 << 30)
    assert free[-1] >= free[0]


def test_texts_without_a_seed_repeat_from_run_to_run_with_the_engines_and_not_without() -> None:
    def texts(**how: Any) -> list[tuple[int, ...]]:
        engine = Engine(TINY, kv_cache_gb=0.05, **how)
        return [text.token_ids for _ in range(2) for text in engine.generate(PROMPTS, max_tokens=8)]

    assert texts() == texts() != texts(seed=1)
    assert texts()[:6] != texts()[6:]
    assert texts(seed=None) != texts(seed=None)


def test_an_adapter_over_the_embeddings_is_put_on_and_taken_off(engine: Engine, tmp_path: Path) -> None:
    save_adapter(tmp_path, target_modules=["embed_tokens", "q_proj"])
    before = full_logprobs(engine)
    engine.update_weights(adapter=tmp_path)
    assert full_logprobs(engine) != before
    engine.update_weights(adapter=None)
    assert full_logprobs(engine) == before


EMBEDDING = "model.embed_tokens.weight"


def whole(engine: Engine) -> dict[str, torch.Tensor]:
    """A copy of every tensor of the model, as it is without an adapter."""
    return {name: tensor.clone() for name, tensor in engine.runner.weights.after({}).items()}


def assert_untouched(engine: Engine, before: dict[str, torch.Tensor]) -> None:
    assert all(torch.equal(tensor, before[name]) for name, tensor in whole(engine).items())


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


def saved_with_tokenizer(folder: Path) -> Path:
    tiny_tokenizer().save_pretrained(folder)
    return folder


def test_weights_that_cannot_be_copied_change_nothing(engine: Engine) -> None:
    before, norm = full_logprobs(engine), torch.full((64,), 3.0)
    embeddings = engine.runner.model.get_input_embeddings().weight
    without = torch.empty(embeddings.shape, device="meta")
    for other in (without, embeddings.numpy(), embeddings.to(torch.complex64), embeddings.to_sparse()):
        with pytest.raises(ModelUnsupported, match="is no tensor with numbers of its own"):
            engine.update_weights({"model.norm.weight": norm, "model.embed_tokens.weight": other})
        assert full_logprobs(engine) == before
