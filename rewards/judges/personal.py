"""What one reader would say, by their earlier reviews: two judges after PerSE (Wang et al., 2023; arXiv 2310.03304)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from numbers import Integral, Real
from typing import Any, Unpack

from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.engine.text.labels import Labels
from adjudge.rewards.judges.asking import Answer, Question
from adjudge.rewards.judges.aspects import PERSE, Aspect, Aspects
from adjudge.rewards.judges.comparing import ComparingJudge, Orders
from adjudge.rewards.judges.judge import How, ItemJudge
from adjudge.rewards.judges.template import Data
from adjudge.rewards.records.verdict import Comparison, Item, Pair, Review, Verdict

RATINGS = Labels(tuple(map(str, range(1, 11))))
"""PerSE's scale, 1 to 10. "1" counts where no "0" follows: to ask for the end mark after it, and it alone, would make
"1" rarer by the chance that the model leaves the end mark out or spells it otherwise."""

CHOICES = Labels(("1", "2"), terminator=" </ANSWER>")
"""The plot shown first, or second."""

MOST = 5
"""Earlier reviews that are shown at most (PerSE's analyses: 0 to 5)."""


class PersonalJudge(ItemJudge):
    """Foresees the score, 1 to 10, that one reader gives a plot: `Item.response`, by that reader's `Item.reviews`.

    The last `k` reviews are shown, in their order, with their texts or (`texts` False) plots and scores only; where
    there are fewer, all. The score is the expected value of the distribution over "1" to "10"; in reasoned mode the
    reader's review is written first (as the paper has it) and the score read where it was written. `how` is that of
    `AskingJudge`. Raises AdjudgeError for an item without reviews (unless k is 0), a score outside 1 to 10, and a k
    outside 0 to 5.
    """

    kind = "personal"
    range = (1.0, 10.0)

    def __init__(self, engine: EngineFace, *, k: int = 3, texts: bool = True, **how: Unpack[How]) -> None:
        super().__init__(engine, **how)
        self.k = checked_k(k)
        self.texts = texts

    def _content(self, item: Item) -> dict[str, Any]:
        reviews = last_reviews(item, self.k, f'item "{item.id}"', texts=self.texts)
        return {
            "labels": RATINGS,
            "texts": self.texts,
            "reviews": [(review.plot, review.review if self.texts else "", review.score) for review in reviews],
            "prompt": item.prompt,
            "response": item.response,
        }

    def _questions(self, item: Item) -> list[Question]:
        data, trusted = texts_of_rating(item, self.k, texts=self.texts)
        return [Question("rating", self._prompt(data, **trusted), RATINGS)]

    def _conclude(self, item: Item, answers: Mapping[str, Answer], key: str, truncated: bool) -> Verdict:
        part = self._part(answers["rating"])
        return self._verdict(part.score, {"rating": part}, answers, key, truncated)


class PersonalPairJudge(ComparingJudge):
    """Foresees which of two plots one reader prefers, aspect by aspect, by that reader's earlier choices.

    `Pair.reviews` are those choices. Choices between the same two plots belong together; the last `k` such pairs are
    shown, in the order given, with what was chosen on each aspect (the paper: k = 1), so that all aspects of all pairs
    of a reader share them. Each question ends in the choice between the plot shown first and the one shown second: with
    ℓ the log-odds of the first, p = σ((ℓ_AB − ℓ_BA)/2) and bias = (ℓ_AB + ℓ_BA)/2, so that an additive liking for a
    place (and the copying of an earlier "first" or "second") cancels exactly; an even distribution is a tie.

    In an `AspectVerdict` `score_a` and `score_b` are the probabilities that a and that b is chosen, averaged over the
    orders (their sum is 1), and the distributions, which would say the same, are None. `orders` "ab" shows a first
    only. `how` is that of `AskingJudge`. An aspect of weight above 0 that abstains makes the pair abstain. Raises
    AdjudgeError for a pair without reviews (unless k is 0), and a k outside 0 to 5.
    """

    kind = "personal_pair"

    def __init__(
        self,
        engine: EngineFace,
        aspects: Aspects = PERSE,
        *,
        k: int = 1,
        orders: Orders = "both",
        **how: Unpack[How],
    ) -> None:
        super().__init__(engine, aspects, orders=orders, **how)
        self.k = checked_k(k)

    def _content(self, pair: Pair) -> dict[str, Any]:
        return {
            "labels": CHOICES,
            "aspects": self.aspects,
            "orders": self.orders,
            "reviews": last_comparisons(pair, self.k, f'pair "{pair.id}"'),
            "prompts": pair.prompts,
            "texts": (pair.a, pair.b),
        }

    def _questions(self, pair: Pair) -> list[Question]:
        questions: list[Question] = []
        for order, aspect in product(self.orders, self.aspects):
            data, trusted = texts_of_choice(pair, order, aspect, self.k)
            [name] = self._names(order, aspect)
            questions.append(Question(name, self._prompt(data, **trusted), CHOICES))
        return questions


def texts_of_rating(item: Item, k: int, *, texts: bool = True) -> tuple[dict[str, Data], dict[str, Any]]:
    """The untrusted texts of the question about an item, and what else its prompt file needs; raises AdjudgeError."""
    reviews = last_reviews(item, k, f'item "{item.id}"', texts=texts)
    data: dict[str, Data] = {
        "plots": [review.plot for review in reviews],
        "reviews": [review.review for review in reviews if review.review is not None] if texts else [],
        "prompt": item.prompt,
        "plot": item.response,
    }
    return data, {"scores": [f"{review.score:g}" for review in reviews], "has_prompt": bool(item.prompt)}


def texts_of_choice(pair: Pair, order: str, aspect: Aspect, k: int) -> tuple[dict[str, Data], dict[str, Any]]:
    """The same for a pair, shown in that order ("ab", "ba"), and one aspect."""
    earlier = last_comparisons(pair, k, f'pair "{pair.id}"')
    shown = [(pair.prompts[0], pair.a), (pair.prompts[1], pair.b)]
    (prompt_1, plot_1), (prompt_2, plot_2) = shown if order == "ab" else shown[::-1]
    data: dict[str, Data] = {
        "firsts": [choices[0].a for choices in earlier],
        "seconds": [choices[0].b for choices in earlier],
        "earlier_aspects": [[choice.aspect for choice in choices] for choices in earlier],
        "prompt_1": prompt_1,
        "prompt_2": prompt_2,
        "plot_1": plot_1,
        "plot_2": plot_2,
    }
    choices = [
        [{"place": 1 if choice.preferred == "a" else 2, "has_aspect": bool(choice.aspect)} for choice in of_pair]
        for of_pair in earlier
    ]
    trusted = {
        "choices": choices,
        "same_prompt": pair.prompts[0] == pair.prompts[1],
        "has_prompt": any(pair.prompts),
        "aspect": aspect.name,
        "definition": aspect.definition,
    }
    return data, trusted


def checked_k(k: int) -> int:
    """How many earlier reviews are shown; raises AdjudgeError for more than there is room for, or fewer than none."""
    if not (is_number(k, Integral) and 0 <= k <= MOST):
        raise AdjudgeError(f"k is {shown(k)}: show 0 to {MOST} earlier reviews")
    return k


def last_reviews(item: Item, k: int, place: str, *, texts: bool = False) -> tuple[Review, ...]:
    """The last k of an item's reviews; raises AdjudgeError naming `place` for none, or for a score off the scale.

    With `texts` also for one without its text. Those that are not shown may be as they are.
    """
    _check_any(item.reviews, k, place)
    before = max(len(item.reviews) - k, 0)
    for number, review in enumerate(item.reviews[before:], before + 1):
        if not (is_number(review.score, Real) and 1 <= review.score <= 10):
            raise AdjudgeError(f"{place}: review {number} has the score {shown(review.score)}: give one from 1 to 10")
        if texts and review.review is None:
            raise AdjudgeError(
                f'{place}: review {number} has no "review", its text: give it, or leave texts out (--without texts, in'
                " Python texts=False)"
            )
    return item.reviews[before:]


def last_comparisons(pair: Pair, k: int, place: str) -> tuple[tuple[Comparison, ...], ...]:
    """The reader's choices between the last k pairs of plots; raises AdjudgeError where there are none.

    Two plots are one pair in either order, shown in that of its last choice, whose place is the pair's.
    """
    _check_any(pair.reviews, k, place)
    together: dict[frozenset[str], list[Comparison]] = {}
    for choice in pair.reviews:
        earlier = together.pop(frozenset((choice.a, choice.b)), [])
        same_way = [one if (one.a, one.b) == (choice.a, choice.b) else _swapped(one) for one in earlier]
        together[frozenset((choice.a, choice.b))] = [*same_way, choice]
    return tuple(tuple(choices) for choices in together.values())[max(len(together) - k, 0) :]


def _swapped(choice: Comparison) -> Comparison:
    """The same choice with the plots the other way round."""
    return Comparison(choice.b, choice.a, "b" if choice.preferred == "a" else "a", choice.aspect)


def _check_any(reviews: Sequence[object], k: int, place: str) -> None:
    if k and not reviews:
        raise AdjudgeError(f'{place}: its reader has no "reviews" to judge by: give some, or set k to 0 to show none')
