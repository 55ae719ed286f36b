"""Scores read from what a model wrote: the distribution at the place where a written score stands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import torch

from adjudge.engine.completion import Completion
from adjudge.engine.errors import PromptError
from adjudge.engine.tokens import Tokens
from adjudge.kernels.answer_form import FILLER
from adjudge.kernels.answer_spans import answer_spans
from adjudge.kernels.byte_table import ByteTable
from adjudge.kernels.surroundings import undisturbed


class AnswerFormat(msgspec.Struct, frozen=True):
    """How a template has the model write a score: after one of `openings` and, if there are any, before a closing.

    `which` of several is meant, counted from 0, or from the end with -1. With a `count` a text must hold that many
    scores, no more and no fewer, and all of them readable. With `at_end` they must be the end of the text: after the
    closing of each no letter or digit may stand but those of the next, so that a score quoted on the way is not taken
    for the model's own. Raises PromptError for that without closings.
    """

    openings: tuple[str, ...] = ("<ANSWER>",)
    closings: tuple[str, ...] = ("</ANSWER>",)
    which: int = -1
    count: int | None = None
    at_end: bool = False

    def __post_init__(self) -> None:
        if self.at_end and not self.closings:
            raise PromptError("an answer at the end of a text needs a closing: without one its end cannot be told")


@undisturbed
def find_answers(
    completions: Sequence[Completion], labels: Sequence[str], forms: Sequence[AnswerFormat], table: ByteTable
) -> list[tuple[Tokens, str] | None]:
    """The tokens of each completion before its score, and the label written there; None where none could be read.

    Each completion has its own form. The score meant is the `which`-th written one. If that one is no label, is not
    closed or does not begin with a token of its own, the completion has no score: another one is not taken instead. Nor
    has one with a token that stands for no text: models have such tokens, beyond their tokenizer's last.
    """
    known = range(len(table))
    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for place, (completion, form) in enumerate(zip(completions, forms, strict=True)):
        if all(token in known for token in completion.token_ids):
            alike.setdefault((form.openings, form.closings), []).append(place)
    found: list[tuple[Tokens, str] | None] = [None] * len(completions)
    for (openings, closings), places in alike.items():
        rows = [completions[place].token_ids for place in places]
        spans = answer_spans(
            torch.tensor([token for row in rows for token in row], dtype=torch.int64),
            torch.tensor([0, *map(len, rows)]).cumsum(0),
            table,
            openings=[opening.encode() for opening in openings],
            closings=[closing.encode() for closing in closings],
            labels=[label.encode() for label in labels],
        )
        for place, (start, end) in zip(places, pairwise(spans.offsets.tolist()), strict=True):
            usable, tokens = spans.usable[start:end].tolist(), spans.token[start:end].tolist()
            if _is_readable(completions[place].text, usable, forms[place]):
                label = labels[spans.label[start:end].tolist()[forms[place].which]]
                found[place] = completions[place].token_ids[: tokens[forms[place].which]], label
    return found


def written_answers(text: str, labels: Sequence[str], form: AnswerFormat) -> list[re.Match[str]] | None:
    """The answers of a text, in order, as `find_answers` would read them, but for where tokens begin.

    The groups of each are what stands before the label, the label, and what stands after it. None where the answer
    that is meant cannot be read.
    """
    filler = f"[{re.escape(FILLER.decode())}]{{0,16}}"
    answer = re.compile(
        f"((?:{_any_of(form.openings)}){filler})({_any_of(labels)})({filler}(?:{_any_of(form.closings)}))"
    )
    openings = re.finditer(_any_of(form.openings), text)
    found = [answer.match(text, opening.start()) for opening in openings]
    if not _is_readable(text, [answer is not None for answer in found], form):
        return None
    return [answer for answer in found if answer is not None]


def _any_of(strings: Sequence[str]) -> str:
    return "|".join(map(re.escape, strings))


def _is_readable(text: str, usable: Sequence[bool], form: AnswerFormat) -> bool:
    """Whether the score that is meant stands where the form wants it, given which of the written ones are usable."""
    if not -len(usable) <= form.which < len(usable) or not usable[form.which]:
        return False
    if form.count is not None and (len(usable) != form.count or not all(usable)):
        return False
    return not form.at_end or not any(map(_has_words, _after_closings(text, form)))


def _after_closings(text: str, form: AnswerFormat) -> list[str]:
    """What follows the closing of each written score, up to the next one's opening."""
    pieces = re.split(_any_of(form.openings), text)[1:]
    return [re.split(_any_of(form.closings), piece, maxsplit=1)[-1] for piece in pieces]


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, text))
