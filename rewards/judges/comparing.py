"""What the judges of pairs have in common: aspects, one order or both, and a preference from the aspects' log-odds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Literal, Unpack

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.engine.score import Score
from adjudge.rewards.judges.asking import Answer
from adjudge.rewards.judges.aspects import HANNA, Aspect, Aspects, aspects_of
from adjudge.rewards.judges.judge import WINDOW, AskingJudge, How
from adjudge.rewards.judges.preference import debiased, sigmoid
from adjudge.rewards.records.verdict import AspectVerdict, Pair, PairVerdict

Orders = Literal["both", "ab"]
Spread = float | msgspec.UnsetType


class ComparingJudge(AskingJudge[Pair, PairVerdict]):
    """A judge that compares the two texts of pairs aspect by aspect.

    `orders` "both" cancels position bias, "ab" shows a first only; `how` is that of `AskingJudge`. An aspect of weight
    above 0 that abstains makes the pair abstain. Raises AdjudgeError for other orders.
    """

    verdict_type = PairVerdict

    def __init__(
        self, engine: EngineFace, aspects: Aspects = HANNA, *, orders: Orders = "both", **how: Unpack[How]
    ) -> None:
        if orders not in ("both", "ab"):
            raise AdjudgeError(f'orders is "{orders}": choose both or ab')
        super().__init__(engine, **how)
        self.aspects = aspects_of(aspects)
        self.orders: tuple[str, ...] = ("ab", "ba") if orders == "both" else ("ab",)

    def compare(self, pairs: Iterable[Pair]) -> list[PairVerdict]:
        """A verdict for every pair, in order."""
        return self.judge(pairs)

    def compare_iter(self, pairs: Iterable[Pair], window: int = WINDOW) -> Iterator[PairVerdict]:
        """As `judge_iter`."""
        return self.judge_iter(pairs, window)

    def _conclude(self, pair: Pair, answers: Mapping[str, Answer], key: str, truncated: bool) -> PairVerdict:
        """The preference is σ of the weighted mean of the aspects' log-odds."""
        verdicts: dict[str, AspectVerdict] = {}
        better: dict[str, float] = {}
        for aspect in self.aspects:
            given = [answers[name] for order in self.orders for name in self._names(order, aspect)]
            verdict, better[aspect.name] = self._aspect(given)
            verdicts[aspect.name] = msgspec.structs.replace(verdict, weight=aspect.weight)
        counted = [aspect for aspect in self.aspects if aspect.weight > 0]
        abstained = next((reason for aspect in counted if (reason := verdicts[aspect.name].abstained)), None)
        total = sum(aspect.weight * better[aspect.name] for aspect in counted)
        preference = None if abstained else sigmoid(total / sum(aspect.weight for aspect in counted))
        return PairVerdict("", preference, verdicts, abstained, truncated, self.engine.name, key)

    def _names(self, order: str, aspect: Aspect) -> list[str]:
        """The names of the questions about an aspect in an order."""
        return [f"{order} {aspect.name}"]

    def _aspect(self, answers: Sequence[Answer]) -> tuple[AspectVerdict, float]:
        """One aspect's verdict, and the log-odds that a is better (0 where it abstains)."""
        texts = tuple(text for answer in answers for text in answer.analyses or ()) or None
        scores = [score for answer in answers for score in answer.scores]
        mass, reason = self._weakest(scores)
        if reason:
            return AspectVerdict(None, None, None, None, mass, abstained=reason, analyses=texts), 0.0
        verdict, better = self._compared(scores)
        spread_a, spread_b = self._spreads(answers)
        own = {"preference": sigmoid(better), "mass": mass, "analyses": texts}
        return msgspec.structs.replace(verdict, **own, spread_a=spread_a, spread_b=spread_b), better

    def _compared(self, scores: Sequence[Score]) -> tuple[AspectVerdict, float]:
        """What an aspect's scores say of the stories, and the log-odds of a: here each chooses the first or second."""
        chances = [score.probabilities or () for score in scores]
        odds = [math.log(max(first, math.ulp(0.0))) - math.log(max(second, math.ulp(0.0))) for first, second in chances]
        if len(odds) == 2:
            (first_ab, second_ab), (first_ba, second_ba) = chances
            better, bias = debiased(*odds)
            score_a, score_b = (first_ab + second_ba) / 2, (second_ab + first_ba) / 2
        else:
            [(score_a, score_b)], [better], bias = chances, odds, None
        return AspectVerdict(score_a, score_b, None, bias, None), better

    def _spreads(self, answers: Sequence[Answer]) -> tuple[Spread, Spread]:
        """The spread of each story's scores, where several analyses in each order could be read."""
        if not all(answer.spreads for answer in answers):
            return msgspec.UNSET, msgspec.UNSET
        # Of the story shown first, and of the other: a choice is one score, which moves both alike.
        shown = [((answer.spreads or ()) * 2)[:2] for answer in answers]
        a, b = zip(*(spreads[::-1] if place else spreads for place, spreads in enumerate(shown)), strict=True)
        return _root_mean_square(a), _root_mean_square(b)


def _root_mean_square(values: Sequence[float | None]) -> Spread:
    known = [value for value in values if value is not None]
    return math.sqrt(fmean(value**2 for value in known)) if len(known) == len(values) else msgspec.UNSET
