"""Paged attention compiled for CPUs with AVX2 or AVX-512, in float32: keys and values are read where they are cached.

A work item is a run of one sequence's positions with the query heads of one KV head, up to CHUNK rows. It transposes
KEYS keys at a time, once, and then takes ROWS rows at a time: scores, a step of an online softmax, values, all three in
the vectors of `vectors_numba`. The items run on torch's own OpenMP threads: a second pool would wait for cores on which
torch's spins.

Ladder (an AMD EPYC with AVX-512, 9 query heads on 3 KV heads of 64, one thread, medians of seven; ms a layer)
                                          a prompt of 1,024   24 questions of 25 after 560   12 tokens after 560
1. torch's fused attention in tiles                    18.4                           15.3                   2.0
2. vectors, each key transposed number by number        8.3                            7.5                   1.4
3. keys transposed 16 by 16 within registers            7.6                            5.1                   0.31
4. masks, copies and quotients in vectors (this one)    7.3                            4.8                   0.26

With AVX2, in vectors of 8 (another AMD EPYC, least of 21): 27.4 in torch's tiles and 21.7 here, 25.2 and 16.3, 3.9 and
1.4. Blocks of 32 or 96 keys take as long. Six rows at a time take up to a fifth less in prefill, with heads of 128, as
long on a judge's batch, and up to a third longer where each has a token to write.

Batch invariance: keys are cut at multiples of KEYS positions, the sums of a row run over them in order, and a block
that a row does not see changes none of its bits. So its bits depend on no tile, run, neighbour or thread.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from llvmlite import binding
from numba import cfunc, config, types
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from adjudge.kernels import vectors_numba
from adjudge.kernels.attention_library import seen_bad
from adjudge.kernels.paged_kv import PagedBatch, PagedKV
from adjudge.kernels.vectors_numba import (
    COLUMNS,
    FLOAT_BYTES,
    KEYS,
    LANES,
    ROWS,
    SLOT_BYTES,
    add_values_narrow,
    add_values_wide,
    divide_into,
    fetch_add,
    fill,
    integer,
    multiply_keys,
    scale_into,
    softmax_step,
    transpose,
)

CHUNK = 256
"""Rows of an item: their queries and sums fit into a core's second cache, and there is work for every thread."""
RUN = 4
ARGUMENTS = 20
NO_WINDOW = 1 << 40


def numba_attention(
    query_THD: torch.Tensor,
    cache: PagedKV,
    batch: PagedBatch,
    *,
    scale: float,
    sliding_window: int | None,
    softcap: None = None,
) -> torch.Tensor:
    """`paged_attention` for the kinds of calls in which `attention.numba_problem` sees no problem."""
    _, heads, width = query_THD.shape
    kv_heads, value_width = cache.value.shape[2:]
    assert cache.key.dtype == cache.value.dtype == query_THD.dtype == torch.float32
    assert cache.key.is_contiguous() and cache.value.is_contiguous()
    plan = _planned(batch, heads // kv_heads)
    if query_THD.stride(2) != 1:
        query_THD = query_THD.contiguous()
    output = query_THD.new_empty(batch.rows, heads, value_width)
    output[batch.filled :] = 0
    tallest = -(-max(CHUNK, heads // kv_heads) // LANES) * LANES  # whole tiles
    each = tallest * (width + value_width + 2) + width * KEYS + ROWS * KEYS + LANES
    threads = max(1, min(torch.get_num_threads(), len(plan.runs) * kv_heads))
    scratch = query_THD.new_empty(threads, each)
    arguments = np.array(
        [
            *(0, 0),  # tickets of threads and of items
            len(plan.runs) * kv_heads,
            *(tensor.data_ptr() for tensor in (query_THD, cache.key, cache.value, output, scratch)),
            *(numbers.ctypes.data for numbers in (plan.runs, plan.slots)),
            *query_THD.stride()[:2],
            *(heads, kv_heads, width, value_width),
            NO_WINDOW if sliding_window is None else sliding_window,
            *(tallest, each, np.float64(scale).view(np.int64)),
        ],
        np.int64,
    )
    kernel, address = _kernel(), arguments.ctypes.data
    if threads > 1:  # each takes the next item until there is none
        _parallel()(kernel.address, address, threads, 0)
    else:
        kernel.ctypes(address)
    if cache.bad.view(-1, batch.block_size).index_select(0, plan.blocks).any():
        output.masked_fill_(seen_bad(cache, batch, sliding_window)[:, None, None], torch.nan)
    return output


def compilation_problem() -> str | None:
    """Why the kernel cannot be compiled and run here, or None if it can."""
    features = binding.get_host_cpu_features()
    if not (features.get("avx512f") or (features.get("avx2") and features.get("fma"))):
        return "our compiled attention needs a CPU with AVX2"
    if getattr(config, "DISABLE_JIT", 0):
        return "numba is told to compile nothing (NUMBA_DISABLE_JIT)"
    try:
        _parallel()
        _kernel()
    except Exception as error:  # torch's tiles serve as well
        return f"our compiled attention does not compile, or torch's threads cannot be reached ({error})"
    return None


class _Plan(NamedTuple):
    """The work on a batch, for all layers: `runs` [N, 4] of row, position, positions and where in `slots` keys begin.

    `slots` are those of each sequence's positions, up to a multiple of KEYS (of block 0 beyond its end); `blocks` are
    those that any sequence has.
    """

    runs: NDArray[np.int64]
    slots: NDArray[np.int64]
    blocks: torch.Tensor


def _planned(batch: PagedBatch, group: int) -> _Plan:
    kind = ("numba", group)
    if kind not in batch.plans:
        batch.plans[kind] = _plan(batch, max(1, CHUNK // group))
    plan: _Plan = batch.plans[kind]
    return plan


def _plan(batch: PagedBatch, positions: int) -> _Plan:
    """The plan with runs of up to so many positions."""
    runs: list[tuple[int, int, int, int]] = []
    slots: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    first = 0
    for sequence in batch.sequences:
        end = sequence.start + sequence.length
        for start in range(sequence.start, end, positions):
            runs.append((sequence.row + start - sequence.start, start, min(positions, end - start), first))
        slots.append(np.zeros(-(-end // KEYS) * KEYS, np.int64))
        slots[-1][:end] = sequence.slots(batch.block_size)
        first += len(slots[-1])
    return _Plan(
        np.array(runs, np.int64).reshape(-1, 4), np.concatenate(slots), torch.from_numpy(np.unique(batch.host_table))
    )


@cache
def _parallel() -> Callable[[int, int, int, int], None]:
    """`GOMP_parallel` of the OpenMP library that torch itself runs on."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    found: Any = library.GOMP_parallel
    found.argtypes, found.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return found  # type: ignore[no-any-return]


@cache
def _kernel() -> Any:
    """What a thread does, compiled: it takes items until there is none."""
    compiled = partial(cfunc, types.void(types.voidptr), error_model="numpy")
    digest = hashlib.blake2b(Path(vectors_numba.__file__).read_bytes(), digest_size=8).hexdigest()
    # numba keeps it under this name; of changes it sees this file's alone
    _work.__qualname__ = f"_work_{LANES}_{digest}"
    try:
        return compiled(cache=True)(_work)
    except Exception:  # where it keeps things is missing, full or spoilt
        return compiled()(_work)


def _work(arguments):  # type: ignore[no-untyped-def]
    given = carray(arguments, (ARGUMENTS,), np.int64)
    items, query, key, value, output, scratch, runs, all_slots, row_stride, head_stride, heads, kv_heads = given[2:14]
    width, value_width, window, tallest, each = given[14:19]
    scale = np.float32(given[19:].view(np.float64)[0])
    group, key_stride, value_stride = heads // kv_heads, kv_heads * width, kv_heads * value_width
    tickets = given.ctypes.data
    queries = scratch + FLOAT_BYTES * each * fetch_add(tickets)
    sums = queries + FLOAT_BYTES * tallest * width
    largest = sums + FLOAT_BYTES * tallest * value_width
    total = largest + FLOAT_BYTES * tallest
    transposed = total + FLOAT_BYTES * tallest
    scores = transposed + FLOAT_BYTES * width * KEYS
    rescale = scores + FLOAT_BYTES * ROWS * KEYS
    while True:
        item = fetch_add(tickets + SLOT_BYTES)
        if item >= items:
            break
        run, head = runs + SLOT_BYTES * RUN * (item // kv_heads), item % kv_heads
        first_row, start, length, first_slot = integer(run, 0), integer(run, 1), integer(run, 2), integer(run, 3)
        rows = length * group
        tiles = -(-rows // ROWS)
        for row in range(tiles * ROWS):
            one = min(row, rows - 1)  # the last one again, up to the end of its tile
            place = (first_row + one // group) * row_stride + (head * group + one % group) * head_stride
            scale_into(query + FLOAT_BYTES * place, scale, queries + FLOAT_BYTES * row * width, width)
        fill(sums, np.float32(0), tiles * ROWS * value_width)
        fill(largest, np.float32(-np.inf), tallest)
        fill(total, np.float32(0), tallest)
        seen = max(0, start - window + 1)  # the first position that any row sees
        for block in range(seen // KEYS * KEYS, start + length, KEYS):
            slots = all_slots + SLOT_BYTES * (first_slot + block)
            for d in range(0, width, LANES):
                for lane in range(0, KEYS, LANES):
                    into = transposed + FLOAT_BYTES * (d * KEYS + lane)
                    transpose(key + FLOAT_BYTES * (head * width + d), key_stride, slots + SLOT_BYTES * lane, into)
            for row in range(max(0, block - start) * group // ROWS * ROWS, rows, ROWS):
                if start + row // group - window + 1 >= block + KEYS:
                    break
                multiply_keys(queries + FLOAT_BYTES * row * width, transposed, scores, width)
                for other in range(ROWS):
                    end = start + min(row + other, rows - 1) // group + 1 - block
                    one = FLOAT_BYTES * (row + other)
                    into = scores + FLOAT_BYTES * other * KEYS
                    softmax_step(into, end - window, end, largest + one, total + one, rescale + FLOAT_BYTES * other)
                column = 0
                while column < value_width:
                    values = value + FLOAT_BYTES * (head * value_width + column)
                    into = sums + FLOAT_BYTES * (row * value_width + column)
                    if value_width - column >= COLUMNS:
                        add_values_wide(scores, rescale, values, value_stride, slots, into, value_width)
                        column += COLUMNS
                    else:
                        add_values_narrow(scores, rescale, values, value_stride, slots, into, value_width)
                        column += LANES
        for row in range(rows):
            place = (first_row + row // group) * heads + head * group + row % group
            into = output + FLOAT_BYTES * place * value_width
            divide_into(sums + FLOAT_BYTES * row * value_width, total + FLOAT_BYTES * row, into, value_width)
