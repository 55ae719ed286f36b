"""`adjudge bench compile`: machine code of every Triton kernel for GPUs that are not here, and what it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Column, Table

from adjudge.bench.kernels.ahead_of_time import MachineCode, record
from adjudge.kernels import (
    attention_triton,
    kv_write_triton,
    linear_triton,
    restricted_head_triton,
    row_means_triton,
)
from adjudge.kernels.paged_kv import PagedBatch, PagedKV, PagedSequence
from adjudge.kernels.restricted_head_arguments import HeadWeights, LabelRows, Normalizer
from adjudge.training.terminal import open_console, plain_table, right

CAPABILITIES = (80, 86, 90, 100, 120)
HEADS = ((3584, 152_064), (576, 49_152))
LABELS = (5, 64)
# dtype, width, query heads, KV heads, block size, and of a window, a softcap and sinks those there are
ATTENTION: tuple[tuple[torch.dtype, int, int, int, int, dict[str, Any]], ...] = (
    (torch.bfloat16, 64, 9, 3, 16, {}),
    (torch.bfloat16, 64, 64, 8, 16, {"sliding_window": 128, "sinks": torch.empty(64, device="meta")}),
    (torch.bfloat16, 80, 24, 3, 48, {}),
    (torch.bfloat16, 128, 24, 8, 16, {}),
    (torch.bfloat16, 128, 32, 4, 256, {}),
    (torch.float16, 256, 16, 8, 32, {"sliding_window": 4096, "softcap": 50.0}),
    (torch.float32, 128, 32, 4, 16, {}),
)
WIDE: tuple[tuple[torch.dtype, int, int, int, int, dict[str, Any]], ...] = ((torch.bfloat16, 512, 8, 1, 16, {}),)
"""Heads of which registers do not hold all: some are spilled."""


Launches = Iterator[tuple[str, Callable[[], object], tuple[ModuleType, ...]]]


@dataclass(frozen=True)
class Compiled:
    """A launch in words and the machine code it came to."""

    what: str
    code: MachineCode


def compile_kernels(capabilities: tuple[int, ...] = CAPABILITIES, in_turn: bool = False) -> Iterator[Compiled]:
    """Compile every kernel as it is launched for the sizes that matter, but equal launches once.

    `in_turn` saves time: only what a kernel is launched for first is compiled for every target, the rest for one target
    after another, and wide heads for none.
    """
    seen: set[tuple[object, ...]] = set()
    launches = (*_head_launches(), *_attention_launches(wide=not in_turn), *_layer_launches())
    for number, (what, run, modules) in enumerate(launches):
        for turn, capability in enumerate(capabilities):
            for launch in record(run, capability, *modules):
                target = launch.kernel.__name__, capability
                kind = *target, *sorted(launch.specialisation().items())
                due = not in_turn or number % len(capabilities) == turn or target not in seen
                if due and kind not in seen:
                    seen |= {target, kind}
                    yield Compiled(what, launch.compile())


def report(compiled: list[Compiled]) -> Table:
    """A line a kernel: registers, spilled bytes and shared memory, target by target."""
    capabilities = sorted({one.code.capability for one in compiled})
    columns = [Column(name, no_wrap=True) for name in ("kernel", "launch")]
    columns += right(*(f"sm_{capability}" for capability in capabilities), no_wrap=True)
    table = plain_table(*columns, caption="registers, spilled bytes, shared bytes")
    rows: dict[tuple[str, str], dict[int, str]] = {}
    for one in compiled:
        needs = f"{one.code.registers}, {one.code.spilled}, {one.code.shared:,}"
        cells = rows.setdefault((one.code.kernel, one.what), {})
        cells[one.code.capability] = f"[red]{needs}[/red]" if one.code.spilled else needs
    for names, cells in rows.items():
        table.add_row(*names, *(cells.get(capability, "") for capability in capabilities))
    return table


def bench_compile() -> None:
    """Compile everything, with a progress bar, and print the table."""
    compiled = list(track(compile_kernels(), "compiling", transient=True, console=Console(stderr=True)))
    open_console(180).print(report(compiled))


def _head_launches() -> Launches:
    for width, vocabulary in HEADS:
        for count in LABELS:
            size = f"D {width}, V {vocabulary}, K {count}"
            for what, normalizer, everything, per_row in (
                ("set", "set", False, False),
                ("set, all features", "set", True, False),
                ("a set a row, all features", "set", True, True),
                ("both, all features", "both", True, False),
            ):
                run = head_launch(width, vocabulary, count, normalizer, everything, per_row)  # type: ignore[arg-type]
                yield f"bf16, {size}: {what}", run, (restricted_head_triton,)


def head_launch(
    width: int, vocabulary: int, count: int, normalizer: Normalizer, everything: bool, per_row: bool, n: int = 4096
) -> Callable[[], object]:
    """A call of the restricted head on tensors without memory."""

    def floats(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    def integers(length: int) -> torch.Tensor:
        return torch.empty(length, dtype=torch.int64, device="meta")

    head = HeadWeights(floats(vocabulary, width), None, 1e-6, None, None, 1.0)
    total = n * count if per_row else count
    offsets = integers(n + 1 if per_row else 2)
    labels = LabelRows(not per_row, integers(total), offsets, None, offsets, total, None, None)
    rows = None
    if everything:
        head = HeadWeights(head.weight_VD, floats(width), 1e-6, floats(vocabulary), 30.0, 0.7)
        values = floats(total, dtype=torch.float32)
        labels = LabelRows(not per_row, labels.token_ids, offsets, integers(total), offsets, total, values, integers(n))
        rows = integers(n)
    hidden_ND = floats(2 * n, width)
    return lambda: restricted_head_triton.triton_scores(hidden_ND, rows, n, head, labels, normalizer)


def _attention_launches(wide: bool) -> Launches:
    for dtype, width, heads, kv_heads, block_size, how in (*ATTENTION, *(WIDE if wide else ())):
        what = f"{str(dtype).removeprefix('torch.')}, D {width}, {heads} heads on {kv_heads}, blocks of {block_size}"
        run = attention_launch(dtype, width, heads, kv_heads, block_size, how)
        yield ", ".join([what, *how]).replace("sliding_", ""), run, (attention_triton, kv_write_triton)


def attention_launch(
    dtype: torch.dtype,
    width: int,
    heads: int,
    kv_heads: int,
    block_size: int,
    how: dict[str, Any],
) -> Callable[[], object]:
    """A write and an attention call of a chunk of 20 rows after 2,000 others, on tensors without memory."""
    states = torch.empty(20, kv_heads, width, dtype=dtype, device="meta")
    query = torch.empty(20, heads, width, dtype=dtype, device="meta")
    places = torch.empty(20, dtype=torch.int64, device="meta")
    cache = PagedKV.empty(200, block_size, states, states)
    batch = PagedBatch((PagedSequence(0, 20, 2000, range(1, 200)),), block_size, 20, places, places)

    def run() -> None:
        kv_write_triton.triton_write_kv(states, states, cache, batch)
        attention_triton.triton_attention(query, cache, batch, **how)

    return run


def _layer_launches() -> Launches:
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for width, outputs, biased in ((3584, 4608, True), (576, 192, False)):
            rows, weight, bias = (
                torch.empty(shape, dtype=dtype, device="meta") for shape in ((64, width), (outputs, width), (outputs,))
            )
            what = f"{str(dtype).removeprefix('torch.')}, D {width}"
            run = partial(linear_triton.triton_linear, rows, weight, bias if biased else None)
            yield f"{what} to {outputs}{', bias' * biased}", run, (linear_triton,)
            yield what, partial(row_means_triton.row_means, rows), (row_means_triton,)
            if dtype != torch.float32 and not biased:
                run = partial(linear_triton.triton_linear, rows, weight, None, torch.float32)
                yield f"{what} to {outputs}, in fp32", run, (linear_triton,)
