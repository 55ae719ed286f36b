"""The curves of runs: reward, KL, length and abstention over their steps, as a picture."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adjudge.rewards.parts.combining import TAKEN
from adjudge.training.pictures import check_picture, new_figure, save_picture

Lines = Sequence[Mapping[str, Any]]
"""The metrics of a run."""

PANELS: dict[str, tuple[str, ...]] = {
    "reward": ("reward",),
    "KL to the first policy": ("kl",),
    "tokens of a completion": ("completions/mean_length",),
    "share that abstained": ("abstained",),
    "share of groups without a difference": ("zero_variance",),
}
"""What is drawn: a title, and the metric by its name, behind that of a reward or not; parts of it have a panel too."""

SFT_PANELS: dict[str, tuple[str, ...]] = {
    "share of tokens foreseen": ("mean_token_accuracy",),
    "entropy": ("entropy",),
}
"""The same of supervised training."""

DIRECT_PANELS: dict[str, tuple[str, ...]] = {
    "agreement with the known scores": ("pearson", "spearman", "kendall", "order"),
    "mean absolute error": ("error",),
    "label mass": ("mass", "mass_least"),
}
"""The same of a direct evaluator."""

PREFERENCE_PANELS: dict[str, tuple[str, ...]] = {
    "share of pairs in people's order": ("accuracy",),
    "reward of the chosen above the rejected": ("margin",),
    "mean reward": ("reward_chosen", "reward_rejected"),
}
"""The same of a reward model."""

OTHERS = {"mean_token_accuracy": SFT_PANELS, "mass_least": DIRECT_PANELS, "margin": PREFERENCE_PANELS}
"""What is drawn of runs that are no GRPO, by a metric that only they have; judges have it of held-out rows alone."""

PART = re.compile(rf"[^/]+/mean/(?:reward/)?(?!(?:{'|'.join(TAKEN)})$)[^/]+")
"""A part of a reward, of one behind gates as well, which is their part "reward"; other means say how it was judged."""


def draw_curves(runs: Sequence[Lines], path: Path, title: str) -> None:
    """Draw the metrics of a run, or of several and their mean, into a .png, .svg or .pdf file.

    Raises AdjudgeError where `check_picture` does.
    """
    check_picture(path)
    from matplotlib.ticker import MaxNLocator

    named = sorted({name for lines in runs for line in lines for name in line})
    if "reward" in named:
        panels = {panel: _named(named, names) for panel, names in PANELS.items()}
        panels["parts of the reward"] = [name for name in named if PART.fullmatch(name)]
    else:
        own = next((panels for name, panels in OTHERS.items() if name in named), {})
        ours = {"loss": ("loss",), **own, "norm of the gradient": ("grad_norm",), "learning rate": ("learning_rate",)}
        panels = {panel: _named(named, names) for panel, names in ours.items()}
    figure = new_figure(12, 6.5)
    places = iter(figure.subplots(2, 3).flat)
    for (panel, names), axes in zip(panels.items(), places, strict=False):
        axes.set_title(panel, loc="left", fontsize=10)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if panel.startswith("share"):
            axes.set_ylim(-0.03, 1.03)
        axes.grid(alpha=0.3)
        for number, name in enumerate(names):
            _draw(axes, runs, name, None if len(names) == 1 else f"C{number}")
        if not names:
            axes.text(0.5, 0.5, "not measured", ha="center", va="center", color="gray", transform=axes.transAxes)
        elif axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7, frameon=False)
        axes.set_xlabel("step")
    for axes in places:
        axes.set_axis_off()
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    save_picture(figure, path)


def _draw(axes: Any, runs: Sequence[Lines], name: str, colour: str | None) -> None:
    """Draw a metric of both kinds of prompts; with a `colour` of its own it stands beside others, under its name."""
    own = None if colour is None else name.rpartition("/")[2]
    for split, style in (("train", {"linewidth": 1.2}), ("held_out", {"marker": "o", "linestyle": "--"})):
        found = [points for lines in runs if (points := _points(lines, name, split))]
        if not found:
            continue
        label = split.replace("_", " ") if colour is None else own
        own = None
        steps, values = zip(*mean, strict=True) if (mean := _mean(found)) else ((), ())
        [line] = axes.plot(steps, values, label=label, color=colour, markersize=4, **style)
        for points in found if len(found) > 1 else ():
            axes.plot(*zip(*points, strict=True), color=line.get_color(), alpha=0.3, linewidth=0.6, markersize=2)


def _points(lines: Lines, name: str, split: str) -> list[tuple[int, float]]:
    return [(line["step"], line[name]) for line in lines if line["split"] == split and line.get(name) is not None]


def _mean(runs: Sequence[Sequence[tuple[int, float]]]) -> list[tuple[int, float]]:
    """The mean over runs at the steps that all of them have."""
    known = [dict(points) for points in runs]
    shared = [step for step in known[0] if all(step in points for points in known)]
    return [(step, statistics.fmean(points[step] for points in known)) for step in shared]


def _named(named: Sequence[str], endings: Sequence[str]) -> list[str]:
    return [name for name in named if any(re.fullmatch(f"([^/]+/)?{re.escape(end)}", name) for end in endings)]
