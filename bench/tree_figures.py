"""What the authors of Tree of Writing report of their judge: ablation, lengths, disturbances, steadiness of weights.

Theirs is GPT-4o over 1302 Chinese instructions and ten systems; Table 5 correlates with people.
"""

from __future__ import annotations

WHOLE = "whole tree"
CORRELATIONS = ("pearson", "kendall", "spearman")


def _correlations(*rows: tuple[str, float, float, float]) -> dict[tuple[str, str], float]:
    return {(row, name): value for row, *values in rows for name, value in zip(CORRELATIONS, values, strict=True)}


TABLE_5 = {
    "guide": _correlations(
        (WHOLE, 0.85, 0.76, 0.89),
        ("without content", 0.81, 0.76, 0.88),
        ("without format", 0.80, 0.65, 0.78),
        ("content alone", 0.79, 0.65, 0.78),
        ("format alone", 0.71, 0.71, 0.65),
        ("impression alone", 0.81, 0.70, 0.79),
    ),
    "open": _correlations(
        (WHOLE, 0.89, 0.78, 0.88),
        ("without content", 0.84, 0.78, 0.88),
        ("without format", 0.89, 0.72, 0.82),
        ("content alone", 0.89, 0.78, 0.87),
        ("format alone", 0.67, 0.50, 0.68),
        ("impression alone", 0.90, 0.72, 0.82),
    ),
    "completion": _correlations((WHOLE, 0.87, 0.67, 0.78)),
    "all": _correlations((WHOLE, 0.93, 0.83, 0.93)),
}
"""System-level correlation with people, by task: of each part of the tree, and which correlation (whole: Table 3)."""

TABLE_6 = {
    (pair, task): value
    for pair, values in {
        "input - output": (0.24, 0.32, 0.25),
        "input - overall": (-0.01, -0.44, -0.15),
        "input - content": (-0.01, -0.44, -0.11),
        "input - format": (None, -0.16, 0.00),
        "output - overall": (0.38, -0.18, -0.12),
        "output - content": (0.38, -0.09, -0.08),
        "output - format": (None, -0.16, -0.09),
    }.items()
    for task, value in zip(("completion", "guide", "open"), values, strict=True)
    if value is not None
}
"""Pearson correlation of lengths and scores, by what is correlated and the task."""

TABLE_7 = {
    (part, kind): value
    for part, values in {
        "overall": (5.41, -0.36, -0.49, -0.30, -0.31, -0.97, -0.62),
        "content": (5.82, -0.34, -0.48, -0.17, -0.10, -1.12, -0.36),
        "format": (5.77, -0.58, -0.81, -0.69, -0.65, -0.74, -1.12),
        "impression": (6.76, -0.24, -0.30, -0.14, -0.36, -1.52, -0.70),
    }.items()
    for kind, value in zip(
        ("initial", "drop", "repeat", "to_comment", "to_letter", "to_official", "to_poem"), values, strict=True
    )
}
"""Mean initial scores, and by how much each disturbance changes them, by part of the tree."""

FLUCTUATION = {"tree": (0.080, 0.017), "auto-plan": (0.273, 0.059)}
"""Mean delta and sigma (5.3) of written weights, and of sub-scores over totals where a judge weighs by itself."""
