"""A judge of a test's own making, with two questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adjudge.engine.text.labels import Labels
from adjudge.rewards.judges.own import OwnJudge, Worded
from adjudge.rewards.records.verdict import Item

TINY = "dummy:tiny-llama"
DIGITS = Labels(tuple("0123456789"))
ITEM = Item("2 + 2?", "4", id="mine")


class Homework(OwnJudge):
    range = (0.0, 9.0)

    def __init__(self, engine: Any, *, words: str = "{task} {answer} Right?", **how: Any) -> None:
        super().__init__(engine, **how)
        self.words = words

    def questions(self, item: Item) -> Sequence[Worded]:
        texts = {"task": item.prompt, "answer": item.response}
        return [self.question(name, self.words, DIGITS, answer, **texts) for name, answer in (("a", "A:"), ("b", "B:"))]
