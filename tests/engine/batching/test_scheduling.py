"""Who has a place in a step, and when: calls in turns, priorities, deadlines, a full queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from adjudge.engine.batching.scheduler import SHARE
from adjudge.engine.engine import Engine
from adjudge.engine.errors import CallTooLarge, QueueFull
from tests.engine.tiny import DIGITS, TINY


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(TINY, kv_cache_gb=0.05)


def test_a_short_text_and_a_score_that_come_later_end_before_a_long_text(engine: Engine) -> None:
    nearly_full = [1] * (engine.max_prompt_tokens - 2)
    long = engine.generate_iter([nearly_full, [1, 2, 3]], max_tokens=60, temperature=0.0, ignore_eos=True)
    assert next(long)[1].prompt == 0  # the other text is under way from here on
    expected = Engine(TINY, kv_cache_gb=0.05).generate([[1, 2, 4]], max_tokens=3, temperature=0.0, ignore_eos=True)
    assert engine.generate([[1, 2, 4]], max_tokens=3, temperature=0.0, ignore_eos=True) == expected
    assert engine.score([[5, 6]], DIGITS)[0].reason is None
    assert engine.scheduler.has_work()
    [(_, completion)] = long
    assert len(completion.token_ids) == 60


def test_a_short_call_does_not_wait_for_the_whole_of_a_long_one_which_ends_however_many_come() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, max_batch_tokens=64)
    long = engine.score_call([[n, *range(100, 131)] for n in range(60)], DIGITS)
    engine.start(long)
    engine.step()
    short = engine.score_call([[7, 8, 9]], DIGITS)
    engine.start(short)
    for _ in range(2):  # the turn that the long call has come to, and its own
        engine.step()
    assert not short.open and long.open > 40
    steps = 0
    while long.open and steps < 2000:
        engine.start(engine.score_call([[200 + steps // 200, steps % 200, *range(62)]], DIGITS))  # a step's worth
        engine.step()
        steps += 1
    assert 60 < steps <= SHARE * 60 * 32 // 64


def test_an_urgent_long_call_puts_no_call_of_others_behind_a_long_one() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, max_batch_tokens=64)
    long, urgent = (engine.score_call([[n, *range(at, at + 31)] for n in range(40)], DIGITS) for at in (100, 140))
    engine.start(long)
    engine.start(urgent, priority=-1)
    while urgent.open:
        engine.step()
    short = engine.score_call([[7, 8, 9]], DIGITS)
    engine.start(short)
    for _ in range(2):
        engine.step()
    assert not short.open and long.open > 30


class Clock:
    """A clock that goes on by a second each time it is asked."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_what_is_not_done_in_time_is_given_up_and_the_rest_goes_on() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, max_batch_tokens=8)
    engine.scheduler.clock = Clock()
    prompts = [[1, 2, 3], [4, 5]]
    patient = engine.generate_iter([[1] * (engine.max_prompt_tokens - 2), [6]], max_tokens=40, temperature=0.0)
    texts = engine.generate(prompts, max_tokens=100, temperature=0.0, ignore_eos=True, timeout=12.0)
    assert [text.finish_reason for text in texts] == ["timeout"] * 2
    assert 0 < len(texts[0].token_ids) < 100
    scores = engine.score([[7] * 100, [8]], DIGITS, timeout=4.0)
    assert "timeout" in [score.reason for score in scores]
    assert len(list(patient)) == 2
    assert engine.score([[7] * 100], DIGITS, timeout=1e6)[0].reason is None
    engine.cache.clear()
    assert engine.cache.pool.free == engine.cache.pool.usable


@pytest.mark.parametrize(("passed", "reason"), [(2.0, "timeout"), (0.5, None)])
def test_what_a_call_takes_to_prepare_is_part_of_its_time(passed: float, reason: str | None) -> None:
    engine = Engine(TINY, kv_cache_gb=0.05)
    for prepare in (lambda: engine.score_call([[1, 2]], DIGITS), lambda: engine.embed_call([[3, 4]])):
        now = 0.0
        engine.scheduler.clock = lambda: now  # noqa: B023
        call = prepare()
        now = passed
        engine.start(call, timeout=1.0)
        engine.step()
        [(_, answer)] = call.answers
        assert answer.reason == reason


def test_a_call_of_lower_priority_number_does_not_wait_for_the_chunks_of_another() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, max_batch_tokens=64)
    later, urgent = engine.score_call([list(range(200)) * 3], DIGITS), engine.score_call([[9, 8, 7]], DIGITS)
    engine.start(later, priority=5)
    engine.step()
    engine.start(urgent, priority=-1)
    engine.step()
    assert not urgent.open and later.open
    while later.open:
        engine.step()
    alone = Engine(TINY, kv_cache_gb=0.05).score([list(range(200)) * 3], DIGITS)
    assert [answer for _, answer in later.answers] == alone


@pytest.mark.parametrize("priority", [-1, 5, 6])
def test_texts_that_fill_every_step_leave_a_share_of_it_to_what_is_as_urgent(priority: int) -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, max_batch_tokens=16)
    texts = engine.generate_call([[40 + n] for n in range(20)], max_tokens=12, ignore_eos=True)
    asked = engine.score_call([[9, 8, 7, 6, 5]], DIGITS)
    engine.start(texts, priority=5)
    for _ in range(4):
        engine.step()
    engine.start(asked, priority=priority)
    for _ in range(3):  # two of its tokens in each
        assert asked.open
        engine.step()
    assert bool(asked.open) == (priority > 5) and texts.open == 20
    while texts.open or asked.open:
        engine.step()
    alone = Engine(TINY, kv_cache_gb=0.05)
    written = alone.generate([[40 + n] for n in range(20)], max_tokens=12, ignore_eos=True)
    assert [answer for _, answer in sorted(texts.answers)] == written
    assert [answer for _, answer in asked.answers] == alone.score([[9, 8, 7, 6, 5]], DIGITS)


@pytest.mark.parametrize("budget", [2, 4, 16])
def test_texts_that_leave_a_share_of_their_steps_do_so_in_turns(budget: int) -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, max_batch_tokens=budget)
    texts = engine.generate_call([[40 + n] for n in range(budget)], max_tokens=100, ignore_eos=True)
    asked = engine.score_call([[9, *range(n, n + 30)] for n in range(8)], DIGITS)
    engine.start(texts)
    for _ in range(4):
        engine.step()
    engine.start(asked)
    before = [len(request.whole) for request in engine.scheduler.running]
    for _ in range(2 * budget):
        engine.step()
    more = [len(request.whole) - count for request, count in zip(engine.scheduler.running, before, strict=False)]
    share = -(-budget // 8)
    assert sum(more) == 2 * budget * (budget - share) and max(more) - min(more) <= 1


def test_a_call_of_lower_priority_number_comes_first() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, max_batch_tokens=4)
    later = engine.score_iter([[1, 2, 3, n] for n in range(8)], DIGITS, priority=5)
    next(later)
    engine.score([[9, 9, n] for n in range(4)], DIGITS, priority=-1)
    assert engine.scheduler.has_work()  # the others still wait
    assert len(list(later)) == 7


def test_a_full_queue_is_an_error_and_takes_nothing() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, max_queue=3, max_batch_tokens=2)
    waiting = engine.score_iter([[n, 1] for n in range(3)], DIGITS)
    next(waiting)
    with pytest.raises(QueueFull, match="2 requests wait and 2 more would make it over 3: try again later"):
        engine.score([[n, 1] for n in (7, 8)], DIGITS)
    assert len(list(waiting)) == 2 and not engine.scheduler.has_work()
    assert len(engine.score([[n, 1] for n in range(3)], DIGITS)) == 3


def test_a_call_that_no_queue_takes_is_told_so_at_once() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05, max_queue=3)
    calls: list[Callable[[], Any]] = [
        lambda: engine.score([[n, 1] for n in range(4)], DIGITS),
        lambda: engine.score([[1], [2]], ["1", "10"]),  # two readings each
        lambda: engine.generate([[1]], n=4, max_tokens=1),
        lambda: engine.embed([[n] for n in range(4)]),
    ]
    for call in calls:
        with pytest.raises(CallTooLarge, match="needs 4 places in a queue of 3: ask for less"):
            call()
    with pytest.raises(CallTooLarge, match="needs 1000000000 places"):
        engine.generate([[1]], n=10**9)  # before any of them is made
    assert not engine.scheduler.has_work() and not engine.stats.prompts
    assert len(engine.score([[1], [1], [1]], ["1", "10"])) == 3  # the same is read once
