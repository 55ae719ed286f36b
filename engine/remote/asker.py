"""Questions out to a server, all at once, and the answers of their call back as they come in."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from threading import Lock
from typing import Any

from adjudge.engine.batching.call import Call
from adjudge.engine.errors import AdjudgeError, RemoteError
from adjudge.engine.face import Stats
from adjudge.engine.remote.questions import Question
from adjudge.engine.remote.transport import NoAnswer, Refused, Transport
from adjudge.engine.score import Reason
from adjudge.engine.threads.loop_thread import LoopThread

_log = logging.getLogger("adjudge")


class _Told:
    """What has come of a call's questions: what waits or was refused, why some have no answer, the first error."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self.error: Exception | None = None
        self.troubles: Counter[str] = Counter()
        self._waiting = set(questions)
        self._refused: list[tuple[Question, Refused]] = []
        self._asked = len(questions)

    def take(self, question: Question, outcome: Any) -> int:
        """Take what has come of a question; how many tokens the server computed for it."""
        self._waiting.discard(question)
        if isinstance(outcome, Refused):
            self._refused.append((question, outcome))
        elif isinstance(outcome, NoAnswer):
            # What the server says it takes is not exceeded: so that lies in the server, not in the text.
            question.give_up("unsupported" if outcome.reason == "too_long" else outcome.reason)
            self.troubles[str(outcome)] += 1
        elif isinstance(outcome, Exception):
            self.error = self.error or outcome
        else:
            reply, computed = outcome
            question.take(reply)
            return int(computed)
        return 0

    def end(self, reason: Reason) -> None:
        """Give up what was refused, and for that reason what still waits; raises what is of all the call."""
        if self._refused and len(self._refused) == self._asked:
            raise RemoteError(str(self._refused[0][1]))
        if self.error is not None:
            raise self.error
        for question, refusal in self._refused:
            question.give_up("unsupported")
            self.troubles[str(refusal)] += 1
        for question in self._waiting:
            question.give_up(reason)


class Asker:
    """Asks over a transport, in an event loop of its own; any thread may call. What it costs is counted in `stats`.

    For one process: after a fork the loop's thread is in the other one, and a call is an AdjudgeError.
    """

    def __init__(self, transport: Transport, stats: Stats) -> None:
        self._transport, self._stats = transport, stats
        self.loop = LoopThread(
            "adjudge-remote", lambda: AdjudgeError("the engine is closed: open another RemoteEngine")
        )
        self._counting = Lock()

    def count(self, **more: int) -> None:
        """Add to counters of `stats`; the threads of all callers do."""
        with self._counting:
            for name, number in more.items():
                setattr(self._stats, name, getattr(self._stats, name) + number)

    def close(self) -> None:
        """End what is under way, which is cancelled, and close the connections."""
        self.loop.close(self._transport.close)

    def answers(
        self, call: Call, questions: Sequence[Question], priority: int, timeout: float | None
    ) -> Iterator[tuple[int, Any]]:
        """Ask, and yield the call's answers as they come in; why some have none is logged, once a call."""
        outcomes: SimpleQueue[tuple[Question | None, Any]] = SimpleQueue()
        urgency = call.terms.urgency(priority)
        asked = [(question, question.body(urgency)) for question in questions]  # here, where nobody else waits for it
        left = call.terms.deadline(timeout, call.begun) - self._transport.clock()
        asking = self.loop.start(self._ask_all, asked, left, outcomes)
        self.count(prompts=call.prompts, prompt_tokens=call.prompt_tokens + call.label_tokens)
        asking.add_done_callback(lambda _: outcomes.put((None, None)))
        told = _Told(questions)
        try:
            while True:
                while call.answers:
                    yield call.answers.popleft()
                question, outcome = outcomes.get()
                if question is None:
                    break
                self.count(tokens_computed=told.take(question, outcome))
                if told.error is not None:
                    asking.cancel()
            told.end("cancelled" if asking.cancelled() else "timeout")
            while call.answers:
                yield call.answers.popleft()
        finally:
            asking.cancel()
            if count := told.troubles.total():
                most = max(told.troubles, key=told.troubles.__getitem__)
                _log.warning("%d requests to a server got no answer: %s", count, most)

    async def _ask_all(
        self, asked: Sequence[tuple[Question, bytes]], left: float, outcomes: SimpleQueue[tuple[Question | None, Any]]
    ) -> None:
        """Ask everything, as fast as the transport lets it, and put every outcome there is before the time is over."""

        async def ask(question: Question, body: bytes) -> None:
            try:
                outcomes.put((question, await self._transport.post(question.path, body, question.decode)))
            except Exception as error:
                outcomes.put((question, error))

        asking = [asyncio.create_task(ask(*one)) for one in asked]

        async def stop() -> None:
            if left < math.inf:
                await self._transport.sleep(max(0.0, left))
                for task in asking:
                    task.cancel()

        alarm = asyncio.create_task(stop())
        try:
            await asyncio.gather(*asking, return_exceptions=True)
        finally:
            alarm.cancel()
