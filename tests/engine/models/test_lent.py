"""An engine on the base weights of a model in training: the same objects, the same bits, and no trace in the model."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("peft", reason="needs the extra train")

import peft
import torch

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, ModelUnsupported
from adjudge.engine.models.fingerprints import content_fingerprint
from adjudge.engine.models.lent import Lent, unwrapped
from adjudge.engine.models.sources import open_source, resolve
from adjudge.engine.models.weights import Weights
from adjudge.kernels.prepacked_weights import prepacking_of
from tests.engine.tiny import TINY

PROMPTS = ["A lamp.", "Two lamps went out at sea.", "\x00<|im_end|>"]
LABELS = ["1", "2", "3"]


def policy(name: str = TINY, **how: Any) -> Any:
    """A model with an adapter that is ready to be trained."""
    model = open_source(resolve(name), dtype=torch.float32).model.train().requires_grad_(True)
    options: dict[str, Any] = {"r": 4, "target_modules": "all-linear", "task_type": "CAUSAL_LM"} | how
    return peft.get_peft_model(model, peft.LoraConfig(**options))


def lent(model: Any, name: str = TINY) -> Lent:
    source = resolve(name)
    return Lent(model, open_source(source, dtype=torch.float32).tokenizer, name, source.fingerprint)


def trained(model: Any, steps: int = 2) -> None:
    """Some steps on the adapter, so that the policy is another one."""
    optimiser = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.1)
    tokens = torch.arange(1, 13).view(2, 6)
    for _ in range(steps):
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimiser.step()
        optimiser.zero_grad()


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=torch.arange(1, 13).view(2, 6)).logits
    return found


@pytest.mark.parametrize("name", [TINY, "dummy:tiny-gemma3_text"])
def test_scores_and_texts_are_those_of_an_engine_of_its_own_before_and_after_steps_on_the_adapter(name: str) -> None:
    model, own = policy(name), Engine(name, kv_cache_gb=0.05)
    expected = own.score(PROMPTS, LABELS), own.generate(PROMPTS, max_tokens=5, seed=1)
    engine = Engine(lent(model, name), kv_cache_gb=0.05)
    assert not any(prepacking_of(weight) for weight in model.parameters()), "no second copy"
    for _ in range(2):
        assert (engine.score(PROMPTS, LABELS), engine.generate(PROMPTS, max_tokens=5, seed=1)) == expected
        trained(model)
    assert (engine.name, engine.fingerprint, engine.dtype) == (name, own.fingerprint, own.dtype)
    assert engine.runner.batch_invariant and engine.runner.device == own.runner.device


def test_the_weights_are_the_policys_own_objects_and_nothing_of_their_size_is_made() -> None:
    model = policy()
    gc.collect()
    before = tensor_bytes()
    engine = Engine(lent(model), kv_cache_gb=0.05)
    engine.score(PROMPTS, LABELS)
    engine.sleep()
    gc.collect()
    own = {id(one): one.data_ptr() for one in model.parameters()}
    bare = dict(engine.runner.model.named_parameters())
    assert {id(one): one.data_ptr() for one in bare.values()}.items() <= own.items()
    assert tensor_bytes() - before < 0.02 * sum(one.nbytes for one in bare.values())
    assert not any("lora" in name for name in bare)


def tensor_bytes() -> int:
    """Bytes of all tensors there are, each storage once."""
    storages = {
        one.untyped_storage().data_ptr(): one.untyped_storage().nbytes()
        for one in gc.get_objects()
        if issubclass(type(one), torch.Tensor) and one.device.type != "meta" and not one.is_mkldnn  # prepacked
    }
    return sum(storages.values())


def test_the_policy_is_left_as_it_is_also_by_a_call_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    model = policy()
    trained(model)
    before, modules = logits(model), [(type(one), one.training) for one in model.modules()]
    attention = model.config._attn_implementation
    engine = Engine(lent(model), kv_cache_gb=0.05)
    engine.score(PROMPTS, LABELS)
    monkeypatch.setattr(engine.runner, "forward", lambda step: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.score(["another"], LABELS)
    engine.sleep()
    assert torch.equal(logits(model), before)
    assert [(type(one), one.training) for one in model.modules()] == modules
    assert model.config._attn_implementation == attention
    assert sum(one.requires_grad for one in model.parameters()) > 0
    trained(model)
    assert not torch.equal(logits(model), before)


def test_sleeping_gives_the_cache_back_and_leaves_the_policys_weights_in_place() -> None:
    model = policy()
    places = [one.data_ptr() for one in model.parameters()]
    engine = Engine(lent(model), kv_cache_gb=0.05)
    expected = engine.score(PROMPTS, LABELS)
    for _ in range(3):
        engine.sleep()
        assert not engine.runner.layers and not engine.runner.weights._away
        assert [one.data_ptr() for one in model.parameters()] == places
        engine.wake()
        assert engine.score(PROMPTS, LABELS) == expected


def test_only_weights_of_its_own_leave_the_device() -> None:
    """On torch's meta device, from which nothing can be moved, as there is no GPU here."""
    elsewhere = torch.nn.Linear(2, 2, device="meta")
    Weights(elsewhere, lent=True).to_host()
    with pytest.raises(NotImplementedError):
        Weights(elsewhere).to_host()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_over_50_cycles_a_gpu_holds_the_weights_once_and_the_cache_only_while_it_scores() -> None:
    model = policy().to("cuda")
    engine = Engine(lent(model), kv_cache_gb=1.0)
    expected, asleep = engine.score(PROMPTS, LABELS), []
    for _ in range(50):
        engine.sleep()
        assert {one.device.type for one in model.parameters()} == {"cuda"}
        asleep.append(torch.cuda.memory_allocated())
        engine.wake()
        assert engine.score(PROMPTS, LABELS) == expected
    assert len(set(asleep)) == 1
    assert torch.cuda.memory_allocated() - asleep[0] >= 0.9 * (1 << 30)


def test_it_follows_a_policy_that_is_moved_or_wrapped_after_it_was_lent() -> None:
    class Wrapped(torch.nn.Module):
        """As torch's data parallelism wraps a model."""

        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module

    model = policy()
    expected = Engine(TINY, kv_cache_gb=0.05).score(PROMPTS, LABELS)
    for one in model.parameters():
        one.data = one.data.clone()
    assert Engine(lent(Wrapped(model)), kv_cache_gb=0.05).score(PROMPTS, LABELS) == expected
    engine = Engine(lent(model), kv_cache_gb=0.05)
    for one in model.parameters():
        one.data = one.data.clone()
    assert engine.score(PROMPTS, LABELS) == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: open_source(resolve(TINY), dtype=torch.float32).model.requires_grad_(True), "is trained itself.*LoRA"),
        (lambda: trainable_norm(), "is trained itself"),
        (lambda: policy(init_lora_weights="olora"), 'init_lora_weights "olora" changes the base weights'),
        (lambda: sharded(), "not whole in this process"),
        (lambda: policy(layer_replication=[(0, 2), (1, 2)]), "layer_replication has other layers than its base"),
        (lambda: policy_of(peft.AdaptionPromptConfig), "something else in the place of model.layers"),
    ],
)
def test_weights_that_cannot_be_lent_are_refused_with_the_mend(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ModelUnsupported, match=message):
        Engine(lent(make()))


def policy_of(config: Any) -> Any:
    model = open_source(resolve(TINY), dtype=torch.float32).model
    return peft.get_peft_model(model, config(adapter_layers=1, adapter_len=2, task_type="CAUSAL_LM"))


def trainable_norm() -> Any:
    model = policy()
    model.get_base_model().model.norm.weight.requires_grad_(True)
    return model


def sharded() -> Any:
    model = policy()
    layer = model.get_base_model().model.layers[0].mlp.up_proj.base_layer
    layer.weight = torch.nn.Parameter(torch.empty(0), requires_grad=False)
    return model


def test_what_would_change_the_lenders_weights_or_take_changed_ones_is_an_error() -> None:
    model = policy()
    engine = Engine(lent(model), kv_cache_gb=0.05)
    with pytest.raises(AdjudgeError, match="are lent by dummy:tiny-llama: open one of its own"):
        engine.update_weights({"model.norm.weight": torch.zeros(1)})
    with pytest.raises(AdjudgeError, match="leave device and dtype"):
        Engine(lent(model), dtype="bfloat16")
    model.merge_adapter()
    with pytest.raises(AdjudgeError, match="merged into the base weights"):
        engine.score(PROMPTS, LABELS)
    model.unmerge_adapter()
    engine.score(PROMPTS, LABELS)
    norm = model.get_base_model().model.norm
    norm.weight = torch.nn.Parameter(norm.weight.clone(), requires_grad=False)
    with pytest.raises(AdjudgeError, match=r"model\.norm\.weight of dummy:tiny-llama was exchanged"):
        engine.score(PROMPTS, LABELS)


def test_weights_that_merging_and_unmerging_has_rounded_are_other_weights() -> None:
    model = policy(init_lora_weights=False)
    engine = Engine(lent(model), kv_cache_gb=0.05)
    engine.score(PROMPTS, LABELS)
    fingerprint = engine.fingerprint
    engine.score(PROMPTS, LABELS)
    assert engine.fingerprint == fingerprint
    under_way = engine.generate_call(PROMPTS[:1], max_tokens=20, ignore_eos=True)
    engine.start(under_way)
    engine.step()
    for _ in range(3):
        model.merge_adapter()
        model.unmerge_adapter()
    for _ in range(2):  # not only the first call is told
        with pytest.raises(AdjudgeError, match="other weights while a call is under way would change it half-way"):
            engine.score(PROMPTS, LABELS)
    while under_way.open:
        engine.step()
    warm = engine.score(PROMPTS, LABELS)
    assert engine.fingerprint != fingerprint
    engine.cache.clear()
    assert engine.score(PROMPTS, LABELS) == warm


def test_one_row_that_is_changed_makes_other_weights_of_them() -> None:
    model = policy()
    engine = Engine(lent(model), kv_cache_gb=0.05)
    before, fingerprint = engine.score(PROMPTS, LABELS), engine.fingerprint
    with torch.no_grad():
        model.get_base_model().model.embed_tokens.weight[ord("A")] += 1
    warm = engine.score(PROMPTS, LABELS)
    assert warm != before and engine.fingerprint != fingerprint
    engine.cache.clear()
    assert engine.score(PROMPTS, LABELS) == warm


def test_a_policy_that_is_cast_after_it_was_lent_is_told_so() -> None:
    model = policy()
    engine = Engine(lent(model), kv_cache_gb=0.05)
    model.to(torch.bfloat16)
    with pytest.raises(AdjudgeError, match=r"is torch.bfloat16 and was torch.float32 when it was lent: cast it before"):
        engine.score(PROMPTS, LABELS)


def test_the_content_of_base_weights_is_their_identity_whatever_the_adapter_says() -> None:
    model, tokenizer = policy(), lent(policy()).tokenizer
    before = content_fingerprint(unwrapped(model), tokenizer)
    trained(model)
    assert content_fingerprint(unwrapped(model), tokenizer) == before
    with torch.no_grad():
        model.get_base_model().model.norm.weight[0] += 1
    assert content_fingerprint(unwrapped(model), tokenizer) != before
