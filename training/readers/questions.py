"""What is asked about a reader: the new plot or plots, their earlier reviews, and what they said in the end."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.text.prompt import Message
from adjudge.rewards.judges import template
from adjudge.rewards.judges.asking import Mode
from adjudge.rewards.judges.aspects import Aspect
from adjudge.rewards.judges.personal import (
    PersonalJudge,
    PersonalPairJudge,
    last_reviews,
    texts_of_choice,
    texts_of_rating,
)
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.verdict import Comparison, Item, Pair, Review
from adjudge.rewards.records.wire import item_of, pair_of
from adjudge.rewards.words import count_words, shortened
from adjudge.training.readers.reviews import NEEDED_BY, score_of
from adjudge.training.stages import read_stage

LEAST_WORDS = 10
"""Of a text that is shortened to a budget."""


class RatingQuestion(msgspec.Struct, frozen=True):
    """A plot with its reader's earlier reviews, and what that reader wrote about it and gave it.

    `shortened` counts the texts that were made to fit the budget.
    """

    item: Item
    reviewer: str
    split: str
    review: str
    score: float
    shortened: int = 0

    @property
    def record(self) -> dict[str, Any]:
        """As `adjudge judge --judge personal` reads it; the reader's own word is in `review` and `expected`."""
        item = self.item
        return {
            "id": item.id,
            "reviewer": self.reviewer,
            "split": self.split,
            "prompt": item.prompt,
            "response": item.response,
            "reviews": msgspec.to_builtins(item.reviews),
            "review": self.review,
            "expected": self.score,
            "shortened": self.shortened,
        }

    @property
    def shown(self) -> int:
        """How many earlier reviews there are to show."""
        return len(self.item.reviews)

    def messages(self, k: int, texts: bool = True) -> list[Message]:
        """The judge's question after `k` reviews, in reasoned mode."""
        data, trusted = texts_of_rating(self.item, k, texts=texts)
        return _messages(PersonalJudge.kind, "reasoned", data, trusted)[0]

    def texts(self) -> list[str]:
        """The texts that may be shortened."""
        return [self.item.response, *(text for old in self.item.reviews for text in (old.plot, old.review or ""))]

    def with_texts(self, texts: Sequence[str], count: int) -> RatingQuestion:
        """The same with those texts, `count` of them shortened."""
        plot, *earlier = texts
        reviews = tuple(
            Review(*pair, old.score)
            for pair, old in zip(zip(earlier[::2], earlier[1::2], strict=True), self.item.reviews, strict=True)
        )
        item = msgspec.structs.replace(self.item, response=plot, reviews=reviews)
        return msgspec.structs.replace(self, item=item, shortened=count)


class ChoiceQuestion(msgspec.Struct, frozen=True):
    """Two plots with their reader's earlier choices on one aspect, and the one that reader preferred."""

    pair: Pair
    reviewer: str
    split: str
    aspect: str
    preferred: Literal["a", "b"]
    shortened: int = 0

    @property
    def record(self) -> dict[str, Any]:
        """As `adjudge judge --judge personal` reads it; `expected` is what the reader preferred on `aspect`."""
        pair = self.pair
        return {
            "id": pair.id,
            "reviewer": self.reviewer,
            "split": self.split,
            "aspect": self.aspect,
            "prompt": pair.prompt,
            "story_a": pair.a,
            "story_b": pair.b,
            "reviews": msgspec.to_builtins(pair.reviews),
            "expected": self.preferred,
            "shortened": self.shortened,
        }

    @property
    def shown(self) -> int:
        """How many pairs that were chosen between there are to show."""
        return len({(choice.a, choice.b) for choice in self.pair.reviews})

    def messages(self, k: int, aspect: Aspect, order: str = "ab", mode: Mode = "reasoned") -> tuple[list[Message], str]:
        """The judge's question after `k` pairs, and the beginning of its answer."""
        data, trusted = texts_of_choice(self.pair, order, aspect, k)
        return _messages(PersonalPairJudge.kind, mode, data, trusted)

    def texts(self) -> list[str]:
        """The texts that may be shortened."""
        return [self.pair.a, self.pair.b, *(text for old in self.pair.reviews for text in (old.a, old.b))]

    def with_texts(self, texts: Sequence[str], count: int) -> ChoiceQuestion:
        """The same with those texts, `count` of them shortened."""
        a, b, *earlier = texts
        reviews = tuple(
            Comparison(*plots, old.preferred, old.aspect)
            for plots, old in zip(zip(earlier[::2], earlier[1::2], strict=True), self.pair.reviews, strict=True)
        )
        pair = msgspec.structs.replace(self.pair, a=a, b=b, reviews=reviews)
        return msgspec.structs.replace(self, pair=pair, shortened=count)


Question = RatingQuestion | ChoiceQuestion


def read_questions(path: Path) -> list[Question]:
    """The rows of a file as `adjudge readers group` writes it; the first says whether it holds plots or pairs.

    Raises AdjudgeError naming the line: what the judge could not read, a reader's word that is missing or off the
    scale, a reader without reviews, an id that comes twice, and a reader on two sides of the split.
    """
    rows = read_stage(path)
    if "expected" not in rows[0].columns and {"plot", "preferred"} & rows[0].columns.keys():
        raise AdjudgeError(
            f"{rows[0].place}: these are reviews, and no questions yet: first `adjudge readers group {path} -o"
            " questions.jsonl`"
        )
    for row in rows:
        if missing := next((name for name in ("reviewer", "expected") if row.columns.get(name) is None), None):
            raise AdjudgeError(f'{row.place}: "{missing}" is missing (`adjudge readers group` writes it)')
    single = "response" in rows[0].columns
    made: list[Question] = [(_rating if single else _chosen)(row, number) for number, row in enumerate(rows, 1)]
    sides: dict[str, str] = {}
    for row, question in zip(rows, made, strict=True):
        side = sides.setdefault(question.reviewer, question.split)
        if side != question.split:
            raise AdjudgeError(
                f'{row.place}: the reviewer "{question.reviewer}" is in {question.split or "no split"}, but in'
                f" {side or 'no split'} before: put each on one side"
            )
    return made


def within_budget(question: Any, words: int, messages: Sequence[Message]) -> Any:
    """The question whose prompt has at most `words` words: its longest texts are shortened to one length.

    Of a text too long its first and last words stay. Raises AdjudgeError for a budget that leaves a text less than
    `LEAST_WORDS`.
    """
    texts = question.texts()
    lengths = [count_words(text) for text in texts]
    spare = words - (words_of_messages(messages) - sum(lengths))
    if sum(lengths) <= spare:
        return question
    caps = range(LEAST_WORDS, max(lengths))
    limit = LEAST_WORDS - 1 + bisect.bisect_right(caps, spare, key=lambda cap: sum(min(n, cap) for n in lengths))
    if limit < LEAST_WORDS:
        raise AdjudgeError(f"a prompt of {words} words has no room for {len(texts)} texts: allow more, or lower k")
    return question.with_texts([shortened(text, limit) for text in texts], sum(length > limit for length in lengths))


def words_of_messages(messages: Sequence[Message]) -> int:
    """How many words a prompt has, its template and all texts."""
    return sum(count_words(segment.text) for message in messages for segment in message.content.segments)


def plain(messages: Sequence[Message]) -> tuple[str, str]:
    """The system's and the user's part as plain texts."""
    system, user = ("".join(segment.text for segment in message.content.segments) for message in messages)
    return system, user


def _messages(
    kind: str, mode: Mode, data: Mapping[str, template.Data], trusted: Mapping[str, Any]
) -> tuple[list[Message], str]:
    return template.load(kind).render(data=data, mode=mode, layout="shared", **trusted)


def _rating(row: Row, number: int) -> RatingQuestion:
    item = item_of(row, number, ("reviews",))
    _need_reviews(row, item.reviews)
    last_reviews(item, len(item.reviews), row.place, texts=True)
    review = row.columns.get("review")
    own = "" if review is None else row.text("review", NEEDED_BY)
    return RatingQuestion(item, _reader(row), _split(row), own, score_of(row, "expected"))


def _chosen(row: Row, number: int) -> ChoiceQuestion:
    pair = pair_of(row, number, ("reviews",))
    _need_reviews(row, pair.reviews)
    preferred = row.text("expected", NEEDED_BY)
    if preferred not in ("a", "b"):
        raise AdjudgeError(f'{row.place}: "expected" is "{preferred[:40]}": write a or b')
    aspect = row.text("aspect", NEEDED_BY)
    return ChoiceQuestion(pair, _reader(row), _split(row), aspect, preferred)  # type: ignore[arg-type]


def _need_reviews(row: Row, reviews: Sequence[object]) -> None:
    if not reviews:
        raise AdjudgeError(f'{row.place}: the reviewer "{_reader(row)}" has no "reviews" to judge by: give some')


def _reader(row: Row) -> str:
    return str(row.columns["reviewer"])


def _split(row: Row) -> str:
    return row.optional_text("split", NEEDED_BY) or ""
