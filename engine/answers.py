"""Scores read from what a model wrote: the distribution at the place where a written score stands."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import torch

from adjudge.engine.completion import Completion
from adjudge.engine.radix import Tokens
from adjudge.kernels.answer_spans import answer_spans
from adjudge.kernels.byte_table import ByteTable


class AnswerFormat(msgspec.Struct, frozen=True):
    """How a template has the model write a score: after one of `openings` and, if there are any, before a closing.

    `which` of several is meant, counted from 0, or from the end with -1.
    """

    openings: tuple[str, ...] = ("<ANSWER>",)
    closings: tuple[str, ...] = ("</ANSWER>",)
    which: int = -1


def find_answers(
    completions: Sequence[Completion], labels: Sequence[str], form: AnswerFormat, table: ByteTable
) -> list[Tokens | None]:
    """The tokens of each completion that stand before its score; None where there is none that could be read.

    The score meant is the `which`-th written one. If that one is no label, is not closed or does not begin with a token
    of its own, the completion has no score: another one is not taken instead. Nor has one with a token that stands for
    no text: models have such tokens, beyond their tokenizer's last.
    """
    known = range(len(table))
    streams = [ids if all(token in known for token in ids) else () for ids in (text.token_ids for text in completions)]
    lengths = torch.tensor([0, *map(len, streams)])
    spans = answer_spans(
        torch.tensor([token for stream in streams for token in stream], dtype=torch.int64),
        lengths.cumsum(0),
        table,
        openings=[opening.encode() for opening in form.openings],
        closings=[closing.encode() for closing in form.closings],
        labels=[label.encode() for label in labels],
    )
    found: list[Tokens | None] = []
    for completion, (start, end) in zip(completions, pairwise(spans.offsets.tolist()), strict=True):
        matches = range(start, end)
        if -len(matches) <= form.which < len(matches) and spans.usable[matches[form.which]]:
            found.append(completion.token_ids[: int(spans.token[matches[form.which]])])
        else:
            found.append(None)
    return found
