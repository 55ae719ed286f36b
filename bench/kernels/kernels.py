"""`adjudge bench kernels`: restricted head and attention beside their peers and limits; checked first, then timed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Literal

import torch
from rich.console import Console
from torch import Tensor

from adjudge.bench.kernels.attention_variants import AttentionInputs, attention_variants, exact_attention
from adjudge.bench.kernels.dispatch_rule import NOT_PEERS, propose
from adjudge.bench.kernels.head_variants import HeadInputs, checked_rows, exact_logprobs, head_variants
from adjudge.bench.kernels.limits import AttentionCase, Ceilings, HeadCase, Work, attention_cases, head_cases
from adjudge.bench.kernels.measurement import Measurement, read_measurements, write_measurements
from adjudge.bench.kernels.memory import free_bytes, peak_bytes
from adjudge.bench.kernels.report import attention_table, head_table, plot_head
from adjudge.bench.kernels.timing import LEAST_ROUNDS, Variant, launches, measure_ceilings, time_variants
from adjudge.bench.machine import commit, describe_machine
from adjudge.engine.devices import choose_device, choose_dtype
from adjudge.engine.errors import AdjudgeError, reason
from adjudge.training.progress import bar
from adjudge.training.terminal import open_console

Kernels = Literal["head", "attention", "all"]

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.02}
"""How far an answer may be from float64 (logits of bf16 have steps of 1/16 from 8 on); beyond, it is not timed."""
SHARE_OF_MEMORY = 0.8


@dataclass(frozen=True)
class Conditions:
    """What all cases of a run have in common."""

    device: torch.device
    dtype: torch.dtype
    ceilings: Ceilings
    rounds: int = 9
    budget: float = 3.0
    """Seconds that a variant may take for a case; what cannot do LEAST_ROUNDS in that time is left out."""
    compiled: bool = True
    beyond: int | None = None
    """Bytes over which inputs rotate (default: twice the device's last cache)."""


def bench_kernels(
    *,
    kernels: Kernels = "all",
    sizes: Literal["auto", "small", "full"] = "auto",
    only: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    rounds: int = 9,
    compiled: bool = True,
    output: Path | None = None,
    earlier: Path | None = None,
) -> None:
    """Measure, or read earlier results; print tables and the proposed dispatch, write CSV and plot."""
    console = open_console(200)
    if output is not None and output.suffix == ".png":
        raise AdjudgeError(f"{output} is the table, and the plot stands beside it as .png: name a .csv")
    if earlier is not None:
        usual = (
            *(("only", only, None), ("kernels", kernels, "all"), ("sizes", sizes, "auto"), ("rounds", rounds, 9)),
            *(("device", device, "auto"), ("dtype", dtype, "auto"), ("no-compile", compiled, True)),
        )
        for name, value, default in usual:
            if value != default:
                raise AdjudgeError(f"--{name} is for what is measured: leave it out where nothing is")
        measurements = read_measurements(earlier)
        if output is not None:
            write_measurements(output, measurements)
        output = output or earlier
    else:
        where = choose_device(device)
        chosen: Literal["small", "full"] = ("full" if where.type == "cuda" else "small") if sizes == "auto" else sizes
        heads, attentions = _cases(kernels, chosen, only)
        if not heads and not attentions:
            larger = any(_cases(kernels, "full", only))
            mend = "add --sizes full" if larger else "take words of names and shapes, or leave --only out"
            raise AdjudgeError(f'no case has all of "{only}": {mend}')
        number_type = choose_dtype(dtype, where)
        budget = float("inf") if sizes == "full" or where.type == "cuda" else 3.0
        ceilings = measure_ceilings(where, number_type)
        conditions = Conditions(where, number_type, ceilings, rounds, budget, compiled)
        console.print(f"{describe_machine(where)}\n{ceilings}, both measured now", highlight=False)
        if chosen == "small":
            console.print("small sizes only (cases in reach of a CPU); --sizes full forces everything", highlight=False)
        measurements = []
        with bar() as progress:
            task = progress.add_task("kernels", total=len(heads) + len(attentions))
            for rows in run_cases(heads, attentions, conditions):
                measurements += rows
                progress.advance(task)
                if output is not None:
                    write_measurements(output, measurements)  # after every case: a run may be cut short
    _print(console, measurements)
    if output is not None:
        try:
            plot_head(measurements, output.with_suffix(".png"))
        except AdjudgeError as error:
            print(f"adjudge: {error}", file=sys.stderr)


def _cases(
    kernels: Kernels, sizes: Literal["small", "full"], only: str | None
) -> tuple[list[HeadCase], list[AttentionCase]]:
    """The cases of those sizes whose names and shapes have all the words of `only`."""
    words = set((only or "").split())

    def asked(name: str, shape: str) -> bool:
        return words <= {*name.replace(",", " ").split(), *shape.split()}

    heads = head_cases(sizes) if kernels != "attention" else []
    attentions = attention_cases(sizes) if kernels != "head" else []
    return (
        [case for case in heads if asked(case.normalizer, case.shape)],
        [case for case in attentions if asked(case.name, case.shape)],
    )


def run_cases(
    heads: Sequence[HeadCase], attentions: Sequence[AttentionCase], conditions: Conditions
) -> Iterator[list[Measurement]]:
    """The measurements of each case; neighbours with equal heads share its weights."""
    device, dtype, beyond = conditions.device, conditions.dtype, conditions.beyond
    about = partial(
        Measurement,
        dtype=str(dtype).removeprefix("torch."),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        machine=describe_machine(device),
        commit=commit(),
    )
    for (d, v), group in groupby(heads, lambda case: (case.d, case.v)):
        cases = list(group)
        torch.compiler.reset()  # what was compiled for the last head would only be in the way
        inputs = HeadInputs(d, v, max(case.n for case in cases), device, dtype, beyond)
        for case in cases:
            limit = case.limit(dtype.itemsize)
            head = partial(about, "restricted head", case.normalizer, case.shape, bytes=limit.bytes, flops=limit.flops)
            exact, rows = exact_logprobs(inputs, case), checked_rows(case.n, device)
            yield _measure(head_variants(inputs, case, compiled=conditions.compiled), head, exact, rows, conditions)
        del inputs
    for attention_case in attentions:
        states = AttentionInputs.random(attention_case, device, dtype, beyond)
        limit, kv_bytes = attention_case.limit(dtype.itemsize), attention_case.kv_bytes(dtype.itemsize)
        kind = ("attention", attention_case.name, attention_case.shape)
        attention = partial(about, *kind, bytes=limit.bytes, flops=limit.flops, kv_bytes=kv_bytes)
        rows, exact = exact_attention(states)
        yield _measure(attention_variants(states), attention, exact, rows, conditions)


def _measure(
    variants: list[Variant], about: Callable[..., Measurement], exact: Tensor, rows: Tensor, conditions: Conditions
) -> list[Measurement]:
    """Check every variant, then time those that are right; what is left out says why."""
    found = {variant.name: _check(variant, about, exact, rows, conditions) for variant in variants}
    timed = [variant for variant in variants if not found[variant.name].note]
    times = time_variants(timed, conditions.device, conditions.rounds, conditions.budget)
    for variant, taken in zip(timed, times, strict=True):
        m, seconds = found[variant.name], median(taken.rounds)
        found[variant.name] = replace(
            m,
            median_us=1e6 * seconds,
            min_us=1e6 * min(taken.rounds),
            max_us=1e6 * max(taken.rounds),
            host_us=None if taken.host is None else 1e6 * taken.host,
            limit_percent=(m.limit_us or 0.0) / seconds / 1e4,
        )
    return _mark_losses(list(found.values()))


def _check(
    variant: Variant, about: Callable[..., Measurement], exact: Tensor, rows: Tensor, conditions: Conditions
) -> Measurement:
    """Everything but the time; a note where the variant is not to be timed."""
    device, ceilings = conditions.device, conditions.ceilings
    m = about(variant=variant.name)
    least = Work(m.bytes or 0.0, m.flops or 0.0)
    m = replace(m, limit_us=1e6 * least.seconds(ceilings), bound=least.bound(ceilings))
    expected = (variant.work or least).seconds(ceilings)
    if LEAST_ROUNDS * expected > conditions.budget:
        return replace(m, note=f"left out: would take over {expected:.1f} s a call, --sizes full does it")
    if variant.memory > SHARE_OF_MEMORY * free_bytes(device):
        return replace(m, note=f"left out: needs {variant.memory / 1e9:.1f} GB of memory")
    try:
        result = variant.run(0)
        if variant.answer is not None:
            answer = variant.answer(result)
            apart = (answer[rows].double() - exact).abs().max() if answer.isfinite().all() else float("inf")
            m = replace(m, error=float(apart))
            if not float(apart) <= TOLERANCE[conditions.dtype]:
                return replace(m, note="wrong, not timed")
        m = replace(m, launches=launches(lambda: variant.run(0), device))
        if device.type == "cuda" or not variant.compiled:  # compiled code allocates where torch does not look
            m = replace(m, peak_bytes=peak_bytes(lambda: variant.run(0), device))
    except Exception as error:  # a library that is missing, refuses, or has no memory left: the others go on
        return replace(m, note=f"cannot run: {type(error).__name__}: {reason(error)}")
    return m


def _mark_losses(measurements: list[Measurement]) -> list[Measurement]:
    """Say beside ours which peer is the fastest, where one is faster."""
    timed = [(m.median_us, m) for m in measurements if m.median_us is not None and m.variant not in NOT_PEERS]
    peers = [(taken, m.variant) for taken, m in timed if not _is_ours(m)]
    return [replace(m, note=m.note or _loss(m, *min(peers))) if peers and _is_ours(m) else m for m in measurements]


def _is_ours(m: Measurement) -> bool:
    return m.variant.startswith("ours")


def _loss(ours: Measurement, taken: float, peer: str) -> str:
    if ours.median_us is None or ours.min_us is None or taken >= ours.median_us:
        return ""
    return f"level with {peer}" if taken >= ours.min_us else f"LOSES: {ours.median_us / taken:.2f} x the time of {peer}"


def _print(console: Console, measurements: list[Measurement]) -> None:
    for kernel, table in (("restricted head", head_table), ("attention", attention_table)):
        if rows := [m for m in measurements if m.kernel == kernel]:
            console.print(f"\n[bold]{kernel}[/bold], {rows[0].dtype}, against float64 on some rows")
            console.print(table(rows))
    ours = [m for m in measurements if _is_ours(m) and m.median_us is not None]
    losing = sum(m.note.startswith("LOSES") for m in ours)
    out = sum(m.median_us is None for m in measurements)
    console.print(f"\nours is not the fastest in {losing} of {len(ours)} lines; {out} lines were not timed (see notes)")
    if proposals := propose(measurements):
        console.print("\nproposed dispatch, for every N alike:")
        for proposal in proposals:
            console.print(f"  {proposal}", highlight=False)
