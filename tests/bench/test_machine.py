from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from adjudge.bench import machine


def test_a_machine_that_does_not_say_which_cores_are_ours_is_described_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"{len(os.sched_getaffinity(0))} cores" in machine.describe_machine()
    monkeypatch.setattr(machine, "os", SimpleNamespace(cpu_count=lambda: 97, environ={}))
    assert "97 cores" in machine.describe_machine()
