"""What byte counts and FLOPs alone say about GPUs that are not here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rich.console import Console

from adjudge.bench.kernels.limits import (
    COPY_EFFICIENCY,
    FULL,
    INDEX,
    MATMUL,
    OURS,
    PREDICTED,
    AttentionCase,
    Ceilings,
    HeadCase,
    attention_cases,
    head_cases,
)
from adjudge.bench.kernels.measurement import Measurement
from adjudge.bench.kernels.report import prediction_table
from adjudge.engine.errors import AdjudgeError

ITEMSIZE = 2  # bf16
LAUNCH_SECONDS = 3e-6
"""No kernel is counted as faster than this, whoever's it is."""


def predictions(gpu: str) -> list[Measurement]:
    """What byte counts and FLOPs alone say for a GPU in bf16: the sum over a variant's kernels of their limits."""
    if gpu not in PREDICTED:
        raise AdjudgeError(f'there are no predictions for "{gpu}": pass one of {", ".join(PREDICTED)}')
    ceilings = PREDICTED[gpu]
    about = partial(
        Measurement, dtype="bfloat16", note="predicted, not measured", device=gpu, machine=f"prediction: {ceilings}"
    )
    made = []
    for case in head_cases("full"):
        for variant in (OURS, INDEX, FULL) if case.normalizer == "set" else (OURS, FULL, MATMUL):
            stages = case.stages(variant, ITEMSIZE)
            seconds = sum(max(stage.seconds(ceilings), LAUNCH_SECONDS) for stage in stages)
            made.append(_predicted(about, "restricted head", case, variant, seconds, ceilings))
    for attention_case in attention_cases("full"):
        seconds = attention_case.limit(ITEMSIZE).seconds(ceilings)
        made.append(_predicted(about, "attention", attention_case, "limit", seconds, ceilings))
    return made


def print_predictions(console: Console, made: Sequence[Measurement]) -> None:
    """Print them as tables that say what they are."""
    gpu = made[0].device
    console.print(
        f"PREDICTIONS for one {gpu}, nothing was measured: bytes and FLOPs over {PREDICTED[gpu]}"
        f" (the copy is {COPY_EFFICIENCY:.0%} of the datasheet's bandwidth), bf16;"
        " a kernel takes 3 µs at least, and what the host does between launches is left out",
        highlight=False,
    )
    for kernel in ("restricted head", "attention"):
        console.print(f"\n[bold]{kernel}[/bold]")
        console.print(prediction_table([m for m in made if m.kernel == kernel]))


def _predicted(
    about: Callable[..., Measurement],
    kernel: str,
    case: HeadCase | AttentionCase,
    variant: str,
    seconds: float,
    ceilings: Ceilings,
) -> Measurement:
    limit = case.limit(ITEMSIZE)
    name = case.normalizer if isinstance(case, HeadCase) else case.name
    return about(
        kernel,
        name,
        case.shape,
        variant=variant,
        median_us=1e6 * seconds,
        limit_us=1e6 * limit.seconds(ceilings),
        limit_percent=100 * limit.seconds(ceilings) / seconds,
        bound=limit.bound(ceilings),
        bytes=limit.bytes,
        flops=limit.flops,
    )
