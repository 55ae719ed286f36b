from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import NotServing
from adjudge.engine.text.prompt import Message, Prompt, Segment
from adjudge.engine.wanted import check_wanted, wanted


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
        given_up.set()
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
