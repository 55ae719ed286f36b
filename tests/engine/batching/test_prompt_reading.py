"""How likely a prompt's own tokens are: against plain transformers, and against itself in other company."""

from __future__ import annotations

import asyncio
import math
import random
from typing import Any

import pytest
import torch

from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.batching.prompt_reading import SPAN
from adjudge.engine.completion import Completion, TokenLogprob
from adjudge.engine.engine import Engine
from adjudge.engine.errors import PromptError
from tests.engine.reference import open_reference
from tests.engine.tiny import TINY, pool_gb

LENGTHS = (1, 2, 17, 40, SPAN, SPAN + 1, 2 * SPAN + 30)
HOW: dict[str, Any] = {"max_tokens": 4, "temperature": 0.9, "ignore_eos": True, "prompt_logprobs": 2}


def prompts_of(lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> list[list[int]]:
    source = random.Random(seed)
    return [[source.randrange(256) for _ in range(length)] for length in lengths]


def generate(engine: Engine, prompts: list[list[int]], **changes: Any) -> list[Completion]:
    return engine.generate(prompts, seeds=list(range(len(prompts))), **(HOW | changes))


@pytest.fixture(scope="module")
def expected() -> list[Completion]:
    return generate(Engine(TINY, kv_cache_gb=0.05), prompts_of())


@pytest.mark.parametrize("model", [TINY, "dummy:tiny-gemma2", "dummy:tiny-qwen3"])
def test_they_are_those_of_plain_transformers(model: str) -> None:
    engine, reference = Engine(model, kv_cache_gb=0.05), open_reference(model)
    prompts = prompts_of((1, 2, 33, 150))
    for prompt, completion in zip(prompts, generate(engine, prompts), strict=True):
        with torch.inference_mode():
            logits = reference(torch.tensor([prompt]), use_cache=False).logits[0].double()
        logprobs_TV = logits.log_softmax(-1)
        assert completion.prompt_logprobs[0] is None and len(completion.prompt_logprobs) == len(prompt)
        for place in range(1, len(prompt)):
            read, before_V = completion.prompt_logprobs[place], logprobs_TV[place - 1]
            assert read is not None and read.token_id == prompt[place]
            assert read.logprob == pytest.approx(float(before_V[prompt[place]]), abs=1e-4)
            values = before_V.topk(2).values.tolist()
            assert [value for _, value in read.top] == pytest.approx(values, abs=1e-4)
            assert [float(before_V[token]) for token, _ in read.top] == pytest.approx(values, abs=1e-4)


def test_they_change_nothing_about_the_text(expected: list[Completion]) -> None:
    plain = generate(Engine(TINY, kv_cache_gb=0.05), prompts_of(), prompt_logprobs=None)
    assert [one.logprobs for one in plain] == [one.logprobs for one in expected]
    assert {one.prompt_logprobs for one in plain} == {()}


@pytest.mark.parametrize(("room", "count"), [(3, 4), (64, len(LENGTHS)), (2048, len(LENGTHS))])
def test_they_are_the_same_however_steps_are_cut_and_whatever_is_cached(
    room: int, count: int, expected: list[Completion]
) -> None:
    engine, prompts = Engine(TINY, kv_cache_gb=0.05, max_batch_tokens=room), prompts_of()[:count]
    assert generate(engine, prompts) == expected[:count]
    hits, computed = engine.cache.hit_tokens, engine.stats.tokens_computed
    assert hits < sum(LENGTHS[:count]) / 4  # none of a prompt's own, however many spans it was read in
    longest = max(LENGTHS[:count])
    assert generate(engine, prompts) == expected[:count]
    assert engine.cache.hit_tokens - hits > longest and engine.stats.tokens_computed - computed > longest
    assert not engine.scheduler.has_work()
    engine.cache.clear()
    assert engine.cache.pool.free == engine.cache.pool.usable


def test_other_calls_and_a_pool_that_is_too_small_change_nothing(expected: list[Completion]) -> None:
    engine = Engine(TINY, kv_cache_gb=pool_gb(TINY, 60), max_batch_tokens=50)
    others = engine.generate_iter(prompts_of((20,) * 16, seed=1), max_tokens=60, temperature=0.0, ignore_eos=True)
    next(others)
    order = random.Random(2).sample(range(len(LENGTHS)), len(LENGTHS))
    prompts = prompts_of()
    found = engine.generate([prompts[place] for place in order], seeds=order, **HOW)
    assert engine.scheduler.preempted and engine.cache.evicted_tokens
    read = {place: (one.prompt_logprobs, one.logprobs) for place, one in zip(order, found, strict=True)}
    assert [read[place] for place in range(len(order))] == [(one.prompt_logprobs, one.logprobs) for one in expected]
    assert len(list(others)) == 15


def test_samples_of_a_prompt_have_it_read_once() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05)
    [prompt] = prompts_of((100,))
    some = engine.generate([prompt], n=3, seed=1, **HOW)
    assert len({one.token_ids for one in some}) == 3 and len({one.prompt_logprobs for one in some}) == 1
    assert engine.stats.tokens_computed < 100 + 3 * HOW["max_tokens"]


def test_a_text_whose_prompt_is_not_read_in_time_is_given_up() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, max_batch_tokens=8)
    now = 0.0
    engine.scheduler.clock = lambda: now
    engine.generate(prompts_of((100,)), max_tokens=1)  # so that the text ends long before its prompt is read again
    call = engine.generate_call(prompts_of((100,)), max_tokens=1, prompt_logprobs=0)
    engine.start(call, timeout=1.0)
    for _ in range(4):
        engine.step()
    assert call.open == 1
    now = 2.0
    engine.step()
    [(_, text)] = call.answers
    assert text.finish_reason == "timeout" and text.prompt_logprobs == () and not engine.scheduler.has_work()


def test_texts_that_take_nearly_every_step_do_not_hold_up_a_prompt_that_comes_before_them() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, max_batch_tokens=16)
    engine.start(engine.generate_call(prompts_of((2,) * 15, seed=1), max_tokens=200, ignore_eos=True))
    for _ in range(10):
        engine.step()
    reading = engine.generate_call(prompts_of((100,)), max_tokens=1, prompt_logprobs=0)
    engine.start(reading, priority=-1)
    for _ in range(130):  # the texts leave one token of each step, and its spans have four
        engine.step()
    assert not reading.open and engine.scheduler.has_work()


def test_a_number_that_is_none_is_told_as_one_and_the_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, prompts = Engine(TINY, kv_cache_gb=0.05), prompts_of((9, 12))
    logits = type(engine.runner.require_head()).vocabulary_logits
    expected = generate(engine, prompts)

    def spoil_one(head: Any, hidden_ND: torch.Tensor) -> torch.Tensor:
        found = logits(head, hidden_ND)
        if len(found) > 2:
            found[3, 7] = torch.nan
        return found

    monkeypatch.setattr(type(engine.runner.require_head()), "vocabulary_logits", spoil_one)
    engine.cache.clear()
    first, second = generate(engine, prompts)
    read = [one.logprob for one in first.prompt_logprobs if one is not None]
    assert [math.isnan(value) for value in read] == [place == 3 for place in range(8)]
    assert second == expected[1]


def test_what_is_read_again_does_not_count_as_cached() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05)
    [prompt] = prompts_of((300,))
    for _ in range(2):
        call = engine.generate_call([prompt], max_tokens=1, prompt_logprobs=0)
        engine.start(call)
        while call.open:
            engine.step()
        assert call.cached_tokens <= 1


def test_a_text_in_pieces_has_its_prompt_read_at_its_end() -> None:
    [prompt] = prompts_of((300,))
    [expected] = generate(Engine(TINY, kv_cache_gb=0.05), [prompt])

    async def events() -> list[Any]:
        async with AsyncEngine(Engine(TINY, kv_cache_gb=0.05)) as engine:
            answers = await engine.open_generate([prompt], seeds=[0], pieces=True, **HOW)
            return [event async for event in answers]

    *pieces, (_, text) = asyncio.run(events())
    assert text == expected and 0 < sum(len(piece.tokens) for piece in pieces) <= HOW["max_tokens"]


def test_what_cannot_be_is_refused_or_said() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05)
    for count in (-1, 21):
        with pytest.raises(PromptError, match="prompt_logprobs is"):
            engine.generate([[1, 2]], prompt_logprobs=count)
    [text] = engine.generate([[1] * (engine.max_prompt_tokens + 1)], **HOW)
    assert text.finish_reason == "too_long" and text.prompt_logprobs == ()


def test_the_real_model_finds_a_sentence_likelier_than_its_words_out_of_order(smollm2_engine: Engine) -> None:
    engine = smollm2_engine
    texts = ["The old man walked slowly to the harbour.", "The harbour old to slowly the man walked."]
    told, shuffled = engine.generate(texts, max_tokens=1, prompt_logprobs=0)
    assert total(told.prompt_logprobs) > total(shuffled.prompt_logprobs) + 10
    before, after = "The old man walked slowly to the", " harbour."
    tokens = engine.tokenizer.encode(after, False)
    assert tokens == engine.tokenizer.encode(texts[0], False)[-len(tokens) :]
    [score] = engine.score([before], [after])
    assert score.full_logprobs is not None and score.full_logprobs[0] == pytest.approx(
        total(told.prompt_logprobs[-len(tokens) :]), abs=1e-4
    )


def total(read: tuple[TokenLogprob | None, ...]) -> float:
    return sum(one.logprob for one in read if one is not None)
