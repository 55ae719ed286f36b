"""Figures of the benchmarks, made and saved without a display."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

from adjudge.engine.errors import AdjudgeError


def new_figure(width: float = 6.4, height: float = 4.8) -> Any:
    """A matplotlib figure of that size in inches; raises AdjudgeError where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise AdjudgeError("there is no plot: matplotlib is missing; pip install 'adjudge[report]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, path: Path, title: str) -> None:
    """Save it under a small title; raises AdjudgeError where the file cannot be written."""
    figure.suptitle("\n".join(fill(line, 110) for line in title.splitlines()), fontsize=7, parse_math=False)
    try:
        figure.savefig(path, dpi=100)
    except OSError as error:
        raise AdjudgeError(f"{path} cannot be written ({error.strerror}): name another file with -o") from error
