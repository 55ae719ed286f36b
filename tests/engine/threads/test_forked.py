"""What an engine does in a process that was forked from the one that opened it."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch

from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.engine import Engine
from adjudge.engine.models import quiet
from adjudge.engine.text.tokenizer import LONG
from adjudge.engine.threads import at_exit

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

PROMPTS, LABELS = ["once upon a time " * 9], ["1", "2"]


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def engine() -> Engine:
    return Engine("dummy:tiny-llama", kv_cache_gb=0.01)


def in_child(work: Callable[[], Any]) -> str:
    """What comes of some work, or what it raises, in a process that is forked for it; "hangs" if nothing does."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            said = str(work())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode())
        os._exit(0)
    said = os.read(read, 9999).decode() if select.select([read], [], [], 20.0)[0] else "hangs"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read)
    os.close(write)
    return said


@contextmanager
def elsewhere(block: AbstractContextManager[Any]) -> Iterator[None]:
    """While another thread is within a block."""
    inside, go = threading.Event(), threading.Event()

    def run() -> None:
        with block:
            inside.set()
            go.wait()

    thread = threading.Thread(target=run)
    thread.start()
    inside.wait()
    try:
        yield
    finally:
        go.set()
        thread.join()


def test_an_engine_of_one_thread_goes_on_whatever_lock_was_held(engine: Engine, threads: Callable[[int], None]) -> None:
    threads(1)
    expected = engine.score(PROMPTS, LABELS)
    with elsewhere(engine._turns._changed.here):
        assert in_child(lambda: engine.score(PROMPTS, LABELS) == expected) == "True"


def test_an_engine_that_another_thread_was_using_says_so(engine: Engine) -> None:
    with elsewhere(engine._turn()):
        assert "while another thread used the engine: open" in in_child(lambda: engine.score(PROMPTS, LABELS))
    assert engine.score(PROMPTS, LABELS)


@pytest.mark.skipif(sys.platform != "linux", reason="GNU's OpenMP alone waits for what is not there")
def test_a_thread_that_had_helpers_says_that_they_are_gone_and_others_go_on(
    engine: Engine, threads: Callable[[int], None]
) -> None:
    threads(2)
    expected = engine.score(PROMPTS, LABELS)

    def alone() -> bool:
        torch.set_num_threads(1)
        return engine.score(PROMPTS, LABELS) == expected

    def in_a_thread() -> bool:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(engine.score(PROMPTS, LABELS)))
        thread.start()
        thread.join()
        return found == [expected]

    assert "call torch.set_num_threads(1) first" in in_child(lambda: engine.score(PROMPTS, LABELS))
    assert "call torch.set_num_threads(1) first" in in_child(lambda: Engine("dummy:tiny-llama"))
    assert in_child(alone) == in_child(in_a_thread) == "True"


def test_an_async_engine_says_so_and_can_be_closed(engine: Engine) -> None:
    given = AsyncEngine(engine)
    asyncio.run(given.score(PROMPTS, LABELS))
    for work in (lambda: given.score(PROMPTS, LABELS), given.sleep, given.update_weights):
        assert "the engine's thread is in its parent" in in_child(lambda work=work: asyncio.run(work()))
    with elsewhere(given.worker._lock):
        assert in_child(lambda: asyncio.run(given.close())) == "None"
    asyncio.run(given.close())


def test_a_text_has_its_form_though_the_parents_threads_prepared_some(threads: Callable[[int], None]) -> None:
    threads(1)

    async def written() -> str:
        async with AsyncEngine(Engine("dummy:tiny-llama", kv_cache_gb=0.01)) as fresh:
            return (await fresh.generate(PROMPTS, regex="ab|ac"))[0].text[:1]

    assert asyncio.run(written()) == in_child(lambda: asyncio.run(written())) == "a"


def test_locks_that_another_thread_held_are_free(engine: Engine, threads: Callable[[int], None]) -> None:
    threads(1)
    long = "a " * LONG
    with elsewhere(engine.tokenizer._reading.here):
        assert in_child(lambda: len(engine.tokenizer.encode(long, False, most=9)) > 9) == "True"
    with elsewhere(quiet._lock.here):
        assert in_child(lambda: Engine("dummy:tiny-llama", kv_cache_gb=0.01).fingerprint) == engine.fingerprint


def test_a_process_forked_within_a_step_has_none_under_way_when_that_ends() -> None:
    def end() -> str:
        block.__exit__(None, None, None)
        return str(at_exit._steps.here.under_way)

    block = at_exit.step_under_way()
    with block:
        assert in_child(end) == "0"
    assert at_exit._steps.here.under_way == 0


def test_a_process_that_only_ends_does_not_wait_for_its_parents_step() -> None:
    with elsewhere(at_exit.step_under_way()), elsewhere(at_exit._steps.here):
        assert in_child(at_exit._end) == "None"
