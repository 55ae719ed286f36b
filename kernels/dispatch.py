"""Which implementation of a kernel runs: Triton on CUDA, torch elsewhere, or the one `ADJUDGE_KERNELS` names."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
        if problem := triton_problem(device):
            raise BackendUnavailable(f'ADJUDGE_KERNELS is "triton" but {problem}')
        return "triton"
    if forced:
        raise BackendUnavailable(f'ADJUDGE_KERNELS is "{forced}": set it to "torch" or "triton", or leave it unset')
    return "triton" if device.type == "cuda" and _has_triton() else "torch"


_assumed = ContextVar("capability of tensors that are not on CUDA", default=90)


def capability(device: torch.device) -> int:
    """The CUDA compute capability (80, 90, 100, …) that tiles are chosen for; elsewhere the one assumed."""
    if device.type != "cuda":
        return _assumed.get()
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


@contextmanager
def assuming(capability: int) -> Iterator[None]:
    """Within the block, launches for tensors that are not on CUDA are those for devices of this capability."""
    token = _assumed.set(capability)
    try:
        yield
    finally:
        _assumed.reset(token)


def triton_problem(device: torch.device) -> str | None:
    """Why Triton kernels cannot run on tensors there, or None if they can."""
    if not _has_triton():
        return "triton is not installed: install it"
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return (
            f"the tensors are on {device.type}: move them to CUDA, "
            "or set TRITON_INTERPRET=1 before triton is imported to run its (slow) interpreter"
        )
    return None


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
