"""How long a connection waits for a client that sends nothing or reads nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from adjudge.engine.http.limits import Limits


class PatientProtocol(H11Protocol):
    """uvicorn's protocol, which waits for ever for a request to come and for a client to read, with an end to that."""

    def __init__(self, limits: Limits, **given: Any) -> None:
        super().__init__(**given)
        self._limits = limits
        self._stalled: asyncio.TimerHandle | None = None
        self._silent: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # whatever is unsent is watched, not what is beyond the first 64 KB
        self._listen()

    def data_received(self, data: bytes) -> None:
        """Wait on, until the head of a request is here."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:  # a request's head is here
            self._hear()
        elif self._silent is None:
            self._listen()

    def send_400_response(self, msg: str) -> None:
        """Tell a client that it sends no HTTP, or, where its request has an answer or a part of one, only hang up."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        """Watch whether the client reads what is not sent yet."""
        super().pause_writing()
        size = self.transport.get_write_buffer_size()
        self._watch(self.loop.time(), size, size)

    def resume_writing(self) -> None:
        """Watch no more: all is sent."""
        super().resume_writing()
        self._forget()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        super().connection_lost(exc)
        self._forget()
        self._hear()

    def _watch(self, since: float, size: int, left: int) -> None:
        """Look in a while whether the client has read more of `size` bytes, of which there were `left`."""
        until = self._limits.patience(since, self.loop.time(), size - left)
        self._stalled = self.loop.call_at(until, self._look, since, size, left)

    def _look(self, since: float, size: int, left: int) -> None:
        if (now := self.transport.get_write_buffer_size()) < left:
            self._watch(since, size, now)
        else:
            self.transport.abort()

    def _listen(self) -> None:
        self._silent = self.loop.call_later(self._limits.stall_timeout, self.transport.abort)

    def _hear(self) -> None:
        if self._silent is not None:
            self._silent.cancel()
            self._silent = None

    def _forget(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
