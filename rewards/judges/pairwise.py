"""`PairwiseJudge`: two stories, several aspects, both orders (EvolvR; arXiv 2508.06046)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from adjudge.engine.score import Score
from adjudge.engine.text.labels import Labels
from adjudge.engine.text.prompt import Prompt
from adjudge.rewards.judges.asking import Question
from adjudge.rewards.judges.aspects import Aspect
from adjudge.rewards.judges.comparing import ComparingJudge
from adjudge.rewards.judges.preference import debiased, log_odds
from adjudge.rewards.records.verdict import AspectVerdict, Pair

SCALE = Labels(("1", "2", "3", "4", "5"), terminator=" </ANSWER>")
"""EvolvR's scale and the mark that ends an answer."""


class PairwiseJudge(ComparingJudge):
    """Compares stories aspect by aspect.

    In direct mode two sibling questions for each aspect and order end at an answer slot, one for each story; neither
    sees the other's answer. In reasoned mode the model analyses both stories on the aspect, then scores both. `orders`
    "both" cancels position bias, "ab" shows a first only; `how` is that of `AskingJudge`. An aspect of weight above 0
    that abstains makes the pair abstain.
    """

    kind = "pairwise"

    def prompts(self, pair: Pair) -> tuple[list[Prompt], bool]:
        """The prompts of a pair, and whether texts had to be shortened.

        In direct mode one for each order, aspect and story, in reasoned mode one for each order and aspect.
        """
        questions, shortened = self.ask(pair)
        return [question.prompt for question in questions], shortened

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
        questions: list[Question] = []
        for order, aspect in product(self.orders, self.aspects):
            shown, about = texts_of_question(pair, order, aspect)
            if self.asking.mode == "reasoned":
                [name] = self._names(order, aspect)
                questions.append(Question(name, self._prompt(shown, **about), SCALE, answers=2))
            else:
                for place, name in enumerate(self._names(order, aspect), 1):
                    questions.append(Question(name, self._prompt(shown, **about, asked=place), SCALE))
        return questions

    def _names(self, order: str, aspect: Aspect) -> list[str]:
        """The names of the questions about an aspect in an order: one for each place of a story, or one for both."""
        both = super()._names(order, aspect)
        return both if self.asking.mode == "reasoned" else [f"{name} {place}" for name in both for place in (1, 2)]

    def _compared(self, scores: Sequence[Score]) -> tuple[AspectVerdict, float]:
        distributions = [score.probabilities or () for score in scores]
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
        return AspectVerdict(score_a, score_b, None, bias, None, a, b), better


def _mean(left: Sequence[float], right: Sequence[float]) -> tuple[float, ...]:
    return tuple((x + y) / 2 for x, y in zip(left, right, strict=True))


def asked_about(name: str) -> tuple[str, str]:
    """The aspect and the story, "a" or "b", that a question in direct mode is about, by its name."""
    order, _, rest = name.partition(" ")
    aspect, _, place = rest.rpartition(" ")
    return aspect, order[int(place) - 1]


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
