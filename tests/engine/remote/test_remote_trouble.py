"""Servers that are slow, busy, broken, hostile or gone."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import os
import socket
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from adjudge import RemoteEngine
from adjudge.engine.completion import TokenLogprob
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, RemoteError
from adjudge.engine.remote import transport
from tests.engine.remote.conftest import DIGITS, PROMPTS, Open
from tests.engine.remote.peer import KINDS, Answer, Peer, breaks_off, cut_short, hangs, proper, says, send


def reply(**changes: Any) -> bytes:
    """What a vLLM says of one token, with changes."""
    names = [f"token_id:{ord(label)}" for label in DIGITS.labels]
    logprobs = {"tokens": names[:1], "token_logprobs": [-2.0], "top_logprobs": [dict.fromkeys(names, -2.0)]}
    choice = {"index": 0, "text": "1", "finish_reason": "length", "logprobs": logprobs}
    return json.dumps({"choices": [choice]} | changes).encode()


def listing(value: Any) -> dict[str, Any]:
    top = {f"token_id:{ord(label)}": -2.0 for label in DIGITS.labels} | {"token_id:49": value}
    logprobs = {"tokens": ["token_id:49"], "token_logprobs": [-2.0], "top_logprobs": [top]}
    return {"choices": [{"index": 0, "text": "", "logprobs": logprobs}]}


def packed(handler: Any, peer: Peer) -> bool:
    """A few kilobytes of sound JSON that unpack to more than anybody reads."""
    send(handler, 200, gzip.compress(reply() + b" " * transport.MAX_REPLY), content_encoding="gzip")
    return True


TROUBLE = {
    "500": says(500),
    "502 of a proxy": says(502, b"<html>Bad gateway</html>"),
    "503": says(503),
    "504": says(504),
    "408": says(408),
    "429": says(429, retry_after="0"),
    "reset": breaks_off,
    "cut short": cut_short,
    "no JSON": says(200, b'{"choices": ['),
    "no UTF-8": says(200, b'{"choices": [{"text": "\xff\xfe"}]}'),
    "nothing": says(200, b""),
    "another type": says(200, b"[1, 2]"),
    "nested": says(200, b'{"choices": ' + b"[" * 100_000),
    "nested aside": says(200, b'{"aside": ' + b"[" * 100_000),
    "no choice": says(200, reply(choices=[])),
    "two choices": says(200, reply(choices=[{"text": "", "index": 0}, {"text": "", "index": 1}])),
    "a choice of another number": says(200, reply(choices=[{"text": "", "index": 3}])),
    "numbers as text": says(200, listing("-2.0")),
    "NaN": says(200, json.dumps(listing(float("nan"))).encode()),
    "infinity": says(200, json.dumps(listing(float("inf"))).encode()),
    "no log-probability": says(200, listing(0.5)),
    "packed": packed,
}


@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE)
def test_what_goes_wrong_once_is_asked_again(
    open_remote: Open, engine: Engine, waits: list[float], trouble: Answer
) -> None:
    remote, server = open_remote("vllm", trouble)
    [score] = remote.score(PROMPTS[:1], DIGITS)
    assert score.full_logprobs == pytest.approx(engine.score(PROMPTS[:1], DIGITS)[0].full_logprobs, abs=1e-5)
    assert len(server.bodies) == 2 and len(waits) == 1


@pytest.mark.parametrize(("name", "reason"), [("500", "timeout"), ("reset", "timeout"), ("NaN", "unsupported")])
def test_what_stays_wrong_abstains_and_costs_the_others_nothing(
    open_remote: Open, engine: Engine, name: str, reason: str
) -> None:
    remote, _ = open_remote("vllm", proper, TROUBLE[name], retries=0, max_concurrency=1)
    own = engine.score(PROMPTS[:3], DIGITS)
    for place, score in enumerate(remote.score(PROMPTS[:3], DIGITS)):
        if place == 1:
            assert (score.reason, score.full_logprobs, score.labels) == (reason, None, DIGITS.labels)
        else:
            assert score.full_logprobs == pytest.approx(own[place].full_logprobs, abs=1e-5)
        assert score.prompt_tokens == own[place].prompt_tokens


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("adjudge", {"results": []}),
        ("adjudge", {"results": [{"full_logprobs": [-1.0]}]}),
        ("adjudge", {"results": [{}]}),
        ("adjudge", {"results": [{"reason": "tired"}]}),
        ("adjudge", {"results": [{"full_logprobs": [-1.0, -1.0, -1.0, -1.0, 3.0]}]}),
        ("sglang", []),
        ("sglang", {"text": "", "meta_info": {"output_token_ids_logprobs": [[[-1.0, 49, None]]]}}),
        ("sglang", {"text": "", "meta_info": {"finish_reason": {"type": "abort", "message": "no memory"}}}),
        ("openai", {"choices": [{"text": "", "logprobs": {"top_logprobs": [{"1": 7}]}}]}),
    ],
)
def test_a_reply_that_promises_something_else_is_no_score(open_remote: Open, kind: str, body: Any) -> None:
    remote, server = open_remote(kind, *[says(200, body)] * 2, retries=1)
    assert [score.reason for score in remote.score(["a"], DIGITS)] == ["unsupported"]
    assert len(server.bodies) == 2


@pytest.mark.parametrize("reason", ["too_long", "timeout", "non_finite", "cancelled"])
def test_our_own_servers_reasons_are_handed_on(open_remote: Open, reason: str) -> None:
    remote, _ = open_remote("adjudge", says(200, {"results": [{"reason": reason}, {"full_logprobs": [None] * 5}]}))
    assert [score.reason for score in remote.score(["a", "b"], DIGITS)] == [reason, "low_mass"]


def test_minus_infinity_is_a_log_probability(open_remote: Open) -> None:
    for least in (None, -9999.0):
        remote, _ = open_remote("vllm", says(200, listing(least)))
        [score] = remote.score(["a"], DIGITS)
        assert score.full_logprobs == (float("-inf"), -2.0, -2.0, -2.0, -2.0)


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [{"text": "a", "finish_reason": "length"}]},
        {"choices": [{"text": "a", "finish_reason": "bored", "token_ids": [97]}]},
        {"choices": [{"text": "a", "finish_reason": None, "token_ids": [97]}]},
        {"choices": [{"text": "a", "finish_reason": "stop", "token_ids": [-1], "logprobs": {"token_logprobs": [0]}}]},
        {"choices": [{"text": "a", "finish_reason": "stop", "token_ids": [97], "logprobs": {}}]},
        {"choices": [{"text": "a", "finish_reason": "stop", "token_ids": [97]}] * 2},
    ],
)
def test_a_text_without_what_was_asked_for_is_none(open_remote: Open, body: Any) -> None:
    remote, _ = open_remote("vllm", *[says(200, body)] * 2, retries=1)
    [text] = remote.generate(["a"], logprobs=1)
    assert (text.finish_reason, text.text, text.token_ids) == ("cancelled", "", ())


@pytest.mark.parametrize(
    ("kind", "listed"),
    [
        ("vllm", {}),
        ("vllm", {"prompt_logprobs": [None]}),
        ("vllm", {"prompt_logprobs": [None, None]}),
        ("vllm", {"prompt_logprobs": [None, {"99": {"logprob": -1.0}}]}),
        ("vllm", {"prompt_logprobs": [None, {"98": {"logprob": 1.0}}]}),
        ("vllm", {"prompt_logprobs": [None, {"b": {"logprob": -1.0}}]}),
        ("vllm", {"prompt_logprobs": [None, {"-1": {"logprob": -1.0}, "98": {"logprob": -1.0}}]}),
        ("vllm", {"prompt_logprobs": {"98": -1.0}}),
        ("adjudge", {"prompt_logprobs": []}),
        ("sglang", {}),
        ("sglang", {"input_token_logprobs": [[None, 97, None], [-1.0, 99, None]]}),
        ("sglang", {"input_token_logprobs": [[None, 97, None], [-1.0, 98, None]]}),
        ("sglang", {"input_token_logprobs": [[None, 97, None], [-1.0, 98, None]], "input_top_logprobs": [None]}),
    ],
)
def test_a_prompt_that_was_not_read_is_no_certainty(open_remote: Open, kind: str, listed: dict[str, Any]) -> None:
    if kind == "sglang":
        meta = {"finish_reason": {"type": "length"}, "output_token_logprobs": [[-1.0, 97, None]]}
        body: dict[str, Any] = {"text": "a", "meta_info": meta | listed}
    else:
        body = {"choices": [{"text": "a", "finish_reason": "length", "token_ids": [97]} | listed]}
    remote, server = open_remote(kind, *[says(200, body)] * 2, proper, retries=1)
    [text] = remote.generate(["ab"], temperature=1.0, prompt_logprobs=1)
    assert (text.finish_reason, text.prompt_logprobs, len(server.bodies)) == ("cancelled", (), 2)
    [text] = remote.generate(["ab"], temperature=1.0, prompt_logprobs=1)
    assert [one and one.token_id for one in text.prompt_logprobs] == [None, 98]


def test_a_place_with_fewer_alternatives_than_were_asked_for_is_not_read(open_remote: Open) -> None:
    choice = {"text": "a", "finish_reason": "length", "token_ids": [97]}
    listed = [None, {"98": {"logprob": -9.0}, "97": {"logprob": -1.0}}]
    for count, read in ((2, True), (3, False)):
        remote, _ = open_remote("vllm", says(200, {"choices": [choice | {"prompt_logprobs": listed}]}), retries=0)
        [text] = remote.generate(["ab"], prompt_logprobs=count)
        assert bool(text.prompt_logprobs) == read


def test_a_prompts_token_may_have_no_number_or_be_impossible(open_remote: Open) -> None:
    places = [None, *({str(token): {"logprob": value}} for token, value in ((98, None), (99, -9999.0)))]
    choice = {"text": "a", "finish_reason": "length", "token_ids": [97], "prompt_logprobs": places}
    remote, _ = open_remote("vllm", says(200, {"choices": [choice]}))
    [text] = remote.generate(["abc"], prompt_logprobs=0)
    _, first, second = text.prompt_logprobs
    assert first is not None and second is not None
    assert math.isnan(first.logprob) and second.logprob == -math.inf


def test_what_was_not_asked_for_may_have_any_form(open_remote: Open) -> None:
    choice = {"text": "a", "finish_reason": "length", "token_ids": [97], "prompt_logprobs": "none"}
    remote, _ = open_remote("vllm", says(200, {"choices": [choice]}))
    assert [text.finish_reason for text in remote.generate(["ab"])] == ["length"]


def test_the_last_token_of_the_vocabulary_is_read_though_sglang_calls_it_0(open_remote: Open, engine: Engine) -> None:
    last = engine.tokenizer.vocab_size - 1
    meta = {
        "finish_reason": {"type": "length"},
        "output_token_logprobs": [[-1.0, 97, None]],
        "input_token_logprobs": [[None, 97, None], [-7.0, 0, None]],
    }
    remote, _ = open_remote("sglang", says(200, {"text": "a", "meta_info": meta}))
    [text] = remote.generate([[97, last]], temperature=1.0, prompt_logprobs=0)
    assert text.prompt_logprobs == (None, TokenLogprob(last, -7.0))


def test_a_text_that_ran_out_of_time_has_no_read_prompt(open_remote: Open) -> None:
    choice = {"text": "a", "finish_reason": "timeout", "token_ids": [97], "prompt_logprobs": None}
    remote, _ = open_remote("adjudge", says(200, {"choices": [choice]}))
    [text] = remote.generate(["ab"], prompt_logprobs=1)
    assert (text.finish_reason, text.text, text.prompt_logprobs) == ("timeout", "a", ())


def test_an_unknown_token_leaves_a_text_unparsable(open_remote: Open) -> None:
    choice = {"text": "<ANSWER>1</ANSWER>", "finish_reason": "stop", "token_ids": [1 << 70]}
    remote, _ = open_remote(
        "vllm", says(200, {"choices": [choice]}), says(200, {"choices": [choice | {"token_ids": [10**9]}]})
    )
    texts = remote.generate(["a"])
    assert [score.reason for score in remote.read_answers(["a"], texts, DIGITS)] == ["unparsable"]


def test_waits_grow_at_random_and_keep_to_what_the_server_asks(open_remote: Open, waits: list[float]) -> None:
    remote, _ = open_remote("vllm", says(503, retry_after="7"), says(429, retry_after="9999999"), says(500))
    assert remote.score(["a"], DIGITS)[0].reason is None
    assert 7 <= waits[0] <= 7.5 and waits[1] == 60 and 0 <= waits[2] <= 2


def test_a_busy_server_does_not_count_as_gone(open_remote: Open) -> None:
    remote, server = open_remote("vllm", *[says(429, retry_after="0")] * 20, max_concurrency=1, retries=20)
    assert remote.score(["a"], DIGITS)[0].reason is None
    assert len(server.bodies) == 21


def test_a_dead_server_costs_a_few_attempts_and_is_found_again(open_remote: Open, waits: list[float]) -> None:
    now = [0.0]
    remote, server = open_remote("vllm", *[says(500)] * 100, max_concurrency=1, retries=1)
    remote.transport.clock = lambda: now[0]
    for _ in range(2):
        assert [score.reason for score in remote.score(PROMPTS, DIGITS)] == ["timeout"] * 6
        assert len(server.bodies) == transport.LEAST_FAILURES
    assert max(waits) >= transport.LOOK_EVERY
    server.script.clear()
    now[0] = transport.LOOK_EVERY
    assert [score.reason for score in remote.score(PROMPTS, DIGITS)] == [None] * 6


def test_a_server_that_is_found_again_busy_is_no_longer_gone(open_remote: Open) -> None:
    now = [0.0]
    remote, server = open_remote("vllm", *[says(500)] * 5, max_concurrency=1, retries=1)
    remote.transport.clock = lambda: now[0]
    assert [score.reason for score in remote.score(PROMPTS, DIGITS)] == ["timeout"] * 6
    now[0] = transport.LOOK_EVERY
    server.script.append(says(429))
    assert [score.reason for score in remote.score(PROMPTS, DIGITS)] == [None] * 6


def test_requests_outlive_a_server_that_comes_back(open_remote: Open) -> None:
    now = [0.0]
    remote, server = open_remote("vllm", *[says(500)] * 5, max_concurrency=1, retries=4)
    remote.transport.clock = lambda: now[0]

    async def wait(seconds: float) -> None:
        now[0] += seconds

    remote.transport.sleep = wait
    assert [score.reason for score in remote.score(PROMPTS, DIGITS)] == [None] * 6
    assert len(server.bodies) == 5 + 6


CONTEXT = {"error": {"message": "This model's maximum context length is 20 tokens. However, you requested 21."}}


@pytest.mark.parametrize(
    "too_long",
    [
        says(400, CONTEXT),
        says(400, {"error": {"message": "The input (21 tokens) is longer than the model's context length (20)."}}),
        says(400, {"error": {"message": "no room", "code": "context_length_exceeded"}}),
        says(413, b""),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_that_the_server_finds_too_long_abstains_alone(open_remote: Open, kind: str, too_long: Answer) -> None:
    remote, server = open_remote(kind, too_long, max_concurrency=1)
    first, second = remote.generate(PROMPTS[:2], max_tokens=1, temperature=0)
    assert (first.finish_reason, second.finish_reason) == ("too_long", "length")
    assert len(server.bodies) == 2


def test_sglangs_way_to_find_a_prompt_too_long(open_remote: Open) -> None:
    finish = {"type": "abort", "message": "Input length (21) exceeds the maximum allowed length (20)"}
    body = {"text": "", "meta_info": {"finish_reason": finish}}
    remote, _ = open_remote("sglang", says(200, body), says(200, body))
    assert remote.score(["a"], DIGITS)[0].reason == "too_long"
    assert remote.generate(["a"])[0].finish_reason == "too_long"


def test_one_refused_request_costs_only_its_own_prompt(open_remote: Open) -> None:
    remote, _ = open_remote("vllm", proper, says(400), max_concurrency=1)
    assert [score.reason for score in remote.score(PROMPTS[:3], DIGITS)] == [None, "unsupported", None]


def test_a_mistake_in_every_request_is_one_sentence(open_remote: Open) -> None:
    body = {"error": {"message": "Requested sample \x1b[2J\nlogprobs of 20, which is greater than max allowed: 5"}}
    remote, _ = open_remote("vllm", *[says(400, body)] * 3)
    with pytest.raises(RemoteError, match=r"refuses /v1/completions \(400: Requested sample \[2J logprobs of 20"):
        remote.score(PROMPTS[:3], DIGITS)


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "wants another key.*api_key="), (403, "api_key="), (404, "no /v1/completions.*chat alone is not enough")],
)
def test_a_mistake_on_the_way_is_raised_after_what_was_scored(open_remote: Open, status: int, message: str) -> None:
    remote, _ = open_remote("vllm", proper, proper, says(status), hangs, max_concurrency=1)
    found: list[Any] = []
    with pytest.raises(RemoteError, match=message):
        found.extend(remote.score_iter(PROMPTS, DIGITS))  # keeps what came before the error
    assert [score.reason for _, score in found] == [None, None]


def test_a_redirect_is_not_followed(open_remote: Open) -> None:
    remote, _ = open_remote("vllm", says(307, location="http://elsewhere/"))
    with pytest.raises(RemoteError, match="http://elsewhere/: pass that address"):
        remote.score(["a"], DIGITS)


def test_the_key_is_sent_and_never_told(open_remote: Open) -> None:
    remote, _ = open_remote("vllm", key="sesame", api_key="sesame")
    assert remote.score(["a"], DIGITS)[0].reason is None
    with pytest.raises(RemoteError, match=r"the key is wrong\): pass api_key=") as caught:
        open_remote("vllm", key="sesame", api_key="simsim")
    assert "simsim" not in str(caught.value)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits between two attempts, were it only to open an engine."""
    monkeypatch.setattr(transport, "_pause", lambda state: 0.0)


def test_opening_outlasts_a_server_that_is_busy_or_starts(engine: Engine, at_once: None) -> None:
    server = Peer("vllm", engine)
    server.opening.extend([says(429), says(503), breaks_off])
    with RemoteEngine(server.url, retries=3) as remote:
        assert remote.score(["a"], DIGITS)[0].reason is None
    server.close()


def test_a_server_too_busy_to_open_is_said_to_be_busy(engine: Engine, at_once: None) -> None:
    server = Peer("vllm", engine)
    server.opening.extend([says(429)] * 2)
    with pytest.raises(RemoteError, match="answers 429: trouble: it is busy; open the engine later, or with more ret"):
        RemoteEngine(server.url, retries=1)
    assert not server.opening
    server.close()


def test_nobody_there_is_one_sentence(at_once: None) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RemoteError, match=f"{url} cannot be reached.*start the server"):
            RemoteEngine(url)


@pytest.mark.parametrize("url", ["localhost:8000", "", "http://[", "ftp://localhost", "http://"])
def test_what_is_no_address_is_one_sentence(at_once: None, url: str) -> None:
    with pytest.raises(RemoteError, match="address|cannot be reached"):
        RemoteEngine(url)


def test_something_else_at_the_address_is_one_sentence(engine: Engine, at_once: None) -> None:
    server = Peer("vllm", engine)
    server.models = lambda: {"status": "ok"}  # type: ignore[method-assign]
    with pytest.raises(RemoteError, match="answers what cannot be read.*correct the address"):
        RemoteEngine(server.url)
    server.close()


def test_what_is_cut_off_or_another_page_may_come_another_time_and_what_lacks_the_numbers_may_not(
    open_remote: Open,
) -> None:
    passing, lasting = ("no JSON", "nothing"), ("no UTF-8", "no choice", "another type", "NaN", "packed")
    for name, reason in (*((one, "timeout") for one in passing), *((one, "unsupported") for one in lasting)):
        remote, _ = open_remote("vllm", *[TROUBLE[name]] * 2, retries=1)
        assert [score.reason for score in remote.score(["a"], DIGITS)] == [reason], name


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_that_sum_to_more_than_one_are_no_score(open_remote: Open, kind: str) -> None:
    near = {value: {"adjudge": {"results": [{"full_logprobs": [value] * 5}]},
                    "vllm": {"choices": [{"text": "", "logprobs": {"top_logprobs": [
                        {f"token_id:{ord(label)}": value for label in DIGITS.labels}]}}]},
                    "openai": {"choices": [{"text": "", "logprobs": {"top_logprobs": [
                        dict.fromkeys(DIGITS.labels, value)]}}]},
                    "sglang": {"text": "", "meta_info": {"output_token_ids_logprobs": [
                        [[value, ord(label), None] for label in DIGITS.labels]]}}}[kind]
            for value in (0.0, -0.5, math.log(0.2005))}  # fmt: skip
    for value, reason in ((0.0, "unsupported"), (-0.5, "unsupported"), (math.log(0.2005), None)):
        remote, _ = open_remote(kind, *[says(200, near[value])] * 2, retries=1)
        assert [score.reason for score in remote.score(["a"], DIGITS)] == [reason]


def test_sglangs_null_for_all_labels_is_no_number(open_remote: Open) -> None:
    values = [[None, ord(label), None] for label in DIGITS.labels]
    remote, _ = open_remote("sglang", says(200, {"text": "", "meta_info": {"output_token_ids_logprobs": [values]}}))
    assert [score.reason for score in remote.score(["a"], DIGITS)] == ["non_finite"]


def test_a_request_that_is_too_long_as_a_whole_is_asked_for_in_parts(open_remote: Open, engine: Engine) -> None:
    asked: list[int] = []

    def limited(handler: Any, peer: Peer) -> bool:
        asked.append(count := len(peer.bodies[-1]["items"]))
        return count > 2 and says(413, b"body too large")(handler, peer)

    remote, server = open_remote("adjudge", *[limited] * 9)
    own = engine.score(PROMPTS, DIGITS)
    for score, expected in zip(remote.score(PROMPTS, DIGITS), own, strict=True):
        assert score.full_logprobs == pytest.approx(expected.full_logprobs, abs=1e-5)
    assert sorted(asked) == [1, 1, 2, 2, 3, 3, 6]
    server.script.clear()
    server.script.extend([says(413)] * 99)
    assert {score.reason for score in remote.score(PROMPTS, DIGITS)} == {"too_long"}
    server.script.clear()
    server.script.extend([says(400, b"no such field")] * 99)
    with pytest.raises(RemoteError, match="no such field"):
        remote.score(PROMPTS, DIGITS)


def until_idle(server: Peer) -> None:
    """Wait for what nobody else waits for any more: a thread that computes when the process ends takes it along."""
    while server.under_way:
        time.sleep(0.01)


def test_a_server_that_is_slow_for_many_at_once_is_asked_less_and_loses_nothing(open_remote: Open) -> None:
    """Each answer takes 0.1 s, one after another, and an attempt 0.7: of sixteen at once nine would be too late."""
    turn = threading.Lock()

    def one_by_one(handler: Any, peer: Peer) -> bool:
        with turn:
            time.sleep(0.1)
        return False

    remote, server = open_remote("vllm", *[one_by_one] * 999, timeout=0.7, retries=2, max_concurrency=16)
    assert {score.reason for score in remote.score([f"Number {n}." for n in range(30)], DIGITS)} == {None}
    assert server.most_under_way > 4
    until_idle(server)


def test_attempts_that_run_out_of_time_halve_what_is_asked_at_once_and_answers_bring_it_back() -> None:
    async def run() -> None:
        slots = transport.Slots(8)
        await asyncio.gather(*(slots.__aenter__() for _ in range(8)))
        slots.narrow(begun=1.0, now=2.0)
        slots.narrow(begun=1.0, now=2.1)  # of the same eight
        assert slots.limit == 4
        slots.narrow(begun=2.5, now=3.0)
        assert slots.limit == 2
        for _ in range(6):
            await slots.__aexit__()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slots.__aenter__(), 0.01)
        slots.widen()
        slots.widen()
        assert slots.limit == 3
        await asyncio.wait_for(slots.__aenter__(), 5)
        for _ in range(99):
            slots.widen()
        assert slots.limit == 8
        await asyncio.gather(*(asyncio.wait_for(slots.__aenter__(), 5) for _ in range(5)))

    asyncio.run(run())


@pytest.mark.parametrize("key", ["sk-secret\n", " sk-secret\r\n"])
def test_a_key_from_a_file_is_what_it_says(open_remote: Open, key: str) -> None:
    remote, _ = open_remote("vllm", key="sk-secret", api_key=key)
    assert remote.score(PROMPTS[:1], DIGITS)[0].reason is None


@pytest.mark.parametrize("key", ["", "  ", "sk secret", "sk-sécret", "sk-\nsecret"])
def test_a_key_that_no_header_takes_is_refused_and_not_told(key: str) -> None:
    with pytest.raises(RemoteError, match="the key of the server is empty, or has blanks") as refused:
        RemoteEngine("http://127.0.0.1:9", api_key=key)
    assert "cret" not in str(refused.value)


def test_a_password_in_an_address_is_in_no_message() -> None:
    with pytest.raises(RemoteError, match=r"http://127\.0\.0\.1:9 cannot be reached") as refused:
        RemoteEngine("http://me:pass@127.0.0.1:9", retries=0)
    assert "pass" not in str(refused.value).partition("correct")[0]


def test_retry_after_may_be_a_date(open_remote: Open, waits: list[float]) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    remote, _ = open_remote("vllm", says(503, retry_after=later), says(503, retry_after="Soon, perhaps"))
    assert remote.score(PROMPTS[:1], DIGITS)[0].reason is None
    assert 25 < waits[0] <= 60 and waits[1] < 25


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork_an_engine_says_that_it_is_anothers(open_remote: Open) -> None:
    remote, _ = open_remote("vllm")
    assert remote.score(PROMPTS[:1], DIGITS)[0].reason is None
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            remote.score(PROMPTS[:1], DIGITS)
        except AdjudgeError as error:
            os.write(write, str(error).encode())
        finally:
            remote.close()
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert b"opened before the process was forked" in os.read(read, 200)
    assert remote.score(PROMPTS[:1], DIGITS)[0].reason is None  # here all is as it was


def test_an_adapters_context_is_that_of_the_model_it_lies_over(open_remote: Open) -> None:
    base = {"id": "base", "max_model_len": 77}
    card = {"id": "lora", "owned_by": "vllm", "parent": "base", "max_model_len": None}
    listed = says(200, {"data": [base, card]})
    remote, _ = open_remote("vllm", peer={"opening": deque([listed])}, model="lora", tokenizer="dummy:tiny-llama")
    assert remote.max_prompt_tokens == 76


def test_one_request_that_never_comes_back_is_given_up_though_others_are_answered(open_remote: Open) -> None:
    remote, server = open_remote("vllm", timeout=0.05, retries=1, max_concurrency=4)
    tried: list[int] = []

    def stuck(handler: Any, peer: Peer) -> bool:
        if peer.bodies[-1]["prompt"] == [ord("x")] or peer.bodies[-1]["prompt"] == [[ord("x")]]:
            tried.append(len(peer.bodies))
            time.sleep(0.3)
        return False

    server.script.extend([stuck] * 999)
    done = threading.Event()

    def others() -> None:
        while not done.is_set():
            remote.score(["y"], DIGITS)

    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(others)
        [score] = remote.score(["x"], DIGITS)
        done.set()
        going.result(60)
    assert score.reason == "timeout" and 2 <= len(tried) <= transport.SLOW_TRIES + 2
    until_idle(server)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://me:pw@h:8000/v1", "http://h:8000/v1"),
        ("me:pw@h:8000", "h:8000"),
        ("http://u:p@h?x=a@b", "http://h?x=a@b"),
        ("http://h/a@b", "http://h/a@b"),
        ("", ""),
    ],
)
def test_of_an_address_no_password_is_shown(url: str, shown: str) -> None:
    assert transport._shown(url) == shown
