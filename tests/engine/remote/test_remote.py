from __future__ import annotations

import asyncio
import gc
import importlib
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adjudge import Labels, PairwiseJudge, RemoteEngine
from adjudge.engine.call import Call
from adjudge.engine.dummy import tiny_tokenizer
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, PromptError, RemoteError
from adjudge.engine.labels import LabelSet, Read, Spelling
from adjudge.engine.remote.loop_thread import LoopThread
from adjudge.engine.remote.protocols import Reading, bounded
from adjudge.engine.remote.questions import ReadJob
from adjudge.rewards.aspects import HANNA
from adjudge.rewards.verdict import Pair
from tests.engine.remote.conftest import DIGITS, TINY, Open
from tests.engine.remote.peer import KINDS

PREFIXES = Labels(("1", "10", "2"))
PROMPTS = ["Rate this.", "Rate that.", "Rate this.", "<|im_end|> Rate <|endoftext|>", "🙂 é \x00 \ud800"]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(TINY, kv_cache_gb=0.2)


@pytest.mark.parametrize("labels", [DIGITS, PREFIXES, Labels(("yes", "no", "yesterday"))])
def test_scores_from_our_own_server_are_the_engines_own_to_the_last_bit(
    open_remote: Open, engine: Engine, labels: Labels
) -> None:
    remote, peer = open_remote("adjudge")
    assert remote.score(PROMPTS, labels) == engine.score(PROMPTS, labels)
    assert len(peer.bodies) == 1


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
@pytest.mark.parametrize("labels", [DIGITS, PREFIXES])
def test_scores_from_other_servers_are_the_engines_own(
    open_remote: Open, engine: Engine, kind: str, labels: Labels
) -> None:
    remote, _ = open_remote(kind)
    for got, want in zip(remote.score(PROMPTS, labels), engine.score(PROMPTS, labels), strict=True):
        assert got.full_logprobs == pytest.approx(want.full_logprobs, abs=1e-5)
        assert (got.mass, got.expected) == pytest.approx((want.mass, want.expected), rel=1e-5)
        assert (got.reason, got.best, got.prompt_tokens) == (None, want.best, want.prompt_tokens)


def test_a_plain_server_that_lists_every_label_gives_the_engines_scores(open_remote: Open, engine: Engine) -> None:
    remote, _ = open_remote("openai", peer={"top": 300}, top_logprobs=300)
    for got, want in zip(remote.score(PROMPTS, DIGITS), engine.score(PROMPTS, DIGITS), strict=True):
        assert got.full_logprobs == pytest.approx(want.full_logprobs, abs=1e-5)


@pytest.mark.parametrize(("kind", "peer"), [("openai", {}), ("vllm", {"knows_ids": False})])
def test_labels_outside_the_list_of_the_most_probable_abstain(
    open_remote: Open, engine: Engine, kind: str, peer: dict[str, Any]
) -> None:
    remote, server = open_remote(kind, peer=peer)
    ranks = server.logprobs(list(engine.tokenizer.prompt(PROMPTS[0])))
    listed = sorted(ranks, key=lambda token: -ranks[token])[:20]
    assert any(ord(label) not in listed for label in DIGITS.labels)
    assert [score.reason for score in remote.score(PROMPTS, DIGITS)] == ["unsupported"] * len(PROMPTS)


def test_an_older_vllm_scores_labels_that_are_on_its_list(open_remote: Open, engine: Engine) -> None:
    remote, server = open_remote("vllm", peer={"knows_ids": False})
    tokens = list(engine.tokenizer.prompt(PROMPTS[0]))
    ranks = server.logprobs(tokens)
    first, second = sorted(range(256), key=lambda token: -ranks[token])[:2]
    [score] = remote.score([tokens], LabelSet.of_ids([first, second]))
    assert score.full_logprobs == pytest.approx((ranks[first], ranks[second]), abs=1e-6)


def test_a_reading_without_alternatives_is_unsupported(open_remote: Open) -> None:
    remote, server = open_remote("openai")
    server.answer = lambda path, body: {"choices": [{"text": "", "finish_reason": "length"}]}  # type: ignore[method-assign]
    assert [score.reason for score in remote.score(["a"], DIGITS)] == ["unsupported"]


LISTED = {49: math.log(0.6), 50: math.log(0.3), 7: math.log(0.05), 8: math.log(1e-5)}


@pytest.mark.parametrize(
    ("listed", "wanted", "chosen", "most"),
    [
        (LISTED, (49, 50), None, (math.log(0.6), math.log(0.3))),
        (LISTED, (49, 51), None, (math.log(0.6), math.log(1e-5))),
        (LISTED, (49, 51), 8, (math.log(0.6), math.log(0.05))),  # 8 was drawn: it says nothing of the others
        (LISTED | {None: math.log(0.02)}, (49, 51), None, (math.log(0.6), 0.0)),  # the unnamed one may be 51
        ({8: math.log(1e-5)}, (51,), 8, (0.0,)),
    ],
)
def test_an_unreported_token_is_bounded_by_the_last_on_the_list(
    listed: dict[int | None, float], wanted: tuple[int, ...], chosen: int | None, most: tuple[float, ...]
) -> None:
    reading = bounded(listed, wanted, chosen)
    assert reading.logprobs == tuple(listed.get(token, -math.inf) for token in wanted)
    assert reading.at_most == most


@pytest.mark.parametrize(("unreported", "reason"), [(math.log(1e-5), None), (math.log(1e-3), "unsupported")])
def test_a_variant_may_be_unreported_where_it_hardly_counts(unreported: float, reason: str | None) -> None:
    call = Call(open=1)
    spellings = (Spelling(0, ((0, 0),)), Spelling(0, ((0, 1),)), Spelling(1, ((0, 2),)))
    compiled = LabelSet(("a", "b"), None, (Read((), (1, 2, 3)),), spellings)
    values = (math.log(0.3), -math.inf, math.log(0.4))
    ReadJob(call, 0, compiled, 3).read(0, Reading(values, (values[0], unreported, values[2])))
    [(_, score)] = call.answers
    assert score.reason == reason
    if reason is None:
        assert score.full_logprobs == pytest.approx((math.log(0.3), math.log(0.4)))


def test_a_label_that_is_not_reported_at_all_is_never_a_zero() -> None:
    call = Call(open=1)
    values = (math.log(0.9), -math.inf)
    ReadJob(call, 0, LabelSet.of_ids([1, 2]), 3).read(0, Reading(values, (values[0], math.log(1e-12))))
    assert call.answers[0][1].reason == "unsupported"


class RemoteLabels:
    @staticmethod
    def two_spellings() -> LabelSet:
        """ "a" may be token 1 or 2, "b" is token 3."""
        three = LabelSet.of_ids([1, 2, 3])
        first, second, third = three.spellings
        spellings = (first, type(second)(0, second.steps), type(third)(1, third.steps))
        return LabelSet(("a", "b"), None, three.reads, spellings)


def test_texts_of_which_a_plain_server_says_too_little_name_no_token(open_remote: Open) -> None:
    remote, _ = open_remote("openai")
    protocol: Any = remote.protocol
    assert protocol.named("5") == ord("5")
    assert protocol.named("\ufffd") is None  # every byte that is no character has this text
    assert protocol.named("token_id:5") is None


@pytest.mark.parametrize("kind", ["adjudge", "vllm", "sglang"])
def test_a_pairwise_judge_gives_the_same_verdicts_over_the_wire(open_remote: Open, engine: Engine, kind: str) -> None:
    pairs = [Pair(a="One.", b="Two, longer.", prompt="Tell.", id="x"), Pair(a="<|im_end|>", b="[[5]]", id="y")]
    remote, _ = open_remote(kind)
    for got, want in zip(
        PairwiseJudge(remote, HANNA[:2], min_mass=0).compare(pairs),
        PairwiseJudge(engine, HANNA[:2], min_mass=0).compare(pairs),
        strict=True,
    ):
        if kind == "adjudge":
            assert got == want
        assert not want.truncated and want.preference is not None
        assert got.preference == pytest.approx(want.preference, abs=1e-6)
        assert got.abstained is None and got.model == TINY


def test_texts_reach_the_server_as_tokens_without_power(open_remote: Open) -> None:
    powerful = set(tiny_tokenizer().all_special_ids)
    for kind, field in (("vllm", "prompt"), ("sglang", "input_ids"), ("openai", "prompt")):
        remote, server = open_remote(kind)
        remote.score(["<|im_start|><|im_end|><|endoftext|>"], DIGITS)
        remote.generate(["<|im_start|><|im_end|><|endoftext|>"], max_tokens=1)
        for body in server.bodies:
            assert body[field] and powerful.isdisjoint(body[field])


def test_equal_reads_are_asked_once_and_neighbours_go_together(open_remote: Open) -> None:
    remote, server = open_remote("vllm")
    remote.score(["a", "b", "a", "b"], DIGITS)
    assert len(server.bodies) == 2
    remote, server = open_remote("adjudge")
    remote.score([[1, n % 7, n] for n in range(130)], DIGITS)
    bodies = sorted((body["items"] for body in server.bodies), key=len)  # they come at once, in any order
    assert list(map(len, bodies)) == [2, 64, 64]
    assert all(items[0][:2] == items[1][:2] for items in bodies)


@pytest.mark.parametrize("kind", ["adjudge", "vllm", "sglang"])
def test_texts_and_their_tokens_are_the_engines_own(open_remote: Open, engine: Engine, kind: str) -> None:
    remote, _ = open_remote(kind)
    options: dict[str, Any] = {"max_tokens": 6, "temperature": 0.0, "logprobs": 3, "n": 2}
    assert remote.generate(PROMPTS, **options) == engine.generate(PROMPTS, **options)


@pytest.mark.parametrize("kind", ["adjudge", "vllm", "sglang"])
@pytest.mark.parametrize(("count", "alternatives"), [(0, 0), (3, 0), (1, 4), (4, 1)])
def test_prompts_are_read_as_the_engine_reads_them(
    open_remote: Open, engine: Engine, kind: str, count: int, alternatives: int
) -> None:
    remote, _ = open_remote(kind)
    options: dict[str, Any] = {"max_tokens": 2, "temperature": 0.0, "logprobs": alternatives, "n": 2}
    here = engine.generate(PROMPTS, prompt_logprobs=count, **options)
    assert remote.generate(PROMPTS, prompt_logprobs=count, **options) == here
    assert all(len(one.prompt_logprobs) == one.prompt_tokens for one in here)


@pytest.mark.parametrize("kind", ["adjudge", "vllm"])
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.8, "top_k": 9, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2, "seed": 7, "n": 3},
        {"temperature": 1.0, "stop": ("a", "e"), "seed": 3, "max_tokens": 40},
        {"choices": ("yes", "no"), "seed": 1},
        {"regex": "[0-9]{2}", "seed": 2},
        {"json_schema": {"type": "boolean"}, "seed": 2},
        {"allowed_token_ids": (65, 66), "seed": 4, "ignore_eos": True},
    ],
)
def test_every_field_of_sampling_reaches_the_server(
    open_remote: Open, engine: Engine, kind: str, options: dict[str, Any]
) -> None:
    remote, _ = open_remote(kind)
    options = {"max_tokens": 5} | options
    assert remote.generate(PROMPTS[:2], **options) == engine.generate(PROMPTS[:2], **options)


def test_nothing_is_left_to_a_servers_own_defaults(open_remote: Open) -> None:
    neutral = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "top_k": -1}
    remote, server = open_remote("vllm")
    remote.score(["a"], DIGITS)
    remote.generate(["a"], max_tokens=1)
    assert all(body | neutral == body for body in server.bodies)
    assert server.bodies[1]["skip_special_tokens"] is False  # an engine's text has them
    remote, server = open_remote("sglang")
    remote.generate(["a"], max_tokens=1)
    params = server.bodies[0]["sampling_params"]
    assert params | neutral == params and params["skip_special_tokens"] is False


def test_a_priority_goes_to_servers_that_know_one(open_remote: Open) -> None:
    for kind, knows in (("adjudge", True), ("vllm", True), ("sglang", False), ("openai", False)):
        remote, server = open_remote(kind)
        remote.score(["a"], DIGITS, priority=3)
        remote.generate(["a"], max_tokens=1, priority=3)
        remote.generate(["a"], max_tokens=1)
        assert [body.get("priority") for body in server.bodies] == [3 if knows else None] * 2 + [None]


def test_a_priority_that_is_no_number_never_leaves(open_remote: Open) -> None:
    remote, server = open_remote("sglang")
    for ask in (lambda how: remote.score(["a"], DIGITS, **how), lambda how: remote.generate(["a"], **how)):
        with pytest.raises(PromptError, match="priority is 'x': give a whole number"):
            ask({"priority": "x"})
    assert not server.bodies


def test_numbers_of_numpy_are_sent_as_numbers(open_remote: Open, engine: Engine) -> None:
    remote, _ = open_remote("adjudge")
    how: dict[str, Any] = {"max_tokens": np.int64(2), "temperature": np.float32(0.5), "priority": np.int64(2)}
    how |= {"seeds": np.array([3]), "allowed_token_ids": [np.int64(65)]}
    assert remote.generate(["a"], **how) == engine.generate(["a"], **how)
    assert remote.score(["a"], DIGITS, priority=np.int64(2)) == engine.score(["a"], DIGITS)


def test_each_prompt_keeps_its_own_seed(open_remote: Open, engine: Engine) -> None:
    remote, _ = open_remote("adjudge")
    options: dict[str, Any] = {"seeds": [5, 6, 5], "max_tokens": 5}
    assert remote.generate(["a", "a", "a"], **options) == engine.generate(["a", "a", "a"], **options)


@pytest.mark.parametrize("kind", ["vllm", "openai"])
def test_a_seed_of_any_size_is_one_that_the_server_takes(open_remote: Open, kind: str) -> None:
    remote, server = open_remote(kind)
    texts = remote.generate(["a", "a"], seeds=[2**64 - 1, 2**64 - 1], max_tokens=5)
    assert texts[0].text == texts[1].text and texts[0].finish_reason == "length"
    assert [body["seed"] for body in server.bodies] == [2**31 - 1] * 2


def test_sglang_writes_choices_as_a_regular_expression(open_remote: Open) -> None:
    remote, server = open_remote("sglang")
    [text] = remote.generate(["a"], choices=("y.s", "no"), temperature=0, seed=1, max_tokens=5)  # nothing is drawn
    assert server.bodies[0]["sampling_params"]["regex"] == r"(y\.s)|(no)"
    assert text.text in ("y.s", "no") and text.finish_reason == "stop"
    assert math.isnan(text.logprob)  # what SGLang reports under a form is not the model's own


@pytest.mark.parametrize(
    ("kind", "options", "word"),
    [
        ("openai", {"top_k": 3}, "top_k"),
        ("openai", {"logprobs": 2}, "logprobs"),
        ("openai", {"json_schema": "{}"}, "json_schema"),
        ("sglang", {"seed": 3}, "seed"),
        ("sglang", {"seeds": [3]}, "seed"),
        ("sglang", {"allowed_token_ids": (1,)}, "allowed_token_ids"),
        ("sglang", {"logprobs": 2, "temperature": 0.7}, "logprobs"),
        ("sglang", {"prompt_logprobs": 0, "temperature": 0.7}, "prompt_logprobs"),
        ("openai", {"prompt_logprobs": 0}, "prompt_logprobs"),
    ],
)
def test_what_a_server_would_ignore_is_refused_before_anything_is_sent(
    open_remote: Open, kind: str, options: dict[str, Any], word: str
) -> None:
    remote, server = open_remote(kind)
    mend = "give temperature 0" if word == "seed" else "leave it out"
    with pytest.raises(RemoteError, match=f"^{word}.*{mend}, or use `adjudge serve`"):
        remote.generate(["a"], **options)
    assert not server.bodies


def test_a_plain_servers_texts_have_the_tokens_they_have_here(open_remote: Open, engine: Engine) -> None:
    remote, _ = open_remote("openai")
    [text] = remote.generate(["a"], temperature=0, max_tokens=4)
    [own] = engine.generate(["a"], temperature=0, max_tokens=4)
    assert text.text == own.text
    assert text.token_ids == engine.tokenizer.encode(own.text, False)
    assert math.isnan(text.logprob)


def test_scores_are_read_where_a_text_wrote_them(open_remote: Open, engine: Engine) -> None:
    remote, _ = open_remote("adjudge")
    options: dict[str, Any] = {"regex": "so <ANSWER>[1-5]</ANSWER>", "seed": 1, "max_tokens": 40}
    texts = remote.generate(["Rate."], **options)
    [score] = remote.read_answers(["Rate."], texts, DIGITS)
    assert score == engine.read_answers(["Rate."], engine.generate(["Rate."], **options), DIGITS)[0]
    assert score.reason is None


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_that_do_not_fit_are_not_sent(open_remote: Open, kind: str) -> None:
    remote, server = open_remote(kind, max_context=20)
    prompts = [[1] * 20, [1] * 21, [1] * 25]
    assert [score.reason for score in remote.score(prompts[1:], DIGITS)] == ["too_long"] * 2
    texts = remote.generate(prompts, max_tokens=5, n=2, temperature=0)
    assert [text.finish_reason for text in texts] == ["too_long"] * 6
    assert not server.bodies
    remote.generate([[1] * 18], max_tokens=5)
    body = server.bodies[0]
    assert body.get("sampling_params", body).get("max_new_tokens", body.get("max_tokens")) == (
        1 if kind == "sglang" else 2
    )


def test_room_for_the_token_that_a_server_writes_in_order_to_read(open_remote: Open) -> None:
    room = {kind: open_remote(kind, max_context=20)[0].max_prompt_tokens for kind in KINDS}
    assert room == {"adjudge": 20, "vllm": 19, "sglang": 18, "openai": 19}


def test_the_card_says_which_model_it_is(open_remote: Open, engine: Engine) -> None:
    remote, _ = open_remote("adjudge")
    assert (remote.name, remote.fingerprint, remote.adapter, remote.dtype) == (
        TINY,
        engine.fingerprint,
        None,
        "float32",
    )
    assert remote.max_prompt_tokens == engine.max_prompt_tokens
    other, server = open_remote("vllm")
    again = RemoteEngine(server.url + "/v1/")
    assert other.dtype == "remote" and other.fingerprint == again.fingerprint != remote.fingerprint
    again.close()


def test_a_tokenizer_that_is_named_is_part_of_what_the_model_is(open_remote: Open) -> None:
    worded = tiny_tokenizer()
    worded.chat_template = "{{ messages[0]['content'] }}"
    given: list[dict[str, Any]] = [{}, {"tokenizer": tiny_tokenizer()}, {"tokenizer": worded}, {"tokenizer": TINY}]
    none, named, other, again = (open_remote("adjudge", **options)[0].fingerprint for options in given)
    assert len({none, named, other}) == 3 and again == named


def test_statistics_count_what_was_asked_and_what_was_computed(open_remote: Open, engine: Engine) -> None:
    remote, _ = open_remote("adjudge")
    engine.cache.clear()
    prompts = [[1] * 40 + [n] for n in range(5)]
    remote.score(prompts, DIGITS)
    assert (remote.stats.prompts, remote.stats.prompt_tokens, remote.stats.tokens_computed) == (5, 205, 45)
    texts = remote.generate(prompts, max_tokens=6, ignore_eos=True)
    assert remote.stats.tokens_written == sum(len(text.token_ids) for text in texts) == 30


@pytest.mark.parametrize(
    ("options", "card", "message"),
    [
        ({"model": "other"}, {}, f"no model 'other', only {TINY}.*model="),
        ({"api": "chat"}, {}, "choose auto, adjudge, vllm"),
        ({"max_concurrency": 0}, {}, "max_concurrency is 0"),
        ({"retries": -1}, {}, "retries is -1"),
        ({"timeout": 0}, {}, "timeout is 0"),
        ({}, {"max_model_len": None}, "pass max_context="),
        ({}, {"id": "nobody"}, "no tokenizer here.*'nobody'.*tokenizer="),
        ({}, {"id": "./nowhere"}, "no tokenizer here.*tokenizer="),
        ({"tokenizer": "nobody"}, {}, "there is no model 'nobody'"),
    ],
)
def test_mistakes_get_one_sentence_with_the_mend(
    open_remote: Open, options: dict[str, Any], card: dict[str, Any], message: str
) -> None:
    with pytest.raises(AdjudgeError, match=message):
        open_remote("vllm", peer={"card": card}, **options)


def test_the_tokenizer_may_be_named_or_given(open_remote: Open, engine: Engine, tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)  # a folder without weights
    for tokenizer in (TINY, str(tmp_path), engine.tokenizer.inner):
        remote, _ = open_remote("adjudge", peer={"card": {"id": "theirs"}}, tokenizer=tokenizer)
        assert remote.name == "theirs"
        assert remote.score(PROMPTS, DIGITS) == engine.score(PROMPTS, DIGITS)


def test_the_kind_of_server_can_be_said(open_remote: Open) -> None:
    remote, server = open_remote("vllm", peer={"card": {"owned_by": "someone"}}, api="vllm")
    assert remote.score(["a"], DIGITS)[0].reason is None
    assert "logprob_token_ids" in server.bodies[0]


def test_several_models_need_a_name(open_remote: Open) -> None:
    card = {"id": "a", "max_model_len": 9}
    models = {"models": lambda: {"data": [card, card | {"id": "b"}]}}
    with pytest.raises(RemoteError, match="serves a, b: pass model="):
        open_remote("vllm", peer=models)
    remote, _ = open_remote("vllm", peer=models, model="b", tokenizer=TINY)
    assert remote.name == "b"


def test_no_prompts_are_no_requests(open_remote: Open) -> None:
    remote, server = open_remote("adjudge")
    assert remote.score([], DIGITS) == [] and remote.generate([]) == []
    assert not server.bodies


def test_a_missing_library_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tenacity", None)
    monkeypatch.delitem(sys.modules, "adjudge.engine.remote.transport")
    with pytest.raises(AdjudgeError, match=r"pip install 'adjudge\[remote\]'"):
        importlib.import_module("adjudge.engine.remote.transport")


@pytest.mark.parametrize("kind", ["adjudge", "vllm", "sglang"])
@pytest.mark.parametrize("options", [{}, {"stop": ["e", "a"]}, {"choices": ["yes", "no"]}, {"logprobs": 1}])
def test_a_text_is_that_of_its_tokens_whatever_the_server_puts_before_it(
    open_remote: Open, engine: Engine, kind: str, options: dict[str, Any]
) -> None:
    remote, _ = open_remote(kind, peer={"before": "Rate this.\ufffd"})
    how: dict[str, Any] = {"max_tokens": 24, "temperature": 0.0} | options
    texts = [text.text for text in engine.generate(PROMPTS, **how)]
    assert [text.text for text in remote.generate(PROMPTS, **how)] == texts and any(texts)


def test_a_loop_that_nobody_holds_any_more_ends_with_its_thread() -> None:
    dropped, closed = LoopThread("dropped"), LoopThread("closed")
    assert dropped.run(asyncio.sleep(0, "done")) == "done"
    threads = [dropped._thread, closed._thread]
    closed.close()
    del dropped
    gc.collect()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
