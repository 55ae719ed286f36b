"""A server for the application: listens, drops clients that stall, and drains before it stops."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import FrameType
from typing import Any

import uvicorn

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.http.gate import Gate
from adjudge.engine.http.patient_protocol import PatientProtocol

GRACE = 5.0
"""Seconds in which the errors that end a drain must have been read."""
THREADS = 32
"""In which requests are prepared and answers worded: asyncio has few of its own where there are few processors."""
UNSENT = 1 << 16
"""Bytes that the system takes before it can send them: with megabytes, a slow client would seem to read nothing."""


class Server(uvicorn.Server):
    """Serves `gate` on a bound socket until SIGTERM or Ctrl-C, or `drain`.

    Told to stop, it turns new requests away and lets those under way end and their answers go out; what is left after
    the drain timeout gets an error. A second signal stops it at once. `ready` is called when it listens.
    """

    def __init__(
        self,
        gate: Gate,
        listener: socket.socket,
        ready: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service, self._listener, self._ready, self._clock = gate.service, listener, ready, clock
        self._deadline: float | None = None
        self._cut = False
        config = uvicorn.Config(
            gate,
            http=partial(PatientProtocol, gate.service.limits),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        super().__init__(config)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to stop, then stop the engine's calls."""
        super().run(sockets or [self._listener])

    def drain(self) -> None:
        """Take no more requests, and stop when those under way have ended; any thread may call this."""
        if not self._service.draining:
            self._deadline = self._clock() + self._service.limits.drain_timeout
            self._service.draining = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains, the second stops."""
        if self._service.draining:
            super().handle_exit(sig, frame)
        self.drain()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        threads = ThreadPoolExecutor(THREADS, thread_name_prefix="adjudge-http")
        asyncio.get_running_loop().set_default_executor(threads)
        await super().startup(sockets)
        self._ready()

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop; asked ten times a second."""
        if self._deadline is not None:
            over = self._clock() - self._deadline
            if not self._is_busy() or over > GRACE:
                return True
            if over > 0 and not self._cut:
                self._cut = True
                for given_up in self._service.under_way:
                    given_up.cancel()
                await self._service.engine.close(drain=False)
                self._deadline = self._clock()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; whoever has not read an answer by now is not waited for."""
        for connection in self.server_state.connections:
            connection.transport.abort()
        await super().shutdown(sockets)

    def _is_busy(self) -> bool:
        """Whether a request is under way, or an answer still being sent."""
        connections = self.server_state.connections
        return self._service.active > 0 or any(each.transport.get_write_buffer_size() for each in connections)


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to an address (port 0: any free one); raises AdjudgeError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
        listener.bind(address)
    except (OSError, OverflowError, UnicodeError) as error:
        problem = getattr(error, "strerror", None) or error
        raise AdjudgeError(f"cannot listen on {host}:{port} ({problem}): name others with --host and --port") from error
    return listener


def address_of(listener: socket.socket) -> tuple[str, int]:
    """Host and port that a socket is bound to."""
    found: Any = listener.getsockname()
    return found[0], found[1]
