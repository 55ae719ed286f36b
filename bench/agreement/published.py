"""What the papers report, to stand beside what is measured here: other models, other samples of texts."""

from __future__ import annotations

from adjudge.bench.agreement.comparison import Line
from adjudge.bench.agreement.resampling import Estimate

EVOLVR_FIGURES = ("pearson", "spearman", "kendall", "mse", "f1")

EVOLVR_PARTNERS: dict[int, tuple[float, ...]] = {
    0: (0.6037, 0.6113, 0.5389, 0.0451, 0.7366),
    1: (0.6224, 0.6107, 0.5486, 0.0449, 0.7435),
    2: (0.5852, 0.5765, 0.5161, 0.0466, 0.7129),
    4: (0.6155, 0.6033, 0.5429, 0.0440, 0.7406),
    8: (0.6162, 0.6067, 0.5445, 0.0449, 0.7392),
    16: (0.6131, 0.6028, 0.5416, 0.0409, 0.7412),
}
"""EvolvR, Table 11: their trained 7B evaluator on HANNA, by the number of partners N."""

EVOLVR_ORDERS = {
    "(A, B)": (0.6189, 0.6031, 0.5412, 0.0445, 0.7379),
    "(B, A)": (0.6121, 0.6035, 0.5486, 0.0435, 0.7433),
}
"""Table 12: the story shown first, and shown second, with N = 4."""

TREE_FIGURES = ("pearson", "kendall", "spearman")

TREE_METHODS: dict[str, dict[str, tuple[float, ...]]] = {
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
"""Tree of Writing, Table 3, GPT-4o judging nine systems: its method and its rivals, these by the mean of ten answers.

A judge that reads the distribution at its answer slot has the mean of endlessly many.
"""

TREE_NODES: dict[str, dict[str, tuple[float, ...]]] = {
    "without content": {"guide": (0.81, 0.76, 0.88), "open": (0.84, 0.78, 0.88)},
    "without format": {"guide": (0.80, 0.65, 0.78), "open": (0.89, 0.72, 0.82)},
    "content alone": {"guide": (0.79, 0.65, 0.78), "open": (0.89, 0.78, 0.87)},
    "format alone": {"guide": (0.71, 0.71, 0.65), "open": (0.67, 0.50, 0.68)},
    "impression alone": {"guide": (0.81, 0.70, 0.79), "open": (0.90, 0.72, 0.82)},
}
"""Table 5; it has no line without impression."""

QURL_SPEARMAN = {"case-wise rubrics": 0.31, "plain judge": 0.08}
"""QuRL, Table 2: GPT-4o judging 200 answers to HelloBench, by rubrics of each question and by six fixed dimensions."""


def published_line(target: str, source: str, names: tuple[str, ...], values: tuple[float, ...]) -> Line:
    """A line of a paper's table; nothing is known of its rows or intervals."""
    figures = {name: Estimate(value, None, 0, 0) for name, value in zip(names, values, strict=True)}
    return Line(target, f"published: {source}", 0, figures)
