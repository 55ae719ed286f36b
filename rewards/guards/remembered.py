"""What guards have seen of a run, as plain data; what they were told when they were made is not part."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from adjudge.rewards.guards.guard import Guard


def memory_of(guard: Guard) -> dict[str, Any]:
    """What a guard remembers, by the names of its attributes."""
    values = {name: getattr(guard, name) for name in guard.remembers}
    plain = {name: list(value) if isinstance(value, deque) else value for name, value in values.items()}
    return dict(msgspec.to_builtins(plain, str_keys=True))


def recalled(guard: Guard, memory: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes as `memory_of` told them; raises msgspec.ValidationError for what is none of these."""
    values: dict[str, Any] = {
        name: msgspec.convert(memory.get(name), kind, str_keys=True) for name, kind in guard.remembers.items()
    }
    for name, value in values.items():
        if isinstance(window := getattr(guard, name), deque):
            values[name] = deque(value, window.maxlen)
    return values
