"""Which implementation of a kernel runs: Triton on CUDA, torch elsewhere, or the one `ADJUDGE_KERNELS` names."""

import os
from functools import cache
from importlib.util import find_spec
from typing import Literal

import torch

Backend = Literal["torch", "triton"]


class BackendUnavailable(RuntimeError):
    """`ADJUDGE_KERNELS` asks for an implementation that cannot run here."""


def kernel_backend(device: torch.device) -> Backend:
    """Name the implementation for tensors on `device`; it never depends on how many rows there are."""
    forced = os.environ.get("ADJUDGE_KERNELS", "")
    if forced == "torch":
        return "torch"
    if forced == "triton":
        _require_triton(device)
        return "triton"
    if forced:
        raise BackendUnavailable(f'ADJUDGE_KERNELS is "{forced}": set it to "torch" or "triton", or leave it unset')
    return "triton" if device.type == "cuda" and _has_triton() else "torch"


def _require_triton(device: torch.device) -> None:
    if not _has_triton():
        raise BackendUnavailable('ADJUDGE_KERNELS is "triton" but triton is not installed: install it, or unset it')
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise BackendUnavailable(
            f'ADJUDGE_KERNELS is "triton" but the tensors are on {device.type}: move them to CUDA, '
            "or set TRITON_INTERPRET=1 before triton is imported to run its (slow) interpreter"
        )


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
