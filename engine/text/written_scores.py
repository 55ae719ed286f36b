"""Scores read from what a model wrote: the distribution at the place where a written score stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from adjudge.engine.completion import Completion
from adjudge.engine.errors import PromptError
from adjudge.engine.tokens import Tokens

if TYPE_CHECKING:
    from adjudge.kernels.byte_table import ByteTable


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


class WrittenAnswer(NamedTuple):
    """An answer of a text: `label`, which stands in its characters from `start` to before `end`."""

    start: int
    end: int
    label: str


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
    for places in alike.values():
        rows = [completions[place].token_ids for place in places]
        for place, scores in zip(places, _scores(rows, labels, forms[places[0]], table), strict=True):
            if _is_readable(completions[place].text, scores, forms[place]):
                meant = scores[forms[place].which]
                found[place] = completions[place].token_ids[: meant.token], meant.label
    return found


@cache
def bytes_themselves() -> ByteTable:
    """A vocabulary in which a text's tokens are its bytes."""
    from adjudge.kernels.byte_table import ByteTable

    return ByteTable.of([bytes([byte]) for byte in range(256)])


def written_answers(text: str, labels: Sequence[str], form: AnswerFormat) -> list[WrittenAnswer] | None:
    """The answers of a text that can be read, in order, as `find_answers` reads them, but for where tokens begin.

    None where the answer that is meant cannot be read.
    """
    row = text.encode(errors="surrogatepass")
    [scores] = _scores([row], labels, form, bytes_themselves())
    if not _is_readable(text, scores, form):
        return None
    characters = [0, *accumulate(byte & 0xC0 != 0x80 for byte in row)]  # before each byte
    return [WrittenAnswer(characters[one.start], characters[one.end], one.label) for one in scores if one.usable]


class _Score(NamedTuple):
    """A score in a row of tokens: the place of its first one, its bytes, and its label where it can be used."""

    token: int
    start: int
    end: int
    label: str
    usable: bool


def _scores(
    rows: Sequence[Sequence[int]], labels: Sequence[str], form: AnswerFormat, table: ByteTable
) -> Iterator[list[_Score]]:
    """What is written in each row of token ids after one of the openings."""
    import torch

    from adjudge.kernels.answer_spans import answer_spans

    spans = answer_spans(
        torch.tensor([token for row in rows for token in row], dtype=torch.int64, device="cpu"),
        torch.tensor([0, *map(len, rows)], device="cpu").cumsum(0),
        table,
        openings=[opening.encode() for opening in form.openings],
        closings=[closing.encode() for closing in form.closings],
        labels=[label.encode() for label in labels],
    )
    names = [labels[label] for label in spans.label.tolist()]
    columns = spans.token.tolist(), spans.start.tolist(), spans.end.tolist(), names, spans.usable.tolist()
    scores = list(map(_Score, *columns))
    return (scores[start:end] for start, end in pairwise(spans.offsets.tolist()))


def _any_of(strings: Sequence[str]) -> str:
    return "|".join(map(re.escape, strings))


def _is_readable(text: str, scores: Sequence[_Score], form: AnswerFormat) -> bool:
    """Whether the score that is meant can be used, and stands where the form wants it."""
    if not -len(scores) <= form.which < len(scores) or not scores[form.which].usable:
        return False
    if form.count is not None and (len(scores) != form.count or not all(one.usable for one in scores)):
        return False
    after = _after_closings(text, form, scores[-1].usable)
    return not form.at_end or not any(character.isalnum() for piece in after for character in piece)


def _after_closings(text: str, form: AnswerFormat, closed: bool) -> Iterator[str]:
    """What follows the closing of each written score, up to the next one's opening.

    Nothing follows that of the last where it is `closed` by tokens that the text is without: it was a stop string.
    """
    pieces = [re.split(_any_of(form.closings), piece, maxsplit=1) for piece in re.split(_any_of(form.openings), text)]
    for number, piece in enumerate(pieces[1:], 1):
        if len(piece) > 1 or number < len(pieces) - 1 or not closed:
            yield piece[-1]
