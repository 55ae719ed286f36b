from __future__ import annotations

import gc
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from adjudge.commands.runs import collector


@pytest.mark.parametrize(("built_on", "taken_down"), [("nanobind", [gc.unfreeze]), ("pybind11_builtins", [])])
def test_what_is_kept_from_the_collector_is_taken_down_at_the_end_where_triton_tells_of_leaks(
    monkeypatch: pytest.MonkeyPatch, built_on: str, taken_down: list[Any]
) -> None:
    builder = type("kind", (type,), {"__module__": built_on})("builder", (), {})
    monkeypatch.setitem(sys.modules, "triton._C.libtriton", SimpleNamespace(ir=SimpleNamespace(builder=builder)))
    at_end: list[Any] = []
    monkeypatch.setattr(collector, "atexit", SimpleNamespace(register=at_end.append))
    frozen: list[bool] = []
    monkeypatch.setattr(collector, "gc", SimpleNamespace(freeze=lambda: frozen.append(True), unfreeze=gc.unfreeze))
    collector.freeze()
    assert frozen == [True] and at_end == taken_down
