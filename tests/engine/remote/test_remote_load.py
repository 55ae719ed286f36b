"""Servers that are busy, slow or gone for a while: how often and how much they are asked."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import RemoteError
from adjudge.engine.remote import questions, transport
from tests.engine.remote.conftest import PROMPTS, Open
from tests.engine.remote.peer import Answer, Peer, says
from tests.engine.tiny import DIGITS


def test_waits_grow_at_random_and_keep_to_what_the_server_asks(open_remote: Open, waits: list[float]) -> None:
    remote, _ = open_remote("vllm", says(503, retry_after="7"), says(429, retry_after="9999999"), says(500))
    assert remote.score(["a"], DIGITS)[0].reason is None
    assert 7 <= waits[0] <= 7.5 and 60 < waits[1] <= 61 and 0 <= waits[2] <= 2


def test_a_busy_server_does_not_count_as_gone(open_remote: Open) -> None:
    remote, server = open_remote("vllm", *[says(429, retry_after="0")] * 20, max_concurrency=1, retries=20)
    assert remote.score(["a"], DIGITS)[0].reason is None
    assert len(server.bodies) == 21


def test_to_be_put_off_by_a_busy_server_is_no_failure(open_remote: Open) -> None:
    busy = [says(429, retry_after="0")] * 9
    remote, server = open_remote("vllm", *busy, says(500), *busy, retries=1, timeout=600)
    assert remote.score(["a"], DIGITS)[0].reason is None
    assert len(server.bodies) == 20


def test_a_server_that_stays_busy_is_given_up_after_the_time_of_all_attempts(
    open_remote: Open, waits: list[float]
) -> None:
    remote, server = open_remote("vllm", *[says(429, retry_after="50")] * 99, timeout=100, retries=1)
    assert [score.reason for score in remote.score(["a"], DIGITS)] == ["timeout"]
    assert len(server.bodies) == 4 and sum(waits) < 200
    now = [0.0]
    remote.transport.clock = lambda: now[0]

    def late(handler: Any, peer: Peer) -> bool:
        now[0] += 60.0
        return says(429, retry_after="0")(handler, peer)

    server.bodies.clear()
    server.script.clear()
    server.script.extend([late] * 99)
    assert [score.reason for score in remote.score(["a"], DIGITS)] == ["timeout"]
    assert len(server.bodies) == 4


def test_what_only_waits_for_its_turn_has_all_its_time_left(open_remote: Open) -> None:
    now = [0.0]

    def slow(handler: Any, peer: Peer) -> bool:
        now[0] += 1000.0
        return False

    remote, server = open_remote("vllm", *[slow] * 5, *[says(429, retry_after="0")] * 3, retries=0, max_concurrency=1)
    remote.transport.clock = lambda: now[0]
    assert [score.reason for score in remote.score(PROMPTS, DIGITS)] == [None] * 6
    assert len(server.bodies) == 9


@pytest.mark.parametrize("trouble", [says(503), says(503, retry_after="0"), says(429)], ids=["503", "later", "429"])
def test_a_server_that_fails_or_does_not_say_when_to_come_again_is_asked_as_often_as_was_said(
    open_remote: Open, trouble: Answer
) -> None:
    remote, server = open_remote("vllm", *[trouble] * 99, retries=2)
    assert [score.reason for score in remote.score(["a"], DIGITS)] == ["timeout"]
    assert len(server.bodies) == 3


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


def test_a_server_whose_replies_have_another_form_is_not_gone_and_asked_for_as_many_at_once(open_remote: Open) -> None:
    remote, server = open_remote("vllm", *[says(200, {"choices": []})] * 99, max_concurrency=2, retries=1)
    assert [score.reason for score in remote.score(PROMPTS, DIGITS)] == ["unsupported"] * 6
    assert len(server.bodies) == 12 and remote.transport._slots.limit == 2


def test_of_a_server_that_is_gone_is_said_what_it_said_last(
    open_remote: Open, caplog: pytest.LogCaptureFixture
) -> None:
    trouble = says(500, {"error": {"message": "CUDA error"}})
    remote, _ = open_remote("vllm", *[trouble] * 99, max_concurrency=1, retries=1)
    assert {score.reason for score in remote.score(PROMPTS, DIGITS)} == {"timeout"}
    remote.score(PROMPTS, DIGITS)
    assert "has stopped answering (last: answers 500: CUDA error)" in caplog.records[-1].getMessage()


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


def test_no_request_has_more_tokens_than_it_may_but_that_of_a_longer_prompt(
    open_remote: Open, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "TOKENS_AT_ONCE", 60)
    prompts = [*PROMPTS, "A longer prompt. " * 9]
    remote, server = open_remote("adjudge")
    own = engine.score(prompts, DIGITS)
    for score, expected in zip(remote.score(prompts, DIGITS), own, strict=True):
        assert score.full_logprobs == pytest.approx(expected.full_logprobs, abs=1e-5)
    remote.embed(prompts)
    labels = [[ids for ids in body["label_token_ids"]] for body in server.bodies if "items" in body]
    for name in ("items", "input"):
        asked = [[len(tokens) for tokens in body[name]] for body in server.bodies if name in body]
        if name == "items":  # and their labels
            asked = [[n + len(ids) for n, ids in zip(*one, strict=True)] for one in zip(asked, labels, strict=True)]
        assert sum(map(len, asked)) == 7 and max(map(len, asked)) > 1
        assert all(sum(lengths) <= 60 or len(lengths) == 1 for lengths in asked)


def test_a_request_of_many_prompts_that_is_not_taken_costs_each_its_answer(open_remote: Open) -> None:
    remote, _ = open_remote("adjudge", says(413), says(400, b"no such field"))
    assert [score.reason for score in remote.score(PROMPTS, DIGITS)] == ["unsupported"] * 6
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


def test_a_server_that_takes_few_at_once_is_asked_for_so_many_and_loses_nothing(open_remote: Open) -> None:
    """It answers no more than three at a time, whose answers take 0.05 s, and refuses all others at once."""
    places = threading.Semaphore(3)

    def few(handler: Any, peer: Peer) -> bool:
        if not places.acquire(blocking=False):
            return says(429, retry_after="0")(handler, peer)
        time.sleep(0.05)
        places.release()
        return False

    remote, server = open_remote("vllm", *[few] * 999, retries=8, max_concurrency=16)
    assert {score.reason for score in remote.score([f"Number {n}." for n in range(40)], DIGITS)} == {None}
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


def test_retry_after_may_be_a_date(open_remote: Open, waits: list[float]) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    asked = (later, later.removesuffix(" GMT"), "Soon, perhaps")
    remote, _ = open_remote("vllm", *[says(503, retry_after=one) for one in asked])
    assert remote.score(PROMPTS[:1], DIGITS)[0].reason is None
    assert 25 < waits[0] <= 60 and 25 < waits[1] <= 60 and waits[2] < 25


def test_a_server_may_ask_for_any_number_of_seconds_and_gets_a_minute(open_remote: Open, waits: list[float]) -> None:
    remote, _ = open_remote("vllm", *[says(503, retry_after="9" * digits) for digits in (10, 400)])
    assert remote.score(PROMPTS[:1], DIGITS)[0].reason is None
    assert all(60 <= wait <= 61 for wait in waits) and len(waits) == 2


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
