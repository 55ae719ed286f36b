"""Attention of the default model's size on CPU; `adjudge bench kernels` adds limits, memory and GPUs."""

from __future__ import annotations

from itertools import count

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from adjudge.bench.kernels.attention_variants import BACKENDS, AttentionInputs, attention_variants, exact_attention
from adjudge.bench.kernels.limits import ATTENTION_HEADS, AttentionCase, attention_cases

CASES = [case for case in attention_cases("small") if (case.heads, case.kv_heads, case.width) == ATTENTION_HEADS[0]]
VARIANTS = [BACKENDS["torch"], "SDPA, a sequence at a time", "SDPA, padded batch"]


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_attention(case: AttentionCase, name: str, benchmark: BenchmarkFixture) -> None:
    """Compare with float64, then time calls on buffers in turn."""
    inputs = AttentionInputs.random(case, torch.device("cpu"), torch.float32)
    variant = next(one for one in attention_variants(inputs) if one.name == name)
    rows, exact = exact_attention(inputs)
    with variant.set_up():
        assert torch.allclose(variant.run(0)[rows].double(), exact, atol=1e-4)
        call = count()
        benchmark(lambda: variant.run(next(call)))
