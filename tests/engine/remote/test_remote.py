from __future__ import annotations

import importlib
import math
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken

from adjudge import Labels, PairwiseJudge, RemoteEngine
from adjudge.engine.batching.call import Call
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, RemoteError
from adjudge.engine.face import Stats
from adjudge.engine.models.dummy import tiny_tokenizer
from adjudge.engine.models.sources import open_source, resolve
from adjudge.engine.remote.protocols import Reading, bounded
from adjudge.engine.remote.questions import ReadJob
from adjudge.engine.text.labels import LabelSet, Read, Spelling
from adjudge.engine.text.tokenizer import LATER, Tokenizer
from adjudge.rewards.judges.aspects import HANNA
from adjudge.rewards.records.verdict import Pair
from tests.engine.remote.conftest import VARIED, Open
from tests.engine.remote.peer import KINDS
from tests.engine.tiny import DIGITS, TINY

PREFIXES = Labels(("1", "10", "2"))


@pytest.mark.parametrize("labels", [DIGITS, PREFIXES, Labels(("yes", "no", "yesterday"))])
def test_scores_from_our_own_server_are_the_engines_own_to_the_last_bit(
    open_remote: Open, engine: Engine, labels: Labels
) -> None:
    remote, peer = open_remote("adjudge")
    assert remote.score(VARIED, labels) == engine.score(VARIED, labels)
    assert len(peer.bodies) == 1


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
@pytest.mark.parametrize("labels", [DIGITS, PREFIXES])
def test_scores_from_other_servers_are_the_engines_own(
    open_remote: Open, engine: Engine, kind: str, labels: Labels
) -> None:
    remote, _ = open_remote(kind)
    for got, want in zip(remote.score(VARIED, labels), engine.score(VARIED, labels), strict=True):
        assert got.full_logprobs == pytest.approx(want.full_logprobs, abs=1e-5)
        assert (got.mass, got.expected) == pytest.approx((want.mass, want.expected), rel=1e-5)
        assert (got.reason, got.best, got.prompt_tokens) == (None, want.best, want.prompt_tokens)


def test_a_plain_server_that_lists_every_label_gives_the_engines_scores(open_remote: Open, engine: Engine) -> None:
    remote, _ = open_remote("openai", peer={"top": 300}, top_logprobs=300)
    for got, want in zip(remote.score(VARIED, DIGITS), engine.score(VARIED, DIGITS), strict=True):
        assert got.full_logprobs == pytest.approx(want.full_logprobs, abs=1e-5)


@pytest.mark.parametrize(("kind", "peer"), [("openai", {}), ("vllm", {"knows_ids": False})])
def test_labels_outside_the_list_of_the_most_probable_abstain(
    open_remote: Open, engine: Engine, kind: str, peer: dict[str, Any]
) -> None:
    remote, server = open_remote(kind, peer=peer)
    ranks = server.logprobs(list(engine.tokenizer.prompt(VARIED[0])))
    listed = sorted(ranks, key=lambda token: -ranks[token])[:20]
    assert any(ord(label) not in listed for label in DIGITS.labels)
    assert [score.reason for score in remote.score(VARIED, DIGITS)] == ["unsupported"] * len(VARIED)


def test_an_older_vllm_scores_labels_that_are_on_its_list(open_remote: Open, engine: Engine) -> None:
    remote, server = open_remote("vllm", peer={"knows_ids": False})
    tokens = list(engine.tokenizer.prompt(VARIED[0]))
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


def test_the_texts_of_all_tokens_are_made_by_who_calls_and_not_where_replies_are_read(open_remote: Open) -> None:
    remote, _ = open_remote("openai")
    threads = set[threading.Thread]()

    class Watched(Tokenizer):
        def decode(self, ids: Sequence[int]) -> str:
            threads.add(threading.current_thread())
            return super().decode(ids)

    remote.protocol.tokenizer = Watched(remote.tokenizer.inner)
    remote.score(VARIED, DIGITS)
    assert threads == {threading.current_thread()}


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_threads_of_callers_count_they_count_one_after_the_other(
    open_remote: Open, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    remote, _ = open_remote(kind)
    asker = remote._asker

    class Watched(Stats):
        def __setattr__(self, name: str, value: int) -> None:
            assert asker._counting.locked()
            super().__setattr__(name, value)

    remote.stats = stats = Watched()
    monkeypatch.setattr(asker, "_stats", stats)
    remote.score(["Once"], DIGITS)
    remote.generate(["Once"], max_tokens=4, temperature=0.0)
    assert stats.prompts == 2 and stats.prompt_tokens and stats.tokens_computed and stats.tokens_written


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


def test_answers_in_tokens_that_were_others_before_are_kept_apart_here_as_where_the_model_runs(
    open_remote: Open, tmp_path: Path
) -> None:
    opened = open_source(resolve(TINY), dtype=torch.float32)
    opened.tokenizer.backend_tokenizer.add_tokens([AddedToken("    ", special=False)])  # of an indented line
    opened.model.save_pretrained(tmp_path)
    opened.tokenizer.save_pretrained(tmp_path)
    own = Engine(str(tmp_path), kv_cache_gb=0.05)
    weights = resolve(str(tmp_path)).fingerprint
    assert own.fingerprint == f"{weights}{LATER}"
    cards: list[dict[str, Any]] = [{}, {"fingerprint": weights}]  # the second is that of an older server
    for card in cards:
        assert open_remote("adjudge", served=own, peer={"card": card})[0].fingerprint == own.fingerprint


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
        ({"model": "other"}, {}, f"no model 'other', only {TINY}.*name one of these as the model"),
        ({"api": "chat"}, {}, "choose auto, adjudge, vllm"),
        ({"max_concurrency": 0}, {}, "max_concurrency is 0"),
        ({"retries": -1}, {}, "retries is -1"),
        ({"max_context": 0}, {}, "max_context is 0: give at least 1"),
        ({"max_context": "x"}, {}, "max_context is 'x': give a whole number of at least 1"),
        ({"top_logprobs": -1}, {}, "top_logprobs is -1"),
        ({"api_key": 5}, {}, "the key of the server is no text: give one"),
        ({"timeout": 0}, {}, "timeout is 0"),
        ({"timeout": "x"}, {}, "timeout is 'x': give more than 0 seconds"),
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
        assert remote.score(VARIED, DIGITS) == engine.score(VARIED, DIGITS)


def test_the_kind_of_server_can_be_said(open_remote: Open) -> None:
    remote, server = open_remote("vllm", peer={"card": {"owned_by": "someone"}}, api="vllm")
    assert remote.score(["a"], DIGITS)[0].reason is None
    assert "logprob_token_ids" in server.bodies[0]


def test_several_models_need_a_name(open_remote: Open) -> None:
    card = {"id": "a", "max_model_len": 9}
    models = {"models": lambda: {"data": [card, card | {"id": "b"}]}}
    with pytest.raises(RemoteError, match="serves a, b: name the one"):
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
    how: dict[str, Any] = {"max_tokens": 12, "temperature": 0.0} | options
    texts = [text.text for text in engine.generate(VARIED, **how)]
    assert [text.text for text in remote.generate(VARIED, **how)] == texts and any(texts)
