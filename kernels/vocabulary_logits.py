"""Logits over the whole vocabulary, for the few rows whose next token is sampled."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from adjudge.kernels.linear import invariant_linear
from adjudge.kernels.restricted_head_arguments import HeadWeights, check_head
from adjudge.kernels.restricted_head_torch import final_rows
from adjudge.kernels.surroundings import undisturbed


@torch.no_grad()
@undisturbed
def vocabulary_logits(hidden_ND: Tensor, head: HeadWeights, batch_invariant: bool = False) -> Tensor:
    """Logits [N, V] of a head in float32.

    On CPU a row's bits do not depend on the other rows; on CUDA they are the matrix library's unless `batch_invariant`.
    """
    check_head(hidden_ND, head)
    n = len(hidden_ND)
    x_PD = final_rows(hidden_ND, range(n), head).to(head.weight_VD.dtype)
    linear = invariant_linear if batch_invariant or hidden_ND.device.type == "cpu" else F.linear
    return head.logits(linear(x_PD[:n], head.weight_VD).float(), None if head.bias_V is None else head.bias_V.float())
