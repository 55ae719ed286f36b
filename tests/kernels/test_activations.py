"""Activations give a number the same bits wherever it stands, for any count of threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers.activations import ACT2FN

from adjudge.kernels.activations import GELU_ALONE, GRAIN, STEP, even, in_even_shares, make_activations_invariant

THREADS = (1, 2, 3, 5, 7, 8)


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("count", [0, 1, 63, GRAIN, GRAIN + STEP, 96 * 1536, 3 * GRAIN + 64, 5 * GRAIN, 9 * GRAIN - 64])
def test_shares_are_whole_steps_and_little_is_left_over(count: int, threads: int) -> None:
    first = even(count, threads)
    assert first % (STEP * (min(threads, -(-first // GRAIN)) or 1)) == 0
    assert first <= GELU_ALONE or first % (STEP * threads) == 0
    assert 0 <= count - first < 2 * threads * threads * STEP


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["silu", "swish", "gelu", "gelu_pytorch_tanh", "gelu_new", "quick_gelu", "mish"])
def test_a_row_has_the_same_bits_alone_and_in_any_batch(name: str, dtype: torch.dtype) -> None:
    model = nn.Sequential(ACT2FN[name])
    assert make_activations_invariant(model) == 1
    assert make_activations_invariant(model) == 0  # once is enough
    x = (3 * torch.randn(416, 1536, generator=torch.Generator().manual_seed(1))).to(dtype)
    torch.set_num_threads(1)
    alone = torch.cat([model(row[None]) for row in x])
    for threads in THREADS:
        torch.set_num_threads(threads)
        for rows in (8, 32, 96, 160, 416):
            assert torch.equal(model(x[:rows]), alone[:rows]), (threads, rows)


def test_torch_itself_does_not() -> None:
    # What the module is for: where this is skipped, see whether the module can go.
    x = 3 * torch.randn(96, 1536, generator=torch.Generator().manual_seed(1))
    torch.set_num_threads(1)
    expected = F.silu(x)
    torch.set_num_threads(5)
    if torch.equal(F.silu(x), expected):
        pytest.skip("this build of torch shares SiLU out otherwise")
    assert torch.equal(in_even_shares(F.silu, x), expected)


def test_what_is_not_contiguous_keeps_its_shape_and_values() -> None:
    x = torch.randn(2, 1536, 33).transpose(1, 2)
    torch.set_num_threads(5)
    assert in_even_shares(F.silu, x).shape == x.shape
    assert torch.allclose(in_even_shares(F.silu, x), F.silu(x.double()).float(), atol=1e-6)


def test_what_mixes_numbers_is_left_alone() -> None:
    model = nn.Sequential(nn.Softmax(-1), nn.PReLU(), nn.Linear(4, 4))
    assert make_activations_invariant(model) == 0
