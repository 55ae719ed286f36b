"""What a policy wrote, out of a text that holds its prompt as well, as OpenRLHF hands it over.

Both texts may be megabytes of one letter: everything here takes time in proportion to their length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tokenizers.normalizers import NFC

from adjudge.engine.text.tokenizer import well_formed

KEPT = 32
"""Characters of a prompt that must be left to know it by, where OpenRLHF has cut off its beginning to fit."""


_TOKEN = re.compile(r"<[^<>\s]*>|\[[^\[\]\s]*\]")
"""A special token as texts show it: <s>, <|begin_of_text|>, [CLS]."""


def response_of(query: str, prompt: str, ends: Sequence[str] = ()) -> str | None:
    """What stands behind the prompt in a query, without such markers at its end; None where the prompt is not there.

    A query may have a token before the prompt, or have lost the beginning of a long one. It is decoded from tokens, and
    tokenizers compose letters with their accents (Qwen's do): then the prompt stands in it in that form.
    """
    start = _behind(prompt, query)
    if start is None and not prompt.isascii():
        start = _behind(_composed(prompt), query)
    if start is None:
        return None
    stop = len(query)
    while marker := next((one for one in ends if one and query.endswith(one, start, stop)), None):
        stop -= len(marker)
    return query[start:stop]


def _composed(text: str) -> str:
    """As tokenizers do it: Python's own function takes quadratic time for marks in a row."""
    return NFC().normalize_str(well_formed(text))


def _behind(prompt: str, query: str) -> int | None:
    """Where a prompt ends that a query begins with, or what is left of it; else the first one further on.

    That comes last, for a policy may repeat its prompt, and must not choose what is judged.
    """
    token = _TOKEN.match(query)  # whose name may have the prompt in it
    begins = (0, token.end()) if token else (0,)
    for begin in begins:
        if query.startswith(prompt, begin):
            return begin + len(prompt)
    for begin in begins:
        known = query[begin : begin + KEPT] in prompt
        if known and (left := _overlap(prompt, query[begin:])) >= KEPT:
            return begin + left
    place = query.find(prompt, begins[-1])
    return place + len(prompt) if place >= 0 else None


def _overlap(left: str, right: str) -> int:
    """The most characters with which `left` ends and `right` begins (Knuth, Morris and Pratt 1977)."""
    pattern = right[: len(left)]
    borders = [0] * len(pattern)
    matched = 0
    for place in range(1, len(pattern)):
        matched = _longer(pattern, borders, matched, pattern[place])
        borders[place] = matched
    matched = 0
    for letter in left[len(left) - len(pattern) :]:
        matched = _longer(pattern, borders, matched, letter)
    return matched


def _longer(pattern: str, borders: Sequence[int], matched: int, letter: str) -> int:
    """How much of the pattern's beginning stands before and with this letter, where `matched` stood before it."""
    while matched and pattern[matched] != letter:
        matched = borders[matched - 1]
    return matched + (pattern[matched] == letter)
