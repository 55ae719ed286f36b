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

QURL_SPEARMAN = {"case-wise rubrics": 0.31, "plain judge": 0.08}
"""QuRL, Table 2: GPT-4o judging 200 answers to HelloBench, by rubrics of each question and by six fixed dimensions."""


def published_line(target: str, source: str, names: tuple[str, ...], values: tuple[float, ...]) -> Line:
    """A line of a paper's table; nothing is known of its rows or intervals."""
    figures = {name: Estimate(value, None, 0, 0) for name, value in zip(names, values, strict=True)}
    return Line(target, f"published: {source}", 0, figures)
