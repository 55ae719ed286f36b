from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from adjudge.bench.kernels import timing


def test_a_gpu_that_is_not_the_first_is_timed_on_its_own_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    current, recorded = [torch.device("cuda:0")], []

    @contextmanager
    def device(chosen: torch.device) -> Iterator[None]:
        current.append(chosen)
        yield
        current.pop()

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            recorded.append(current[-1])

        def elapsed_time(self, other: Event) -> float:
            return 6.0

    slept: list[Any] = []
    cuda = SimpleNamespace(
        device=device,
        Event=Event,
        synchronize=lambda _: None,
        _sleep=lambda cycles: slept.append(current[-1]),
    )
    monkeypatch.setattr(timing, "torch", SimpleNamespace(cuda=cuda))
    second = torch.device("cuda:1")
    assert timing._batch(lambda i: None, 0, 3, second, 0.0) == pytest.approx(0.002)
    assert recorded == [second, second] and slept == [second]
