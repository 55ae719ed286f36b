"""Weights exchanged under an engine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, ModelCorrupt, ModelNotFound, ModelUnsupported
from adjudge.engine.models.weights import Weights
from tests.engine.adapted import (
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


class Memory:
    """What a tensor holds, on a device of a machine that is not here; `full` devices take nothing."""

    full: ClassVar[set[str]] = set()

    def __init__(self, device: str) -> None:
        self.device = SimpleNamespace(type=device)

    def to(self, device: Any) -> Memory:
        kind = getattr(device, "type", device)
        if kind in self.full:
            raise torch.OutOfMemoryError
        return Memory(kind)


class Holder:
    """As much of a tensor as moves."""

    def __init__(self, *, inference: bool = False) -> None:
        self.data, self.written, self.inference = Memory("cuda"), 0, inference

    @property
    def device(self) -> Any:
        return self.data.device

    @property
    def _version(self) -> int:
        assert not self.inference
        return self.written

    def is_inference(self) -> bool:
        return self.inference


def held(*tensors: Holder) -> Weights:
    weights = object.__new__(Weights)
    model = SimpleNamespace(parameters=lambda: tensors, buffers=lambda: ())
    vars(weights).update(model=model, lent=False, _own={}, _away=[], _copies={})
    return weights


def test_only_what_was_written_to_goes_to_the_host_again() -> None:
    _, written, _ = tensors = (Holder(), Holder(), Holder(inference=True))
    weights = held(*tensors)
    weights.to_host()
    first = [tensor.data for tensor in tensors]
    weights.to_device()
    assert [tensor.device.type for tensor in tensors] == ["cuda"] * 3
    written.written += 1
    weights.to_host()
    assert [tensor.data is memory for tensor, memory in zip(tensors, first, strict=True)] == [True, False, False]
    assert {tensor.device.type for tensor in tensors} == {"cpu"}


def test_after_a_waking_that_found_no_room_everything_leaves_the_device_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [Holder() for _ in range(3)]
    weights = held(*tensors)
    weights.to_host()
    with monkeypatch.context() as patch:
        taken = iter([False, True])
        patch.setattr(Memory, "full", property(lambda self: {"cuda"} if next(taken) else set()))
        with pytest.raises(torch.OutOfMemoryError):
            weights.to_device()
    for _ in range(2):
        weights.to_host()
        assert {tensor.device.type for tensor in tensors} == {"cpu"}
        weights.to_device()
        assert {tensor.device.type for tensor in tensors} == {"cuda"}


@pytest.fixture
def engine() -> Engine:
    return Engine(TINY, kv_cache_gb=0.05)


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


def test_weights_that_cannot_be_copied_change_nothing(engine: Engine) -> None:
    before, norm = full_logprobs(engine), torch.full((64,), 3.0)
    embeddings = engine.runner.model.get_input_embeddings().weight
    without = torch.empty(embeddings.shape, device="meta")
    for other in (without, embeddings.numpy(), embeddings.to(torch.complex64), embeddings.to_sparse()):
        with pytest.raises(ModelUnsupported, match="is no tensor with numbers of its own"):
            engine.update_weights({"model.norm.weight": norm, "model.embed_tokens.weight": other})
        assert full_logprobs(engine) == before
