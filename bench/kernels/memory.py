"""The most memory that a call needs beyond what was there before it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from adjudge.engine.running.memory import spare_memory


class PeakMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of tensors made under it: alive now, and at most at one time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = 0
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        known = {_memory_of(x)[0] for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and (memory := _memory_of(tensor))[0] not in known:
                _, size, holder = memory
                self.alive += size
                self.peak = max(self.peak, self.alive)
                weakref.finalize(holder, self._forget, size)
        return result

    def _forget(self, size: int) -> None:
        self.alive -= size


def _memory_of(tensor: Tensor) -> tuple[int, int, object]:
    """Where a tensor's numbers are, in how many bytes, and what holds them: in oneDNN's layout it has no storage."""
    if tensor.is_mkldnn:
        return id(tensor), tensor.nbytes, tensor
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes(), storage


def peak_bytes(run: Callable[[], object], device: torch.device) -> int:
    """Run once and tell the most bytes of tensors it held, its result included."""
    if device.type != "cuda":
        with PeakMemory() as memory:
            run()
        peak: int = memory.peak
        return peak
    torch.cuda.synchronize(device)
    before: int = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run()
    torch.cuda.synchronize(device)
    most: int = torch.cuda.max_memory_allocated(device)
    return most - before


def free_bytes(device: torch.device) -> float:
    """What can still be allocated; infinite where nobody knows."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return float(torch.cuda.mem_get_info(device)[0])
    spare = spare_memory()
    return inf if spare is None else spare
