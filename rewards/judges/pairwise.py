"""`PairwiseJudge`: two stories, several aspects, both orders (EvolvR; arXiv 2508.06046)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Unpack

import msgspec

from adjudge.engine.face import EngineFace
from adjudge.engine.score import Score
from adjudge.engine.text.labels import Labels
from adjudge.engine.text.prompt import Prompt
from adjudge.rewards.judges.asking import Answer, Question
from adjudge.rewards.judges.aspects import HANNA, Aspect, Aspects
from adjudge.rewards.judges.comparing import ComparingJudge, Orders
from adjudge.rewards.judges.judge import How
from adjudge.rewards.judges.preference import debiased, log_odds, sigmoid
from adjudge.rewards.verdict import AspectVerdict, Pair, PairVerdict

SCALE = Labels(("1", "2", "3", "4", "5"), terminator=" </ANSWER>")
"""EvolvR's scale and the mark that ends an answer."""


class Slot(msgspec.Struct, frozen=True):
    """One answer slot: the score of the story in place `asked` (0 or 1), shown in `order`, on one aspect."""

    aspect: str
    order: str
    asked: int


class PairwiseJudge(ComparingJudge):
    """Compares stories aspect by aspect.

    In direct mode two sibling questions for each aspect and order end at an answer slot, one for each story; neither
    sees the other's answer. In reasoned mode the model analyses both stories on the aspect, then scores both. `orders`
    "both" cancels position bias, "ab" shows a first only; `how` is that of `AskingJudge`. An aspect of weight above 0
    that abstains makes the pair abstain.
    """

    kind = "pairwise"

    def __init__(
        self,
        engine: EngineFace,
        aspects: Aspects = HANNA,
        *,
        orders: Orders = "both",
        **how: Unpack[How],
    ) -> None:
        super().__init__(engine, aspects, orders, **how)
        self.questions = tuple(
            Slot(aspect.name, order, asked) for order, aspect, asked in product(self.orders, self.aspects, (0, 1))
        )

    def prompts(self, pair: Pair) -> tuple[list[Prompt], bool]:
        """The prompts of a pair, and whether texts had to be shortened.

        In direct mode one for each of `self.questions`, in reasoned mode one for each two.
        """
        questions, shortened = self.ask(pair)
        return [question.prompt for question in questions], shortened

    def verdict(
        self,
        scores: Sequence[Score],
        key: str = "",
        truncated: bool = False,
        analyses: Mapping[str, tuple[str, ...]] | None = None,
    ) -> PairVerdict:
        """The verdict from the scores of `self.questions`, in their order, and the analyses by aspect."""
        by_slot = dict(zip(self.questions, scores, strict=True))
        aspects: dict[str, AspectVerdict] = {}
        better: dict[str, float] = {}
        for aspect in self.aspects:
            verdict, better[aspect.name] = self._aspect(aspect.name, by_slot)
            aspects[aspect.name] = msgspec.structs.replace(verdict, analyses=(analyses or {}).get(aspect.name))
        return self._pair_verdict(aspects, better, key, truncated)

    def _content(self, pair: Pair) -> dict[str, Any]:
        return {
            "labels": SCALE,
            "aspects": self.aspects,
            "orders": self.orders,
            "reference": None,
            "prompts": pair.prompts,
            "texts": (pair.a, pair.b),
        }

    def _questions(self, pair: Pair) -> list[Question]:
        """In the order of `self.questions`, whose scores they lead to."""
        questions: list[Question] = []
        for order, aspect in product(self.orders, self.aspects):
            shown, about = texts_of_question(pair, order, aspect)
            name = f"{order} {aspect.name}"
            if self.asking.mode == "reasoned":
                questions.append(Question(name, self._prompt(shown, **about), SCALE, answers=2))
            else:
                for place in (1, 2):
                    questions.append(Question(f"{name} {place}", self._prompt(shown, **about, asked=place), SCALE))
        return questions

    def _conclude(self, pair: Pair, answers: Mapping[str, Answer], key: str, truncated: bool) -> PairVerdict:
        scores = [score for answer in answers.values() for score in answer.scores]
        if self.asking.mode != "reasoned":
            return self.verdict(scores, key, truncated)
        given = {aspect.name: [answers[f"{order} {aspect.name}"] for order in self.orders] for aspect in self.aspects}
        analyses = {name: tuple(text for one in asked for text in one.analyses or ()) for name, asked in given.items()}
        verdict = self.verdict(scores, key, truncated, analyses)
        aspects = {name: self._with_spreads(aspect, given[name]) for name, aspect in verdict.aspects.items()}
        return msgspec.structs.replace(verdict, aspects=aspects)

    def _aspect(self, name: str, scores: dict[Slot, Score]) -> tuple[AspectVerdict, float]:
        """One aspect's verdict, and the log-odds that a is better (0 where it abstains)."""
        asked = [scores[Slot(name, order, place)] for order in self.orders for place in (0, 1)]
        mass, reason = self._weakest(asked)
        if reason:
            return AspectVerdict(None, None, None, None, mass, abstained=reason), 0.0
        distributions = [score.probabilities or () for score in asked]
        values = SCALE.numbers
        assert values is not None
        if len(self.orders) == 2:
            first_ab, second_ab, first_ba, second_ba = distributions
            better, bias = debiased(log_odds(first_ab, second_ab, values), log_odds(first_ba, second_ba, values))
            a, b = _mean(first_ab, second_ba), _mean(second_ab, first_ba)
        else:
            a, b = distributions
            better, bias = log_odds(a, b, values), None
        score_a, score_b = (sum(p * v for p, v in zip(story, values, strict=True)) for story in (a, b))
        return AspectVerdict(score_a, score_b, sigmoid(better), bias, mass, a, b), better


def _mean(left: Sequence[float], right: Sequence[float]) -> tuple[float, ...]:
    return tuple((x + y) / 2 for x, y in zip(left, right, strict=True))


def texts_of_question(pair: Pair, order: str, aspect: Aspect) -> tuple[dict[str, str], dict[str, Any]]:
    """What the prompt file is filled with: texts that are data (the second prompt only where it is another), and ours.

    Together with the mode and the layout, and in direct mode the place asked for, they decide the prompt.
    """
    stories, prompts = (pair.a, pair.b), pair.prompts
    if order == "ba":
        stories, prompts = stories[::-1], prompts[::-1]
    shown = {"prompt_1": prompts[0], "story_1": stories[0], "story_2": stories[1]}
    same = prompts[0] == prompts[1]
    about = {"same_prompt": same, "aspect": aspect.name, "definition": aspect.definition}
    return (shown if same else {**shown, "prompt_2": prompts[1]}), about
