"""One engine, several threads."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

import pytest
import torch

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.threads.turns import Turns
from tests.engine.tiny import DIGITS, TINY, prompts_sharing_stems

HOW: dict[str, Any] = {"max_tokens": 6, "seeds": [1, 2, 3, 4], "ignore_eos": True}


def test_a_thread_that_takes_turn_after_turn_lets_the_others_in_between() -> None:
    turns, order = Turns(), list[str]()
    waits = Thread(target=lambda: take("other"))

    def take(who: str) -> None:
        with turns.turn():
            order.append(who)

    with turns.turn():
        waits.start()
        while len(turns.queue) < 2:
            pass
    for _ in range(3):
        take("this")
    waits.join()
    assert order == ["other", "this", "this", "this"]


def test_whoever_is_interrupted_while_waiting_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()

    def interrupted(ready: object) -> None:
        raise KeyboardInterrupt

    with turns.turn():
        monkeypatch.setattr(turns._changed.here, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt), turns.turn():
            pass
        monkeypatch.undo()
        assert len(turns.queue) == 1
    with turns.turn():
        assert len(turns.queue) == 1
    assert not turns.queue


def test_who_has_what_it_waits_for_does_not_wait_for_its_turn() -> None:
    turns, wanted, held = Turns(), [True, True], dict[int, bool]()

    def ask(who: int) -> None:
        with turns.turn(lambda: wanted[who]) as mine:
            held[who] = mine

    threads = [Thread(target=ask, args=[who]) for who in range(2)]
    with turns.turn():
        for thread in threads:
            thread.start()
        while len(turns.queue) < 3:
            pass
        wanted[1] = False
        with turns._changed.here:
            turns._changed.here.notify_all()
        threads[1].join()
        assert held == {1: False} and len(turns.queue) == 2
    threads[0].join()
    assert held == {1: False, 0: True} and not turns.queue


def test_calls_of_several_threads_answer_as_each_alone() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, max_batch_tokens=64)
    prompts = [prompts_sharing_stems(4, seed) for seed in range(6)]
    scores = [engine.score(some, DIGITS) for some in prompts]
    texts = [engine.generate(some[:4], **HOW) for some in prompts]
    vectors = [engine.embed(some) for some in prompts]
    engine.cache.clear()

    def ask(place: int) -> bool:
        kind, some = place % 3, prompts[place // 3 % 6]
        if kind == 0:
            return engine.score(some, DIGITS) == scores[place // 3 % 6]
        if kind == 1:
            return engine.generate(some[:4], **HOW) == texts[place // 3 % 6]
        found = engine.embed(some)
        return all((a.values == b.values).all() for a, b in zip(found, vectors[place // 3 % 6], strict=True))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(ask, range(54)))
    assert not engine.scheduler.has_work()
    engine.cache.clear()
    assert engine.cache.pool.free == engine.cache.pool.usable


def test_a_step_that_fails_in_one_thread_is_told_in_all_and_the_engine_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, max_batch_tokens=16)
    forward, calls = engine.runner.forward, iter(range(1 << 30))

    def third_fails(step: Any) -> torch.Tensor:
        if next(calls) == 3:
            raise RuntimeError("out of memory")
        return forward(step)

    def ask(seed: int) -> Any:
        try:
            return engine.score(prompts_sharing_stems(8, seed), DIGITS)
        except (RuntimeError, AdjudgeError) as error:
            return error

    with monkeypatch.context() as patch:
        patch.setattr(engine.runner, "forward", third_fails)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(ask, range(4)))
    assert sum(isinstance(one, RuntimeError) for one in found) == 1
    assert all(one == ask(seed) for seed, one in enumerate(found) if isinstance(one, list))


def test_a_reader_that_the_garbage_collector_ends_within_a_step_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, max_batch_tokens=16)
    forward = engine.runner.forward
    reader: list[Any] = [engine.score_iter(prompts_sharing_stems(8), DIGITS)]
    next(reader[0])

    def collects(step: Any) -> torch.Tensor:
        reader.clear()
        gc.collect()
        return forward(step)

    monkeypatch.setattr(engine.runner, "forward", collects)
    expected = engine.score(prompts_sharing_stems(3, 1), DIGITS)
    assert engine.score(prompts_sharing_stems(3, 1), DIGITS) == expected
    engine.sleep()  # nothing is under way
