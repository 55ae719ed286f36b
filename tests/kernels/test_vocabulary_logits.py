from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from adjudge.kernels.restricted_head_arguments import HeadWeights
from adjudge.kernels.vocabulary_logits import vocabulary_logits
from tests.kernels.absent_device import AbsentDevice, number_memory
from tests.kernels.restricted_cases import check_final_rows, problem

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


def test_rows_after_the_final_norm_are_near_float64_and_do_not_heed_each_other() -> None:
    check_final_rows("cpu")


class Card(AbsentDevice):
    """One that multiplies half precision without rounding the sums to it, as CUDA alone does."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.mm.dtype:
            x_ND, weight_DV, dtype = args
            return self.put(number_memory(x_ND).to(dtype) @ number_memory(weight_DV).to(dtype))
        return super().__torch_dispatch__(func, types, args, kwargs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_elsewhere_than_on_cpu_logits_are_not_rounded_to_half_precision(dtype: torch.dtype) -> None:
    hidden, head = problem_of("", dtype, 33)
    with Card() as device:
        ours = vocabulary_logits(
            device.put(hidden), HeadWeights(device.put(head.weight_VD), None, 0.0, None, None, 1.0)
        )
    exact = hidden.double() @ head.weight_VD.double().T
    assert ours.is_meta and (number_memory(ours) - exact).abs().max() < 2e-5


def test_a_product_of_half_precision_may_be_in_float32() -> None:
    """As this torch declares it: which devices have it, it does not say."""
    rows, columns = (
        torch.empty(2, 3, dtype=torch.float16, device="meta"),
        torch.empty(3, 4, dtype=torch.float16, device="meta"),
    )
    assert torch.mm(rows, columns, out_dtype=torch.float32).dtype == torch.float32
