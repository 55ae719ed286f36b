"""What the tests of debates share: agents that say what a test wants, and rule by its chances."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from adjudge.engine.engine import Engine
from adjudge.engine.face import AnyLabels, AnyPrompt
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Score
from adjudge.rewards.judges.debate import DebateJudge
from adjudge.rewards.judges.principle import GOOD
from adjudge.rewards.judges.retrieval import Index
from adjudge.rewards.records.verdict import Example, Item, Verdict
from tests.rewards.scripted import Script, ScriptedEngine

WIDE = "dummy:tiny-mistral"
"""A byte-level vocabulary, and room for many of them."""

SHORT = Sampling(max_tokens=24, temperature=1.0)
ITEMS = [Item(prompt="A greeting.", response=f"Good morning {n}.", id=str(n)) for n in range(4)]
EXAMPLES = [Example("A wish.", "Sleep well."), Example("A toast.", "To us!"), Example("A wish.", "Good morning 0.")]

TASKS = {
    "positive": "Your part is to find what is good",
    "negative": "Your part is to find what is wrong",
    "judge": "Your part is to rule",
    "reflect": "Your part is to review",
}


def agent_of(shown: str) -> str:
    """Which agent a prompt is for."""
    [agent] = [agent for agent, task in TASKS.items() if task in shown]
    return agent


def argue(shown: str, before: int) -> str:
    """Statements of the sides, and reasons of the others, with a 1 for the first item and a 0 for the rest."""
    agent = agent_of(shown)
    if agent in ("positive", "negative"):
        return f'{{"{agent} point": "said {before}"}}'
    return f"{agent} reasons {before}. <ANSWER> {int('morning 0' in shown)} </ANSWER>"


Chance = Callable[[str, str], float | None]
"""From agent and prompt to P(1); None abstains."""


class Rulings(ScriptedEngine):
    """Writes by a script and rules by chances, so that formulas can be checked by hand; notes what was asked."""

    def __init__(self, engine: Engine, chance: Chance | None = None, script: Script = argue, **how: Any) -> None:
        grade = None if chance is None else lambda shown, _: score_of(chance(agent_of(shown), shown))
        super().__init__(engine, script, grade, **how)
        self.calls: list[list[str]] = []

    def score_iter(
        self, prompts: Sequence[AnyPrompt], labels: AnyLabels | Sequence[AnyLabels], **how: Any
    ) -> Iterator[tuple[int, Score]]:
        self.calls.append([agent_of(self.shown(prompt)) for prompt in prompts])
        yield from list(super().score_iter(prompts, labels, **how))[:: -1 if self.last_first else 1]

    def generate_iter(self, prompts: Sequence[AnyPrompt], *given: Any, **how: Any) -> Iterator[Any]:
        self.calls.append([agent_of(self.shown(prompt)) for prompt in prompts])
        return super().generate_iter(prompts, *given, **how)


def score_of(chance: float | None) -> Score:
    if chance is None:
        return Score.abstained(GOOD.labels, "non_finite")
    return Score.of(GOOD.labels, [math.log(1 - chance), math.log(chance)], GOOD.numbers, 1)


def judge_of(engine: Any, examples: Any = None, **how: Any) -> DebateJudge:
    return DebateJudge(engine, examples, **{"min_mass": 0.0, "sampling": SHORT, **how})


def index() -> Index:
    return Index(EXAMPLES, lambda texts: [[float(len(text)), 1.0] for text in texts])


def weights(verdict: Verdict) -> dict[str, float]:
    return {name: part.weight for name, part in verdict.breakdown.items()}
