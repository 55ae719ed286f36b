"""Hidden states as a head reads them: after the final norm, if it is the head's to apply."""

from __future__ import annotations

import torch
from torch import Tensor

from adjudge.kernels.dispatch import kernel_backend
from adjudge.kernels.restricted_head_arguments import HeadWeights
from adjudge.kernels.restricted_head_torch import torch_final_rows
from adjudge.kernels.surroundings import undisturbed


@torch.no_grad()
@undisturbed
def final_rows(hidden_ND: Tensor, head: HeadWeights) -> Tensor:
    """The rows [N, D], normed in float32 and rounded once, to their dtype; NaN where their squares overflow.

    A row's bits do not depend on the other rows: they are those that the scores of labels are read from.
    """
    if head.norm_weight_D is None or not len(hidden_ND):
        return hidden_ND.contiguous()
    if kernel_backend(hidden_ND.device) == "triton":
        from adjudge.kernels.restricted_head_triton import triton_final_rows

        return triton_final_rows(hidden_ND.contiguous(), None, len(hidden_ND), head)
    rows = range(len(hidden_ND))
    return torch_final_rows(hidden_ND, rows, head)[: len(rows)].to(hidden_ND.dtype)
