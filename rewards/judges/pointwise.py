"""`PointwiseJudge`: one story at a time, several aspects (the pointwise variant of EvolvR; arXiv 2508.06046)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import msgspec

from adjudge.engine.face import EngineFace
from adjudge.rewards.judges.asking import Answer, Question
from adjudge.rewards.judges.aspects import HANNA, Aspect, Aspects, aspects_of
from adjudge.rewards.judges.comparing import ComparingJudge
from adjudge.rewards.judges.judge import How, ItemJudge
from adjudge.rewards.judges.pairwise import SCALE
from adjudge.rewards.judges.preference import log_odds, sigmoid
from adjudge.rewards.verdict import AspectVerdict, Item, Pair, PairVerdict, Verdict, abstention, weighted_mean


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
        score = None if abstention(parts) else weighted_mean(parts)
        return self._verdict(score, parts, answers, key, truncated)


class PointwisePairJudge(ComparingJudge):
    """Compares two stories by the scores that each gets by itself: neither is first, so there is no position bias.

    The questions are those of `PointwiseJudge`, and so are `how` and when an aspect abstains; that a is better on an
    aspect has the probability that a draw from its scores is the higher one (`log_odds`).
    """

    kind = "pointwise"

    def __init__(self, engine: EngineFace, aspects: Aspects = HANNA, **how: Unpack[How]) -> None:
        super().__init__(engine, aspects, "ab", **how)

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

    def _conclude(self, pair: Pair, answers: Mapping[str, Answer], key: str, truncated: bool) -> PairVerdict:
        verdicts: dict[str, AspectVerdict] = {}
        better: dict[str, float] = {}
        for aspect in self.aspects:
            verdicts[aspect.name], better[aspect.name] = self._apart(
                *(answers[f"{aspect.name} {side}"] for side in "ab")
            )
        return self._pair_verdict(verdicts, better, key, truncated)

    def _apart(self, a: Answer, b: Answer) -> tuple[AspectVerdict, float]:
        """One aspect's verdict, and the log-odds that a is better (0 where it abstains)."""
        texts = (*(a.analyses or ()), *(b.analyses or ())) or None
        scores = [*a.scores, *b.scores]
        mass, reason = self._weakest(scores)
        if reason:
            return AspectVerdict(None, None, None, None, mass, abstained=reason, analyses=texts), 0.0
        chances_a, chances_b = (score.probabilities or () for score in scores)
        better = log_odds(chances_a, chances_b, SCALE.numbers or ())
        score_a, score_b = (score.expected for score in scores)
        preference = sigmoid(better)
        verdict = AspectVerdict(score_a, score_b, preference, None, mass, chances_a, chances_b, analyses=texts)
        spreads = [answer.spreads[0] for answer in (a, b) if answer.spreads and answer.spreads[0] is not None]
        if len(spreads) == 2:
            verdict = msgspec.structs.replace(verdict, spread_a=spreads[0], spread_b=spreads[1])
        return verdict, better


def about(aspect: Aspect) -> dict[str, Any]:
    """What the prompt file says of an aspect."""
    return {"aspect": aspect.name, "definition": aspect.definition}
