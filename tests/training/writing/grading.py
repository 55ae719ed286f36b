"""Constructions as a model would write them, and scores by the chances that a test gives."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from adjudge.engine.score import Score
from adjudge.engine.text.labels import Labels
from tests.rewards.scripted import Grade

Chances = Callable[[str, tuple[str, ...]], Mapping[str, float]]
"""From the prompt's text and the labels to the probabilities of some of them."""


def construction(theme: str = "Rain", summary: str = "It rains", **more: Any) -> str:
    requirements = ["It rains a lot.", "People are wet.", "Rain is good.", "Plain words."]
    return json.dumps({"theme": theme, "summary": summary, "requirements": requirements, **more})


def by_chances(chances: Chances) -> Grade:
    def grade(shown: str, labels: Labels) -> Score:
        found = chances(shown, labels.labels)
        logprobs = [math.log(found[name]) if name in found else -math.inf for name in labels.labels]
        return Score.of(labels.labels, logprobs, labels.numbers, 1)

    return grade
