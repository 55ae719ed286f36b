"""The figures of PerSE's own tables, to stand beside ours (Wang et al., 2023; arXiv 2310.03304)."""

from __future__ import annotations

RATINGS: tuple[tuple[str, int, tuple[float, float, float]], ...] = (
    ("reviewer mean", 3, (0.301, 0.302, 0.230)),
    ("matrix factorisation", 3, (0.308, 0.313, 0.269)),
    ("LLaMA-2-7b", 3, (0.146, 0.117, 0.094)),
    ("LLaMA-2-13b", 3, (0.172, 0.182, 0.147)),
    ("LLaMA-2-70b", 3, (0.214, 0.232, 0.181)),
    ("GPT-4", 3, (0.315, 0.312, 0.253)),
    ("PerSE-7b", 3, (0.307, 0.329, 0.263)),
    ("PerSE-13b", 3, (0.345, 0.368, 0.293)),
    ("PerSE-13b, three runs", 3, (0.381, 0.378, 0.301)),
    ("PerSE-13b, three runs, no texts", 3, (-0.088, -0.069, -0.057)),
)
"""Who, k, and Pearson, Spearman and Kendall on Per-MPST: Table 2, the last two of Table 7."""

_ASPECTS = ("interestingness", "adaptability", "surprise", "character development", "ending", "average")


def _by_aspect(*values: float) -> dict[str, float]:
    return dict(zip(_ASPECTS, values, strict=True))


CHOICES: tuple[tuple[str, dict[str, float]], ...] = (
    ("prior choice", _by_aspect(0.466, 0.478, 0.460, 0.469, 0.515, 0.477)),
    ("LLaMA-2-7b", _by_aspect(0.466, 0.491, 0.453, 0.481, 0.503, 0.479)),
    ("LLaMA-2-13b", _by_aspect(0.422, 0.451, 0.477, 0.481, 0.517, 0.470)),
    ("LLaMA-2-70b", _by_aspect(0.517, 0.507, 0.431, 0.505, 0.545, 0.501)),
    ("GPT-4", _by_aspect(0.502, 0.496, 0.596, 0.506, 0.543, 0.529)),
    ("PerSE-7b", _by_aspect(0.572, 0.565, 0.619, 0.565, 0.560, 0.576)),
    ("PerSE-13b", _by_aspect(0.621, 0.570, 0.616, 0.607, 0.597, 0.602)),
)
"""Who, and the accuracy on Per-DOC by aspect, k = 1: Table 3."""
