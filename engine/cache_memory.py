"""How much of a device's memory the KV cache of an engine may have, beside those of other engines of the process."""

from __future__ import annotations

from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch

CPU_CACHE_BYTES = 4 << 30
SHARE = 0.8
"""Of the memory that is free on a GPU and promised to nobody; the rest is for what a step needs."""

_promised: WeakKeyDictionary[Any, tuple[torch.device, int]] = WeakKeyDictionary()
_lock = Lock()


def promise(owner: Any, device: torch.device, kv_cache_gb: float | None) -> int:
    """Bytes for the cache of `owner`: `kv_cache_gb` (GiB), or on a GPU a share of what is free there now.

    A cache is made when it is first needed. Until `settle` says that it was, its bytes do not count as free for others.
    """
    with _lock:
        _promised.pop(owner, None)
        if kv_cache_gb is not None:
            count = int(kv_cache_gb * (1 << 30))
        elif device.type == "cuda":
            others = sum(promised for where, promised in list(_promised.values()) if where == device)
            count = int(SHARE * max(0, _free(device) - others))
        else:
            count = CPU_CACHE_BYTES
        _promised[owner] = (device, count)
        return count


def settle(owner: Any) -> None:
    """The owner has made its cache, or wants none now."""
    with _lock:
        _promised.pop(owner, None)


def _free(device: torch.device) -> int:
    torch.cuda.empty_cache()  # what torch holds and nobody uses would not count as free
    free, _ = torch.cuda.mem_get_info(device)
    return free
