"""`SharedEngine`: the blocking verbs for any number of threads, over one worker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

from adjudge.engine.around import EngineAround
from adjudge.engine.call import Call
from adjudge.engine.errors import NotServing
from adjudge.engine.forked import require_process
from adjudge.engine.worker import Event, Ticket, Worker, until_end

ENDED = "whoever asked has gone: this engine takes no more calls of theirs"


class SharedEngine(EngineAround):
    """What a judge in a thread of its own uses while other calls run on the same engine."""

    def __init__(self, worker: Worker) -> None:
        engine = worker.engine
        super().__init__(engine)
        self.stats = engine.stats
        self.score_call = engine.score_call
        self.generate_call = engine.generate_call
        self.embed_call = engine.embed_call
        self._worker = worker
        self._under_way: dict[Ticket, SimpleQueue[Event | None]] = {}
        self._ended = False
        self._lock = threading.RLock()  # the garbage collector may end answers in a thread that holds it

    def apart(self) -> SharedEngine:
        """The same engine for somebody else, whose calls can be ended apart from those made here."""
        return SharedEngine(self._worker)

    def end(self) -> None:
        """Cancel the calls made here, and refuse further ones with NotServing; any thread may call this."""
        with self._lock:
            self._ended = True
            under_way = dict(self._under_way)
        for ticket, events in under_way.items():
            self._worker.cancel(ticket)
            events.put(NotServing(ENDED))

    def _answers(self, call: Call, priority: int, timeout: float | None) -> Iterator[tuple[int, Any]]:
        require_process(self._worker.process)  # before its locks, which nobody may let go of any more
        events: SimpleQueue[Event | None] = SimpleQueue()
        ticket = Ticket(call, events.put)
        with self._lock:
            if self._ended:
                raise NotServing(ENDED)
            self._under_way[ticket] = events
            self._worker.start(ticket, priority, timeout)
        try:
            yield from until_end(events)
        finally:
            self._worker.cancel(ticket)
            with self._lock:
                del self._under_way[ticket]
