"""One thread that takes an engine's steps, for calls that come from many threads and event loops."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import msgspec

from adjudge.engine.batching.call import Call
from adjudge.engine.batching.writing import Writer
from adjudge.engine.completion import Completion, TokenLogprob
from adjudge.engine.embedding import Embedding
from adjudge.engine.engine import Engine
from adjudge.engine.errors import NotServing
from adjudge.engine.score import Score
from adjudge.engine.threads.forked import require_process
from adjudge.engine.waiting import ENDED, Terms

Result = TypeVar("Result")


class Piece(msgspec.Struct, frozen=True):
    """A text that grows: what has become certain of the text at `place` in its call since the last piece."""

    place: int
    text: str
    tokens: tuple[TokenLogprob, ...]


Event = tuple[int, Score | Completion | Embedding] | Piece | BaseException
"""An answer with its place, a piece of an answer to come, or what ended the call instead."""
Deliver = Callable[[Event | None], None]
"""Takes what comes of a call; None after the last answer."""
Start = Callable[[Deliver], Callable[[], object]]
"""Begins a call of which that is to take what comes; returns what cancels it."""


def answers_of(start: Start, terms: Terms) -> Iterator[tuple[int, Any]]:
    """The answers of a call that asks for no pieces, as they come; raises what ends it.

    That is NotServing where nobody waits any more on the call's terms.
    """
    events: SimpleQueue[Event | None] = SimpleQueue()
    cancel = start(events.put)
    try:
        if terms.given_up is not None:
            terms.given_up.add_done_callback(lambda _: events.put(NotServing(ENDED)))
        while (event := events.get()) is not None:
            if isinstance(event, BaseException):
                raise event
            assert not isinstance(event, Piece)
            yield event
    finally:
        cancel()


@dataclass(eq=False)
class Ticket:
    """A call under way. `deliver` is called in the worker's thread, with each event.

    `pieces` asks for those of texts too: all of a text has come in them when its answer does.
    """

    call: Call
    deliver: Deliver
    pieces: bool = False
    _sent: dict[int, tuple[int, int]] = field(default_factory=dict)  # by place: characters, tokens

    def forward(self) -> bool:
        """Deliver what has come in since the last step; whether more is to come."""
        if self.pieces:
            for request in self.call.requests:
                if isinstance(request, Writer):
                    self._forward_piece(request)
        while self.call.answers:
            self.deliver(self.call.answers.popleft())
        if not self.call.open:
            self.deliver(None)
        return self.call.open > 0

    def _forward_piece(self, writer: Writer) -> None:
        characters, tokens = self._sent.get(writer.place, (0, 0))
        if len(writer.logprobs) == tokens and writer.text is None:
            return
        text, new = writer.settled_text(), tuple(writer.logprobs[tokens:])
        if new or len(text) > characters:  # of one that has ended, what was held back for a stop string
            self._sent[writer.place] = max(characters, len(text)), len(writer.logprobs)
            self.deliver(Piece(writer.place, text[characters:], new))


class Worker:
    """Takes the steps of `engine`, which nobody else may touch while the worker lives.

    `start` and `between_steps` may be called from any thread. A step that fails ends every call under way
    with its error; the engine goes on. In a process forked from this one, where the thread is not, `start` and
    `between_steps` raise AdjudgeError.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._tickets: list[Ticket] = []
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._closing = self._stopped = False
        self.process = os.getpid()
        self._lock = threading.RLock()  # the garbage collector may end answers in a thread that holds it
        self._thread = threading.Thread(target=self._run, name="adjudge-worker", daemon=True)
        self._thread.start()

    def start(
        self, call: Call, deliver: Deliver, priority: int, timeout: float | None, pieces: bool = False
    ) -> Callable[[], None]:
        """Begin a call; QueueFull and the like arrive as its event. Returns what drops it: then it gets no more."""
        require_process(self.process)
        ticket = Ticket(call, deliver, pieces)
        self._ask(lambda: self._start(ticket, priority, timeout))

        def cancel() -> None:
            if os.getpid() == self.process:
                self._ask(lambda: self._cancel(ticket))

        return cancel

    def between_steps(self, action: Callable[[Engine], Result]) -> Future[Result]:
        """Do something with the engine between two of its steps."""
        require_process(self.process)
        future: Future[Result] = Future()

        def act() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                if self._closing:
                    raise NotServing("the engine is being closed")
                future.set_result(action(self.engine))
            except BaseException as error:
                future.set_exception(error)

        self._ask(act)
        return future

    def close(self, drain: bool = True) -> None:
        """Take no new calls, let those under way end (or, without `drain`, end them with an error), and stop."""

        def act() -> None:
            self._closing = True
            if not drain:
                self._fail(NotServing("the engine was closed before this call was answered"))

        if os.getpid() == self.process:
            self._ask(act)
            self._thread.join()

    def _ask(self, action: Callable[[], None]) -> None:
        """Have the worker act; once it has stopped, whoever asks is refused on the spot."""
        with self._lock:
            if not self._stopped:
                return self._inbox.put(action)
        action()

    def _run(self) -> None:
        while not (self._closing and not self._tickets):
            self._act()
            if not self.engine.scheduler.has_work():
                continue
            try:
                self.engine.step()
                self._tickets = [ticket for ticket in self._tickets if ticket.forward()]
            except BaseException as error:
                self._fail(error)
        with self._lock:
            self._stopped = True
        while not self._inbox.empty():
            self._inbox.get()()

    def _act(self) -> None:
        """Do what is asked for; without other work, wait for it."""
        if not self.engine.scheduler.has_work():
            self._inbox.get()()
        while True:
            try:
                action = self._inbox.get_nowait()
            except Empty:
                return
            action()

    def _start(self, ticket: Ticket, priority: int, timeout: float | None) -> None:
        try:
            if self._closing:
                raise NotServing("the engine is being closed and takes no more calls: send them to another")
            self.engine.start(ticket.call, priority, timeout)
            if ticket.forward():
                self._tickets.append(ticket)
        except BaseException as error:
            self.engine.cancel(ticket.call)
            ticket.deliver(error)

    def _cancel(self, ticket: Ticket) -> None:
        if ticket in self._tickets:
            self._tickets.remove(ticket)
            self.engine.cancel(ticket.call)

    def _fail(self, error: BaseException) -> None:
        self.engine.scheduler.abort()
        for ticket in self._tickets:
            ticket.forward()  # what was done before is not lost
            ticket.deliver(error)
        self._tickets.clear()
