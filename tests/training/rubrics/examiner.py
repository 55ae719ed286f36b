"""An engine that writes what a test says, and grades as a test says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from adjudge.engine.engine import Engine
from adjudge.engine.face import AnyLabels, AnyPrompt
from adjudge.engine.score import Score
from tests.rewards.scripted import Script, ScriptedEngine

Grade = Callable[[str], float | None]
"""From the prompt's text to the share of the points that the text has earned; None for no answer at all."""


class Examiner(ScriptedEngine):
    """`graded` notes every prompt that was scored."""

    def __init__(self, engine: Engine, script: Script, grade: Grade) -> None:
        super().__init__(engine, script)
        self.grade = grade
        self.graded: list[str] = []

    def score_iter(
        self, prompts: Sequence[AnyPrompt], labels: AnyLabels | Sequence[AnyLabels], **how: Any
    ) -> Iterator[tuple[int, Score]]:
        for place, (prompt, own) in enumerate(zip(prompts, labels, strict=True)):
            shown = self.tokenizer.decode(self.tokenizer.prompt(prompt))
            self.graded.append(shown)
            share, names, values = self.grade(shown), own.labels, own.numbers  # type: ignore[union-attr]
            if share is None:
                yield place, Score.abstained(names, "timeout")
                continue
            best = min(range(len(values)), key=lambda n: abs(values[n] - share * values[-1]))
            yield place, Score.of(names, [0.0 if n == best else -40.0 for n in range(len(names))], values, 1)


def criterion(name: str, points: float = 5) -> dict[str, Any]:
    """A criterion as a model would write it."""
    return {"name": name, "text": f"Whether {name}.", "points": points, "full": f"All {name}.", "none": "Nothing."}


def draft(content: Sequence[dict[str, Any]], writing: Sequence[dict[str, Any]]) -> str:
    """A rubric as a model would write it."""
    return json.dumps({"content": content, "writing": writing})


def simple(name: str, points: tuple[float, float] = (7, 3)) -> str:
    """A rubric of two criteria."""
    return draft([criterion(name, points[0])], [criterion(f"{name} style", points[1])])
