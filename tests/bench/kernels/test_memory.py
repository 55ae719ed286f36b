from __future__ import annotations

import math

import pytest
import torch

from adjudge.bench.kernels import memory as measured
from adjudge.bench.kernels.memory import PeakMemory, free_bytes
from adjudge.kernels.linear import agreeing_rows, invariant_linear, prepacking_agrees
from adjudge.kernels.prepacked_weights import keep_prepacked


def test_what_is_made_counts_while_it_lives() -> None:
    with PeakMemory() as memory:
        one = torch.zeros(100)
        two = one.view(10, 10) + 1
        assert memory.alive == memory.peak == 800
        del two
        assert (memory.alive, memory.peak) == (400, 800)
        del one
    assert (memory.alive, memory.peak) == (0, 800)


def test_prepacked_weights_count_as_long_as_their_weight_lives() -> None:
    x, weight = torch.randn(4, 64), torch.randn(48, 64)
    kind = 64, 48, torch.float32, False, torch.get_num_threads()
    size = weight.nbytes if agreeing_rows(*kind) and prepacking_agrees(*kind) else 0
    keep_prepacked(weight)
    with PeakMemory() as memory:
        result = invariant_linear(x, weight)
        assert memory.alive == result.nbytes + size
        del weight
        assert memory.alive == result.nbytes


@pytest.mark.parametrize(("spare", "free"), [(5, 5), (None, math.inf)])
def test_memory_that_files_hold_for_now_is_free_and_what_nobody_knows_forbids_nothing(
    spare: int | None, free: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "spare_memory", lambda: spare)
    assert free_bytes(torch.device("cpu")) == free
