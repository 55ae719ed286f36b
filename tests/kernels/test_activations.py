"""Activations give a number the same bits wherever it stands, for any count of threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers.activations import ACT2FN

from adjudge.kernels.activations import GELU_ALONE, GRAIN, STEP, even_parts, in_even_shares, make_activations_invariant

THREADS = (1, 2, 3, 5, 7, 8)


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("threads", [*THREADS, 61, 300])
@pytest.mark.parametrize(
    "count", [0, STEP, GELU_ALONE + STEP, GRAIN, GRAIN + STEP, 96 * 1536, 3 * GRAIN + STEP, 9 * GRAIN - STEP, 1 << 22]
)
def test_shares_are_whole_steps_and_all_is_in_few_parts(count: int, threads: int) -> None:
    parts = even_parts(count, threads)
    assert sum(parts) == count and len(parts) <= 4
    for part in parts:
        assert part % (STEP * (min(threads, -(-part // GRAIN)) or 1)) == 0
        assert part <= GELU_ALONE or part % (STEP * threads) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["silu", "swish", "gelu", "gelu_pytorch_tanh", "gelu_new", "quick_gelu", "mish"])
def test_a_row_has_the_same_bits_alone_and_in_any_batch(name: str, dtype: torch.dtype) -> None:
    model = nn.Sequential(ACT2FN[name])
    assert make_activations_invariant(model) == 1
    assert make_activations_invariant(model) == 0  # once is enough
    for width in (1536, 100, 37):
        both = (3 * torch.randn(416, 2 * width, generator=torch.Generator().manual_seed(1))).to(dtype)
        x = both[:, :width].contiguous()
        torch.set_num_threads(1)
        alone = torch.cat([model(row[None]) for row in x])
        for threads in THREADS:
            torch.set_num_threads(threads)
            for rows in (1, 4, 32, 96, 160, 416):
                assert torch.equal(model(x[:rows]), alone[:rows]), (width, threads, rows)
                assert torch.equal(model(both[:rows].chunk(2, -1)[0]), alone[:rows])  # not contiguous


def test_torch_itself_does_not() -> None:
    # What the module is for: where this is skipped, see whether the module can go.
    x = 3 * torch.randn(96, 1536, generator=torch.Generator().manual_seed(1))
    torch.set_num_threads(1)
    expected = F.silu(x)
    torch.set_num_threads(5)
    if torch.equal(F.silu(x), expected):
        pytest.skip("this build of torch shares SiLU out otherwise")
    assert torch.equal(in_even_shares(F.silu, x), expected)


@pytest.mark.parametrize("shape", [(0, 5), (1,), (2, 3, 7), (2, 33, 1536)])
def test_shapes_and_values_are_those_of_the_activation(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2)).transpose(0, -1)
    torch.set_num_threads(5)
    found = in_even_shares(F.silu, x)
    assert found.shape == x.shape and torch.allclose(found, F.silu(x.double()).float(), atol=1e-6)


def test_what_mixes_numbers_is_left_alone() -> None:
    model = nn.Sequential(nn.Softmax(-1), nn.PReLU(), nn.Linear(4, 4))
    assert make_activations_invariant(model) == 0
