"""The curves of a run: reward, KL, length and abstention over its steps, as a picture."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from adjudge.engine.errors import AdjudgeError

MEND = "pip install 'adjudge[report]', then draw them with: adjudge train curves FOLDER"

PANELS: dict[str, tuple[str, ...]] = {
    "reward": ("reward",),
    "KL to the first policy": ("kl",),
    "tokens of a completion": ("completions/mean_length",),
    "share that abstained": ("abstained",),
    "share of groups without a difference": ("frac_reward_zero_std",),
}
"""What is drawn: a title, and the metric by its name or the end of its name; parts of the reward have a panel too."""

SFT_PANELS: dict[str, tuple[str, ...]] = {
    "loss": ("loss",),
    "share of tokens foreseen": ("mean_token_accuracy",),
    "entropy": ("entropy",),
    "norm of the gradient": ("grad_norm",),
    "learning rate": ("learning_rate",),
}
"""The same of supervised training."""

PART = re.compile(r"[^/]+/mean/(?!words$)[^/]+")


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return importlib.util.find_spec("matplotlib") is not None


def draw_curves(lines: Sequence[Mapping[str, Any]], path: Path, title: str) -> None:
    """Draw the metrics of a run into a .png or .svg file; raises AdjudgeError where matplotlib is absent."""
    if not can_draw():
        raise AdjudgeError(f"curves need matplotlib: {MEND}")
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    supervised = "mean_token_accuracy" in _names(lines)
    panels = {panel: _named(lines, names) for panel, names in (SFT_PANELS if supervised else PANELS).items()}
    if not supervised:
        panels["parts of the reward"] = [name for name in _names(lines) if PART.fullmatch(name)]
    figure = Figure(figsize=(12, 6.5), layout="constrained")
    places = iter(figure.subplots(2, 3).flat)
    for (panel, names), axes in zip(panels.items(), places, strict=False):
        axes.set_title(panel, loc="left", fontsize=10)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if panel.startswith("share"):
            axes.set_ylim(-0.03, 1.03)
        axes.grid(alpha=0.3)
        for number, name in enumerate(names):
            _draw(axes, lines, name, None if len(names) == 1 else f"C{number}")
        if not names:
            axes.text(0.5, 0.5, "not measured", ha="center", va="center", color="gray", transform=axes.transAxes)
        elif axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7, frameon=False)
        axes.set_xlabel("step")
    for axes in places:
        axes.set_axis_off()
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    making = path.with_name(f".{path.name}")
    figure.savefig(making, dpi=110, format=path.suffix.removeprefix("."))
    making.replace(path)


def _draw(axes: Any, lines: Iterable[Mapping[str, Any]], name: str, colour: str | None) -> None:
    """Draw a metric of both kinds of prompts; with a `colour` of its own it stands beside others, under its name."""
    for split, style in (("train", {"linewidth": 1.2}), ("held_out", {"marker": "o", "linestyle": "--"})):
        points = [(line["step"], line[name]) for line in lines if line["split"] == split and line.get(name) is not None]
        if points:
            label = split.replace("_", " ") if colour is None else name.rpartition("/")[2] if split == "train" else None
            axes.plot(*zip(*points, strict=True), label=label, color=colour, markersize=4, **style)


def _named(lines: Sequence[Mapping[str, Any]], endings: Sequence[str]) -> list[str]:
    return [name for name in _names(lines) if any(name == end or name.endswith(f"/{end}") for end in endings)]


def _names(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({name for line in lines for name in line})
