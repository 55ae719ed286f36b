"""Hidden states read off the engine: those of plain transformers, to the bit the same whatever else is computed."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel

from adjudge.engine import trie
from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.embedding import Embedding
from adjudge.engine.engine import Engine
from adjudge.engine.errors import CallTooLarge, ModelUnsupported, PromptError
from adjudge.engine.text.prompt import Prompt, Segment
from tests.engine.reference import open_reference
from tests.engine.tiny import DIGITS, TINY, prompts_sharing_stems


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(TINY, kv_cache_gb=0.05)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@torch.inference_mode()
def last_hidden(decoder: torch.nn.Module, tokens: list[int]) -> np.ndarray:
    """The last token's hidden state after the final norm, as transformers gives it [D]."""
    hidden: torch.Tensor = decoder(input_ids=torch.tensor([tokens]), use_cache=False).last_hidden_state[0, -1]
    return hidden.float().numpy()


def same(left: list[Embedding], right: list[Embedding]) -> bool:
    """Whether both are equal to the bit, and none of them abstains."""
    pairs = list(zip(left, right, strict=True))
    return all(a.values is not None and b.values is not None and np.array_equal(a.values, b.values) for a, b in pairs)


@pytest.mark.parametrize(
    "model", ["llama", "qwen3", "gemma2", "mistral", "phi3", "cohere2", "granite", "olmo2", "gpt2", "opt"]
)
def test_hidden_states_equal_plain_transformers_after_its_last_norm(model: str) -> None:
    engine = Engine(f"dummy:tiny-{model}", kv_cache_gb=0.05)
    decoder = open_reference(f"dummy:tiny-{model}").get_decoder()
    prompts = prompts_sharing_stems(6)
    for prompt, embedding in zip(prompts, engine.embed(prompts), strict=True):
        assert embedding.values is not None and embedding.values.dtype == np.float32
        assert (embedding.reason, embedding.prompt_tokens) == (None, len(prompt))
        np.testing.assert_allclose(embedding.values, last_hidden(decoder, prompt), atol=1e-4)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("model", [TINY, "dummy:tiny-gemma2", "dummy:tiny-gpt2"])
def test_hidden_states_are_bit_equal_however_the_batch_is_cut(model: str) -> None:
    prompts = prompts_sharing_stems(10)
    whole = Engine(model, kv_cache_gb=0.05)
    expected = whole.embed(prompts)
    assert len({embedding.values.tobytes() for embedding in expected if embedding.values is not None}) > 10

    order = list(range(len(prompts)))
    random.Random(1).shuffle(order)
    shuffled = Engine(model, kv_cache_gb=0.05).embed([prompts[i] for i in order])
    assert same([shuffled[order.index(i)] for i in range(len(prompts))], expected)

    for budget, some in ((1, slice(1, 3)), (7, slice(None)), (64, slice(None))):
        cut = Engine(model, kv_cache_gb=0.05, max_batch_tokens=budget)
        assert same(cut.embed(prompts[some]), expected[some])
        assert cut.stats.steps > 3

    whole.cache.clear()
    assert same([whole.embed([prompt])[0] for prompt in prompts], expected)

    torch.set_num_threads(1 if torch.get_num_threads() > 1 else 2)
    assert same(Engine(model, kv_cache_gb=0.05).embed(prompts), expected)


def test_shared_prefixes_are_computed_once_and_counted() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05)
    prompts = prompts_sharing_stems(30)
    embeddings = engine.embed(prompts)
    assert engine.stats.tokens_computed == trie.size([tuple(prompt) for prompt in prompts])
    assert engine.stats.prompt_tokens == sum(map(len, prompts))
    assert engine.stats.prompts == len(prompts)
    assert embeddings[0] is embeddings[-1]  # one prompt, given twice


def test_a_warm_cache_or_one_too_small_changes_no_bit(engine: Engine) -> None:
    prompts = prompts_sharing_stems(24)
    expected = Engine(TINY, kv_cache_gb=0.05).embed(prompts)
    engine.score(prompts, DIGITS)
    hits = engine.cache.hit_tokens
    assert same(engine.embed(prompts), expected)
    assert engine.cache.hit_tokens > hits
    token_bytes = 2 * 2 * 2 * 16 * 4  # layers, keys and values, heads, width, float32
    small = Engine(TINY, kv_cache_gb=15 * 16 * token_bytes / (1 << 30))
    assert same(small.embed(prompts), expected)
    assert small.cache.evicted_tokens > 0


def test_calls_of_all_verbs_share_steps_and_do_not_disturb_each_other(engine: Engine) -> None:
    prompts = prompts_sharing_stems(6)
    embeddings, scores = engine.embed(prompts), engine.score(prompts, DIGITS)
    texts = engine.generate(prompts, seed=3, max_tokens=4)

    async def run(shared: AsyncEngine) -> None:
        async with shared:
            found = await asyncio.gather(
                shared.embed(prompts),
                shared.score(prompts, DIGITS),
                shared.generate(prompts, seed=3, max_tokens=4),
                asyncio.to_thread(shared.face.embed, prompts),
            )
        assert same(found[0], embeddings) and same(found[3], embeddings)
        assert found[1:3] == [scores, texts]

    together = Engine(TINY, kv_cache_gb=0.05)
    asyncio.run(run(AsyncEngine(together)))
    assert together.stats.prompts == 4 * len(prompts)


def test_prompts_without_a_hidden_state_say_why_and_the_others_have_theirs(engine: Engine) -> None:
    long = [65] * (engine.max_prompt_tokens + 1)
    fits = [65] * engine.max_prompt_tokens
    too_long, longest, short = engine.embed([long, fits, [65, 66]])
    assert (too_long.values, too_long.reason, too_long.prompt_tokens) == (None, "too_long", len(long))
    assert longest.reason is None and same([short], engine.embed([[65, 66]]))
    [late] = Engine(TINY, kv_cache_gb=0.05).embed([[65, 66]], timeout=0.0)
    assert (late.values, late.reason, late.prompt_tokens) == (None, "timeout", 2)


def test_a_model_that_yields_nan_marks_its_rows_and_no_others() -> None:
    engine = Engine("dummy:tiny-llama-untied", kv_cache_gb=0.05)
    expected = engine.embed([[65, 66]])
    engine.runner.model.get_input_embeddings().weight[200] = math.nan
    poisoned, clean = engine.embed([[65, 200, 66], [65, 66]])
    assert (poisoned.values, poisoned.reason) == (None, "non_finite")
    assert same([clean], expected)


def test_mistakes_are_named_before_anything_is_computed() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, max_queue=1)
    for prompts, error in (([[65], []], PromptError), ([[65], [99999]], PromptError), ([[65], [66]], CallTooLarge)):
        with pytest.raises(error):
            engine.embed(prompts)
    assert engine.stats.steps == 0 and not engine.scheduler.has_work()
    assert engine.embed([]) == []


def test_a_hidden_state_cannot_be_changed_under_another_that_has_it(engine: Engine) -> None:
    [embedding] = engine.embed([[65, 66]])
    assert embedding.values is not None and embedding.values.base is None
    with pytest.raises(ValueError, match="read-only"):
        embedding.values[0] = 1.0


def test_half_precision_is_near_and_keeps_its_bits(engine: Engine) -> None:
    prompts = prompts_sharing_stems(8)
    half = Engine(TINY, dtype="bfloat16", kv_cache_gb=0.05)
    found = half.embed(prompts)
    assert same(found, [half.embed([prompt])[0] for prompt in prompts])
    for rounded, exact in zip(found, engine.embed(prompts), strict=True):
        assert rounded.values is not None and exact.values is not None and rounded.values.dtype == np.float32
        cosine = rounded.values @ exact.values / np.linalg.norm(rounded.values) / np.linalg.norm(exact.values)
        assert cosine > 0.98


def test_a_plain_string_is_read_at_the_token_that_the_tokenizer_ends_a_text_with(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = [*b"hello", 258]
    expected, score = engine.embed([tokens]), engine.score(["hello"], DIGITS)
    rewarding = Engine(f"{TINY}-reward", kv_cache_gb=0.05)
    rewards = rewarding.reward([tokens])
    for one in (engine, rewarding):
        monkeypatch.setattr(one.tokenizer, "_end", (258,))  # as Qwen3-Embedding's has
    assert same(engine.embed(["hello", tokens]), expected * 2)
    assert rewarding.reward(["hello", tokens]) == rewards * 2
    assert same(engine.embed([Prompt((Segment("hello"),))]), engine.embed([tokens[:-1]]))
    assert engine.score(["hello"], DIGITS) == score


@pytest.mark.parametrize("model", ["qwen3", "gpt2"])
def test_a_checkpoint_without_a_head_embeds_and_says_that_it_cannot_score(model: str, tmp_path: Path) -> None:
    reference = open_reference(f"dummy:tiny-{model}")
    whole = Engine(f"dummy:tiny-{model}", kv_cache_gb=0.05)
    reference.get_decoder().save_pretrained(tmp_path)
    whole.tokenizer.inner.save_pretrained(tmp_path)
    assert AutoModel.from_pretrained(tmp_path).config.architectures[0].endswith("Model")
    bare = Engine(str(tmp_path), kv_cache_gb=0.05)
    prompts = prompts_sharing_stems(8)
    found = bare.embed(prompts)
    for one, other in zip(found, whole.embed(prompts), strict=True):
        np.testing.assert_allclose(one.values, other.values, atol=1e-5)
    assert same([bare.embed([prompt])[0] for prompt in prompts], found)
    for verb in (lambda: bare.score([[65]], ["1", "2"]), lambda: bare.generate([[65]], max_tokens=2)):
        with pytest.raises(ModelUnsupported, match="has no language-model head"):
            verb()
    assert bare.reward_head is None
    assert same(bare.embed(prompts), found)
