"""Which pages of a corpus may help to answer a question: by words, by meaning, or by a search of the user's own."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from adjudge.rewards.judges.retrieval import Embed, Index
from adjudge.rewards.records.verdict import Example
from adjudge.rewards.words import ALONE
from adjudge.training.rubrics.corpus import Page

SATURATION, LENGTH = 1.2, 0.75
"""BM25's k1 and b, as they are usually set."""

_RUN = re.compile(rf"([{ALONE}]+)|[^\W{ALONE}]+")


class Search(Protocol):
    """A search engine: for each question at most `count` pages, the best first; none where it finds none.

    The paper asks a web search, which ranks by clicks; whoever has one puts it here, or its results into the questions.
    """

    def __call__(self, questions: Sequence[str], count: int) -> Sequence[Sequence[Page]]:
        """The pages of each question, in order."""


class WordSearch:
    """The pages that share the rarest words with a question, by BM25; it costs no tokens and needs no model.

    Words are what stands between blanks and signs, case aside; of scripts without blanks, each two neighbours.
    """

    def __init__(self, pages: Sequence[Page]) -> None:
        self.pages = tuple(pages)
        self._lengths = [0] * len(pages)
        self._places: dict[str, list[tuple[int, int]]] = {}
        for place, page in enumerate(self.pages):
            counts = Counter(_terms(page.text))
            self._lengths[place] = counts.total()
            for term, count in counts.items():
                self._places.setdefault(term, []).append((place, count))
        self._mean = sum(self._lengths) / max(1, len(self._lengths)) or 1.0

    def __call__(self, questions: Sequence[str], count: int) -> list[list[Page]]:
        """The pages of each question, in order; those without a common word are not found."""
        return [self._found(question, count) for question in questions]

    def _found(self, question: str, count: int) -> list[Page]:
        scores: dict[int, float] = {}
        for term in dict.fromkeys(_terms(question)):
            places = self._places.get(term, [])
            rarity = math.log1p((len(self.pages) - len(places) + 0.5) / (len(places) + 0.5))
            for place, number in places:
                long = 1 - LENGTH + LENGTH * self._lengths[place] / self._mean
                scores[place] = scores.get(place, 0.0) + rarity * number / (number + SATURATION * long)
        best = sorted(scores, key=lambda place: (-scores[place], place))[:count]
        return [self.pages[place] for place in best]


class MeaningSearch:
    """The pages whose embeddings are nearest to a question's, by an exact cosine (`rewards.retrieval`)."""

    def __init__(self, pages: Sequence[Page], embed: Embed) -> None:
        self.pages = tuple(pages)
        self.index = Index([Example(page.text, str(place)) for place, page in enumerate(self.pages)], embed)

    def __call__(self, questions: Sequence[str], count: int) -> list[list[Page]]:
        """The pages of each question, in order; none for a question that has no embedding."""
        found = self.index.nearest(questions, [""] * len(questions), count)
        return [[self.pages[int(example.response)] for example in one.examples] for one in found]


def _terms(text: str) -> Iterator[str]:
    for found in _RUN.finditer(text.casefold()):
        if run := found[1]:
            yield from (run[start : start + 2] for start in range(max(1, len(run) - 1)))
        else:
            yield found[0]
