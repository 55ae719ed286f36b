"""Logits over the whole vocabulary, for the few rows whose next token is sampled."""

from __future__ import annotations

import torch
from torch import Tensor

from adjudge.kernels.dispatch import kernel_backend
from adjudge.kernels.final_rows import final_rows
from adjudge.kernels.linear import PART, invariant_linear, invariant_part
from adjudge.kernels.restricted_head_arguments import HeadWeights, check_head
from adjudge.kernels.surroundings import undisturbed


@torch.no_grad()
@undisturbed
def vocabulary_logits(hidden_ND: Tensor, head: HeadWeights, batch_invariant: bool = False) -> Tensor:
    """Logits [N, V] of a head in float32.

    On CPU a row's bits do not depend on the other rows; on CUDA they are the matrix library's unless `batch_invariant`.
    Of a head in half precision the products are rounded to it on CPU, as transformers' are, where the restricted head
    does not: a conversion of all weights for a few rows would take longer than the rest. On CUDA they are not.
    """
    check_head(hidden_ND, head)
    x_ND, bias_V = final_rows(hidden_ND, head), None if head.bias_V is None else head.bias_V.float()
    if hidden_ND.device.type == "cpu" and kernel_backend(hidden_ND.device) == "torch":
        dots_NV = x_ND.new_empty(len(x_ND), len(head.weight_VD), dtype=torch.float32)
        for part in range(-(-len(head.weight_VD) // PART)):
            dots_NV[:, part * PART :][:, :PART] = invariant_part(x_ND, head.weight_VD, part)
    elif batch_invariant or hidden_ND.device.type == "cpu":
        dots_NV = invariant_linear(x_ND, head.weight_VD, dtype=torch.float32)
    else:
        dots_NV = torch.mm(x_ND, head.weight_VD.t(), out_dtype=torch.float32)
    return head.logits(dots_NV, bias_V)
