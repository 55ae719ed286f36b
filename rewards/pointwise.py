"""`PointwiseJudge`: one story at a time, several aspects (the pointwise variant of EvolvR; arXiv 2508.06046)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adjudge.engine.face import EngineFace
from adjudge.engine.prompt import Cut
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Reason, Score
from adjudge.rewards.asking import Answer, Mode, Question, open_asking
from adjudge.rewards.aspects import HANNA, Aspect, checked
from adjudge.rewards.journal import Journal
from adjudge.rewards.judge import AskingJudge
from adjudge.rewards.pairwise import SCALE
from adjudge.rewards.verdict import Item, Part, Verdict


class PointwiseJudge(AskingJudge[Item, Verdict]):
    """Scores stories aspect by aspect; the score of a story is the weighted mean of its aspects' expected scores.

    In direct mode each aspect's question ends at its answer slot, in reasoned mode the model analyses the story first;
    how it writes (`sampling`), and `attempts`, `n` and `seed` are those of `Reasoned`. A score whose label mass is
    below `min_mass` makes its aspect abstain, and an aspect of weight above 0 that abstains makes the story abstain.
    """

    kind = "pointwise"
    verdict_type = Verdict

    def __init__(
        self,
        engine: EngineFace,
        aspects: Sequence[Aspect] = HANNA,
        *,
        mode: Mode = "direct",
        min_mass: float = 0.01,
        cut: Cut = "middle",
        journal: Journal | None = None,
        sampling: Sampling | None = None,
        attempts: int = 3,
        n: int = 1,
        seed: int = 0,
    ) -> None:
        asking = open_asking(engine, mode, sampling, attempts=attempts, n=n, seed=seed)
        super().__init__(engine, asking, min_mass=min_mass, cut=cut, journal=journal)
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
        parts = {aspect.name: self._part(aspect, answers[aspect.name].scores[0]) for aspect in self.aspects}
        counted = [part for part in parts.values() if part.weight > 0]
        abstained = next((part.abstained for part in counted if part.abstained), None)
        total = sum(part.weight * (part.score or 0.0) for part in counted)
        return Verdict(
            id="",
            score=None if abstained else total / sum(part.weight for part in counted),
            breakdown=parts,
            abstained=abstained,
            truncated=truncated,
            model=self.engine.name,
            key=key,
            analysis={name: answer.analyses for name, answer in answers.items() if answer.analyses} or None,
        )

    def _part(self, aspect: Aspect, score: Score) -> Part:
        reason: Reason | None = score.reason
        if reason is None and score.mass is not None and score.mass < self.min_mass:
            reason = "low_mass"
        if reason:
            return Part(None, aspect.weight, mass=score.mass, abstained=reason)
        return Part(score.expected, aspect.weight, score.probabilities, score.mass)
