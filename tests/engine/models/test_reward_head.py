"""Reward models: heads read off checkpoints and adapters, and what they give."""

from __future__ import annotations

import asyncio
import json
import math
import re
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, ModelCorrupt, ModelUnsupported
from adjudge.engine.models.reward_head import RewardHead
from adjudge.engine.running import runner
from tests.engine.reward_models import (
    change_before_first_step,
    own_reward,
    save_base,
    save_reward_adapter,
    save_reward_model,
    save_two_adapters,
)
from tests.engine.tiny import prompts_sharing_stems

PROMPTS = prompts_sharing_stems(8)


def rewards(engine: Engine, prompts: list[list[int]] = PROMPTS) -> list[float]:
    return [reward.value for reward in engine.reward(prompts) if reward.value is not None]


def own_rewards(model: Any) -> list[float]:
    return [own_reward(model, tuple(prompt)) for prompt in PROMPTS]


@pytest.mark.parametrize(
    "model", ["llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "mistral", "phi3", "olmo2", "gpt2", "opt", "gpt_neox"]
)
def test_rewards_equal_those_of_transformers_sequence_classifiers(model: str, tmp_path: Path) -> None:
    reference = save_reward_model(tmp_path, model)
    engine = Engine(str(tmp_path), kv_cache_gb=0.05)
    found = rewards(engine)
    assert found == pytest.approx(own_rewards(reference), abs=1e-4)
    assert len(set(found)) == len(PROMPTS) - 1  # the last prompt is the first again
    assert [rewards(engine, [prompt])[0] for prompt in PROMPTS] == found
    assert engine.runner.batch_invariant


def test_the_last_token_that_is_not_padding_is_read_as_transformers_does(tmp_path: Path) -> None:
    """With right padding, in a batch of one; and where a text itself ends in the token that pads."""
    reference = save_reward_model(tmp_path, "qwen2", pad_token_id=7)
    engine = Engine(str(tmp_path), kv_cache_gb=0.05)
    padded = [[*prompt, 7, 7, 7] for prompt in PROMPTS]
    found = rewards(engine, padded)
    assert found == rewards(engine)
    assert found == pytest.approx([own_reward(reference, tuple(prompt)) for prompt in padded], abs=1e-4)
    head = RewardHead((1.0,), pad_id=7)
    assert [head.read_part(tokens) for tokens in ((1, 7, 2, 7), (7, 7), (1,))] == [(1, 7, 2), (7,), (1,)]
    assert RewardHead((1.0,)).read_part((1, 7)) == (1, 7)


def test_a_reward_is_summed_exactly_and_never_made_up() -> None:
    head = RewardHead((1e16, 1.0, -1e16), 0.5)
    assert head.reward([1.0, 1.0, 1.0]) == 1.5
    assert all(math.isnan(head.reward([1.0, value, 1.0])) for value in (math.nan, math.inf))
    with warnings.catch_warnings(action="error"):
        assert math.isnan(RewardHead((0.0,)).reward([math.inf]))
    weights_D, hidden_D = np.random.default_rng(0).standard_normal((2, 999)).astype(np.float32)
    whole = sum(
        (Fraction(float(w)) * Fraction(float(h)) for w, h in zip(weights_D, hidden_D, strict=True)), Fraction(1)
    )
    assert RewardHead(tuple(weights_D.tolist()), 1.0).reward(hidden_D) == float(whole)


def test_every_face_of_an_engine_has_its_head(tmp_path: Path) -> None:
    save_reward_model(tmp_path)
    engine = Engine(str(tmp_path), kv_cache_gb=0.05)
    shared = AsyncEngine(engine)
    assert engine.reward_head == shared.face.reward_head is not None
    expected = shared.face.reward(PROMPTS)
    assert [(reward.reason, reward.prompt_tokens) for reward in expected] == [(None, len(prompt)) for prompt in PROMPTS]
    assert asyncio.run(shared.reward(PROMPTS)) == expected
    shared.worker.close()
    bare = Engine("dummy:tiny-llama", kv_cache_gb=0.05)
    assert bare.reward_head is None
    with pytest.raises(AdjudgeError, match="no reward head here"):
        bare.require_rewards()
    with pytest.raises(AdjudgeError, match="no reward head here"):
        bare.reward([[65]])
    bare.require_embeddings()
    assert bare.stats.steps == 0


def test_a_reward_model_cannot_be_asked_to_score_or_write(tmp_path: Path) -> None:
    save_reward_model(tmp_path)
    engine = Engine(str(tmp_path), kv_cache_gb=0.05)
    for verb in (lambda: engine.score([[65]], ["1", "2"]), lambda: engine.generate([[65]], max_tokens=2)):
        with pytest.raises(ModelUnsupported, match="LlamaForSequenceClassification has no language-model head"):
            verb()
    assert engine.stats.steps == 0


@pytest.mark.parametrize("labels", [2, 3])
def test_classifiers_of_several_labels_are_refused_with_a_mend(labels: int, tmp_path: Path) -> None:
    save_reward_model(tmp_path, labels=labels)
    message = f"is a classifier of {labels} labels (LlamaForSequenceClassification), not a reward model: pass one"
    with pytest.raises(ModelUnsupported, match=re.escape(message)):
        Engine(str(tmp_path), kv_cache_gb=0.05)


def test_an_encoder_is_refused_because_its_tokens_see_those_after_them(tmp_path: Path) -> None:
    save_reward_model(tmp_path, "bert")
    with pytest.raises(ModelUnsupported, match="lets tokens see those after them: use a decoder"):
        Engine(str(tmp_path), kv_cache_gb=0.05)


def test_a_head_of_another_kind_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_reward_model(tmp_path)
    monkeypatch.setattr(RewardHead, "reward", lambda head, hidden: 1e6)
    with pytest.raises(ModelUnsupported, match="computes its reward in a way adjudge does not know"):
        Engine(str(tmp_path), kv_cache_gb=0.05)


def test_an_absent_head_is_never_made_up(tmp_path: Path) -> None:
    save_reward_model(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["score.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelCorrupt, match=r"has no weights for score\.weight"):
        Engine(str(tmp_path), kv_cache_gb=0.05)


def test_new_weights_are_those_of_the_head_too(tmp_path: Path) -> None:
    save_reward_model(tmp_path / "first")
    other = save_reward_model(tmp_path / "second", seed=1)
    engine = Engine(str(tmp_path / "first"), kv_cache_gb=0.05)
    before, fingerprint = rewards(engine), engine.fingerprint
    engine.update_weights(tmp_path / "second")
    assert rewards(engine) == pytest.approx(own_rewards(other), abs=1e-4)
    assert rewards(engine) != before and engine.fingerprint != fingerprint
    engine.sleep()
    engine.wake()
    assert rewards(engine) == pytest.approx(own_rewards(other), abs=1e-4)


@pytest.mark.parametrize("base", ["causal", "classifier"])
@pytest.mark.parametrize("model", ["llama", "gemma2"])
def test_an_adapter_brings_the_head_it_was_trained_with(base: str, model: str, tmp_path: Path) -> None:
    if base == "causal":
        save_base(tmp_path / "base", model, 0)
    else:
        save_reward_model(tmp_path / "base", model)
    classifier = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "base", num_labels=1, attn_implementation="eager"
    )
    peft = save_reward_adapter(tmp_path / "adapter", classifier)
    engine = Engine(str(tmp_path / "base"), kv_cache_gb=0.05)
    bare_head, bare = engine.reward_head, engine.embed(PROMPTS)
    assert (bare_head is None) == (base == "causal")
    engine.update_weights(adapter=tmp_path / "adapter")
    assert rewards(engine) == pytest.approx(own_rewards(peft), abs=1e-4)
    assert [rewards(engine, [prompt])[0] for prompt in PROMPTS] == rewards(engine)
    engine.update_weights(adapter=None)
    assert engine.reward_head == bare_head
    for one, other in zip(engine.embed(PROMPTS), bare, strict=True):
        np.testing.assert_array_equal(one.values, other.values)


def test_an_adapter_that_comes_between_a_reward_call_and_its_first_step_counts_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights with its head, and never the new weights with the head of before."""
    new = save_two_adapters(tmp_path)

    async def run() -> list[Any]:
        engine = Engine(str(tmp_path / "base"), adapter=tmp_path / "old", kv_cache_gb=0.05)
        async with AsyncEngine(engine) as shared:
            change_before_first_step(shared, tmp_path / "new", monkeypatch)
            return [reward.value for reward in await shared.reward(PROMPTS)]

    assert asyncio.run(run()) == pytest.approx(own_rewards(new), abs=1e-4)


def test_a_judge_beside_an_adapters_change_reads_weights_and_head_of_one_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_reward_model(tmp_path)
    engine = Engine(str(tmp_path), kv_cache_gb=0.05)
    weight = {"score.weight": 2 * engine.runner.model.score.weight.detach()}
    expected = [2 * value for value in rewards(engine)]
    begun = engine.embed_iter

    def embed_iter(*prompts: Any, **how: Any) -> Any:
        monkeypatch.setattr(engine, "embed_iter", begun)
        engine.update_weights(weight)
        return begun(*prompts, **how)

    monkeypatch.setattr(engine, "embed_iter", embed_iter)
    assert rewards(engine) == pytest.approx(expected, rel=1e-6)


def test_a_head_that_is_not_finite_gives_no_reward_and_ends(tmp_path: Path) -> None:
    save_reward_model(tmp_path)

    async def run() -> list[Any]:
        async with AsyncEngine(Engine(str(tmp_path), kv_cache_gb=0.05)) as shared:
            weight = torch.full_like(shared.engine.runner.model.score.weight, math.nan)
            await shared.update_weights({"score.weight": weight})
            return [reward.reason for reward in await asyncio.wait_for(shared.reward(PROMPTS), 60)]

    assert set(asyncio.run(run())) == {"non_finite"}


def test_while_an_adapter_is_put_on_the_head_of_the_one_before_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_two_adapters(tmp_path)
    engine = Engine(str(tmp_path / "base"), adapter=tmp_path / "old", kv_cache_gb=0.05)
    old, seen, attach = engine.reward_head, [], runner.attach

    def attaching(*given: Any) -> Any:
        seen.append(engine.reward_head)
        return attach(*given)

    monkeypatch.setattr(runner, "attach", attaching)
    engine.update_weights(adapter=tmp_path / "new")
    assert seen == [old] and engine.reward_head != old


def test_adapters_with_heads_that_do_not_serve_are_refused(tmp_path: Path) -> None:
    save_base(tmp_path / "base", "llama", 0)
    two = AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=2)
    save_reward_adapter(tmp_path / "two", two)
    one = AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=1)
    save_reward_adapter(tmp_path / "wide", one)
    path = tmp_path / "wide" / "adapter_model.safetensors"
    weights = load_file(path)
    save_file(weights | {"base_model.model.score.weight": torch.zeros(1, 65)}, path)
    engine = Engine(str(tmp_path / "base"), kv_cache_gb=0.05)
    for name, message in (("two", "replaces whole weights"), ("wide", r"its head is \(1, 65\), not \(1, 64\)")):
        with pytest.raises(ModelUnsupported, match=message):
            engine.update_weights(adapter=tmp_path / name)
    save_file(weights | {"base_model.model.score.weight": torch.full((1, 64), math.nan)}, path)
    with pytest.raises(AdjudgeError, match="not finite"):
        engine.update_weights(adapter=tmp_path / "wide")
    assert engine.adapter is None and engine.reward_head is None


def test_the_heads_bias_counts(tmp_path: Path) -> None:
    save_reward_model(tmp_path)
    engine = Engine(str(tmp_path), kv_cache_gb=0.05)
    before = rewards(engine)
    engine.runner.model.score.bias = torch.nn.Parameter(torch.tensor([2.0]))
    assert rewards(engine) == pytest.approx([reward + 2 for reward in before])


def test_a_folder_says_what_it_is_by_its_configuration(tmp_path: Path) -> None:
    """A configuration that names no architecture is that of a causal language model, as it always was."""
    save_base(tmp_path, "llama", 0)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["architectures"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert Engine(str(tmp_path), kv_cache_gb=0.05).score([[65]], ["1", "2"])[0].reason is None
