"""How long a call takes: variants in turn, buffers that the cache cannot hold, a GPU that always has work queued."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from adjudge.bench.kernels.limits import Ceilings, Work

BATCH_SECONDS = {"cpu": 0.02, "cuda": 0.002}
MOST_CALLS = {"cpu": 1000, "cuda": 50}  # a GPU's queue holds about a thousand launches
LEAST_ROUNDS = 5
CPU_CACHE_BYTES = 64 << 20  # a core's own caches many times over; the last one of a large server may still hold more
GPU_CLOCK = 2e9  # cycles a second, about
LONGEST_BACKLOG = 0.2  # seconds


@dataclass(frozen=True)
class Variant:
    """One way to do a case: `run(i)` does it on the i-th set of buffers, `answer` shows what is compared."""

    name: str
    run: Callable[[int], Any]
    answer: Callable[[Any], Tensor] | None = None  # None: there is nothing to compare
    work: Work | None = None  # an estimate of its cost, where there is one
    memory: int = 0  # an estimate of the bytes it needs
    compiled: bool = False


def itself(output: Tensor) -> Tensor:
    """The answer of a variant that gives nothing else."""
    return output


def cache_bytes(device: torch.device) -> int:
    """Bytes that inputs must exceed for a call not to find them in the cache: twice its size."""
    if device.type != "cuda":
        return 2 * CPU_CACHE_BYTES
    return 2 * int(torch.cuda.get_device_properties(device).L2_cache_size)


def synchronize(device: torch.device) -> None:
    """Wait until the device has nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass(frozen=True)
class Times:
    """Seconds a call, one for each round, and of the host alone (None on CPU)."""

    rounds: list[float]
    host: float | None


def time_variants(variants: Sequence[Variant], device: torch.device, rounds: int, budget: float) -> list[Times]:
    """Time variants that have run before: a batch of calls each, `rounds` times.

    The order is another in each round: where it only rotated, a variant would always follow the same one, and find the
    caches and the allocator as that one leaves them. For the same reason a batch of several begins with a call untimed.
    A variant whose rounds would take longer than `budget` seconds has fewer, but at least LEAST_ROUNDS.
    """
    hosts, calls, planned = [], [], []
    for variant in variants:
        count = 1
        for _ in range(2):  # one call tells how many a batch has, and these how long one of many takes
            host, seconds = _unqueued(variant.run, device, count)
            count = min(MOST_CALLS[device.type], max(1, int(BATCH_SECONDS[device.type] / seconds)))
            if count == 1:
                break
        hosts.append(host)
        calls.append(count)
        planned.append(max(LEAST_ROUNDS, int(min(rounds, budget / (count * seconds)))))
    times: list[list[float]] = [[] for _ in variants]
    shuffled = random.Random(0)
    for turn in range(max(planned, default=0)):
        for i in shuffled.sample(range(len(variants)), len(variants)):
            if turn < planned[i]:
                if calls[i] > 1:
                    variants[i].run((turn + 1) * calls[i])
                times[i].append(_batch(variants[i].run, turn * calls[i], calls[i], device, hosts[i]))
    return [Times(t, host if device.type == "cuda" else None) for t, host in zip(times, hosts, strict=True)]


def _unqueued(run: Callable[[int], Any], device: torch.device, calls: int) -> tuple[float, float]:
    """Seconds a call until the host has it behind it, and until the device has; the device idle before."""
    synchronize(device)
    started = time.perf_counter()
    for i in range(calls):
        run(i)
    host = time.perf_counter() - started
    synchronize(device)
    return host / calls, (time.perf_counter() - started) / calls


def _batch(run: Callable[[int], Any], first: int, calls: int, device: torch.device, host: float) -> float:
    """Seconds a call, of `calls` in a row.

    On CUDA the device is kept busy before the first until the host has queued them all, so that what is measured is the
    device's time and not the gaps between launches; a call that waits for the device itself shows the host's time too.
    """
    if device.type != "cuda":
        started = time.perf_counter()
        for i in range(first, first + calls):
            run(i)
        return (time.perf_counter() - started) / calls
    with torch.cuda.device(device):  # whose streams events and the sleep are of
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(device)
        backlog = min(LONGEST_BACKLOG, 1.5 * host * calls + 1e-4)
        torch.cuda._sleep(int(GPU_CLOCK * backlog))  # type: ignore[no-untyped-call]
        begin.record()
        for i in range(first, first + calls):
            run(i)
        end.record()
        torch.cuda.synchronize(device)
    return float(begin.elapsed_time(end)) / 1e3 / calls


def launches(run: Callable[[], object], device: torch.device) -> int | None:
    """Kernels that a call launches, copies and fills not counted; None on CPU, or where the profiler sees none."""
    if device.type != "cuda":
        return None
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    try:
        with torch.profiler.profile(activities=activities) as profile:
            run()
            torch.cuda.synchronize(device)
    except RuntimeError:  # a machine may keep its profiler to itself
        return None
    kernels = [
        event
        for event in profile.events() or ()
        if str(event.device_type) == "DeviceType.CUDA"
        and not getattr(event, "is_user_annotation", False)
        and not event.name.startswith(("Memcpy", "Memset", "Torch-Compiled", "## Call"))
    ]
    return len(kernels) or None


def measure_ceilings(device: torch.device, dtype: torch.dtype) -> Ceilings:
    """The bandwidth of a large copy, or of reading alone where that is more, and the rate of a large square matmul."""
    size = (1 << 30) if device.type == "cuda" else (256 << 20)
    side = 8192 if device.type == "cuda" else 1024
    source = torch.randint(256, (size,), dtype=torch.uint8, device=device)  # zeros may move faster than data do
    target = torch.empty_like(source)
    left, right, out = (torch.randn(side, side, device=device).to(dtype) for _ in range(3))
    numbers = torch.randn(size // 4, device=device)
    variants = [
        Variant("copy", lambda _: target.copy_(source)),
        Variant("read", lambda _: numbers.sum()),
        Variant("matmul", lambda _: torch.mm(left, right, out=out)),
    ]
    for variant in variants:
        _unqueued(variant.run, device, 3)
    copy, read, matmul = (median(times.rounds) for times in time_variants(variants, device, rounds=9, budget=2.0))
    return Ceilings(max(2 * size / copy, size / read), 2.0 * side**3 / matmul)
