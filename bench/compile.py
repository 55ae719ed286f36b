"""`adjudge bench compile`: machine code of every Triton kernel for GPUs that are not here, and what it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from adjudge.kernels import restricted_head_triton
from adjudge.kernels.ahead_of_time import MachineCode, record
from adjudge.kernels.restricted_head_arguments import Head, Labels, Normalizer

CAPABILITIES = (80, 90, 100)
HEADS = ((3584, 152_064), (576, 49_152))
LABELS = (5, 64)


@dataclass(frozen=True)
class Compiled:
    """A launch in words and the machine code it came to."""

    what: str
    code: MachineCode


def compile_kernels(capabilities: tuple[int, ...] = CAPABILITIES) -> Iterator[Compiled]:
    """Compile, in bf16, every kernel as it is launched for the sizes that matter; equal launches once."""
    seen: set[str] = set()
    for what, run, module in _head_launches():
        for capability in capabilities:
            for launch in record(run, capability, module):
                kind = f"{launch.kernel.__name__} {capability} {sorted(launch.specialisation().items())}"
                if kind not in seen:
                    seen.add(kind)
                    yield Compiled(what, launch.compile())


def report(compiled: list[Compiled]) -> Table:
    """A line a kernel: registers, spilled bytes and shared memory, target by target."""
    capabilities = sorted({one.code.capability for one in compiled})
    table = Table("kernel", "launch (bf16)", box=None, pad_edge=False, header_style="bold")
    for capability in capabilities:
        table.add_column(f"sm_{capability}: registers, spilled, shared", justify="right")
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
    Console(width=None if Console().is_terminal else 150).print(report(compiled))


def _head_launches() -> Iterator[tuple[str, Callable[[], object], ModuleType]]:
    for width, vocabulary in HEADS:
        for count in LABELS:
            size = f"D {width}, V {vocabulary}, K {count}"
            for what, normalizer, everything, per_row in (
                ("set", "set", False, False),
                ("set, all features", "set", True, False),
                ("a set a row, all features", "set", True, True),
                ("both, all features", "both", True, False),
            ):
                run = _head_launch(width, vocabulary, count, normalizer, everything, per_row)  # type: ignore[arg-type]
                yield f"{size}: {what}", run, restricted_head_triton


def _head_launch(
    width: int, vocabulary: int, count: int, normalizer: Normalizer, everything: bool, per_row: bool
) -> Callable[[], object]:
    """A call of the restricted head on tensors without memory."""
    n = 4096

    def floats(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    def integers(length: int) -> torch.Tensor:
        return torch.empty(length, dtype=torch.int64, device="meta")

    head = Head(floats(vocabulary, width), None, 1e-6, None, None, 1.0)
    total = n * count if per_row else count
    offsets = integers(n + 1 if per_row else 2)
    labels = Labels(not per_row, integers(total), offsets, None, offsets, total, None, None)
    rows = None
    if everything:
        head = Head(head.weight_VD, floats(width), 1e-6, floats(vocabulary), 30.0, 0.7)
        values = floats(total, dtype=torch.float32)
        labels = Labels(not per_row, labels.token_ids, offsets, integers(total), offsets, total, values, integers(n))
        rows = integers(n)
    hidden_ND = floats(2 * n, width)
    return lambda: restricted_head_triton.triton_scores(hidden_ND, rows, n, head, labels, normalizer)
