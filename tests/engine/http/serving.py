"""A real server in a thread, and what must be true of its engine afterwards."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import httpx2
import pytest
import torch

from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.batching.step import Step
from adjudge.engine.engine import Engine
from adjudge.engine.http.app import create_app
from adjudge.engine.http.limits import Limits
from adjudge.engine.http.server import Server, address_of, listen
from adjudge.engine.waiting import check_wanted

MODEL = "dummy:tiny-llama"
PATIENCE = 60.0
LONG = {"prompt": "once", "max_tokens": 2000, "ignore_eos": True}
"""A text of several seconds."""


@dataclass
class Served:
    """A server under test, asked without the certificates, which take longer to read than most answers."""

    url: str
    server: Server
    engine: AsyncEngine

    def post(self, path: str, json: Any = None, **how: Any) -> httpx2.Response:
        return httpx2.post(self.url + path, json=json, timeout=PATIENCE, verify=False, **how)

    def get(self, path: str, **how: Any) -> httpx2.Response:
        return httpx2.get(self.url + path, timeout=PATIENCE, verify=False, **how)


@contextmanager
def served(
    engine: AsyncEngine, limits: Limits | None = None, routes: Sequence[Any] = (), name: str | None = None
) -> Iterator[Served]:
    listening = threading.Event()
    with listen("127.0.0.1", 0) as listener:
        server = Server(create_app(engine, limits, routes, "test", name), listener, listening.set)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            assert listening.wait(PATIENCE)
            host, port = address_of(listener)
            yield Served(f"http://{host}:{port}", server, engine)
        finally:
            server.drain()
            thread.join(PATIENCE)
            assert not thread.is_alive()


def wait_until_idle(engine: AsyncEngine) -> None:
    """Let the engine take steps until nothing is under way, and see that everything has been given back."""
    until = time.monotonic() + PATIENCE
    while engine.worker.between_steps(lambda inner: inner.scheduler.has_work()).result(PATIENCE):
        assert time.monotonic() < until, "a call goes on that nobody waits for"
    engine.worker.between_steps(_nothing_is_held).result(PATIENCE)


def _nothing_is_held(engine: Engine) -> None:
    engine.cache.clear()
    assert engine.cache.pool.free == engine.cache.pool.usable


def error_of(response: httpx2.Response) -> dict[str, Any]:
    """The error of an answer, in OpenAI's shape and without anything of the server's inside."""
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body.keys() == {"error"} and body["error"].keys() == {"message", "type", "param", "code"}
    assert "Traceback" not in response.text
    error: dict[str, Any] = body["error"]
    return error


def wait_until_busy(engine: AsyncEngine) -> None:
    """Return when a call is under way."""
    until = time.monotonic() + PATIENCE
    while not engine.worker.between_steps(lambda inner: inner.scheduler.has_work()).result(PATIENCE):
        assert time.monotonic() < until, "no call came"


class Endless:
    """Reading that ends only where nobody waits for it any more."""

    def __init__(self) -> None:
        self.begun, self.ended = SimpleQueue[bool](), SimpleQueue[bool]()

    @staticmethod
    def in_place_of(monkeypatch: pytest.MonkeyPatch, where: object, what: str) -> Endless:
        """Reading without end where something else was."""
        reading = Endless()
        monkeypatch.setattr(where, what, reading)
        return reading

    def __call__(self, *_: Any, **__: Any) -> Any:
        self.begun.put(True)
        try:
            while True:
                check_wanted()
                time.sleep(0.001)
        finally:
            self.ended.put(True)


@contextmanager
def held(engine: AsyncEngine, after: int = 2) -> Iterator[Callable[[], None]]:
    """Hold the engine before the step after the next `after` ones, until the function yielded is called."""
    runner, go, steps = engine.engine.runner, threading.Event(), itertools.count()
    forward = runner.forward

    def hold(step: Step) -> torch.Tensor:
        if next(steps) >= after:
            assert go.wait(PATIENCE)
        return forward(step)

    runner.forward = hold  # type: ignore[method-assign]
    try:
        yield go.set
    finally:
        go.set()
        del runner.forward


def raw_request(url: str, path: str, body: bytes, length: int | None = None) -> socket.socket:
    """A connection on which a request has been sent, of which nothing has been read; `length` is what it announces."""
    host, port = url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(PATIENCE)
    connection.connect((host, int(port)))
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body) if length is None else length}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection
