"""English texts as they would be typed, however a corpus sets them, for a judge with which setting counts."""

from __future__ import annotations

import re

from adjudge.rewards.judges.template import Data

RULES = 2
"""Goes up with every change of what is shown: verdicts are kept by it."""

_UNSEEN = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))
"""Soft hyphens and blanks without width."""
_MARKER = re.compile(r"\[[A-Z]+\]")
"""What stands for a name in corpora that have taken them out."""
_SPLIT = re.compile(r" (['’]) (?=(?:t|s|re|ve|ll|d|m)(?: |$))")
"""The apostrophe of "did n ' t" and "he ' s"."""
_APART = re.compile(r"(?<=[\w\]]) (?=(?i:n['’]t|['’](?:s|re|ve|ll|d|m))(?![\w'’-]))| (?=[,.!?;:](?:[ \"”’]|$))")
"""A blank before what is never typed with one: "did n't go , he said ."."""
_STOP = re.compile(r"( ?)(?<!\. )[,.](?= (?!\.)|$)")
"""A comma or full stop, but no ellipsis, and the blank before it."""
_QUOTE = re.compile(r" ?(?<!\S)(?:\"|``|'')(?!\S) ?((?:[,!?;:]|\.(?! ?\.))?)")
"""A quote that stands alone, the blanks around it, and a mark after it, but no ellipsis."""
_AROUND = re.compile(r"(?<=[(\[{“‘$#]) | (?=[…%)\]}”]|['’](?:\W|$))")
"""A blank within brackets and quotes, and beside signs."""
_START = re.compile(r"(?:^|(?:(?<!\.[a-z])[.!?]|\.[\"”'’]) )[\"“‘'(]*[a-zà-öø-ÿ]")
"""Where a sentence starts, up to its first letter; no abbreviation with two dots ends one."""
_STARTED = re.compile(r"(?:^|[.!?][\"”'’]? )[\"“‘'(]*[A-ZÀ-ÖØ-Þ]")
"""Where one starts with a capital."""
FEW = 0.1
"""The share of capitals among starts, or of small letters among all, up to which a text has one case."""
_I = re.compile(r"(?<![\w.])i(?!\w|\.\w)")
"""The word "I", but not the "i" of "i.e."."""


def normalised(data: Data) -> Data:
    """Data with each text as one paragraph, marks joined to their words, and capitals where a text has but one case.

    What a person typed stays as it is, but for its lines and blanks before a mark: quotes and brackets are joined only
    in a text most of whose commas and full stops stand apart. The capitals of names do not come back.
    """
    if not isinstance(data, str):
        return [normalised(part) for part in data]
    text = " ".join(data.translate(_UNSEEN).split())
    if " " not in text:
        return text  # one word: a name, a label
    if _all_capitals(text):
        text = text.lower()
    text = _joined(text)
    if _small_letters(text):
        text = _I.sub("I", _START.sub(lambda found: found[0].upper(), text))
    return text


def _all_capitals(text: str) -> bool:
    """Whether it is in capitals, but for a few letters, and not an acronym in a script without them."""
    capitals, small = sum(map(str.isupper, text)), sum(map(str.islower, text))
    few = small <= FEW * capitals
    return few and 2 * capitals > sum(map(str.isalpha, text)) and not _MARKER.search(text)


def _small_letters(text: str) -> bool:
    """Whether it is in small letters, or its sentences start with them, but for a few."""
    if _MARKER.sub("", text).islower():
        return True
    small, capitals = len(_START.findall(text)), len(_STARTED.findall(text))
    return capitals <= FEW * small and small > 1


def _joined(text: str) -> str:
    """Marks joined to their words; in a text that sets them apart quotes and brackets too."""
    text = _SPLIT.sub(r"\1", text)
    before = _STOP.findall(text)
    if 2 * before.count(" ") <= len(before):
        return _APART.sub("", text)
    within = False

    def beside_its_words(quote: re.Match[str]) -> str:
        nonlocal within
        within = not within and not quote[1]
        return ' "' if within else f'" {quote[1]}'

    text = _QUOTE.sub(beside_its_words, text)
    return " ".join(_AROUND.sub("", _APART.sub("", text)).split())
