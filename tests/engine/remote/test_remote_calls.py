"""What a call to a server may take, and how it ends: in time, out of time, or because nobody waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from tests.engine.remote.conftest import PROMPTS, Open
from tests.engine.remote.peer import KINDS, Peer, hangs, proper
from tests.engine.tiny import DIGITS


def test_an_attempt_that_is_never_answered_ends(open_remote: Open) -> None:
    remote, _ = open_remote("vllm", hangs, timeout=0.05, retries=0)
    assert [score.reason for score in remote.score(["a"], DIGITS)] == ["timeout"]


@pytest.fixture
def bell() -> Iterator[threading.Event]:
    """Rings the end of a call's time."""
    rings = threading.Event()
    yield rings
    rings.set()


def until(bell: threading.Event) -> Callable[[float], Any]:
    async def sleep(seconds: float) -> None:
        assert 20 < seconds <= 30  # preparing has taken some
        await asyncio.to_thread(bell.wait)

    return sleep


@pytest.mark.parametrize("kind", KINDS)
def test_at_the_deadline_what_is_scored_stays_and_the_rest_abstains(
    open_remote: Open, engine: Engine, bell: threading.Event, kind: str
) -> None:
    remote, server = open_remote(kind, proper, proper, hangs, hangs, max_concurrency=1, top_logprobs=300)
    server.top = 300
    remote.protocol.reads_at_once = 1  # type: ignore[misc]
    remote.transport.sleep = until(bell)
    found = dict[int, Any]()
    for place, score in remote.score_iter(PROMPTS[:4], DIGITS, timeout=30):
        found[place] = score
        if len(found) == 2:
            bell.set()
    own = engine.score(PROMPTS[:4], DIGITS)
    assert sorted(found) == [0, 1, 2, 3]
    done = [place for place, score in found.items() if score.reason is None]
    assert len(done) == 2 and all(found[place].best == own[place].best for place in done)
    assert all(found[place].reason == "timeout" for place in found if place not in done)


def test_what_a_call_takes_to_prepare_is_part_of_its_time(open_remote: Open) -> None:
    remote, _ = open_remote("vllm", hangs)
    now, slept = iter([100.0, 112.0]), list[float]()
    remote.transport.clock = lambda: next(now, 112.0)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    remote.transport.sleep = sleep
    assert [score.reason for score in remote.score(["a"], DIGITS, timeout=30)] == ["timeout"]
    assert slept[0] == 18


def test_texts_that_run_out_of_time_say_so(open_remote: Open, bell: threading.Event) -> None:
    remote, _ = open_remote("vllm", hangs)
    remote.transport.sleep = until(bell)
    bell.set()
    texts = remote.generate(["a", "b"], n=2, timeout=30, max_tokens=2, seed=0)
    assert len(texts) == 4
    assert {text.finish_reason for text in texts} <= {"timeout", "length", "stop"}
    assert [(text.prompt, text.sample) for text in texts] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [text.finish_reason for text in texts].count("timeout") >= 2


def test_never_more_requests_at_once_than_allowed(open_remote: Open) -> None:
    together = threading.Barrier(3)  # lets requests through by threes: fewer at a time would stand there

    def meets(handler: Any, peer: Peer) -> bool:
        together.wait(30)
        return False

    remote, server = open_remote("vllm", *[meets] * 12, max_concurrency=3)
    scores = remote.score([f"Rate {n}." for n in range(12)], DIGITS)
    assert [score.reason for score in scores] == [None] * 12
    assert server.most_under_way == 3


def test_scores_come_as_they_are_ready(open_remote: Open) -> None:
    remote, _ = open_remote("vllm", hangs, proper)
    place, score = next(iter(remote.score_iter(PROMPTS[:2], DIGITS)))
    assert score.reason is None
    assert place in (0, 1)


def test_closing_the_iterator_ends_what_is_under_way(open_remote: Open) -> None:
    remote, server = open_remote("vllm", proper, hangs, max_concurrency=1)
    answers = remote.score_iter(PROMPTS, DIGITS)
    next(answers)
    assert server.hanging.wait(30)
    answers.close()  # type: ignore[attr-defined]
    assert [score.reason for score in remote.score(PROMPTS[:2], DIGITS)] == [None] * 2


def test_closing_the_engine_cancels_what_is_under_way(open_remote: Open) -> None:
    remote, _ = open_remote("vllm", proper, hangs, max_concurrency=1)
    answers = remote.score_iter(PROMPTS[:3], DIGITS)
    reasons = [next(answers)[1].reason]
    remote.close()
    reasons += [score.reason for _, score in answers]
    assert reasons == [None, "cancelled", "cancelled"]
    with pytest.raises(AdjudgeError, match="closed"):
        remote.score(["a"], DIGITS)


def test_a_context_manager_closes(open_remote: Open) -> None:
    remote, _ = open_remote("vllm")
    with remote as same:
        assert same.score(["a"], DIGITS)[0].reason is None
    with pytest.raises(AdjudgeError, match="closed"):
        remote.generate(["a"])
