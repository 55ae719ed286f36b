from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from adjudge.kernels.restricted_head_arguments import HeadWeights
from adjudge.kernels.vocabulary_logits import vocabulary_logits
from tests.kernels.restricted_cases import problem

DTYPES = [torch.float32, torch.bfloat16]


def problem_of(
    features: str, dtype: torch.dtype, rows: int, width: int = 130, vocabulary: int = 257
) -> tuple[torch.Tensor, HeadWeights]:
    """Hidden states and a head."""
    made = problem((rows, width, vocabulary, 1), dtype, features)
    norm_weight, eps, bias, softcap = map(made.get, ("norm_weight", "eps", "bias", "softcap"))
    head = HeadWeights(made["weight_VD"], norm_weight, eps or 0.0, bias, softcap, made.get("temperature", 1.0))
    return made["hidden_ND"], head


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("features", ["", "norm bias softcap temperature strided"])
def test_logits_are_as_near_float64_as_plain_torch(features: str, dtype: torch.dtype) -> None:
    hidden, head = problem_of(features, dtype, 33)

    def logits(hidden: torch.Tensor, number: torch.dtype) -> torch.Tensor:
        """The definition, its product in another dtype."""
        x = hidden.to(number)
        if head.norm_weight_D is not None:
            x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * head.norm_weight_D.to(number)
        logits = F.linear(x, head.weight_VD.to(number)).to(torch.promote_types(number, torch.float32))
        if head.bias_V is not None:
            logits = logits + head.bias_V
        if "softcap" in features:
            logits = torch.tanh(logits / 8.0) * 8.0
        return logits / (0.7 if "temperature" in features else 1.0)

    ours = vocabulary_logits(hidden, head)
    exact, plain = logits(hidden, torch.float64), logits(hidden, dtype)
    assert ours.dtype == torch.float32 and ours.shape == exact.shape
    assert (ours - exact).abs().max() <= 2 * (plain - exact).abs().max() + 4 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("features", ["", "norm bias softcap temperature strided"])
def test_one_row_of_4096_is_the_same_bits_alone_and_in_any_order(features: str, dtype: torch.dtype) -> None:
    hidden, head = problem_of(features, dtype, 4096, width=48)
    together = vocabulary_logits(hidden, head)
    order = torch.randperm(4096, generator=torch.Generator().manual_seed(1))
    assert torch.equal(vocabulary_logits(hidden[order], head), together[order])
    for row in (0, 1, 2049, 4095):
        assert torch.equal(vocabulary_logits(hidden[row, None], head)[0], together[row])
