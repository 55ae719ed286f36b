"""The restricted head of the default model's size on CPU; `adjudge bench kernels` adds limits, memory and GPUs."""

from __future__ import annotations

from functools import cache
from itertools import count

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from adjudge.bench.kernels.head_variants import HeadInputs, checked_rows, exact_logprobs, head_variants
from adjudge.bench.kernels.limits import FULL, HEADS, INDEX, MATMUL, OURS, UNCHECKED, HeadCase

ROWS = [1, 64, 1024]
LABELS = [5, 64]


@cache
def inputs() -> HeadInputs:
    """One head for all cases."""
    return HeadInputs(*HEADS[0], max(ROWS), torch.device("cpu"), torch.float32)


def check_and_time(case: HeadCase, name: str, benchmark: BenchmarkFixture) -> None:
    """Compare with float64, then time calls on buffers in turn."""
    variant = next(one for one in head_variants(inputs(), case, compiled=False) if one.name == name)
    if variant.answer is not None:
        answer = variant.answer(variant.run(0))[checked_rows(case.n, inputs().device)]
        assert torch.allclose(answer.double(), exact_logprobs(inputs(), case), atol=1e-4)
    call = count()
    benchmark(lambda: variant.run(next(call)))


@pytest.mark.parametrize("name", [OURS, UNCHECKED, INDEX, FULL])
@pytest.mark.parametrize("k", LABELS)
@pytest.mark.parametrize("n", ROWS)
def test_set(n: int, k: int, name: str, benchmark: BenchmarkFixture) -> None:
    """Normalised over the labels."""
    check_and_time(HeadCase("set", n, *HEADS[0], k), name, benchmark)


@pytest.mark.parametrize("name", [OURS, FULL, MATMUL])
@pytest.mark.parametrize("n", ROWS[:2])
def test_both(n: int, name: str, benchmark: BenchmarkFixture) -> None:
    """With the mass under the full softmax."""
    check_and_time(HeadCase("both", n, *HEADS[0], LABELS[0]), name, benchmark)
