"""Open-loop load in virtual time: the event loop's clock jumps to whatever is due next, so that no test waits."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

import numpy as np
import pytest

from adjudge.bench.judge.load import Load, arrivals, offer
from adjudge.bench.judge.questions import Questions
from adjudge.bench.judge.services import Service

Result = TypeVar("Result")


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop that goes to sleep for no time, and wakes up later all the same."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(JumpingSelector(self))

    def time(self) -> float:
        return self.now


class JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: JumpingLoop) -> None:
        super().__init__()
        self.loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        self.loop.now += timeout or 0.0
        return super().select(0)


def run(work: Coroutine[Any, Any, Result]) -> Result:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(work)


class OneDesk(Service):
    """Answers one question after the other, each in `seconds`; the question at `stalls` takes `stall` more."""

    name = "desk"

    def __init__(self, count: int, seconds: float, stalls: int | None = None, stall: float = 0.0) -> None:
        self.questions = Questions([(1, 2, 3)] * count, 1, "", "", "", 0)
        self.seconds, self.stalls, self.stall = seconds, stalls, stall
        self.sent: dict[int, float] = {}

    async def __aenter__(self) -> None:
        self.desk = asyncio.Lock()

    async def answer(self, place: int) -> int:
        self.sent[place] = asyncio.get_running_loop().time()
        async with self.desk:
            await asyncio.sleep(self.seconds + (self.stall if place == self.stalls else 0.0))
        return 2


def test_arrivals_are_a_poisson_process_of_the_rate_and_the_same_in_every_run() -> None:
    due = arrivals(4.0, 20_000)
    gaps = np.diff([0.0, *due])
    assert due == arrivals(4.0, 20_000) and min(gaps) > 0
    assert np.mean(gaps) == pytest.approx(1 / 4, rel=0.03) and np.std(gaps) == pytest.approx(1 / 4, rel=0.03)
    assert np.mean(gaps > 1 / 4) == pytest.approx(np.exp(-1), rel=0.03)


@pytest.mark.parametrize("count", [1, 24, 40])
def test_the_rate_is_the_one_that_is_offered_however_the_draw_falls(count: int) -> None:
    assert arrivals(2.0, count)[-1] == pytest.approx(count / 2.0)


def test_a_seed_gives_other_arrivals_and_a_rate_only_another_pace() -> None:
    assert arrivals(1.0, 8, seed=1) != arrivals(1.0, 8, seed=2)
    assert arrivals(2.0, 8) == pytest.approx([time / 2 for time in arrivals(1.0, 8)])


def test_requests_are_sent_when_they_are_due_whatever_is_still_unanswered() -> None:
    due = arrivals(10.0, 50)
    desk = OneDesk(50, seconds=1.0)
    run(offer(desk, 10.0, due))
    assert [desk.sent[place] for place in range(50)] == pytest.approx(due)


def test_an_idle_service_answers_in_its_own_time_and_all_is_counted() -> None:
    answered: list[int] = []
    due = [0.0, 10.0, 20.0, 30.0]
    load = run(offer(OneDesk(4, seconds=0.5), 0.1, due, lambda: answered.append(1)))
    assert load.latencies == pytest.approx([0.5] * 4) and len(answered) == 4
    assert load.seconds == pytest.approx(30.5) and load.achieved == pytest.approx(4 / 30.5)
    assert (load.prompt_tokens, load.written_tokens, load.note) == (12, 8, "")


def test_a_stall_is_in_the_latency_of_everything_due_while_it_lasts() -> None:
    due = [0.1 * place for place in range(200)]
    smooth = run(offer(OneDesk(200, seconds=0.01), 10.0, due))
    stalled = run(offer(OneDesk(200, seconds=0.01, stalls=50, stall=2.0), 10.0, due))
    assert smooth.percentile(99) == pytest.approx(0.01)
    during = [place for place in range(200) if 5.0 < due[place] < 7.0]
    for place in during:  # each waits at least until the stall is over
        assert stalled.latencies[place] > 7.0 - due[place]
    assert stalled.percentile(99) > 1.8 and stalled.percentile(50) == pytest.approx(0.01)


class Blocking(OneDesk):
    """Holds up the event loop itself, so that requests due meanwhile are sent late."""

    async def answer(self, place: int) -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        self.sent[place] = loop.now
        loop.now += self.stall if place == self.stalls else self.seconds
        return 2


def test_a_request_that_is_sent_late_has_waited_since_it_was_due() -> None:
    due = [0.1 * place for place in range(50)]
    service = Blocking(50, seconds=0.01, stalls=10, stall=2.0)
    load = run(offer(service, 10.0, due))
    assert service.sent[12] == pytest.approx(3.0, abs=0.05)
    for place in range(11, 30):
        assert load.latencies[place] > 3.0 - due[place]
    assert load.percentile(99) == pytest.approx(2.0)


def test_a_service_that_is_too_slow_makes_a_queue_and_the_last_waits_longest() -> None:
    load = run(offer(OneDesk(10, seconds=1.0), 100.0, [0.0] * 10))
    assert load.latencies == pytest.approx(range(1, 11)) and load.achieved == pytest.approx(1.0)


def test_percentiles_are_latencies_that_were_measured() -> None:
    hundred = Load("x", 1.0, tuple(float(n) for n in range(100, 0, -1)))
    assert (hundred.percentile(50), hundred.percentile(99), hundred.percentile(100)) == (50.0, 99.0, 100.0)
    assert Load("x", 1.0, (3.0, 1.0)).percentile(99) == 3.0


class Broken(OneDesk):
    async def answer(self, place: int) -> int:
        if place == 1:
            raise RuntimeError("no more paper\nin the printer")
        return await super().answer(place)


def test_a_service_that_fails_is_a_note_and_the_error_s_first_line() -> None:
    load = run(offer(Broken(3, seconds=1.0), 1.0, [0.0, 1.0, 2.0]))
    assert load == Load("desk", 1.0, note="no more paper")
