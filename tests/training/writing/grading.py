"""An engine that writes and scores what a test says."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from adjudge.engine.engine import Engine
from adjudge.engine.face import AnyLabels, AnyPrompt, sets_of
from adjudge.engine.score import Score
from adjudge.engine.text.labels import Labels
from tests.rewards.scripted import Script, ScriptedEngine

Grade = Callable[[str, tuple[str, ...]], Mapping[str, float]]
"""From the prompt's text and the labels to the probabilities of some of them."""


def construction(theme: str = "Rain", summary: str = "It rains", **more: Any) -> str:
    requirements = ["It rains a lot.", "People are wet.", "Rain is good.", "Plain words."]
    return json.dumps({"theme": theme, "summary": summary, "requirements": requirements, **more})


class GradingEngine(ScriptedEngine):
    """`scored` notes every prompt whose score was wanted, in order."""

    def __init__(self, engine: Engine, grade: Grade, script: Script) -> None:
        super().__init__(engine, script)
        self.grade = grade
        self.scored: list[str] = []

    def score_iter(
        self, prompts: Sequence[AnyPrompt], labels: AnyLabels | Sequence[AnyLabels], **how: Any
    ) -> Iterator[tuple[int, Score]]:
        [labels] = set(sets_of(prompts, labels))
        assert isinstance(labels, Labels)
        for place, prompt in enumerate(prompts):
            shown = self.tokenizer.decode(self.tokenizer.prompt(prompt))
            grades = self.grade(shown, labels.labels)
            logprobs = [math.log(grades[name]) if name in grades else -math.inf for name in labels.labels]
            self.scored.append(shown)
            yield place, Score.of(labels.labels, logprobs, labels.numbers, 1)
