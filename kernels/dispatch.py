"""Which implementation of a kernel runs: Triton on CUDA, torch elsewhere, or the one `ADJUDGE_KERNELS` names."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, wraps
from importlib.util import find_spec
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import torch

Backend = Literal["torch", "triton"]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


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
    return _card(device)[0] if device.type == "cuda" else _assumed.get()


SHARED_MEMORY = {75: 65_536, 80: 166_912, 86: 101_376, 89: 101_376, 90: 232_448, 100: 232_448, 120: 101_376}


def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a program may have there; elsewhere than on CUDA by the capability assumed."""
    return _card(device)[1] if device.type == "cuda" else SHARED_MEMORY[_assumed.get()]


@cache
def _card(device: torch.device) -> tuple[int, int]:
    """Capability and shared memory of a CUDA device."""
    from triton.runtime import driver

    (major, minor), index = torch.cuda.get_device_capability(device), device.index
    properties = driver.active.utils.get_device_properties(torch.cuda.current_device() if index is None else index)
    return 10 * major + minor, properties["max_shared_mem"]


@contextmanager
def assuming(capability: int) -> Iterator[None]:
    """Within the block, launches for tensors that are not on CUDA are those for devices of this capability."""
    token = _assumed.set(capability)
    try:
        yield
    finally:
        _assumed.reset(token)


def launching_on(device: torch.device) -> AbstractContextManager[Any]:
    """A block in which Triton launches there: on CUDA it takes the current device, wherever its tensors are."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def launcher(
    function: Callable[Concatenate[torch.Tensor, Arguments], Result],
) -> Callable[Concatenate[torch.Tensor, Arguments], Result]:
    """The function, which launches Triton kernels where its first argument is."""

    @wraps(function)
    def run(tensor: torch.Tensor, /, *args: Arguments.args, **named: Arguments.kwargs) -> Result:
        with launching_on(tensor.device):
            return function(tensor, *args, **named)

    return run


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
