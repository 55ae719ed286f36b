"""What the standard guards have seen of a run, as plain data; what they were told when they were made is not part."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from adjudge.rewards.guards.canary import CanaryGuard, CanaryMeasurement
from adjudge.rewards.guards.collapse import CollapseGuard
from adjudge.rewards.guards.guard import Guard
from adjudge.rewards.guards.length import LengthGuard
from adjudge.rewards.guards.probes import ProbeEffect, ProbeGuard


def memory_of(guard: Guard) -> dict[str, Any]:
    """What a guard remembers, by the names of its attributes; {} of a guard that is none of the standard ones."""
    values = {name: getattr(guard, name) for name in _kinds(guard)}
    plain = {name: list(value) if isinstance(value, deque) else value for name, value in values.items()}
    return dict(msgspec.to_builtins(plain))


def recalled(guard: Guard, memory: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes as `memory_of` told them; raises msgspec.ValidationError for what is none of these."""
    values: dict[str, Any] = {name: msgspec.convert(memory.get(name), kind) for name, kind in _kinds(guard).items()}
    for name, value in values.items():
        if isinstance(window := getattr(guard, name), deque):
            values[name] = deque(value, window.maxlen)
    return values


def _kinds(guard: Guard) -> dict[str, Any]:
    """The kind of each attribute that a guard remembers something in."""
    match guard:
        case LengthGuard():
            return {"groups": list[list[tuple[float, float]]]}
        case CanaryGuard():
            return {"first": CanaryMeasurement | None, "last": CanaryMeasurement | None}
        case ProbeGuard():
            return {"effects": list[ProbeEffect]}
        case CollapseGuard():
            seen = {"scores": list[tuple[float, ...]], "equal": list[bool]}
            return seen if guard.given else seen | {"reference": list[float]}
        case _:
            return {}
