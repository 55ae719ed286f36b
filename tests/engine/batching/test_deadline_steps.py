"""Steps near a deadline: with a clock that a step's tokens move on, a hundredth of a second each."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from adjudge.engine.batching.scheduler import MANY, Scheduler
from adjudge.engine.batching.step import Request, Step
from adjudge.engine.engine import Engine
from adjudge.engine.kv_cache.blocks import BlockPool
from adjudge.engine.kv_cache.radix import RadixCache
from adjudge.engine.sampling import Sampling

TOKEN = 0.01
LENGTH = 300


def slowed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in seconds, of an engine whose clock is moved on by the tokens of its steps."""
    now, forward = [0.0], engine.runner.forward

    def slow(step: Step) -> torch.Tensor:
        now[0] += TOKEN * step.size
        return forward(step)

    monkeypatch.setattr(engine.runner, "forward", slow)
    monkeypatch.setattr(engine.scheduler, "clock", lambda: now[0])
    return now


@pytest.mark.parametrize("seconds", [8.5, 13.0, 20.1])
def test_no_step_is_under_way_when_a_deadline_passes(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    engine = Engine("dummy:tiny-llama", max_batch_tokens=512, kv_cache_gb=0.2)
    prompts = [[number, *([7] * (LENGTH - 1))] for number in range(1, 13)]
    expected = engine.score(prompts, ["1", "2"])
    engine.cache.clear()
    now = slowed(engine, monkeypatch)
    scores: list[Any] = engine.score(prompts, ["1", "2"], timeout=seconds)
    assert now[0] <= seconds + 1.0  # the smallest step: 64 tokens
    answered = [place for place, score in enumerate(scores) if score.reason is None]
    assert len(answered) >= seconds / TOKEN // LENGTH - 1
    assert {scores[place].reason for place in range(12) if place not in answered} <= {"timeout"}
    assert all(scores[place] == expected[place] for place in answered)


def test_near_a_deadline_no_text_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine("dummy:tiny-llama", kv_cache_gb=0.2)
    slowed(engine, monkeypatch)
    prompts = [[number] * 20 for number in range(100)]
    many = engine.generate_call(prompts, Sampling(max_tokens=20, ignore_eos=True))
    engine.start(many)
    for _ in range(3):
        engine.step()
    other = engine.generate_call([[9] * 50], Sampling(max_tokens=2))
    engine.start(other, priority=9, timeout=2 * TOKEN)
    before = [len(request.whole) for request in many.requests]
    engine.step()
    assert [len(request.whole) for request in many.requests] == [length + 1 for length in before]


def test_however_many_texts_are_under_way_deadlines_of_others_leave_room_for_who_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine("dummy:tiny-llama", kv_cache_gb=0.2)
    slowed(engine, monkeypatch)
    texts = engine.generate_call([[n, 5] * 5 for n in range(100)], Sampling(max_tokens=50, ignore_eos=True))
    engine.start(texts)
    for _ in range(3):
        engine.step()
    engine.start(engine.score_call([[7] * 100], ["1", "2"]), priority=5, timeout=TOKEN)  # which nobody can keep
    urgent = engine.score_call([[9] * 20], ["1", "2"])
    engine.start(urgent, priority=-10)
    engine.step()
    assert not urgent.open


def test_one_slow_step_does_not_make_all_later_ones_small(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine("dummy:tiny-llama", kv_cache_gb=0.2)
    now, first = [0.0], [6.0]
    monkeypatch.setattr(engine.scheduler, "clock", lambda: now[0])
    forward = engine.runner.forward

    def slow(step: Step) -> torch.Tensor:
        now[0] += first.pop() if first else TOKEN * step.size / 1000
        return forward(step)

    monkeypatch.setattr(engine.runner, "forward", slow)
    engine.score([[8] * 300], ["1", "2"])
    for number in range(2):
        engine.score([[number, n] * 150 for n in range(8)], ["1", "2"], timeout=0.7)
    before = engine.stats.steps
    engine.score([[3, n] * 150 for n in range(8)], ["1", "2"], timeout=0.7)
    assert engine.stats.steps - before <= 2


class Queue(list[Any]):
    """A queue that counts how often all of it is looked at."""

    looked = 0

    def __iter__(self) -> Iterator[Any]:
        self.looked += 1
        return super().__iter__()


def scheduler_of(count: int, clock: Callable[[], float], deadline: Callable[[int], float]) -> Scheduler:
    scheduler = Scheduler(RadixCache(BlockPool(64, 4)), 16, clock=clock)
    scheduler.add(*(Request((n, 1), keep=0, deadline=deadline(n)) for n in range(count)))
    return scheduler


def step_of(scheduler: Scheduler, tokens: int, finishes: bool = True) -> Step:
    finished = [(Request((1,), keep=0), 0)] * finishes
    return Step(scheduler.cache, token_ids=[0] * tokens, finished=finished)


def test_steps_that_finish_nothing_are_timed_with_the_next_that_does() -> None:
    scheduler = scheduler_of(1, lambda: 0.0, lambda _: math.inf)
    for _ in range(3):
        scheduler.took(step_of(scheduler, 512, finishes=False), 0.001)  # a GPU's work is launched, not waited for
        assert not scheduler._pace
    scheduler.took(step_of(scheduler, 100), 1636 * TOKEN - 0.003)
    assert scheduler._pace == pytest.approx(TOKEN)
    for gone in (scheduler.abort, lambda: scheduler.cancel([]), scheduler.schedule):  # with it goes what was not told
        scheduler.took(step_of(scheduler, 512, finishes=False), 0.001)
        gone()
        scheduler.took(step_of(scheduler, 10), 10 * TOKEN)
        assert scheduler._pace == pytest.approx(TOKEN)
    scheduler.took(step_of(scheduler, 256), 256 * TOKEN / 2)
    assert scheduler._pace == pytest.approx(TOKEN / 2)


def test_a_step_does_not_look_through_the_queue_for_deadlines() -> None:
    scheduler = scheduler_of(500, lambda: 0.0, lambda n: 10.0 + n)
    scheduler.took(step_of(scheduler, 256), 256 * TOKEN)
    assert scheduler._pace
    scheduler._waiting = queue = Queue(scheduler._waiting)
    for _ in range(20):
        scheduler.complete(scheduler.schedule())
    assert scheduler.waiting == 500 - 20 * 8 and not queue.looked


def test_whose_deadline_has_passed_goes_and_nobody_else_whatever_else_has_ended() -> None:
    now = [0.0]
    scheduler = scheduler_of(60, lambda: now[0], lambda n: math.inf if n % 3 == 0 else float(n % 7 + 1))
    gone: list[Request] = []
    cancelled: list[Request] = []
    while scheduler.has_work():
        step = scheduler.schedule()
        left = [*scheduler.running, *(entry[-1] for entry in scheduler._waiting)]
        assert all(request.deadline <= now[0] for request in step.expired)
        assert all(request.deadline > now[0] for request in left)
        scheduler.complete(step)
        gone += [*step.expired, *(request for request, _ in step.finished)]
        if len(gone) >= 16 and not cancelled:
            cancelled = [request for request in left if request.deadline < math.inf][-5:]
            scheduler.cancel(cancelled)
            gone += cancelled
        now[0] += 1.0
    assert len(cancelled) == 5
    assert len(gone) == len(set(gone)) == 60
    assert scheduler._first_deadline() == math.inf


@pytest.mark.parametrize("end", ["answered", "cancelled", "aborted"])
def test_who_has_ended_is_held_by_no_deadline(end: str) -> None:
    scheduler = Scheduler(RadixCache(BlockPool(64, 4)), 16, clock=lambda: 0.0)
    scheduler.add(request := Request((1, 2), keep=0, deadline=600.0))
    if end == "answered":
        scheduler.complete(scheduler.schedule())
    elif end == "cancelled":
        scheduler.cancel([request])
    else:
        scheduler.abort()
    gone = weakref.ref(request)
    del request
    gc.collect()
    assert gone() is None


def test_answered_requests_are_let_go_of_long_before_their_deadlines() -> None:
    scheduler = Scheduler(RadixCache(BlockPool(64, 4)), 2, clock=lambda: 0.0)
    scheduler.add(Request((1, 1), keep=0, deadline=1.0, priority=9))  # which waits for all others
    for n in range(3 * MANY):
        scheduler.add(Request((n, 2), keep=0, deadline=600.0))
        scheduler.complete(scheduler.schedule())
    assert scheduler.waiting == 1 and len(scheduler._deadlines) <= MANY + 2


@pytest.mark.parametrize(("budget", "least"), [(100, 64), (512, 64), (8192, 512)])
def test_however_short_a_deadline_steps_keep_a_share_of_their_budget(budget: int, least: int) -> None:
    scheduler = Scheduler(RadixCache(BlockPool(4096, 16)), budget, clock=lambda: 0.0)
    scheduler.took(step_of(scheduler, 256), 256 * TOKEN)
    scheduler.add(*(Request((n,) * 32, keep=0) for n in range(budget)))
    scheduler.add(Request((0, 0), keep=0, deadline=TOKEN / 2, priority=9))
    step = scheduler.schedule()
    assert least <= step.size <= least + len(scheduler.running)
