"""Generated texts against plain transformers, and against themselves in other company."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import msgspec
import pytest
import torch

from adjudge.engine.completion import Completion
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, PromptError, QueueFull
from adjudge.engine.labels import Labels
from adjudge.engine.sampling import Sampling, choose, uniform
from tests.engine.reference import open_reference

TINY = "dummy:tiny-llama"
DIGITS = Labels(("1", "2", "3", "4", "5"))


def random_prompts(count: int, seed: int = 0) -> list[list[int]]:
    source = random.Random(seed)
    stems = [[source.randrange(256) for _ in range(n)] for n in (1, 17, 40)]
    return [source.choice(stems) + [source.randrange(256) for _ in range(source.randint(1, 30))] for _ in range(count)]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(TINY, kv_cache_gb=0.05)


@pytest.mark.parametrize("model", [TINY, "dummy:tiny-gemma2", "dummy:tiny-qwen3"])
def test_greedy_texts_are_those_of_plain_transformers(model: str) -> None:
    engine, reference = Engine(model, kv_cache_gb=0.05), open_reference(model)
    prompts = random_prompts(6)
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


def test_the_real_model_says_what_transformers_has_it_say(smollm2: str) -> None:
    engine, reference = Engine(smollm2, kv_cache_gb=0.2), open_reference(smollm2)
    prompt = engine.tokenizer.prompt("The capital of France is")
    [completion] = engine.generate([prompt], max_tokens=12, temperature=0.0)
    expected = reference.generate(torch.tensor([list(prompt)]), max_new_tokens=12, do_sample=False)[0, len(prompt) :]
    assert completion.token_ids == tuple(expected.tolist())
    assert "Paris" in completion.text


CREATIVE: dict[str, Any] = {"max_tokens": 24, "temperature": 0.9, "top_p": 0.95, "ignore_eos": True}


def test_texts_are_the_same_tokens_however_the_batch_is_cut() -> None:
    prompts = random_prompts(12)
    seeds = list(range(len(prompts)))
    expected = Engine(TINY, kv_cache_gb=0.05).generate(prompts, seeds=seeds, **CREATIVE)
    assert len({completion.token_ids for completion in expected}) > len(prompts) // 2

    one_by_one = Engine(TINY, kv_cache_gb=0.05)
    alone = [one_by_one.generate([p], seeds=[s], **CREATIVE)[0] for p, s in zip(prompts, seeds, strict=True)]
    assert_same(alone, expected)

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


def pool_gb(model: str, blocks: int) -> float:
    """A cache size that gives so many blocks besides the padding's."""
    engine = Engine(model, kv_cache_gb=0.05)
    return 0.05 * blocks / engine.cache.pool.usable * 1.001


def test_samples_of_a_prompt_share_its_tokens_and_differ() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05)
    prompt = random_prompts(1)[0]
    completions = engine.generate([prompt], n=5, seed=3, **CREATIVE)
    assert [(c.prompt, c.sample) for c in completions] == [(0, k) for k in range(5)]
    assert len({c.token_ids for c in completions}) == 5
    assert engine.stats.tokens_computed == len(prompt) + 5 * (CREATIVE["max_tokens"] - 1)  # the last is not fed back
    assert_same(engine.generate([prompt], n=5, seed=3, **CREATIVE), completions)
    assert engine.generate([prompt], n=5, **CREATIVE) != engine.generate([prompt], n=5, **CREATIVE)  # fresh seeds


def test_a_short_text_and_a_score_that_come_later_end_before_a_long_text(engine: Engine) -> None:
    nearly_full = [1] * (engine.max_prompt_tokens - 2)
    long = engine.generate_iter([nearly_full, [1, 2, 3]], max_tokens=150, temperature=0.0, ignore_eos=True)
    assert next(long)[1].prompt == 0  # the other text is under way from here on
    expected = Engine(TINY, kv_cache_gb=0.05).generate([[1, 2, 4]], max_tokens=3, temperature=0.0, ignore_eos=True)
    assert_same(engine.generate([[1, 2, 4]], max_tokens=3, temperature=0.0, ignore_eos=True), expected)
    assert engine.score([[5, 6]], DIGITS)[0].reason is None
    assert engine.scheduler.has_work()
    [(_, completion)] = long
    assert len(completion.token_ids) == 150


def test_end_tokens_and_stop_strings_end_a_text_and_stay_out_of_it(smollm2: str) -> None:
    engine = Engine(smollm2, kv_cache_gb=0.2)
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


def message(text: str) -> Any:
    from adjudge.engine.prompt import Message, Prompt, Segment

    return Message("user", Prompt((Segment(text, trusted=True),)))


def test_allowed_tokens_are_the_only_ones(engine: Engine) -> None:
    completions = engine.generate(
        random_prompts(3), max_tokens=30, allowed_token_ids=[49, 50], temperature=2.0, seed=1, ignore_eos=True
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
        ({"sampling": Sampling(), "n": 2}, "not both"),
        ({"seeds": [1, 2]}, "2 seeds for 1 prompts"),
    ],
)
def test_each_mistake_is_named(engine: Engine, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(PromptError, match=reason):
        engine.generate([[1, 2]], **options)


def test_logits_that_are_not_finite_end_that_text_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = type(engine.runner.head).vocabulary_logits
    spoilt: list[int] = []

    def spoil_one(head: Any, hidden_ND: torch.Tensor) -> torch.Tensor:
        found = logits(head, hidden_ND)
        if len(found) == 2 and not spoilt:
            found[0, 7] = torch.nan
            spoilt.append(1)
        return found

    prompts = random_prompts(2)
    expected = engine.generate(prompts, max_tokens=5, temperature=0.0, ignore_eos=True)
    monkeypatch.setattr(type(engine.runner.head), "vocabulary_logits", spoil_one)
    first, second = engine.generate(prompts, max_tokens=5, temperature=0.0, ignore_eos=True)
    assert spoilt and first.finish_reason == "non_finite" and first.token_ids == ()
    assert_same([second], expected[1:])


def test_a_reader_that_stops_leaves_the_engine_as_it_was(engine: Engine) -> None:
    call = engine.generate_iter(random_prompts(8), max_tokens=30, temperature=0.0, ignore_eos=True)
    next(call)
    call.close()
    assert not engine.scheduler.has_work()
    assert len(engine.generate([[1, 2]], max_tokens=2, temperature=0.0)) == 1


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


class Clock:
    """A clock that goes on by a second each time it is asked."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_what_is_not_done_in_time_is_given_up_and_the_rest_goes_on() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, max_batch_tokens=8)
    engine.scheduler.clock = Clock()
    prompts = [[1, 2, 3], [4, 5]]
    patient = engine.generate_iter([[1] * (engine.max_prompt_tokens - 2), [6]], max_tokens=40, temperature=0.0)
    texts = engine.generate(prompts, max_tokens=100, temperature=0.0, ignore_eos=True, timeout=12.0)
    assert [text.finish_reason for text in texts] == ["timeout"] * 2
    assert 0 < len(texts[0].token_ids) < 100
    scores = engine.score([[7] * 100, [8]], DIGITS, timeout=4.0)
    assert "timeout" in [score.reason for score in scores]
    assert len(list(patient)) == 2
    assert engine.score([[7] * 100], DIGITS, timeout=1e6)[0].reason is None
    engine.cache.clear()
    assert engine.cache.pool.free == engine.cache.pool.usable


def test_a_call_of_lower_priority_number_comes_first() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, max_batch_tokens=4)
    later = engine.score_iter([[1, 2, 3, n] for n in range(8)], DIGITS, priority=5)
    next(later)
    engine.score([[9, 9, n] for n in range(4)], DIGITS, priority=-1)
    assert engine.scheduler.has_work()  # the others still wait
    assert len(list(later)) == 7


def test_a_full_queue_is_an_error_and_takes_nothing() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, max_queue=3)
    with pytest.raises(QueueFull, match="4 more would make it over 3"):
        engine.score([[n, 1] for n in range(4)], DIGITS)
    assert not engine.scheduler.has_work()
    assert len(engine.score([[n, 1] for n in range(3)], DIGITS)) == 3


# ---- choosing a token


def counts(sampling: Sampling, logits: torch.Tensor, draws: int = 4000) -> torch.Tensor:
    found = torch.zeros(len(logits))
    for place in range(draws):
        found[choose(logits, sampling, (), uniform((5, 0), place))] += 1
    return found / draws


def test_tokens_are_drawn_as_often_as_their_probability_says() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -30.0])
    for temperature in (0.5, 1.0, 2.0):
        expected = torch.softmax(logits / temperature, 0)
        assert torch.allclose(counts(Sampling(temperature=temperature), logits), expected, atol=0.03)


def test_filters_leave_out_what_they_say_and_no_more() -> None:
    logits = torch.tensor([0.0, 3.0, 1.0, 2.0, -1.0])  # probabilities .032 .636 .086 .234 .012
    for options, kept in (
        ({"top_k": 2}, [1, 3]),
        ({"top_p": 0.5}, [1]),
        ({"top_p": 0.7}, [1, 3]),
        ({"top_p": 0.9}, [1, 2, 3]),
        ({"min_p": 0.2}, [1, 3]),
        ({"top_k": 3, "min_p": 0.2}, [1, 3]),
    ):
        assert counts(Sampling(**options), logits, 2000).nonzero().flatten().tolist() == kept, options  # type: ignore[arg-type]


@pytest.mark.parametrize("spread", [0.0, 0.5, 8.0])
@pytest.mark.parametrize("top_p", [0.01, 0.9, 0.999, 1 - 1e-12])
def test_top_p_keeps_what_putting_the_whole_vocabulary_in_order_keeps(spread: float, top_p: float) -> None:
    logits = (torch.randn(3000, generator=torch.Generator().manual_seed(1)) * spread).round(decimals=1)  # many equals
    probs = torch.softmax(logits.double(), 0)
    ordered, places = probs.sort(descending=True, stable=True)
    kept = torch.zeros(3000, dtype=torch.bool)
    kept[places[ordered.cumsum(0) - ordered < top_p]] = True
    reached = (probs * kept).cumsum(0)
    for draw in torch.linspace(0, 0.9999, 200).tolist():
        expected = int(torch.searchsorted(reached, draw * reached[-1], right=True))
        assert choose(logits, Sampling(top_p=top_p), (), draw) == expected


def test_a_draw_next_to_one_takes_no_token_that_is_out() -> None:
    logits = torch.tensor([0.0, 0.0, -torch.inf])
    assert choose(logits, Sampling(top_k=2), (), 1.0 - 2**-53) == 1


def test_repetition_penalty_is_that_of_the_paper() -> None:
    logits = torch.tensor([2.0, 1.9, -1.0])
    assert choose(logits, Sampling(temperature=0.0), (0,), 0.5) == 0
    assert choose(logits, Sampling(temperature=0.0, repetition_penalty=1.2), (0, 0), 0.5) == 1
    assert choose(torch.tensor([-1.0, -1.1]), Sampling(temperature=0.0, repetition_penalty=1.2), (0,), 0.5) == 1


# ---- scores in texts


def written(engine: Engine, prompt: int, text: str) -> Completion:
    """A completion as if the model had written `text`."""
    return Completion(prompt, 0, text, engine.tokenizer.encode(text, True), "stop")


def test_a_written_score_is_read_as_a_distribution_at_its_place(smollm2: str) -> None:
    engine = Engine(smollm2, kv_cache_gb=0.2)
    reference = open_reference(smollm2)
    prompt = "Rate the story from 1 to 5."
    texts = [
        " It is dull. <ANSWER> 2 </ANSWER>",
        " First <ANSWER>3</ANSWER>, no, <ANSWER> 4 </ANSWER>",
        " <ANSWER> good </ANSWER>",
        " <ANSWER> 4",
        " no score at all",
        " <ANSWER> 45 </ANSWER>",
    ]
    completions = [written(engine, 0, text) for text in texts]
    scores = engine.read_answers([prompt], completions, DIGITS)
    assert [score.reason for score in scores] == [None, None, *["unparsable"] * 4]
    for score, completion, drawn in zip(scores, completions, ("2", "4"), strict=False):
        ids = list(completion.token_ids)
        place = max(i for i, token in enumerate(ids) if engine.tokenizer.decode([token]).strip() == drawn)
        context = list(engine.tokenizer.prompt(prompt)) + ids[:place]
        with torch.inference_mode():
            logprobs = reference(torch.tensor([context]), use_cache=False).logits[0, -1].double().log_softmax(0)
        variants = [[engine.tokenizer.encode(v + label, True) for v in ("", " ")] for label in DIGITS.labels]
        expected = [torch.stack([logprobs[v[0]] for v in vs if len(v) == 1]).logsumexp(0) for vs in variants]
        assert score.full_logprobs == pytest.approx([float(value) for value in expected], abs=1e-4)


def test_reading_a_score_computes_little_of_what_was_written_again(engine: Engine) -> None:
    prompt = [7, 8, 9] * 30
    [completion] = engine.generate([prompt], max_tokens=40, temperature=0.0, ignore_eos=True)
    before = engine.stats.tokens_computed
    engine.score([prompt + list(completion.token_ids[:35])], DIGITS)
    assert engine.stats.tokens_computed - before <= 1


# ---- texts with a form

SCHEMA = {
    "type": "object",
    "properties": {
        "reason": {"type": "string", "maxLength": 30},
        "score": {"type": "integer", "minimum": 1, "maximum": 5},
    },
    "required": ["reason", "score"],
    "additionalProperties": False,
}


def test_a_text_follows_its_json_schema_and_says_when_it_was_cut_short(smollm2: str) -> None:
    engine = Engine(smollm2, kv_cache_gb=0.2)
    chat = engine.chat([message("Rate this story from 1 to 5, as JSON with a reason and a score: It was a dog.")])
    completions = engine.generate([chat], n=4, max_tokens=60, temperature=1.2, seed=1, json_schema=SCHEMA)
    for completion in completions:
        assert completion.finish_reason == "stop"
        answer = json.loads(completion.text)
        assert answer.keys() == {"reason", "score"} and answer["score"] in range(1, 6) and len(answer["reason"]) <= 30
    [short] = engine.generate([chat], max_tokens=4, temperature=0.0, json_schema=SCHEMA)
    assert short.finish_reason == "length"
    with pytest.raises(json.JSONDecodeError):
        json.loads(short.text)


def test_a_text_is_one_of_the_choices_or_matches_its_expression(smollm2: str) -> None:
    engine = Engine(smollm2, kv_cache_gb=0.2)
    choices = ['say "A"', "B\\", "C [x]|y"]
    completions = engine.generate(["Answer:"], n=6, temperature=2.0, seed=2, choices=choices)
    assert {completion.text for completion in completions} <= set(choices)
    assert all(completion.finish_reason == "stop" for completion in completions)
    [number] = engine.generate(["How many?"], temperature=1.0, seed=3, regex="[1-9][0-9]{2} (cats|dogs)")
    assert re.fullmatch("[1-9][0-9]{2} (cats|dogs)", number.text)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"regex": "("}, "cannot be followed"),
        ({"json_schema": "{"}, "json_schema is no JSON schema|cannot be followed"),
        ({"json_schema": {"type": "story"}}, "cannot be followed"),
        ({"choices": []}, "choices is empty"),
        ({"regex": "a", "choices": ["a"]}, "choices and regex do not go together"),
    ],
)
def test_a_form_that_makes_no_sense_is_one_sentence(engine: Engine, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(PromptError, match=reason):
        engine.generate([[1, 2]], **options)
    assert not engine.scheduler.has_work()


def test_a_text_with_a_token_beyond_the_tokenizer_is_unparsable_and_its_neighbours_are_not() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05)
    good = written(engine, 0, "<ANSWER>2</ANSWER>")
    odd = [msgspec.structs.replace(good, token_ids=(*good.token_ids, token)) for token in (271, -1, 1 << 70)]
    scores = engine.read_answers(["a"], [odd[0], good, *odd[1:]], DIGITS)
    assert [score.reason for score in scores] == ["unparsable", None, "unparsable", "unparsable"]


@pytest.mark.parametrize(
    "options",
    [{"repetition_penalty": 1e-9}, {"stop": ["a"] * 65}, {"stop": "a" * 1025}, {"allowed_token_ids": [1] * 300}],
)
def test_what_would_take_long_for_every_token_is_refused(engine: Engine, options: dict[str, Any]) -> None:
    with pytest.raises(PromptError, match=next(iter(options))):
        engine.generate(["x"], **options)


@pytest.mark.parametrize("how", [{"top_p": 0.5}, {}, {"min_p": 0.1}, {"top_k": 3}])
def test_the_lowest_temperature_takes_the_most_probable_token(how: dict[str, Any]) -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1))
    sampling = Sampling(temperature=5e-324, **how)
    assert {choose(logits, sampling, [1], draw) for draw in (0.0, 0.5, 0.999)} == {int(logits.argmax())}


def test_a_form_that_no_text_has_ends_it_cut_short(engine: Engine) -> None:
    [text] = engine.generate(["x"], regex="[^\\x00-\U0010ffff]", max_tokens=5)
    assert text.finish_reason == "length"
    [good] = engine.generate(["x"], regex="ab?", max_tokens=5, seed=1)
    assert good.finish_reason == "stop" and re.fullmatch("ab?", good.text)
