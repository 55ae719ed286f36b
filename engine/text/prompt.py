"""Prompts as segments: the template is trusted, the data in it is not."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Literal, get_args

import msgspec

from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import AdjudgeError, PromptError

Cut = Literal["middle", "head", "tail", "never"]
"""What goes when an untrusted text is too long: its middle, its head or its tail; "never" refuses instead."""


def checked_cut(cut: Cut) -> Cut:
    """The same; raises AdjudgeError for what is none."""
    if cut not in get_args(Cut):
        raise AdjudgeError(f'cut is "{cut}": choose {", ".join(get_args(Cut))}')
    return cut


_MARK = re.compile("\ue000(\\d+)\ue001")


class Segment(msgspec.Struct, frozen=True):
    """A piece of a prompt. Only a trusted segment may become special tokens; only an untrusted one may be shortened.

    `limit` is the number of tokens to keep (None: all), `cut` where the rest is taken from. Raises PromptError for a
    limit below 0 and AdjudgeError for a cut that is none.
    """

    text: str
    trusted: bool = False
    limit: int | None = None
    cut: Cut = "middle"

    def __post_init__(self) -> None:
        if self.limit is not None and not (is_number(self.limit, Integral) and self.limit >= 0):
            raise PromptError(f"limit is {shown(self.limit)}: give a number of tokens, or None for all")
        checked_cut(self.cut)


class Prompt(msgspec.Struct, frozen=True):
    """Segments in order; each is tokenised by itself, as one that stands behind the others."""

    segments: tuple[Segment, ...]

    def __post_init__(self) -> None:
        given: Any = self.segments
        if not isinstance(given, tuple | list) or not all(isinstance(one, Segment) for one in given):
            raise PromptError(f"{shown(given)} is no list of Segments: Prompt.template makes a prompt of a string")

    @staticmethod
    def template(text: str, /, **data: str) -> Prompt:
        """`text` is trusted and each `{field}` in it an untrusted segment: Prompt.template("Rate: {story}", story=…).

        Raises PromptError for a field without data, data without a field or that is no string, and a lone brace.
        """
        segments: list[Segment] = []
        used: set[str] = set()
        try:
            parts = list(string.Formatter().parse(text))
        except ValueError as error:
            raise PromptError(f"the template cannot be read ({error}): write a brace as {{{{ or }}}}") from error
        for literal, field, _, _ in parts:
            if literal:
                segments.append(Segment(literal, trusted=True))
            if field is None:
                continue
            if field not in data:
                raise PromptError(
                    f'the template names "{{{field}}}" but no {field}= was given: give it, or write a brace as {{{{'
                )
            if not isinstance(data[field], str):
                raise PromptError(f"{field} is {data[field]!r:.40}, not a string: give its text")
            used.add(field)
            segments.append(Segment(data[field]))
        if unused := data.keys() - used:
            raise PromptError(f"the template has no place for {', '.join(sorted(unused))}")
        return Prompt(tuple(segments))


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation; a string is taken for a content of one untrusted segment."""

    role: Literal["system", "user", "assistant"]
    content: Prompt

    def __post_init__(self) -> None:
        content: Any = self.content
        if isinstance(content, str):
            msgspec.structs.force_setattr(self, "content", Prompt((Segment(content),)))


def checked_messages(messages: Sequence[Message]) -> Sequence[Message]:
    """The same; raises PromptError for what is no list of them."""
    given = messages if isinstance(messages, Sequence) else [[messages]]
    if wrong := [one for one in given if not isinstance(one, Message)]:
        raise PromptError(f"{shown(wrong[0])} is no Message: give a list of Message(role, text)")
    return messages


def mark_data(prompts: Sequence[Prompt]) -> tuple[list[str], list[Segment]]:
    """Texts in which every untrusted segment is a mark, safe to hand to a chat template, and the segments by mark.

    Raises PromptError where trusted text holds the private-use characters that marks are made of.
    """
    data: list[Segment] = []
    texts: list[str] = []
    for prompt in prompts:
        parts: list[str] = []
        for segment in prompt.segments:
            if segment.trusted:
                if "\ue000" in segment.text or "\ue001" in segment.text:
                    raise PromptError("trusted text must not contain U+E000 or U+E001, which mark the places of data")
                parts.append(segment.text)
            else:
                parts.append(mark(len(data)))
                data.append(segment)
        texts.append("".join(parts))
    return texts, data


def place_data(text: str, data: Sequence[Segment]) -> Prompt:
    """The prompt of a rendered text with marks; raises PromptError unless every mark came through exactly once."""
    marks = [int(number) for number in _MARK.findall(text)]
    if sorted(marks) != list(range(len(data))):
        raise PromptError(
            "the model's chat template drops or repeats a part of the message; use a model with another template"
        )
    return place_marks(text, data)


def mark(index: int) -> str:
    """What stands in a text for the untrusted segment `index`."""
    return f"\ue000{index}\ue001"


def place_marks(text: str, data: Sequence[Segment]) -> Prompt:
    """The trusted text with a segment of `data` in place of each mark."""
    segments: list[Segment] = []
    for index, piece in enumerate(_MARK.split(text)):
        if index % 2:
            segments.append(data[int(piece)])
        elif piece:
            segments.append(Segment(piece, trusted=True))
    return Prompt(tuple(segments))
