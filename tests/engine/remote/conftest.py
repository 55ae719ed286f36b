from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from adjudge import RemoteEngine
from adjudge.engine.engine import Engine
from tests.engine.remote.peer import Answer, Peer
from tests.engine.tiny import TINY

PROMPTS = [f"Rate number {n}." for n in range(6)]
VARIED = ["Rate this.", "Rate that.", "Rate this.", "<|im_end|> Rate <|endoftext|>", "🙂 é \x00 \ud800"]
"""Prompts, equal and odd ones among them."""

Open = Callable[..., tuple[RemoteEngine, Peer]]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(TINY, kv_cache_gb=0.05)


@pytest.fixture
def waits() -> list[float]:
    """What was waited for between attempts, in seconds."""
    return []


@pytest.fixture
def open_remote(engine: Engine, waits: list[float]) -> Iterator[Open]:
    """A remote engine that waits for nothing between attempts, and the peer that it talks to, with its attributes."""
    opened: list[Any] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    def make(
        kind: str = "vllm",
        *script: Answer,
        served: Engine | None = None,
        key: str | None = None,
        peer: Mapping[str, Any] = {},
        **options: Any,
    ) -> tuple[RemoteEngine, Peer]:
        server = Peer(kind, served or engine, key=key)
        opened.append(server)
        server.script.extend(script)
        for name, value in peer.items():
            setattr(server, name, value)
        if kind == "openai":
            options = {"max_context": engine.max_prompt_tokens} | options
        remote = RemoteEngine(server.url, **options)
        opened.append(remote)
        remote.transport.sleep = wait
        return remote, server

    yield make
    for each in reversed(opened):
        each.close()
