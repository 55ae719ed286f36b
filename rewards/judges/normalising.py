"""Texts as they would be typed, however a corpus sets them, for a judge with which setting counts."""

from __future__ import annotations

import re
from itertools import cycle

from adjudge.rewards.judges.template import Data

_MARKER = re.compile(r"\[[A-Z]+\]")
"""What stands for a name in corpora that have taken them out."""
_START = re.compile(r"(?:^|(?:[.!?]|\.[\"”'’]) )[\"“‘'(]*[^\W\d_]")
_I = re.compile(r"(?<![\w.])i(?![\w.])")
_APART = re.compile(r" (?=(?:n['’]t|['’](?:s|re|ve|ll|d|m))(?![\w'’-])|[,.!?;:](?: |$))")
_STOP = re.compile(r"[,.](?= |$)")
_QUOTE = re.compile(r" ?(?:\"|``|'') ?")
_AROUND = re.compile(r"(?<=[(\[{“‘$#]) | (?=[,.!?;:…%)\]}”]|['’](?:\W|$))|(?<=\w) (?=- \w)|(?<=\w -) (?=\w)")


def normalised(data: Data) -> Data:
    """Data with each text as one paragraph, its marks joined to its words, and capitals where it has but one case.

    What a person typed stays as it is, but for its lines: rules for quotes, brackets and hyphens are for texts most
    of whose commas and full stops stand alone.
    """
    if not isinstance(data, str):
        return [normalised(part) for part in data]
    text = " ".join(data.split())
    if text.isupper() and not _MARKER.search(text):
        text = text.lower()
    text = _joined(text)
    if _MARKER.sub("", text).islower():
        text = _I.sub("I", _START.sub(lambda found: found[0].title(), text))
    return text


def _joined(text: str) -> str:
    stops = [found.start() for found in _STOP.finditer(text)]
    if 2 * sum(text[at - 1 : at] == " " for at in stops) > len(stops):
        sides = cycle((' "', '" '))
        text = _AROUND.sub("", _QUOTE.sub(lambda found: next(sides), text))
    return " ".join(_APART.sub("", text).split())
