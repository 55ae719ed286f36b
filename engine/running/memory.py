"""How much memory there is, on a host and for a KV cache, and how the C library keeps what a step on CPU frees."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 1 << 30
CPU_CACHE_BYTES, CPU_CACHE_SHARE = 4 << 30, 1 / 4
"""What a KV cache on a host takes: so much at most, and so much of its spare memory."""
CACHE_SHARE = 0.8
"""Of the memory that is free on a GPU; the rest is for what a step needs."""


def cache_bytes(device: torch.device, kv_cache_gb: float | None, context: int = 0) -> int:
    """What a KV cache made now may have: `kv_cache_gb` (GiB), or a share of what is free on its device.

    On a host it holds a `context` (bytes) where half of what is spare does, and otherwise is a power of two, so that
    another run, with about as much to spare, has as large a cache: how long a prompt may be can depend on that.
    """
    if kv_cache_gb is not None:
        return int(kv_cache_gb * (1 << 30))
    if device.type != "cuda":
        spare = spare_memory()
        share = CPU_CACHE_BYTES if spare is None else min(CPU_CACHE_BYTES, int(CPU_CACHE_SHARE * spare))
        most = CPU_CACHE_BYTES if spare is None else min(CPU_CACHE_BYTES, spare // 2)
        return max(1 << max(0, share.bit_length() - 1), context if context <= most else 0)
    torch.cuda.empty_cache()  # what torch holds and nobody uses would not count as free
    free, _ = torch.cuda.mem_get_info(device)
    return int(CACHE_SHARE * free)


def spare_memory() -> int | None:
    """Bytes that programs can have without swapping, as Linux reckons, a container's limit included; None elsewhere."""
    found: list[int] = []
    with suppress(OSError, KeyError, ValueError):
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        found.append(int(lines["MemAvailable"].removesuffix("kB")) << 10)
    with suppress(OSError, ValueError):  # where there is no limit it is "max"
        most, taken = (int((CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        found.append(max(0, most - taken + _file_pages()))
    return min(found, default=None)


def _file_pages() -> int:
    """What a container's memory holds of files, such as weights read a while ago: the kernel takes it back at need."""
    with suppress(OSError, KeyError, ValueError):
        lines = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        return int(lines["active_file"]) + int(lines["inactive_file"])
    return 0


def give_back_freed_memory() -> None:
    """Have glibc return to the kernel what it keeps."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


@cache
def keep_freed_memory() -> bool:
    """Have glibc reuse freed blocks of up to a gigabyte, not return them to the kernel; says whether it could.

    A step frees and allocates the same tens of megabytes in every layer, and the kernel clears each page it gives back.
    Two pairs of the examples, 2 cores: 421, 410, 454 tokens/s and 290,000 to 560,000 page faults a call before; 527,
    514, 488 tokens/s and 2,000 to 3,000 faults (after the first call) with it.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # absent from musl
    return mallopt is not None and all(mallopt(name, KEPT_BYTES) for name in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD))
