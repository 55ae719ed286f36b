"""The results of a kernel benchmark as tables for a terminal and as a plot of time against N."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Column, Table
from rich.text import Text

from adjudge.bench.kernels.limits import COMPILED, MATMUL, UNCHECKED
from adjudge.bench.kernels.measurement import Measurement
from adjudge.training.pictures import new_figure, save_figure
from adjudge.training.terminal import cell, plain_table

PLOTTED_LABELS = (5, 64)
PANELS_ACROSS = 3


def head_table(measurements: Sequence[Measurement]) -> Table:
    """A line a case and variant."""
    columns = ("median µs (min-max)", "% of limit", "host µs", "launches", "peak bytes", "max |Δ log p|")
    table = _table(*columns)
    for m in measurements:
        _add(table, m, _percent(m), _micro(m.host_us))
    return table


def attention_table(measurements: Sequence[Measurement]) -> Table:
    """A line a case and variant; GFLOP/s of useful rows, and bytes of distinct keys and values a second."""
    columns = ("median µs (min-max)", "% of limit", "GFLOP/s", "KV GB/s", "launches", "peak bytes", "max |Δ|")
    table = _table(*columns)
    for m in measurements:
        speed = cell(m.gflops, ",.1f")
        kv = "" if m.median_us is None or m.kv_bytes is None else f"{m.kv_bytes / m.median_us / 1e3:,.2f}"
        _add(table, m, _percent(m), speed, kv)
    return table


def _table(*columns: str) -> Table:
    about = (Column(name, no_wrap=True) for name in ("case", "shape", "variant"))
    return plain_table(*about, *(Column(name, justify="right", no_wrap="(" in name) for name in columns), "note")


def _add(table: Table, m: Measurement, *cells: str) -> None:
    spread = "" if m.median_us is None else f"{_micro(m.median_us)} ({_micro(m.min_us)}-{_micro(m.max_us)})"
    style = "bold" if m.variant.startswith("ours") else ""
    counts = (cell(m.launches, ","), cell(m.peak_bytes, ","), cell(m.error, ".1e"))
    table.add_row(m.case, m.shape, Text(m.variant, style), spread, *cells, *counts, Text(m.note, "yellow"))


def _micro(value: float | None) -> str:
    return "" if value is None else f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def _percent(m: Measurement) -> str:
    return "" if m.limit_percent is None else f"{m.limit_percent:.1f} {m.bound}"


def plot_head(measurements: Sequence[Measurement], path: Path) -> None:
    """Time against N with log axes, a panel for each head, K and normalizer; the limit is dashed.

    Raises AdjudgeError where matplotlib is missing or the file cannot be written.
    """
    panels: dict[tuple[str, int, int, int], list[Measurement]] = {}
    for m in measurements:
        if m.kernel == "restricted head" and m.median_us is not None and m.sizes["K"] in PLOTTED_LABELS:
            sizes = m.sizes
            panels.setdefault((m.case, sizes["D"], sizes["V"], sizes["K"]), []).append(m)
    if not panels:
        return
    across = min(PANELS_ACROSS, len(panels))
    down = -(-len(panels) // across)
    figure = new_figure(4.2 * across, 3.6 * down + 0.8)
    names = list(dict.fromkeys(m.variant for panel in panels.values() for m in panel))
    for place, ((case, d, v, k), panel) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(down, across, place)
        for color, name in enumerate(names):
            if points := sorted((m.sizes["N"], m.median_us) for m in panel if m.variant == name):
                dotted = name in (UNCHECKED, MATMUL) or name.endswith(COMPILED)
                axes.plot(*zip(*points, strict=True), ":" if dotted else "-", marker=".", color=f"C{color}", label=name)
        limits = sorted({(m.sizes["N"], m.limit_us) for m in panel if m.limit_us is not None})
        axes.plot(*zip(*limits, strict=True), "--", color="gray", label="limit")
        axes.set(xscale="log", yscale="log", xlabel="N", ylabel="µs", title=f"{case}: D {d}, V {v}, K {k}")
        axes.grid(alpha=0.3)
    handles = {
        label: line for axes in figure.axes for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, fontsize=8)
    save_figure(figure, path, f"restricted head, {measurements[0].dtype}\n{measurements[0].machine}")
