"""An event loop in a thread: what it does until it is closed, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from concurrent.futures import CancelledError

import pytest

from adjudge.engine.errors import AdjudgeError, NotServing
from adjudge.engine.threads.loop_thread import LoopThread


async def nothing() -> None:
    pass


def closed() -> NotServing:
    return NotServing("it is closed: open another")


def test_a_loop_that_nobody_holds_any_more_ends_with_its_thread() -> None:
    dropped, ended = LoopThread("dropped", closed), LoopThread("ended", closed)
    assert dropped.run(asyncio.sleep, 0, "done") == "done"
    threads = [dropped._thread, ended._thread]
    ended.close(nothing)
    del dropped
    gc.collect()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("drain", [True, False])
def test_what_is_under_way_ends_or_is_cancelled_before_what_is_last(drain: bool) -> None:
    loop, told = LoopThread("some", closed), list[str]()
    go = threading.Event()

    async def work() -> str:
        try:
            await asyncio.to_thread(go.wait)
            await loop.noted(asyncio.sleep, 0)
            return "done"
        finally:
            told.append("end")

    async def last() -> None:
        told.append("last")

    under_way = loop.start(work)
    if drain:
        threading.Timer(0.05, go.set).start()
    loop.close(last, drain=drain)
    go.set()
    loop.close(last)
    assert told == ["end", "last"]
    if drain:
        assert under_way.result(0) == "done"
    else:
        with pytest.raises(CancelledError):
            under_way.result(0)


def test_a_later_close_cancels_what_the_first_waits_for() -> None:
    loop = LoopThread("some", closed)
    under_way = loop.start(asyncio.Event().wait)
    first = threading.Thread(target=loop.close, args=(nothing,), kwargs={"drain": True})
    first.start()
    loop.close(nothing)
    first.join(60)
    assert not first.is_alive() and under_way.cancelled()


def test_what_was_begun_just_before_it_is_closed_hears_of_it() -> None:
    loop, told = LoopThread("some", closed), list[str]()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("cancelled")

    loop._loop.call_soon_threadsafe(time.sleep, 0.2)  # both then come to the loop at once
    loop.start(work)
    closing = threading.Thread(target=loop.close, args=(nothing,), daemon=True)
    closing.start()
    closing.join(20)
    assert told == ["cancelled"]


def test_a_loop_that_is_closed_or_was_left_in_another_process_refuses_work(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = LoopThread("some", closed)
    with monkeypatch.context() as there:
        there.setattr(loop, "process", -1)
        with pytest.raises(AdjudgeError, match="this process was forked"):
            loop.run(nothing)
        loop.close(nothing)
    loop.run(nothing)
    loop.close(nothing)
    with pytest.raises(NotServing, match="it is closed: open another"):
        loop.run(nothing)


def test_what_the_last_work_raises_is_raised_by_every_close() -> None:
    loop = LoopThread("some", closed)

    async def fails() -> None:
        raise OSError("the disk is gone")

    for _ in range(2):
        with pytest.raises(OSError, match="the disk is gone"):
            loop.close(fails)
