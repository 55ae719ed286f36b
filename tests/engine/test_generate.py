"""Generated texts against plain transformers, and against themselves in other company."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from adjudge.engine.batching import writing
from adjudge.engine.choosing import Wish, choose
from adjudge.engine.completion import Completion
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, PromptError
from adjudge.engine.sampling import Sampling
from tests.engine.reference import open_reference
from tests.engine.tiny import TINY, message, plain_prompts, pool_gb


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(TINY, kv_cache_gb=0.05)


@pytest.mark.parametrize("model", [TINY, "dummy:tiny-gemma2", "dummy:tiny-qwen3"])
def test_greedy_texts_are_those_of_plain_transformers(model: str) -> None:
    engine, reference = Engine(model, kv_cache_gb=0.05), open_reference(model)
    prompts = plain_prompts(6)
    completions = engine.generate(prompts, max_tokens=20, temperature=0.0, ignore_eos=True)
    for prompt, completion in zip(prompts, completions, strict=True):
        tokens = list(prompt)
        for token in completion.logprobs:
            with torch.inference_mode():
                logits = reference(torch.tensor([tokens]), use_cache=False).logits[0, -1].double()
            assert token.token_id == int(logits.argmax())
            assert token.logprob == pytest.approx(float(logits.log_softmax(0)[token.token_id]), abs=1e-4)
            tokens.append(token.token_id)
        assert completion.finish_reason == "length" and len(completion.token_ids) == 20


def test_the_real_model_says_what_transformers_has_it_say(smollm2: str, smollm2_engine: Engine) -> None:
    engine, reference = smollm2_engine, open_reference(smollm2)
    prompt = engine.tokenizer.prompt("The capital of France is")
    [completion] = engine.generate([prompt], max_tokens=12, temperature=0.0)
    expected = reference.generate(torch.tensor([list(prompt)]), max_new_tokens=12, do_sample=False)[0, len(prompt) :]
    assert completion.token_ids == tuple(expected.tolist())
    assert "Paris" in completion.text


CREATIVE: dict[str, Any] = {"max_tokens": 24, "temperature": 0.9, "top_p": 0.95, "ignore_eos": True}


def test_texts_are_the_same_tokens_however_the_batch_is_cut() -> None:
    prompts = plain_prompts(12)
    seeds = list(range(len(prompts)))
    expected = Engine(TINY, kv_cache_gb=0.05).generate(prompts, seeds=seeds, **CREATIVE)
    assert len({completion.token_ids for completion in expected}) > len(prompts) // 2

    one_by_one = Engine(TINY, kv_cache_gb=0.05)
    alone = [one_by_one.generate([prompts[place]], seeds=[place], **CREATIVE)[0] for place in range(4)]
    assert_same(alone, expected[:4])

    small_steps = Engine(TINY, kv_cache_gb=0.05, max_batch_tokens=7)
    order = list(range(len(prompts)))
    random.Random(1).shuffle(order)
    shuffled = small_steps.generate([prompts[i] for i in order], seeds=[seeds[i] for i in order], **CREATIVE)
    assert_same([shuffled[order.index(i)] for i in range(len(prompts))], expected)
    computed = small_steps.stats.tokens_computed
    assert_same(small_steps.generate(prompts, seeds=seeds, **CREATIVE), expected)  # warm
    assert small_steps.stats.tokens_computed < 2 * computed

    tiny_pool = Engine(TINY, kv_cache_gb=pool_gb(TINY, 9))
    assert_same(tiny_pool.generate(prompts, seeds=seeds, **CREATIVE), expected)
    assert tiny_pool.scheduler.preempted > 0
    tiny_pool.cache.clear()
    assert tiny_pool.cache.pool.free == tiny_pool.cache.pool.usable


def assert_same(ours: list[Completion], expected: list[Completion]) -> None:
    assert [c.token_ids for c in ours] == [c.token_ids for c in expected]
    assert [c.logprobs for c in ours] == [c.logprobs for c in expected]  # to the last bit


def test_texts_whose_tokens_are_chosen_together_are_the_same(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts, calls = plain_prompts(9), 0

    def together(logits_RV: torch.Tensor, wishes: Mapping[int, Wish]) -> list[int]:
        nonlocal calls
        calls += 1
        return choose(logits_RV[list(wishes)], list(wishes.values())).tolist() if wishes else []

    how = {"n": 2, "seed": 4, "top_p": 0.9, "logprobs": 3, **CREATIVE}
    expected = engine.generate(prompts, **how)
    monkeypatch.setattr(writing, "choose_each", together)
    assert_same(engine.generate(prompts, **how), expected)
    assert calls >= CREATIVE["max_tokens"]
    [choice] = engine.generate(prompts[:1], choices=["yes", "no"])
    assert choice.text in ("yes", "no")


def test_samples_of_a_prompt_share_its_tokens_and_differ() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05)
    prompt = plain_prompts(1)[0]
    completions = engine.generate([prompt], n=5, seed=3, **CREATIVE)
    assert [(c.prompt, c.sample) for c in completions] == [(0, k) for k in range(5)]
    assert len({c.token_ids for c in completions}) == 5
    assert engine.stats.tokens_computed == len(prompt) + 5 * (CREATIVE["max_tokens"] - 1)  # the last is not fed back
    assert_same(engine.generate([prompt], n=5, seed=3, **CREATIVE), completions)
    assert engine.generate([prompt], n=5, **CREATIVE) != engine.generate([prompt], n=5, **CREATIVE)  # fresh seeds


def test_end_tokens_and_stop_strings_end_a_text_and_stay_out_of_it(smollm2_engine: Engine) -> None:
    engine = smollm2_engine
    chat = engine.chat([message("Say the word blue and nothing else.")])
    [whole] = engine.generate([chat], max_tokens=60, temperature=0.0)
    assert whole.finish_reason == "stop" and "<|im_end|>" not in whole.text
    assert engine.tokenizer.decode(whole.token_ids).endswith("<|im_end|>")
    [longer] = engine.generate([chat], max_tokens=len(whole.token_ids) + 5, temperature=0.0, ignore_eos=True)
    assert longer.finish_reason == "length" and longer.token_ids[: len(whole.token_ids)] == whole.token_ids
    stop = whole.text[3:6]
    [cut] = engine.generate([chat], max_tokens=60, temperature=0.0, stop=stop)
    assert cut.finish_reason == "stop" and cut.text == whole.text[: whole.text.index(stop)]
    [none] = engine.generate([chat], max_tokens=60, temperature=0.0, stop=[whole.text[:2]])
    assert none.text == "" and none.token_ids


def test_allowed_tokens_are_the_only_ones(engine: Engine) -> None:
    completions = engine.generate(
        plain_prompts(3), max_tokens=30, allowed_token_ids=[49, 50], temperature=2.0, seed=1, ignore_eos=True
    )
    assert {token for completion in completions for token in completion.token_ids} == {49, 50}


def test_alternatives_are_reported_best_first(engine: Engine) -> None:
    [completion] = engine.generate([[1, 2, 3]], max_tokens=4, temperature=0.0, logprobs=3, ignore_eos=True)
    for token in completion.logprobs:
        assert len(token.top) == 3 and token.top[0][0] == token.token_id
        assert token.top[0][1] == pytest.approx(token.logprob)
        assert [lp for _, lp in token.top] == sorted((lp for _, lp in token.top), reverse=True)
    assert completion.logprob == pytest.approx(sum(token.logprob for token in completion.logprobs))


def test_a_prompt_without_room_is_an_answer_and_the_context_bounds_the_text(engine: Engine) -> None:
    limit = engine.max_prompt_tokens
    full, nearly = [1] * limit, [1] * (limit - 3)
    over, short = engine.generate([full, nearly], max_tokens=1 << 30, temperature=0.0, ignore_eos=True)
    assert over.finish_reason == "too_long" and over.token_ids == ()
    assert short.finish_reason == "length" and len(short.token_ids) == 3


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"temperature": -1.0}, "temperature is -1"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": 0.0}, "top_p is 0"),
        ({"n": 0}, "n is 0"),
        ({"logprobs": 21}, "logprobs is 21"),
        ({"stop": ["a", ""]}, "empty string"),
        ({"allowed_token_ids": []}, "allowed_token_ids is empty"),
        ({"allowed_token_ids": [1, 10**6]}, "allowed_token_ids holds 1000000"),
        ({"temprature": 1.0}, "temprature is no field of Sampling"),
        ({"top_k": 50.0}, "top_k is 50.0: give a whole number"),
        ({"logprobs": True}, "logprobs is True: give a whole number"),
        ({"temperature": 10**400}, "temperature is 10000.*: give a number"),
        ({"temperature": "hot"}, "temperature is 'hot': give a number"),
        ({"seed": 10**5000}, "seed is a number of too many digits: give a whole number"),
        ({"seed": 1.5}, "seed is 1.5: give a whole number, or None"),
        ({"allowed_token_ids": [True]}, "allowed_token_ids is .*: give a tuple of token ids"),
        ({"sampling": Sampling(allowed_token_ids=[1000])}, "allowed_token_ids holds 1000"),
        ({"priority": "high"}, "priority is 'high': give a whole number"),
        ({"priority": None}, "priority is None"),
        ({"timeout": "5"}, "timeout is '5': give seconds"),
        ({"allowed_token_ids": [1.0]}, "allowed_token_ids is .*: give a tuple of token ids"),
        ({"choices": "yes"}, "choices is 'yes': give a tuple of strings"),
        ({"choices": {"yes": 1}}, "choices is {'yes': 1}: give a tuple of strings"),
        ({"regex": 3}, "regex is int: give a string"),
        ({"sampling": Sampling(), "n": 2}, "not both"),
        ({"seeds": [1, 2]}, "2 seeds for 1 prompts"),
        ({"seeds": 5}, "seeds is 5: give a whole number for each prompt"),
        ({"sampling": {"n": 2}}, "sampling is {'n': 2}: give a Sampling, or its fields as options"),
    ],
)
def test_each_mistake_is_named(engine: Engine, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(PromptError, match=reason):
        engine.generate([[1, 2]], **options)


def test_lists_of_a_sampling_may_have_the_form_that_other_clients_have() -> None:
    given: Any = {"stop": "END", "allowed_token_ids": np.array([3, 4])}
    assert Sampling(**given) == Sampling(stop=("END",), allowed_token_ids=(3, 4))
    assert Sampling(stop=None) == Sampling()  # type: ignore[arg-type]
    for name in ("allowed_token_ids", "choices"):
        with pytest.raises(PromptError, match=f"{name} is empty"):
            Sampling(**{name: []})


def test_logits_that_are_not_finite_end_that_text_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = type(engine.runner.require_head()).vocabulary_logits
    spoilt: list[int] = []

    def spoil_one(head: Any, hidden_ND: torch.Tensor) -> torch.Tensor:
        found = logits(head, hidden_ND)
        if len(found) == 2 and not spoilt:
            found[0, 7] = torch.nan
            spoilt.append(1)
        return found

    prompts = plain_prompts(2)
    expected = engine.generate(prompts, max_tokens=5, temperature=0.0, ignore_eos=True)
    monkeypatch.setattr(type(engine.runner.require_head()), "vocabulary_logits", spoil_one)
    first, second = engine.generate(prompts, max_tokens=5, temperature=0.0, ignore_eos=True)
    assert spoilt and first.finish_reason == "non_finite" and first.token_ids == ()
    assert_same([second], expected[1:])


@pytest.mark.parametrize("how", [{"temperature": 0.0}, {"temperature": 1.0, "seed": 1}], ids=["greedy", "sampled"])
def test_a_text_ends_where_the_model_leaves_no_token_that_may_come(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    logits = type(engine.runner.require_head()).vocabulary_logits

    def without(head: Any, hidden_ND: torch.Tensor) -> torch.Tensor:
        found = logits(head, hidden_ND)
        found[:, ord("b")] = -torch.inf
        return found

    monkeypatch.setattr(type(engine.runner.require_head()), "vocabulary_logits", without)
    before = engine.stats.tokens_written
    formed, barred, free = (
        engine.generate(["x"], max_tokens=5, ignore_eos=True, **how, **only)[0]
        for only in ({"choices": ["ab"]}, {"allowed_token_ids": (ord("b"),)}, {})
    )
    assert (formed.text, formed.finish_reason) == ("a", "length")
    assert (barred.text, barred.finish_reason) == ("", "length")
    assert len(free.token_ids) == 5 and engine.stats.tokens_written == before + 6


def test_a_reader_that_stops_leaves_the_engine_as_it_was(engine: Engine) -> None:
    call = engine.generate_iter(plain_prompts(8), max_tokens=30, temperature=0.0, ignore_eos=True)
    next(call)
    call.close()
    assert len(engine.generate([[1, 2]], max_tokens=2, temperature=0.0)) == 1
    assert not engine.scheduler.has_work()


def test_a_step_that_fails_takes_the_calls_under_way_and_no_later_one(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(step: object) -> torch.Tensor:
        raise RuntimeError("out of memory")

    other = engine.generate_iter([[1], [2]], max_tokens=50, temperature=0.0, n=2, ignore_eos=True)
    monkeypatch.setattr(engine.runner, "forward", broken)
    with pytest.raises(RuntimeError):
        next(other)
    monkeypatch.undo()
    assert not engine.scheduler.has_work() and engine.cache.pool.free == engine.cache.pool.usable
    with pytest.raises((AdjudgeError, StopIteration)):
        next(other)
    assert engine.generate([[1]], max_tokens=2, temperature=0.0, ignore_eos=True)[0].finish_reason == "length"


def test_texts_without_a_seed_repeat_from_run_to_run_with_the_engines_and_not_without() -> None:
    def texts(**how: Any) -> list[tuple[int, ...]]:
        engine = Engine(TINY, kv_cache_gb=0.05, **how)
        return [text.token_ids for _ in range(2) for text in engine.generate(["Once", "There"] * 3, max_tokens=8)]

    assert texts() == texts() != texts(seed=1)
    assert texts()[:6] != texts()[6:]
    assert texts(seed=None) != texts(seed=None)


def test_seeds_are_whole_numbers_numpys_too() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05)
    prompts, how = [[1, 2], [3, 4]], {"max_tokens": 4, "temperature": 1.0}
    texts = [engine.generate(prompts, seeds=seeds, **how) for seeds in ([0, 1], np.arange(2))]  # type: ignore[arg-type]
    assert [text.token_ids for text in texts[0]] == [text.token_ids for text in texts[1]]
    assert Engine(TINY, kv_cache_gb=0.05, seed=np.int64(3)).generate([[1]], max_tokens=1)  # type: ignore[arg-type]
    for seed in ([1], 1.5, "1"):
        with pytest.raises(AdjudgeError, match="seed is .*: give a whole number, or None"):
            Engine(TINY, seed=seed)  # type: ignore[arg-type]
    with pytest.raises(PromptError, match="seeds holds 1.5: give a whole number for each prompt"):
        engine.generate(prompts, seeds=[1.5, 2], **how)  # type: ignore[list-item]


# ---- choosing a token


@pytest.mark.parametrize(
    "options",
    [{"repetition_penalty": 1e-9}, {"stop": ["a"] * 65}, {"stop": "a" * 1025}, {"allowed_token_ids": [1] * 300}],
)
def test_what_would_take_long_for_every_token_is_refused(engine: Engine, options: dict[str, Any]) -> None:
    with pytest.raises(PromptError, match=next(iter(options))):
        engine.generate(["x"], **options)
