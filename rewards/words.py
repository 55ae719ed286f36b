"""The words of a text: what stands between blanks, and each character of a script that is written without them."""

from __future__ import annotations

import re

_ALONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Kana and Chinese characters."""
_WORD = re.compile(rf"[{_ALONE}]|[^\s{_ALONE}]+")


def words_of(text: str) -> list[str]:
    """The words of a text, in order; a Chinese character or a kana is a word of its own. Linear in the text."""
    return _WORD.findall(text)


def count_words(text: str) -> int:
    """How many words a text has."""
    return len(words_of(text))
