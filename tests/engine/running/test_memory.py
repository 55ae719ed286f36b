"""How large a KV cache is made."""

from __future__ import annotations

import pytest
import torch

from adjudge.engine.running import memory
from adjudge.engine.running.memory import cache_bytes

CPU = torch.device("cpu")
GIB = 1 << 30


@pytest.mark.parametrize(
    ("spare", "size"),
    [
        (None, 4 * GIB),
        (200 * GIB, 4 * GIB),
        (16 * GIB, 4 * GIB),
        (16 * GIB - 4, 2 * GIB),
        (9 * GIB, 2 * GIB),
        (GIB, GIB // 4),
    ],
)
def test_on_a_host_the_cache_takes_a_share_of_the_spare_memory(
    spare: int | None, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "spare_memory", lambda: spare)
    assert cache_bytes(CPU, None) == size
    assert cache_bytes(CPU, 1.5) == 3 * GIB // 2  # who names a size has it


def test_about_as_much_spare_memory_makes_as_large_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = set()
    for spare in range(9 * GIB, 15 * GIB, GIB // 7):
        monkeypatch.setattr(memory, "spare_memory", lambda spare=spare: spare)
        sizes.add(cache_bytes(CPU, None))
    assert sizes == {2 * GIB}


def test_a_context_has_room_where_half_of_the_spare_memory_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "spare_memory", lambda: GIB)
    assert cache_bytes(CPU, None, GIB // 3) == GIB // 3  # a quarter would not hold it
    assert cache_bytes(CPU, None, GIB // 8) == GIB // 4
    assert cache_bytes(CPU, None, GIB) == GIB // 4  # of which there is half at most


def test_a_host_with_nothing_to_spare_has_no_room_for_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "spare_memory", lambda: 0)
    assert cache_bytes(CPU, None) == 1
