"""`PointwiseJudge`: one story at a time, several aspects (the pointwise variant of EvolvR; arXiv 2508.06046)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from adjudge.engine.face import EngineFace
from adjudge.rewards.asking import Answer, Question
from adjudge.rewards.aspects import HANNA, Aspect, checked
from adjudge.rewards.judge import How, ItemJudge
from adjudge.rewards.pairwise import SCALE
from adjudge.rewards.verdict import Item, Verdict, abstention, weighted_mean


class PointwiseJudge(ItemJudge):
    """Scores stories aspect by aspect; the score of a story is the weighted mean of its aspects' expected scores.

    `how` is that of `AskingJudge`. An aspect of weight above 0 that abstains makes the story abstain.
    """

    kind = "pointwise"

    def __init__(self, engine: EngineFace, aspects: Sequence[Aspect] = HANNA, **how: Unpack[How]) -> None:
        super().__init__(engine, **how)
        self.aspects = checked(aspects)

    def _content(self, item: Item) -> dict[str, Any]:
        return {"labels": SCALE, "aspects": self.aspects, "prompt": item.prompt, "response": item.response}

    def _questions(self, item: Item) -> list[Question]:
        data = {"prompt": item.prompt, "story": item.response}
        return [
            Question(aspect.name, self._prompt(data, aspect=aspect.name, definition=aspect.definition), SCALE)
            for aspect in self.aspects
        ]

    def _conclude(self, item: Item, answers: Mapping[str, Answer], key: str, truncated: bool) -> Verdict:
        parts = {aspect.name: self._part(answers[aspect.name], aspect.weight) for aspect in self.aspects}
        score = None if abstention(parts) else weighted_mean(parts)
        return self._verdict(score, parts, answers, key, truncated)
