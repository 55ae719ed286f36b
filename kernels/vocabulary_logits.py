"""Logits over the whole vocabulary, for the few rows whose next token is sampled."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from adjudge.kernels.linear import invariant_linear
from adjudge.kernels.restricted_head_arguments import Head, check_head
from adjudge.kernels.restricted_head_torch import final_rows
from adjudge.kernels.surroundings import undisturbed


@torch.no_grad()
@undisturbed
def vocabulary_logits(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    *,
    norm_weight: Tensor | None = None,
    eps: float = 1e-6,
    bias: Tensor | None = None,
    softcap: float | None = None,
    temperature: float = 1.0,
    batch_invariant: bool = False,
) -> Tensor:
    """Logits [N, V] in float32, with the arguments of `restricted_logprobs`.

    On CPU a row's bits do not depend on the other rows; on CUDA they are the matrix library's unless `batch_invariant`.
    """
    head = Head(weight_VD, norm_weight, eps, bias, softcap, temperature)
    check_head(hidden_ND, head)
    n = len(hidden_ND)
    x_PD = final_rows(hidden_ND, range(n), head).to(weight_VD.dtype)
    if batch_invariant or hidden_ND.device.type == "cpu":
        logits_NV = invariant_linear(x_PD[:n], weight_VD).float()
    else:
        logits_NV = F.linear(x_PD[:n], weight_VD).float()
    return head.logits(logits_NV, None if bias is None else bias.float())
