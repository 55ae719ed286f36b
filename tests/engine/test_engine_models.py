"""Which models, devices and number formats an engine runs, and which it refuses."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.dummy import tiny_config
from adjudge.engine.running import probe
from adjudge.kernels.attention_library import AttentionKind
from tests.engine.reference import next_logprobs, open_reference
from tests.engine.tiny import DIGITS, TINY, prompts_sharing_stems


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(TINY, kv_cache_gb=0.05)


@pytest.mark.parametrize(
    "model",
    [
        "llama",
        "qwen3",
        "gemma2",
        "mistral",
        "phi3",
        "cohere2",
        "granite",
        "olmo2",
        "gpt2",
        "gemma4_unified_text",
        "gpt_oss",
        "nemotron",
    ],
)
def test_scores_equal_plain_transformers_for_other_architectures(model: str) -> None:
    engine = Engine(f"dummy:tiny-{model}", kv_cache_gb=0.05)
    reference = open_reference(f"dummy:tiny-{model}")
    prompts = prompts_sharing_stems(6)
    for prompt, score in zip(prompts, engine.score(prompts, DIGITS), strict=True):
        expected = next_logprobs(reference, tuple(prompt))[[ord(label) for label in DIGITS.labels]]
        assert score.full_logprobs is not None and score.mass is not None
        assert torch.allclose(torch.tensor(score.full_logprobs).double(), expected, atol=1e-4)
        assert score.mass == pytest.approx(expected.exp().sum().item(), rel=1e-3)


@pytest.mark.parametrize("model", ["gemma3", "gemma4", "mistral3", "qwen2_5_vl", "qwen3_vl"])
def test_of_a_model_that_reads_images_too_the_decoder_reads_texts(model: str) -> None:
    test_scores_equal_plain_transformers_for_other_architectures(model)


@pytest.mark.parametrize("model", ["mamba", "jamba", "recurrent_gemma", "qwen3_next", "bloom", "doge", "hrm_text"])
def test_architectures_with_layers_outside_the_attention_interface_are_refused_by_name(model: str) -> None:
    with pytest.raises(AdjudgeError, match=r"(?i)" + model.replace("_", "")):
        Engine(f"dummy:tiny-{model}", kv_cache_gb=0.01)


def test_models_whose_masks_would_not_reach_the_attention_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AdjudgeError, match="layers of the kind chunked_attention"):
        Engine("dummy:tiny-llama4_text", kv_cache_gb=0.01)
    config = tiny_config("phimoe")
    config.sliding_window = 64
    config.save_pretrained(tmp_path)
    with pytest.raises(AdjudgeError, match="does not tell its attention about its sliding window"):
        Engine(f"dummy:{tmp_path}", kv_cache_gb=0.01)


def test_a_model_whose_rows_depend_on_the_batch_says_so(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine.runner.batch_invariant
    norm = LlamaRMSNorm.forward
    monkeypatch.setattr(LlamaRMSNorm, "forward", lambda self, rows: norm(self, rows) * (1 + 1e-6 * rows.shape[-2]))
    assert not Engine("dummy:tiny-llama", kv_cache_gb=0.01).runner.batch_invariant


@pytest.mark.parametrize("kind", ["gpt_oss", "granitemoe", "glm4_moe", "phimoe", "mixtral"])
def test_experts_keep_their_bits_in_any_company(kind: str) -> None:
    mixture = Engine(f"dummy:tiny-{kind}", kv_cache_gb=0.05)
    assert mixture.runner.batch_invariant
    source = random.Random(kind)
    for count in (2, 5, 16):
        prompts = [[source.randrange(256) for _ in range(source.choice([3, 10, 40, 90]))] for _ in range(count)]
        mixture.cache.clear()
        together = mixture.score(prompts, ["1", "2", "3"])
        for prompt, score in zip(prompts, together, strict=True):
            mixture.cache.clear()
            assert mixture.score([prompt], ["1", "2", "3"])[0] == score


@pytest.mark.parametrize("device", ["gpu", "meta", "cuda" if not torch.cuda.is_available() else "cuda:99x"])
def test_devices_that_are_not_there_are_refused(device: str) -> None:
    with pytest.raises(AdjudgeError, match="device is"):
        Engine(TINY, device=device)


@pytest.mark.parametrize(("dtype", "message"), [("int8", "choose auto"), ("double", "choose auto")])
def test_unknown_dtypes_are_refused(dtype: str, message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        Engine(TINY, dtype=dtype)


@pytest.mark.parametrize(("dtype", "near"), [("bfloat16", 0.5), ("float16", 0.05)])
def test_half_precision_runs_and_is_near_float32(engine: Engine, dtype: str, near: float) -> None:
    prompts = prompts_sharing_stems(4)
    half = Engine(TINY, dtype=dtype, kv_cache_gb=0.05)
    for exact, rounded in zip(engine.score(prompts, DIGITS), half.score(prompts, DIGITS), strict=True):
        assert exact.expected == pytest.approx(rounded.expected, abs=near)
    assert half.score(prompts, DIGITS) == [half.score([prompt], DIGITS)[0] for prompt in prompts]


def test_the_back_end_is_asked_about_every_kind_of_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[AttentionKind] = []
    monkeypatch.setattr(probe, "is_batch_invariant", lambda kind: not asked.append(kind))
    for model, widths in (("gemma4_text", {(16, 16), (512, 512)}), ("deepseek_v3", {(24, 16)})):
        asked.clear()
        Engine(f"dummy:tiny-{model}", kv_cache_gb=0.05)
        assert {(kind.width, kind.value_width) for kind in asked} == widths, asked
    Engine("dummy:tiny-gpt_oss", kv_cache_gb=0.05)
    assert {(kind.sliding_window, kind.sinks) for kind in asked[-2:]} == {(None, True), (64, True)}
