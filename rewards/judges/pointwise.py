"""`PointwiseJudge`: one story at a time, several aspects (the pointwise variant of EvolvR; arXiv 2508.06046)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import msgspec

from adjudge.engine.face import EngineFace
from adjudge.engine.score import Score
from adjudge.rewards.judges.asking import Answer, Question
from adjudge.rewards.judges.aspects import HANNA, Aspect, Aspects, aspects_of
from adjudge.rewards.judges.comparing import ComparingJudge, Spread
from adjudge.rewards.judges.judge import How, ItemJudge
from adjudge.rewards.judges.pairwise import SCALE
from adjudge.rewards.judges.preference import log_odds
from adjudge.rewards.records.verdict import AspectVerdict, Item, Pair, Verdict, weighted_mean


class PointwiseJudge(ItemJudge):
    """Scores stories aspect by aspect; the score of a story is the weighted mean of its aspects' expected scores.

    `how` is that of `AskingJudge`. An aspect of weight above 0 that abstains makes the story abstain.
    """

    kind = "pointwise"
    range = (1.0, 5.0)

    def __init__(self, engine: EngineFace, aspects: Aspects = HANNA, **how: Unpack[How]) -> None:
        super().__init__(engine, **how)
        self.aspects = aspects_of(aspects)

    def _content(self, item: Item) -> dict[str, Any]:
        return {"labels": SCALE, "aspects": self.aspects, "prompt": item.prompt, "response": item.response}

    def _questions(self, item: Item) -> list[Question]:
        data = {"prompt": item.prompt, "story": item.response}
        return [Question(aspect.name, self._prompt(data, **about(aspect)), SCALE) for aspect in self.aspects]

    def _conclude(self, item: Item, answers: Mapping[str, Answer], key: str, truncated: bool) -> Verdict:
        parts = {aspect.name: self._part(answers[aspect.name], aspect.weight) for aspect in self.aspects}
        return self._verdict(weighted_mean(parts), parts, answers, key, truncated)


class PointwisePairJudge(ComparingJudge):
    """Compares two stories by the scores that each gets by itself: neither is first, so there is no position bias.

    The questions are those of `PointwiseJudge`, and so are `how` and when an aspect abstains; that a is better on an
    aspect has the probability that a draw from its scores is the higher one (`log_odds`).
    """

    kind = "pointwise"

    def __init__(self, engine: EngineFace, aspects: Aspects = HANNA, **how: Unpack[How]) -> None:
        super().__init__(engine, aspects, orders="ab", **how)

    def _content(self, pair: Pair) -> dict[str, Any]:
        texts = (pair.a, pair.b)
        return {"labels": SCALE, "aspects": self.aspects, "prompts": pair.prompts, "texts": texts}

    def _questions(self, pair: Pair) -> list[Question]:
        sides = [
            {"prompt": prompt, "story": story} for prompt, story in zip(pair.prompts, (pair.a, pair.b), strict=True)
        ]
        return [
            Question(f"{aspect.name} {side}", self._prompt(data, **about(aspect)), SCALE)
            for side, data in zip("ab", sides, strict=True)
            for aspect in self.aspects
        ]

    def _names(self, order: str, aspect: Aspect) -> list[str]:
        return [f"{aspect.name} {side}" for side in order]

    def _compared(self, scores: Sequence[Score]) -> tuple[AspectVerdict, float]:
        a, b = scores
        chances_a, chances_b = a.probabilities or (), b.probabilities or ()
        verdict = AspectVerdict(a.expected, b.expected, None, None, None, chances_a, chances_b)
        return verdict, log_odds(chances_a, chances_b, SCALE.numbers or ())

    def _spreads(self, answers: Sequence[Answer]) -> tuple[Spread, Spread]:
        known = [answer.spreads[0] for answer in answers if answer.spreads and answer.spreads[0] is not None]
        return (known[0], known[1]) if len(known) == 2 else (msgspec.UNSET, msgspec.UNSET)


def about(aspect: Aspect) -> dict[str, Any]:
    """What the prompt file says of an aspect."""
    return {"aspect": aspect.name, "definition": aspect.definition}
