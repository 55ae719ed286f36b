"""An engine that writes what a test says, and grades as a test says."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from adjudge.engine.engine import Engine
from adjudge.engine.score import Score
from adjudge.engine.text.labels import Labels
from tests.rewards.scripted import Script, ScriptedEngine

Earned = Callable[[str], float | None]
"""From the prompt's text to the share of the points that the text has earned; None for no answer at all."""


class Examiner(ScriptedEngine):
    def __init__(self, engine: Engine, script: Script, earned: Earned) -> None:
        super().__init__(engine, script, self.mark)
        self.earned = earned

    def mark(self, shown: str, labels: Labels) -> Score:
        share, names, values = self.earned(shown), labels.labels, labels.numbers
        if share is None:
            return Score.abstained(names, "timeout")
        best = min(range(len(values)), key=lambda n: abs(values[n] - share * values[-1]))
        return Score.of(names, [0.0 if n == best else -40.0 for n in range(len(names))], values, 1)


def criterion(name: str, points: float = 5) -> dict[str, Any]:
    """A criterion as a model would write it."""
    return {"name": name, "text": f"Whether {name}.", "points": points, "full": f"All {name}.", "none": "Nothing."}


def draft(content: Sequence[dict[str, Any]], writing: Sequence[dict[str, Any]]) -> str:
    """A rubric as a model would write it."""
    return json.dumps({"content": content, "writing": writing})


def simple(name: str, points: tuple[float, float] = (7, 3)) -> str:
    """A rubric of two criteria."""
    return draft([criterion(name, points[0])], [criterion(f"{name} style", points[1])])
