"""Open-loop load: requests arrive when they are due, whether or not those before them are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from adjudge.bench.judge.services import Service
from adjudge.engine.errors import first_of, reason

SEED = 0


class Load(msgspec.Struct, frozen=True):
    """What was measured of one variant at one rate: seconds until each answer, counted from when its request was due.

    A request that is sent late, or waits for others, has waited all the same: nothing that a stall delays is left out.
    """

    variant: str
    rate: float
    latencies: tuple[float, ...] = ()
    seconds: float = 0.0
    prompt_tokens: int = 0
    written_tokens: int = 0
    note: str = ""

    @property
    def achieved(self) -> float:
        """Requests answered a second, from the start until the last answer."""
        return len(self.latencies) / self.seconds

    def percentile(self, percent: float) -> float:
        """The latency (seconds) of the request that so many percent are not slower than."""
        return float(np.percentile(self.latencies, percent, method="inverted_cdf"))


def arrivals(rate: float, count: int, seed: int = SEED) -> list[float]:
    """When each of `count` requests is due, in seconds: a Poisson process in which the last is due at count / rate.

    So the rate is the one that was offered, however the draw fell; at every rate it is the same but for its pace.
    """
    due_N = np.random.default_rng(seed).exponential(1.0, count).cumsum()
    due: list[float] = (due_N * (count / due_N[-1] / rate)).tolist()
    return due


async def offer(
    service: Service, rate: float, due: Sequence[float], answered: Callable[[], None] = lambda: None
) -> Load:
    """Put the questions to the service as they fall due, by the event loop's clock, and wait for all answers.

    What the service raises ends it, as the note of a Load without latencies.
    """
    clock = asyncio.get_running_loop().time
    try:
        async with service:
            started = clock()

            async def ask(place: int) -> tuple[float, int]:
                await asyncio.sleep(started + due[place] - clock())
                written = await service.answer(place)
                answered()
                return clock() - started - due[place], written

            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ask(place)) for place in range(len(due))]
            seconds = clock() - started
    except Exception as error:
        return Load(service.name, rate, note=reason(first_of(error)))
    latencies, written = zip(*(task.result() for task in tasks), strict=True)
    prompt_tokens = sum(len(prompt) for prompt in service.questions.prompts[: len(due)])
    return Load(service.name, rate, latencies, seconds, prompt_tokens, sum(written), service.note)
