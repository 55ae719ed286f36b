"""Judges of rationales: do the scores follow, how good is one, which of two is better (EvolvR, 3.3 and B.4)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from adjudge.engine.face import EngineFace
from adjudge.engine.text.labels import Labels
from adjudge.rewards.judges.asking import Answer, Question
from adjudge.rewards.judges.aspects import Aspect
from adjudge.rewards.judges.comparing import ComparingJudge, Orders
from adjudge.rewards.judges.judge import How, ItemJudge
from adjudge.rewards.judges.pairwise import SCALE
from adjudge.rewards.records.verdict import Item, Pair, Verdict

FOLDER = Path(__file__).parent / "prompts"

FOLLOWS = Labels(("Yes", "No"), values=(0.0, 1.0), terminator=" </ANSWER>")
"""Whether scores follow from their reasoning; the expected value is the probability of a contradiction."""

CHOICES = Labels(("1", "2"), terminator=" </ANSWER>")

QUALITY = Aspect("quality", "How good is the assessment as a whole?")


class RationaleJudge(ItemJudge):
    """A judge of `Item.response`, the rationale that answers the question `Item.prompt`."""

    folder = FOLDER
    labels: Labels

    def _content(self, item: Item) -> dict[str, Any]:
        return {"labels": self.labels, "prompt": item.prompt, "response": item.response}

    def _questions(self, item: Item) -> list[Question]:
        prompt = self._prompt({"question": item.prompt, "response": item.response})
        return [Question(self.kind, prompt, self.labels)]

    def _conclude(self, item: Item, answers: Mapping[str, Answer], key: str, truncated: bool) -> Verdict:
        part = self._part(answers[self.kind])
        return self._verdict(part.score, {self.kind: part}, answers, key, truncated)


class ContradictionJudge(RationaleJudge):
    """The score is the probability that a rationale's scores contradict its reasoning."""

    kind = "attack"
    labels = FOLLOWS


class QualityJudge(RationaleJudge):
    """The score, 1 to 5, is the quality of a rationale as a whole."""

    kind = "quality"
    labels = SCALE


class BetterJudge(ComparingJudge):
    """Which of two rationales of one question is better; `preference` is the probability of `Pair.a`."""

    kind = "better"
    folder = FOLDER

    def __init__(self, engine: EngineFace, *, orders: Orders = "both", **how: Unpack[How]) -> None:
        super().__init__(engine, (QUALITY,), orders=orders, **how)

    def _content(self, pair: Pair) -> dict[str, Any]:
        return {"labels": CHOICES, "orders": self.orders, "prompt": pair.prompt, "texts": (pair.a, pair.b)}

    def _questions(self, pair: Pair) -> list[Question]:
        shown = {"ab": (pair.a, pair.b), "ba": (pair.b, pair.a)}
        return [
            Question(order, self._prompt({"question": pair.prompt, "first": first, "second": second}), CHOICES)
            for order, (first, second) in shown.items()
            if order in self.orders
        ]

    def _names(self, order: str, aspect: Aspect) -> list[str]:
        return [order]
