"""Names of people and places in a plot, and new ones in their place (PerSE, A.1.1: a map by a model, then code)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import combinations, islice
from typing import Any

import msgspec

from adjudge.rewards.words import count_words, is_alone
from adjudge.training.stages import Unusable, json_of, object_schema, text_schema

MOST_CHARACTERS = 60
"""Of a new name, and of what may be one."""
MOST_RUNS = 500
"""Words with a capital that are looked at for names: few plots have as many."""

_NAME = text_schema(MOST_CHARACTERS)
SCHEMA: dict[str, Any] = {"type": "array", "items": object_schema(name=_NAME, new_name=_NAME), "minItems": 1}
"""What the model is held to: a list of names, each with its new one."""


class _Renamed(msgspec.Struct, frozen=True):
    name: str
    new_name: str


_renamed = json_of(list[_Renamed])

_LITTLE = """
a after all an and as at aunt before boy brother but by captain child city doctor dr even father for from girl god
he her his how i if in it its king later lord man me meanwhile miss mother mr mrs ms my no not of on once one or our
professor queen she sir sister so some that the their then there they this those though to town two uncle under
until we what when where while who why wife with woman years yes you your

"""
LITTLE = frozenset(_LITTLE.split())
"""Words that begin sentences or stand before names, and are none themselves."""

_BEFORE = r"(?<!\w)(?<!\w['’-])"
_AFTER = r"(?!\w)(?!-\w)"
_WHOLE_WORD = re.compile(rf"{_BEFORE}\w++{_AFTER}")
_SENTENCE_START = re.compile(r"(?:^|[.!?…:\n\"“”„‘'(\[—])\s*\Z")


def read_names(text: str, plot: str) -> dict[str, str]:
    """The map in a model's text, of those names that stand in the plot.

    Raises Unusable: "unparsable" for what is no JSON list of names, "name_twice" for one with two new names,
    "ordinary_word" for a key that is no name, "keeps_a_name" for a new name that is the old one, "takes_a_name" for one
    that is or holds a name of the plot, "merges_names" where names without a word in common become the same, and
    "renames_nothing" where none stands in the plot.
    """
    names = {old: new for old, new in _map_of(text).items() if find(old, plot)}
    if not names:
        raise Unusable("renames_nothing")
    if any(is_ordinary(old, plot) for old in names):
        raise Unusable("ordinary_word")
    if any(old.casefold() == new.casefold() for old, new in names.items()):
        raise Unusable("keeps_a_name")
    olds = [re.compile(_pattern(old)) for old in names]  # more of them than re remembers
    if any(find(new, plot) or any(old.search(new) for old in olds) for new in names.values()):
        raise Unusable("takes_a_name")
    for (old, new), (other, its_new) in combinations(names.items(), 2):
        if new == its_new and not set(old.split()) & set(other.split()):
            raise Unusable("merges_names")
    return names


def likely_names(plot: str) -> list[str]:
    """What may be names, for the model to choose from: runs of words with a capital that are no ordinary ones.

    Of the first `MOST_RUNS` different ones: each is looked for in the whole plot. A run ends at `MOST_CHARACTERS`.
    """
    runs: list[str] = []
    end = -1
    for word in re.finditer(r"\w+", plot):
        if not word.group()[0].isupper():
            continue
        longer = f"{runs[-1]} {word.group()}" if runs else ""
        if runs and len(longer) <= MOST_CHARACTERS and plot[end : word.start()].isspace():
            runs[-1] = longer
        else:
            runs.append(word.group())
        end = word.end()
    different = islice((name for name in dict.fromkeys(runs) if len(name) > 1), MOST_RUNS)
    return [name for name in different if find(name, plot) and not is_ordinary(name, plot)]


def rename(text: str, names: Mapping[str, str]) -> str:
    """The text with each name replaced, all at once and the longest first, where it stands as a whole word.

    A name within a word stays, also within one that is joined by a hyphen or an apostrophe before it (Anna in Annabel,
    Jean in Jean-Luc, Brien in O'Brien); a possessive's name goes. In scripts without blanks it is replaced everywhere.
    """
    if not names:
        return text
    longest_first = sorted(names, key=len, reverse=True)
    pattern = re.compile("|".join(map(_pattern, longest_first)))
    return pattern.sub(lambda found: names[" ".join(found.group().split())], text)


def find(name: str, text: str) -> list[re.Match[str]]:
    """Where a name stands in a text as a whole word."""
    return list(re.finditer(_pattern(name), text))


def is_ordinary(name: str, plot: str) -> bool:
    """Whether what stands in a plot is no name: each of its words is one of everyday.

    That is a word without a capital, a little word, and one that the plot also has in small letters and has with a
    capital only where a sentence begins. In scripts without capitals a single character is no name.
    """
    return all(_is_ordinary_word(word, plot) for word in name.split())


def _is_ordinary_word(word: str, plot: str) -> bool:
    if word.casefold() in LITTLE:
        return True
    if word.lower() == word.upper():  # no capitals here, or no letters
        return not any(map(str.isalpha, word)) or count_words(word) < 2
    if word == word.lower():
        return True
    if word.lower().isalnum() and not any(map(is_alone, word)):  # İ becomes two characters
        words, within = _words_of(plot)
        return word.lower() in words and word not in within
    return bool(find(word.lower(), plot)) and all(_begins_a_sentence(one, plot) for one in find(word, plot))


@lru_cache(maxsize=1)
def _words_of(plot: str) -> tuple[set[str], set[str]]:
    """The whole words of a plot, and those that stand within its sentences: looked for once, not for every word."""
    words, within = set[str](), set[str]()
    for one in _WHOLE_WORD.finditer(plot):
        words.add(one.group())
        if not _begins_a_sentence(one, plot):
            within.add(one.group())
    return words, within


def _begins_a_sentence(word: re.Match[str], plot: str) -> bool:
    return bool(_SENTENCE_START.search(plot[max(0, word.start() - 8) : word.start()]))


def _map_of(text: str) -> dict[str, str]:
    """The map that a text is, its names and new names without needless blanks."""
    names: dict[str, str] = {}
    for pair in _renamed(text):
        old, new = (" ".join(name.split()) for name in (pair.name, pair.new_name))
        if not old or len(new) > MOST_CHARACTERS or not any(map(str.isalpha, new)):
            raise Unusable("unparsable")
        if names.setdefault(old, new) != new:
            raise Unusable("name_twice")
    return names


def _pattern(name: str) -> str:
    """A regular expression for a name as a whole word, whatever blanks stand within it."""
    words = r"\s+".join(map(re.escape, name.split()))
    before = "" if is_alone(name[0]) else _BEFORE
    return before + words + ("" if is_alone(name[-1]) else _AFTER)
