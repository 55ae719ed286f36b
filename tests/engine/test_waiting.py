from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import NotServing
from adjudge.engine.face import EngineFace
from adjudge.engine.remote.remote_engine import RemoteEngine
from adjudge.engine.sampling import Sampling
from adjudge.engine.text.prompt import Message, Prompt, Segment
from adjudge.engine.threads.worker import Worker
from adjudge.engine.threads.worker_engine import SharedEngine
from adjudge.engine.waiting import answered_by, check_wanted, overdue, unhurried, wanted
from tests.engine.remote.peer import Peer


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine("dummy:tiny-llama")


READINGS: list[Callable[[Engine], Any]] = [
    lambda engine: engine.read(["a"]),
    lambda engine: engine.read([[1, 2]]),
    lambda engine: engine.compiled(["a"], ["1", "2"]),
    lambda engine: engine.chat([Message("user", Prompt((Segment("a"),)))]),
    lambda engine: engine.fit([Prompt((Segment("never read before"),))]),
]


@pytest.mark.parametrize("read", READINGS)
def test_what_nobody_waits_for_is_not_read(engine: Engine, read: Callable[[Engine], Any]) -> None:
    with wanted() as given_up:
        given_up.cancel()
        with pytest.raises(NotServing, match="has ended, or the server is being stopped"):
            read(engine)
    assert read(engine)


def test_threads_of_a_block_learn_that_it_has_ended() -> None:
    async def ask() -> None:
        begun, ended = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def read() -> None:
            check_wanted()
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(ended.wait(), loop).result()
            check_wanted()

        with wanted():
            reading = asyncio.create_task(asyncio.to_thread(read))
            await begun.wait()
        ended.set()
        with pytest.raises(NotServing):
            await reading

    asyncio.run(ask())


class Unread(list[int]):
    """A prompt that must not be read."""

    def __iter__(self) -> Iterator[int]:
        pytest.fail("a prompt was read that nobody has time for")


ASK: list[Callable[[EngineFace], Sequence[Any]]] = [
    lambda face: face.score([Unread()] * 2, ["1", "2"]),
    lambda face: face.generate([Unread()], n=2),
    lambda face: face.generate([Unread()], Sampling(n=2)),
    lambda face: face.embed([Unread()] * 2),
    lambda face: face.reward([Unread()] * 2),
]
LONG = [Prompt((Segment("word " * 9999),))]


@pytest.mark.parametrize("where", ["here", "on a server"])
def test_what_comes_too_late_is_a_timeout_and_not_read(engine: Engine, where: str) -> None:
    with ExitStack() as opened:
        face: EngineFace = engine
        if where == "on a server":
            face = opened.enter_context(RemoteEngine(opened.enter_context(closing(Peer("adjudge", engine))).url))
        with answered_by(time.monotonic()):
            for ask in ASK:
                answers = ask(face)
                assert [getattr(one, "reason", None) or one.finish_reason for one in answers] == ["timeout"] * 2
            assert face.fit(LONG) == (LONG, False)
        assert face.fit(LONG)[1]


def test_the_nearer_end_holds_and_priorities_add_up(engine: Engine) -> None:
    with answered_by(5.0, priority=2), answered_by(7.0, priority=1):
        call = engine.score_call(["a"], ["1", "2"])
        assert call.terms.deadline(None, call.begun) == 5.0 and call.terms.urgency(-1) == 2
        with unhurried():
            assert overdue() < 0 and engine.score_call(["a"], ["1", "2"]).terms.urgency(0) == 3
    assert engine.score_call(["a"], ["1", "2"]).terms.deadline(None, 0.0) == math.inf


def test_a_call_ends_once_nobody_waits_for_it(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    step = engine.step
    with closing(Worker(engine)) as worker, wanted() as given_up:

        def last_step() -> None:
            step()
            given_up.cancel()

        monkeypatch.setattr(engine, "step", last_step)
        with pytest.raises(NotServing, match="has ended, or the server is being stopped"):
            SharedEngine(worker).generate(["a", "b"], max_tokens=1500, ignore_eos=True)
        assert not worker.between_steps(lambda inner: inner.scheduler.has_work()).result(60)
