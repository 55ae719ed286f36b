"""The words of a text: what stands between blanks, and each character of a script that is written without them."""

from __future__ import annotations

import re

from adjudge.rewards.visible import readable

ALONE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese and Khmer; kana and Chinese characters: what a class of a regular expression holds."""
_WORD = re.compile(rf"[{ALONE}]|[^\s{ALONE}]+")
LONGEST = 30
"""Letters of a word; what is longer is no word, and repeats itself by its letters if it does."""
_PIECE = re.compile(rf"[{ALONE}]|[^\W{ALONE}]{{1,{LONGEST}}}+(?![^\W{ALONE}])|\S")


def words_of(text: str) -> list[str]:
    """The words that readers see in a text, in order; a Chinese character or a kana is a word of its own. Linear."""
    return _WORD.findall(readable(text))


def pieces_of(text: str) -> list[str]:
    """The same, but that each mark is one by itself, also within a word, and each letter of what is no word."""
    return _PIECE.findall(readable(text))


def is_alone(letter: str) -> bool:
    """Whether a letter is a word by itself, its script having no blanks."""
    return re.fullmatch(f"[{ALONE}]", letter) is not None


def count_words(text: str) -> int:
    """How many words a text has."""
    return len(words_of(text))


def shortened(text: str, limit: int) -> str:
    """A text of at most `limit` words, at least 3: of a longer one its first and last words, with "…" between.

    What is kept is kept as it stands, blanks and line breaks too.
    """
    if limit < 3:
        raise ValueError(f"{limit} words are too few")
    places = [match.span() for match in _WORD.finditer(text)]
    if len(places) <= limit:
        return text
    tail = (limit - 1) // 2
    head = limit - 1 - tail
    return f"{text[: places[head - 1][1]]} … {text[places[-tail][0] :]}"
