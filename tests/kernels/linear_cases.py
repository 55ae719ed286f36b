"""Dense layers and means on Triton's kernels, against float64 and against themselves in other company.

Run as a script under TRITON_INTERPRET=1 and ADJUDGE_KERNELS=triton.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from adjudge.kernels.linear_triton import triton_linear
from adjudge.kernels.row_means_triton import RowMeans, row_means
from tests.kernels.interpreter import hasten

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def check_linear(device: str) -> None:
    """Near float64 as torch is, and bit-equal alone, elsewhere in the batch, and from memory with gaps."""
    generator = torch.Generator().manual_seed(0)
    for width, outputs, biased, dtypes in (
        (64, 64, False, DTYPES[:1]),
        (17, 3, True, DTYPES[2:]),
        (200, 130, True, DTYPES),
    ):
        for dtype in dtypes:
            x, w, b = (
                torch.randn(*shape, generator=generator).to(device, dtype)
                for shape in ((131, width), (outputs, width), (outputs,))
            )
            bias = b if biased else None
            whole = triton_linear(x, w, bias)
            exact = x.double() @ w.double().T + (b.double() if biased else 0)
            plain = torch.nn.functional.linear(x, w, bias)
            # Triton's interpreter cuts float32 to bfloat16 where devices round.
            slack = 4 if device == "cpu" and dtype == torch.bfloat16 else 2
            assert (whole - exact).abs().max() <= slack * (plain - exact).abs().max() + torch.finfo(dtype).eps
            apart = torch.randn(131, 2 * width, generator=generator).to(device, dtype)[:, ::2].copy_(x)
            assert torch.equal(triton_linear(apart, w.T.contiguous().T, bias), whole)
            if dtype != torch.float32:
                assert (triton_linear(x, w, bias, torch.float32) - exact).abs().max() <= 1e-4
            _same_in_any_company(lambda rows, w=w, bias=bias: triton_linear(rows, w, bias), x, whole)  # type: ignore[misc]
    assert triton_linear(x[:0], w, b).shape == (0, outputs)


def check_means(device: str) -> None:
    """The same of means, and which of torch's are taken over."""
    generator = torch.Generator().manual_seed(1)
    for width, dtypes in ((5, DTYPES[:1]), (1024, DTYPES[:1]), (2300, DTYPES)):
        for dtype in dtypes:
            x = (3 + torch.randn(70, width, generator=generator)).to(device, dtype)
            whole = row_means(x, True)
            assert whole.shape == (70, 1) and whole.dtype == dtype
            exact = x.double().mean(-1, True)
            limit = 2 * (x.mean(-1, True) - exact).abs().max() + 3 * torch.finfo(dtype).eps
            assert (whole - exact).abs().max() <= limit
            _same_in_any_company(lambda rows: row_means(rows, True), x, whole)
    odd = x.view(2, 35, -1)
    with RowMeans():
        assert torch.equal(odd.mean(-1), row_means(x).view(2, 35))
        assert torch.equal(torch.mean(odd, dim=-1, keepdim=True), row_means(odd, True))
        assert torch.equal(odd.mean(0), torch.mean(odd, 0)) and odd.mean().dim() == 0
        assert torch.equal(odd.mean(-1, dtype=torch.float64), odd.double().mean(-1))
        assert torch.equal(odd[0, 0].mean(-1), row_means(odd[0, 0])) and odd[0, 0].mean(-1).dim() == 0
        assert odd[..., :0].mean(-1).isnan().all()


def _same_in_any_company(apply: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, whole: torch.Tensor) -> None:
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(2))
    assert torch.equal(apply(x[order]), whole[order])
    for start, count in ((0, 1), (66, 1), (3, 7), (1, 65)):
        assert torch.equal(apply(x[start : start + count]), whole[start : start + count])


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True, warn_only=True)  # new memory is filled with NaN
    hasten()
    check_linear("cpu")
    check_means("cpu")
    print("all well")
