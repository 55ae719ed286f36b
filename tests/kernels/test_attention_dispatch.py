"""Which back end serves attention, and why another cannot."""

from __future__ import annotations

import pytest
import torch

from adjudge.kernels import attention
from adjudge.kernels.attention import attention_backend, attention_block_size
from adjudge.kernels.dispatch import BackendUnavailable

CPU = torch.device("cpu")
CUDA = torch.device("cuda")


class Library:
    """A library that serves blocks of some sizes only."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes

    def available(self, device: torch.device, dtype: torch.dtype, w: int, v: int, size: int, *_: object) -> str | None:
        return None if size in self.sizes and device.type == "cuda" else f"no blocks of {size} on {device.type}"

    def __call__(self) -> None: ...


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    attention_backend.cache_clear()
    monkeypatch.delenv("ADJUDGE_ATTENTION", raising=False)


def test_on_a_cpu_it_is_torch_whatever_is_installed() -> None:
    assert attention_backend(CPU, torch.float32, 64, 64, 16)[0] == "torch"
    assert attention_backend(CPU, torch.bfloat16, 64, 64, 256, 128, 30.0, forced="torch")[0] == "torch"


@pytest.mark.parametrize(
    ("forced", "reason"),
    [
        ("flash", "needs CUDA.*; .*needs CUDA"),
        ("varlen", "needs CUDA"),
        ("triton", "TRITON_INTERPRET=1|not installed"),
        ("sdpa", "flash, varlen, triton, torch, or leave it unset"),
    ],
)
def test_a_back_end_that_cannot_serve_says_why(forced: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(BackendUnavailable, match=reason):
        attention_backend(CPU, torch.float32, 64, 64, 16, forced=forced)


def test_libraries_come_first_on_cuda_and_the_cache_has_the_blocks_they_want(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "LIBRARIES", {"flash": (Library(256),), "varlen": (Library(16),)})
    assert attention_backend(CUDA, torch.bfloat16, 64, 64, 256)[0] == "flash"
    assert attention_backend(CUDA, torch.bfloat16, 64, 64, 16)[0] == "varlen"
    assert attention_block_size(CUDA, torch.bfloat16, 64, 64) == 256
    assert attention_block_size(CPU, torch.float32, 64, 64) == 16
    monkeypatch.setenv("ADJUDGE_ATTENTION", "varlen")
    assert attention_block_size(CUDA, torch.bfloat16, 64, 64) == 16


def test_without_libraries_cuda_gets_our_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    monkeypatch.setattr(attention, "LIBRARIES", {"flash": (Library(),), "varlen": (Library(),)})
    assert attention_backend(CUDA, torch.bfloat16, 64, 64, 16)[0] == "triton"
    assert attention_block_size(CUDA, torch.bfloat16, 64, 64) == 16
