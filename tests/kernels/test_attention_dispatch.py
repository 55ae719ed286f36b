"""Which back end serves attention, and why another cannot."""

from __future__ import annotations

import pytest
import torch

from adjudge.kernels import attention
from adjudge.kernels.attention import attention_backend, attention_block_size, is_batch_invariant
from adjudge.kernels.attention_library import AttentionKind
from adjudge.kernels.dispatch import BackendUnavailable

CPU = torch.device("cpu")
CUDA = torch.device("cuda")


class Library:
    """A library that serves blocks of some sizes only."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes

    def problem(self, kind: AttentionKind) -> str | None:
        fits = kind.block_size in self.sizes and kind.device.type == "cuda"
        return None if fits else f"no blocks of {kind.block_size} on {kind.device.type}"

    def __call__(self) -> None: ...


@pytest.fixture(autouse=True)
def unforced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADJUDGE_ATTENTION", raising=False)


def served_by(device: torch.device, block_size: int = 16) -> str:
    return attention_backend(AttentionKind(device, torch.bfloat16, 64, 64, block_size))[0]


def test_on_a_cpu_it_is_torch_whatever_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert served_by(CPU) == served_by(CPU, 256) == "torch"
    monkeypatch.setenv("ADJUDGE_ATTENTION", "torch")
    assert served_by(CPU) == "torch"


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
    monkeypatch.setenv("ADJUDGE_ATTENTION", forced)
    with pytest.raises(BackendUnavailable, match=reason):
        served_by(CPU)


def test_libraries_come_first_on_cuda_and_the_cache_has_the_blocks_they_want(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "LIBRARIES", {"flash": (Library(256),), "varlen": (Library(16),)})
    assert served_by(CUDA, 256) == "flash" and served_by(CUDA, 16) == "varlen"
    assert attention_block_size(CUDA, torch.bfloat16, 64) == 256
    assert attention_block_size(CPU, torch.float32, 64) == 16
    monkeypatch.setenv("ADJUDGE_ATTENTION", "varlen")
    assert attention_block_size(CUDA, torch.bfloat16, 64) == 16


def test_without_libraries_cuda_gets_our_kernel_which_is_batch_invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    kind = AttentionKind(CUDA, torch.bfloat16, 64, 64, 16)
    monkeypatch.setattr(attention, "LIBRARIES", {"flash": (Library(16),), "varlen": (Library(),)})
    assert not is_batch_invariant(kind)
    monkeypatch.setattr(attention, "LIBRARIES", {"flash": (Library(),), "varlen": (Library(),)})
    assert served_by(CUDA) == "triton" and is_batch_invariant(kind)
    wide = AttentionKind(CUDA, torch.bfloat16, 576, 512, 16)  # no tile of which could be launched
    assert attention_backend(wide)[0] == "torch"
    assert attention_block_size(CUDA, torch.bfloat16, 64) == 16
