"""Dense layers whose rows do not depend on each other, beside torch's: what that costs, on a GPU where there is one."""

from __future__ import annotations

from itertools import cycle

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from torch.nn.functional import linear

from adjudge.kernels.linear import invariant_linear

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPE = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
ROWS = [1, 4, 16, 64, 300, 4096]
SHAPES = [(3584, 4608), (18944, 3584)] if DEVICE.type == "cuda" else [(576, 1536), (1536, 576)]
BEYOND = 1 << 28
"""Bytes of weights that calls take turns at: more than caches hold."""


@pytest.mark.parametrize("layer", [invariant_linear, linear], ids=["invariant", "torch"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]} to {shape[1]}")
@pytest.mark.parametrize("rows", ROWS)
def test_linear(rows: int, shape: tuple[int, int], layer: object, benchmark: BenchmarkFixture) -> None:
    """Compare with float64, then time calls on weights in turn."""
    assert callable(layer)
    generator = torch.Generator().manual_seed(0)
    width, outputs = shape
    count = max(1, BEYOND // (width * outputs * DTYPE.itemsize))
    weights = [torch.randn(outputs, width, generator=generator).to(DEVICE, DTYPE) for _ in range(count)]
    x = torch.randn(rows, width, generator=generator).to(DEVICE, DTYPE)
    exact = x.double() @ weights[0].double().T
    assert (layer(x, weights[0]) - exact).abs().max() <= width**0.5 * torch.finfo(DTYPE).eps * exact.abs().max()
    turns = cycle(weights)

    def call() -> None:
        layer(x, next(turns))
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()

    benchmark(call)
