"""`SharedEngine`: the blocking verbs for any number of threads, over one worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from adjudge.engine.batching.call import Call
from adjudge.engine.engine_around import EngineAround
from adjudge.engine.threads.worker import Worker, answers_of


class SharedEngine(EngineAround):
    """What a judge in a thread of its own uses while other calls run on the same engine."""

    def __init__(self, worker: Worker) -> None:
        engine = worker.engine
        super().__init__(engine)
        self.score_call = engine.score_call
        self.generate_call = engine.generate_call
        self.embed_call = engine.embed_call
        self._worker = worker

    def _answers(self, call: Call, priority: int, timeout: float | None) -> Iterator[tuple[int, Any]]:
        return answers_of(lambda deliver: self._worker.start(call, deliver, priority, timeout), call.terms)
