"""Readers' reviews grouped into questions, split by reader (PerSE, 3; arXiv 2310.03304)."""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from adjudge.engine.checking import at_least
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.aspects import PERSE, Aspect
from adjudge.rewards.judges.personal import checked_k
from adjudge.rewards.records.verdict import Comparison, Item, Pair, Review
from adjudge.training.readers.questions import ChoiceQuestion, Question, RatingQuestion, within_budget
from adjudge.training.readers.reviews import PlotChoice, PlotReview
from adjudge.training.stages import Passed, grouped, sifted, without_repeats

Said = TypeVar("Said", PlotReview, PlotChoice)


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How questions are made; `ratings()` and `choices()` are the paper's.

    A reader needs `least` reviews and gets `n` questions at most, each after `k` others of that reader's, in a prompt
    of at most `budget` words. Of the readers the share `test` is kept unseen, at least one of two or more, unless the
    reviews come split. Raises AdjudgeError for rules that make no sense.
    """

    least: int
    n: int
    k: int
    budget: int = 2500
    test: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        checked_k(self.k)
        at_least(1, n=self.n, k=self.k)
        at_least(self.k + 1, least=self.least)
        if not 0 <= self.test < 1:
            raise AdjudgeError(f"{self.test} of the readers are kept for tests: give a share from 0 to less than 1")

    @staticmethod
    def ratings(**changed: Any) -> Rules:
        """For scores of single plots (Per-MPST)."""
        return Rules(**{"least": 6, "n": 10, "k": 3, **changed})

    @staticmethod
    def choices(**changed: Any) -> Rules:
        """For choices between two (Per-DOC)."""
        return Rules(**{"least": 2, "n": 50, "k": 1, **changed})


class Grouped(msgspec.Struct, frozen=True):
    """The questions, and what each stage left of the reviews; `readers` counts those of each side."""

    questions: Sequence[Question]
    stages: list[Passed[Any]]
    readers: dict[str, int]

    @property
    def shortened(self) -> tuple[int, int]:
        """How many questions have shortened texts, and how many texts those are."""
        counts = [question.shortened for question in self.questions if question.shortened]
        return len(counts), sum(counts)


def group_reviews(reviews: Sequence[PlotReview], rules: Rules) -> Grouped:
    """Questions about single plots.

    Of several reviews of one plot by one reader the first counts ("same_plot"): the others would tell the answer. The
    reviews of a reader with fewer than `least` are dropped ("few_reviews").
    """
    once = without_repeats(reviews, lambda one: (one.reviewer, one.plot), "same_plot")
    enough = _readers(once.kept, rules)
    sides = _sides(enough.kept, rules)
    questions: list[RatingQuestion] = []
    for reader, own in _by_reader(enough.kept).items():
        for query, priors, name in _drawn(own, _others, rules, reader):
            earlier = tuple(Review(one.plot, one.review, one.score) for one in priors)
            item = Item("", query.plot, name, reviews=earlier)
            question = RatingQuestion(item, reader, sides[reader], query.review, query.score)
            questions.append(within_budget(question, rules.budget, question.messages(rules.k)))
    return Grouped(questions, [once, enough], dict(Counter(sides.values())))


def group_choices(choices: Sequence[PlotChoice], rules: Rules, aspects: Sequence[Aspect] = PERSE) -> Grouped:
    """Questions about two plots, each after choices between other plots on the same aspect.

    Answers that prefer neither plot are dropped ("both", "neither"), and of several answers about the same plots and
    aspect by one reader all but the first ("same_plots"). The choices of a reader with fewer than `least` are dropped
    ("few_reviews"), and those on an aspect on which their reader said too little else ("few_on_aspect").
    """
    clear = sifted("answers", choices, lambda one: one.preferred if one.preferred in ("both", "neither") else None)
    once = without_repeats(clear.kept, lambda one: (one.reviewer, one.plots, one.aspect), "same_plots")
    enough = _readers(once.kept, rules)
    by_reader = _by_reader(enough.kept)
    asked = sifted(
        "aspects",
        enough.kept,
        lambda one: None if len(_same_aspect(one, by_reader[one.reviewer])) >= rules.k else "few_on_aspect",
    )
    sides, known = _sides(asked.kept, rules), {aspect.name: aspect for aspect in aspects}
    questions: list[ChoiceQuestion] = []
    for reader, own in _by_reader(asked.kept).items():
        for query, priors, name in _drawn(own, _same_aspect, rules, reader):
            earlier = tuple(Comparison(one.a, one.b, _side(one), one.aspect) for one in priors)
            pair = Pair(query.a, query.b, id=name, reviews=earlier)
            question = ChoiceQuestion(pair, reader, sides[reader], query.aspect, _side(query))
            messages, _ = question.messages(rules.k, known[query.aspect])
            questions.append(within_budget(question, rules.budget, messages))
    return Grouped(questions, [clear, once, enough, asked], dict(Counter(sides.values())))


def _drawn(
    own: Sequence[Said], others: Callable[[Said, Sequence[Said]], list[Said]], rules: Rules, reader: str
) -> Iterator[tuple[Said, list[Said], str]]:
    """Up to `n` reviews of a reader, each with `k` others and a name; all in turn, no two questions the same."""
    generator = random.Random(f"{rules.seed} {reader}")
    queries = deque(generator.sample(own, len(own)))
    seen: dict[str, set[frozenset[str]]] = {query.id: set() for query in queries}
    drawn = 0
    while queries and drawn < rules.n:
        query = queries.popleft()
        pool, used = others(query, own), seen[query.id]
        if len(used) == math.comb(len(pool), rules.k):
            continue
        while True:
            priors = generator.sample(pool, rules.k)
            names = frozenset(one.id for one in priors)
            if names not in used:
                break
        used.add(names)
        queries.append(query)
        drawn += 1
        yield query, priors, f"{query.id}.{len(used)}"


def _others(query: PlotReview, own: Sequence[PlotReview]) -> list[PlotReview]:
    return [one for one in own if one.id != query.id]


def _same_aspect(query: PlotChoice, own: Sequence[PlotChoice]) -> list[PlotChoice]:
    """A reader's choices on the same aspect between other plots."""
    return [one for one in own if one.aspect == query.aspect and one.plots != query.plots]


def _side(choice: PlotChoice) -> Any:
    return choice.preferred


def _readers(reviews: Sequence[Said], rules: Rules) -> Passed[Said]:
    counts = Counter(one.reviewer for one in reviews)
    return sifted("readers", reviews, lambda one: None if counts[one.reviewer] >= rules.least else "few_reviews")


def _by_reader(reviews: Iterable[Said]) -> dict[str, list[Said]]:
    return grouped(reviews, lambda one: one.reviewer)


def _sides(reviews: Sequence[PlotReview] | Sequence[PlotChoice], rules: Rules) -> dict[str, str]:
    """The side of each reader: as given, or the unseen ones drawn by the seed."""
    given = {one.reviewer: one.split for one in reviews}
    if all(given.values()):
        return {reader: str(split) for reader, split in given.items()}
    readers = sorted(given)
    count = min(max(1, round(rules.test * len(readers))), len(readers) - 1) if rules.test else 0
    unseen = set(random.Random(f"{rules.seed} unseen").sample(readers, count))
    return {reader: "test" if reader in unseen else "train" for reader in readers}
