"""Means of rows that do not depend on each other, on a GPU: what RMSNorm divides by.

torch chooses how a row is shared out among threads by how many rows there are, so the last bits of a mean change with
whatever shares its batch. Here a program adds up one row, in blocks of 1,024.
"""

# mypy: disable-error-code="no-untyped-def"
# (Triton gives the parameters of its functions their types at each call.)

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.overrides import TorchFunctionMode

from adjudge.kernels.dispatch import kernel_backend, launcher

BLOCK = 1024


class RowMeans(TorchFunctionMode):
    """Within it, means over the last dimension are `row_means` where Triton serves; all else is torch's."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Whatever torch is asked for."""
        if function in (torch.mean, Tensor.mean) and (asked := _over_the_last(*args, **(kwargs or {}))):
            return row_means(*asked)
        return function(*args, **(kwargs or {}))


@launcher
def row_means(input: Tensor, keepdim: bool = False) -> Tensor:
    """`input.mean(-1, keepdim)` of [..., D], added up in float32."""
    rows = input.reshape(-1, input.shape[-1])
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    output = input.new_empty((*input.shape[:-1], *[1] * keepdim))
    if len(rows):
        mean_kernel[(len(rows),)](rows, rows.stride(0), output, rows.shape[1], BLOCK=BLOCK)
    return output


def _over_the_last(input: Tensor, dim: Any = None, keepdim: bool = False, **more: Any) -> tuple[Tensor, bool] | None:
    ours = dim in (-1, [-1], (-1,)) and not more and input.is_floating_point() and input.dtype.itemsize <= 4
    return (input, keepdim) if ours and input.numel() and kernel_backend(input.device) == "triton" else None


@triton.jit
def mean_kernel(input, row_stride, output, width, BLOCK: tl.constexpr):
    """The mean of row `program_id(0)`."""
    row = tl.program_id(0).to(tl.int64)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, width, BLOCK):
        d = start + tl.arange(0, BLOCK)
        sums += tl.load(input + row * row_stride + d, mask=d < width, other=0.0).to(tl.float32)
    tl.store(output + row, (tl.sum(sums, 0) / width).to(output.dtype.element_ty))
