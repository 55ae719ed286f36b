"""Texts of others as they may be shown: nothing hidden in them, and nothing in them that acts."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from itertools import groupby

from markupsafe import Markup, escape

SHOWN = 20_000  # characters of a text in the HTML file: a policy may write a megabyte
BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0") | {
    chr(code) for code in (*range(0xFE00, 0xFE0F), *range(0xE0100, 0xE01F0))
}  # printable by category and drawn as nothing; U+FE0F stays, for it is part of ordinary emoji


def visible(text: str) -> str:
    """The text with its invisible, control and direction-changing characters written out: ⟨U+200B⟩."""
    return "".join(f"⟨{part}⟩" if hidden else part for part, hidden in pieces(text))


def marked(text: str) -> Markup:
    """The same as HTML, the rest escaped; a long text is cut, and says so."""
    parts = [Markup("<i>{}</i>").format(part) if hidden else escape(part) for part, hidden in pieces(text[:SHOWN])]
    if len(text) > SHOWN:
        parts.append(Markup("<i>{:,} more characters are not shown</i>").format(len(text) - SHOWN))
    return Markup("").join(parts)


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
