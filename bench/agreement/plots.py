"""Plots of agreement: a judge's scores by people's label, and how often it is right where it is sure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from adjudge.bench.agreement.statistics import BINS, bins_of
from adjudge.training.pictures import new_figure, save_figure


def plot_scores(
    path: Path, judge: Sequence[float], human: Sequence[float], labels: Sequence[float], title: str
) -> None:
    """The judge's scores as boxes and points, one box for each of people's labels (means go to the nearest).

    Raises AdjudgeError where matplotlib is missing or the file cannot be written.
    """
    figure = new_figure()
    axes = figure.add_subplot()
    given, scale = np.array(judge, dtype=float), np.array(labels, dtype=float)
    said = scale[np.abs(np.array(human, dtype=float)[:, None] - scale).argmin(axis=1)]
    places = sorted(set(said.tolist()))
    columns = [given[said == label] for label in places]
    step = float(np.diff(scale).min())
    axes.boxplot(columns, positions=places, widths=0.5 * step, showfliers=False, medianprops={"color": "C1"})
    scatter = np.random.default_rng(0)
    for place, column in zip(places, columns, strict=True):
        axes.plot(place + step * scatter.uniform(-0.18, 0.18, len(column)), column, ".", c="C0", alpha=0.35, ms=4)
    axes.set(xlabel="people's score", ylabel="the judge's score")
    axes.set_xticks(places, [f"{place:g}\n({len(column)})" for place, column in zip(places, columns, strict=True)])
    axes.grid(alpha=0.3)
    save_figure(figure, path, title)


def plot_reliability(path: Path, confidence: Sequence[float], correct: Sequence[float], title: str) -> None:
    """The share on which people said the same, by how sure the judge was, over bars of how many rows that is of.

    Raises AdjudgeError where matplotlib is missing or the file cannot be written.
    """
    figure = new_figure()
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    sure, hit = np.array(confidence, dtype=float), np.array(correct, dtype=float)
    bins = bins_of(sure)
    filled = [place for place in range(BINS) if (bins == place).any()]
    upper.plot([0, 1], [0, 1], "--", c="0.6")
    upper.plot(
        [sure[bins == place].mean() for place in filled], [hit[bins == place].mean() for place in filled], "o-", c="C0"
    )
    upper.set(ylabel="people said the same", xlim=(0, 1), ylim=(0, 1))
    lower.bar(
        [(place + 0.5) / BINS for place in range(BINS)], np.bincount(bins, minlength=BINS), 0.9 / BINS, color="C0"
    )
    lower.set(xlabel="probability of the judge's likeliest label", ylabel="rows")
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
    save_figure(figure, path, title)
