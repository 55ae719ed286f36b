"""A text as paragraphs or sentences that can be left out, repeated or put elsewhere, and the language it is in."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from adjudge.rewards.words import words_of

Unit = Literal["paragraph", "sentence", "text"]
Language = Literal["en", "zh"]

ENOUGH = 4
"""Paragraphs from which on a text is taken apart by paragraphs, and not by sentences."""

_LINE = re.compile(r"\S(?:.*\S)?")
_TITLE = r"(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bDr)"
"""What stands before a dot that ends no sentence."""
_END = re.compile(rf"""(?<![.!?]){_TITLE}[.!?]++["'”’)\]]*+(?=\s|$)|[。！？]++["”’』」）]*+""")
"""The end of a sentence. Linear in the text: no run of marks is looked at twice."""
_HAN = re.compile("[\u3400-\u9fff]")


class Passages(msgspec.Struct, frozen=True):
    """The parts of a text, and what stands between them: `gaps[n]` before part n, `gaps[0]` as between the others."""

    unit: Unit
    parts: tuple[str, ...]
    gaps: tuple[str, ...]

    def text(self, order: Iterable[int]) -> str:
        """The parts of those numbers, in that order, each after the gap that it had before it."""
        pieces = [piece for number in order for piece in (self.gaps[number], self.parts[number])]
        return "".join(pieces[1:])


def paragraphs(text: str) -> Passages:
    """What blank lines divide; the lines themselves where there is no blank one. Outer blanks are lost."""
    lines = [match.span() for match in _LINE.finditer(text)]
    breaks = [text.count("\n", end, start) for (_, end), (start, _) in itertools.pairwise(lines)]
    if max(breaks, default=0) < 2:
        return _passages("paragraph", text, lines)
    spans: list[tuple[int, int]] = []
    for line, newlines in zip(lines, [2, *breaks], strict=True):
        if newlines >= 2:
            spans.append(line)
        else:
            spans[-1] = (spans[-1][0], line[1])
    return _passages("paragraph", text, spans)


def sentences(text: str) -> Passages:
    """What ends in . ! or ? before a blank, in 。！ or ？, or with its line."""
    spans: list[tuple[int, int]] = []
    for line in _LINE.finditer(text):
        start, last = line.span()
        for end in (*(match.end() for match in _END.finditer(text, start, last)), last):
            if body := text[start:end].strip():
                begin = text.index(body[0], start)
                spans.append((begin, begin + len(body)))
            start = end
    return _passages("sentence", text, spans)


def passages_of(text: str) -> Passages:
    """A text's paragraphs where it has enough of them, its sentences otherwise."""
    found = paragraphs(text)
    return found if len(found.parts) >= ENOUGH else sentences(text)


def language_of(text: str) -> Language:
    """Chinese where at least a third of the words are Chinese characters, English otherwise."""
    words = words_of(text)
    return "zh" if 3 * sum(_HAN.match(word) is not None for word in words) >= max(1, len(words)) else "en"


def _passages(unit: Unit, text: str, spans: Sequence[tuple[int, int]]) -> Passages:
    between = [text[end:start] for (_, end), (start, _) in itertools.pairwise(spans)]
    first = between[:1] or [""]
    return Passages(unit, tuple(text[start:end] for start, end in spans), (*first, *between)[: len(spans)])
