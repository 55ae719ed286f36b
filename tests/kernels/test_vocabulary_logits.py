from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from adjudge.kernels.vocabulary_logits import vocabulary_logits
from tests.kernels.restricted_cases import problem

DTYPES = [torch.float32, torch.bfloat16]


def head_of(features: str, dtype: torch.dtype, rows: int, width: int = 130, vocabulary: int = 257) -> dict[str, Any]:
    """Arguments of vocabulary_logits."""
    arguments = problem((rows, width, vocabulary, 1), dtype, features)
    del arguments["label_ids"]
    return arguments


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("features", ["", "norm bias softcap temperature strided"])
def test_logits_are_as_near_float64_as_plain_torch(features: str, dtype: torch.dtype) -> None:
    arguments = head_of(features, dtype, 33)

    def logits(hidden: torch.Tensor, number: torch.dtype) -> torch.Tensor:
        """The definition, its product in another dtype."""
        x = hidden.to(number)
        if "norm" in features:
            x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * arguments["norm_weight"].to(number)
        logits = F.linear(x, arguments["weight_VD"].to(number)).to(torch.promote_types(number, torch.float32))
        if "bias" in features:
            logits = logits + arguments["bias"]
        if "softcap" in features:
            logits = torch.tanh(logits / 8.0) * 8.0
        return logits / (0.7 if "temperature" in features else 1.0)

    ours, hidden = vocabulary_logits(**arguments), arguments["hidden_ND"]
    exact, plain = logits(hidden, torch.float64), logits(hidden, dtype)
    assert ours.dtype == torch.float32 and ours.shape == exact.shape
    assert (ours - exact).abs().max() <= 2 * (plain - exact).abs().max() + 4 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("features", ["", "norm bias softcap temperature strided"])
def test_one_row_of_4096_is_the_same_bits_alone_and_in_any_order(features: str, dtype: torch.dtype) -> None:
    arguments = head_of(features, dtype, 4096, width=48)
    hidden = arguments.pop("hidden_ND")
    together = vocabulary_logits(hidden, **arguments)
    order = torch.randperm(4096, generator=torch.Generator().manual_seed(1))
    assert torch.equal(vocabulary_logits(hidden[order], **arguments), together[order])
    for row in (0, 1, 2049, 4095):
        assert torch.equal(vocabulary_logits(hidden[row, None], **arguments)[0], together[row])
