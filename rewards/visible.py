"""Texts of others as they may be shown, and as readers see them: nothing hidden in them, and nothing that acts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import groupby

BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0") | {
    chr(code) for code in (*range(0xFE00, 0xFE0F), *range(0xE0100, 0xE01F0))
}  # printable by category and drawn as nothing; U+FE0F stays, for it is part of ordinary emoji
UNSEEN = BLANK | {"\ufe0f"}
MOST_MARKS = 30
"""Combining marks in a row, beyond which they are nobody's writing: to compose them takes time that is quadratic."""


def visible(text: str) -> str:
    """The text with its invisible, control and direction-changing characters written out: ⟨U+200B⟩."""
    return "".join(f"⟨{part}⟩" if hidden else part for part, hidden in pieces(text))


def in_a_line(text: str) -> str:
    """The same in one line, for what others read line by line."""
    return visible(text).replace("\n", "⟨U+000A⟩")


def readable(text: str) -> str:
    """A text as readers see it: its letters composed, without characters that are not seen. Linear in the text."""
    if text.isascii():
        return text
    letters = set(text)
    if unseen := {ord(one): None for one in letters if one in UNSEEN or unicodedata.category(one) == "Cf"}:
        text = text.translate(unseen)
    if marks := re.escape("".join(filter(unicodedata.combining, letters))):
        text = re.sub(f"([{marks}]{{{MOST_MARKS}}})[{marks}]+", r"\1", text)
    return unicodedata.normalize("NFC", text)


def pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Runs of readable text, and the names of hidden characters ("U+200B", "U+200B ×12"), which are flagged."""
    for character, run in groupby(text.replace("\r\n", "\n"), lambda c: c if _hidden(c) else ""):
        if character:
            length = sum(1 for _ in run)
            yield f"U+{ord(character):04X}" + (f" ×{length}" if length > 1 else ""), True
        else:
            yield "".join(run), False


def _hidden(character: str) -> bool:
    if character.isprintable() or character in "\n\t":
        return character in BLANK
    return unicodedata.category(character) != "Zs"
