"""What the authors of Tree of Writing report of their judge: rivals, ablation, lengths, disturbances, written weights.

Theirs is GPT-4o over 1302 Chinese instructions and ten systems; Tables 3 and 5 correlate with people.
"""

from __future__ import annotations

CORRELATIONS = ("pearson", "kendall", "spearman")
NODES = ("content", "format", "impression")

ABLATIONS: dict[str, tuple[str, ...]] = {
    "whole tree": (),
    **{f"without {node}": (node,) for node in NODES},
    **{f"{node} alone": tuple(other for other in NODES if other != node) for node in NODES},
}
"""The parts of the tree that scores are compared of, and what is left out for each."""

TABLE_3: dict[str, dict[str, tuple[float, ...]]] = {
    "ToW": {
        "completion": (0.87, 0.67, 0.78),
        "guide": (0.85, 0.76, 0.89),
        "open": (0.89, 0.78, 0.88),
        "all tasks": (0.93, 0.83, 0.93),
    },
    "ToW with equal weights": {
        "completion": (0.85, 0.56, 0.67),
        "guide": (0.78, 0.65, 0.78),
        "open": (0.90, 0.61, 0.82),
        "all tasks": (0.89, 0.61, 0.82),
    },
    "elaborated rubric": {
        "completion": (0.85, 0.56, 0.70),
        "guide": (0.81, 0.70, 0.80),
        "open": (0.90, 0.83, 0.90),
        "all tasks": (0.89, 0.61, 0.82),
    },
    "auto-plan": {
        "completion": (0.73, 0.39, 0.47),
        "guide": (0.79, 0.59, 0.70),
        "open": (0.84, 0.67, 0.77),
        "all tasks": (0.88, 0.61, 0.82),
    },
}
"""System-level correlations with people, nine systems: the method and its rivals, these by the mean of ten answers.

A judge that reads the distribution at its answer slot has the mean of endlessly many.
"""

TABLE_5: dict[str, dict[str, tuple[float, ...]]] = {
    "guide": {
        "without content": (0.81, 0.76, 0.88),
        "without format": (0.80, 0.65, 0.78),
        "content alone": (0.79, 0.65, 0.78),
        "format alone": (0.71, 0.71, 0.65),
        "impression alone": (0.81, 0.70, 0.79),
    },
    "open": {
        "without content": (0.84, 0.78, 0.88),
        "without format": (0.89, 0.72, 0.82),
        "content alone": (0.89, 0.78, 0.87),
        "format alone": (0.67, 0.50, 0.68),
        "impression alone": (0.90, 0.72, 0.82),
    },
}
"""The same of parts of the tree, by task; there is no line without impression."""

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
"""Mean delta and sigma (5.3) of written weights, and of sub-scores over totals where a judge weighs by itself.

Sigma cannot be of the formula that stands there: see `analyses.fluctuation`, form "fixed".
"""
