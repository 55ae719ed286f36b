"""English texts as they would be typed, however a corpus sets them, for a judge with which setting counts."""

from __future__ import annotations

import re

from adjudge.rewards.judges.template import Data

RULES = 1
"""Goes up with every change of what is shown: verdicts are kept by it."""

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
_I = re.compile(r"(?<![\w.])i(?!\w|\.\w)")
"""The word "I", but not the "i" of "i.e."."""


def normalised(data: Data) -> Data:
    """Data with each text as one paragraph, marks joined to their words, and capitals where a text has but one case.

    What a person typed stays as it is, but for its lines and blanks before a mark: quotes and brackets are joined only
    in a text most of whose commas and full stops stand apart. The capitals of names do not come back.
    """
    if not isinstance(data, str):
        return [normalised(part) for part in data]
    text = " ".join(data.split())
    if " " not in text:
        return text  # one word: a name, a label
    if _all_capitals(text):
        text = text.lower()
    text = _joined(text)
    if _MARKER.sub("", text).islower():
        text = _I.sub("I", _START.sub(lambda found: found[0].upper(), text))
    return text


def _all_capitals(text: str) -> bool:
    """Whether it is in capitals, and not an acronym in a script without them."""
    if not text.isupper() or _MARKER.search(text):
        return False
    return 2 * sum(map(str.isupper, text)) > sum(map(str.isalpha, text))


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
