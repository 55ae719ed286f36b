"""Rewards that ask no model: form, language, repetition and length of a text, each in [0, 1].

They are parts of a sum or product, or gates (see `combining` and `gated`). Each takes time that is linear in the text.
"""

from __future__ import annotations

import unicodedata
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from functools import cache, lru_cache
from numbers import Real
from typing import Any

import msgspec

from adjudge.engine.checking import at_least, is_number, shown
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, ResponseReward, Reward, together
from adjudge.rewards.visible import readable
from adjudge.rewards.words import count_words, pieces_of

SCRIPTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("de", "en", "es", "fr", "id", "it", "nl", "pl", "pt", "sv", "tr", "vi"), ("LATIN",)),
    **dict.fromkeys(("be", "bg", "ru", "sr", "uk"), ("CYRILLIC",)),
    **dict.fromkeys(("ar", "fa", "ur"), ("ARABIC",)),
    **dict.fromkeys(("hi", "mr", "ne"), ("DEVANAGARI",)),
    "bn": ("BENGALI",),
    "el": ("GREEK",),
    "he": ("HEBREW",),
    "ja": ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "CJK", "IDEOGRAPHIC"),
    "ka": ("GEORGIAN",),
    "ko": ("HANGUL",),
    "ta": ("TAMIL",),
    "th": ("THAI",),
    "zh": ("CJK", "IDEOGRAPHIC", "BOPOMOFO"),
}
"""The scripts a language is written in, as the first words of Unicode's names for their letters."""


class TextReward(Reward):
    """A reward that looks at nothing but the response."""

    reads_reference = False

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        """The rewards of each group, in order."""
        return [together([self._rewarded(response) for response in group.responses]) for group in groups]

    @abstractmethod
    def value(self, text: str) -> float:
        """The reward of a text, in [0, 1]."""

    def _rewarded(self, text: str) -> ResponseReward:
        return ResponseReward(self.value(text), None, measures={"words": float(count_words(text))})


class FormatReward(TextReward):
    """1 for a text that is made of the sections `tags`, in their order, and of nothing else; 0 for any other.

    A section is <tag>…</tag> and holds more than blanks; between sections there may be blanks. Each tag opens and
    closes once, so that nothing is hidden in a second answer. The default is QuRL's <think>…</think><answer>…</answer>.
    With `begun` the first section is open already, as chat templates of reasoning models have it. Raises AdjudgeError
    without tags, for tags that are no names, and for one that is given twice.
    """

    name = "format"

    def __init__(self, tags: Sequence[str] = ("think", "answer"), *, begun: bool = False) -> None:
        if isinstance(tags, str) or not isinstance(tags, Sequence) or not tags:
            raise AdjudgeError("tags are the names of sections: give a list of at least one")
        for tag in tags:
            if (
                not isinstance(tag, str)
                or not tag.replace("_", "").replace("-", "").isalnum()
                or list(tags).count(tag) > 1
            ):
                raise AdjudgeError(f'tag "{tag}" is no name, or is given twice: give each section a name of its own')
        self.tags = tuple(tags)
        self.begun = begun

    def value(self, text: str) -> float:
        """The reward of a text, in [0, 1]."""
        if self.begun:
            text = f"<{self.tags[0]}>{text}"
        marks = [mark for tag in self.tags for mark in (f"<{tag}>", f"</{tag}>")]
        places = [text.find(mark) for mark in marks]
        if -1 in places or any(text.count(mark) > 1 for mark in marks):
            return 0.0
        ends = [place + len(mark) for place, mark in zip(places, marks, strict=True)]
        stretches = [(0, places[0]), *zip(ends[:-1], places[1:], strict=True), (ends[-1], len(text))]
        inside = [number % 2 == 1 for number in range(len(stretches))]
        good = (
            start <= end and bool(readable(text[start:end]).strip()) == within
            for (start, end), within in zip(stretches, inside, strict=True)
        )
        return float(all(good))


class PatternReward(TextReward):
    """1 for a text that is, from its first character to its last, of the form of a regular expression; else 0.

    `pattern` is in the syntax of Rust's `regex` crate without look-around, as llguidance reads it; `.` matches no line
    break unless `(?s:.)`. It is matched by an automaton: no pattern takes more than linear time on any text. Raises
    AdjudgeError for a pattern that cannot be read. A text on which the automaton grows beyond its limit is worth 0:
    who writes one would else be spared what others pay.
    """

    name = "pattern"

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        if not isinstance(pattern, str):
            raise AdjudgeError(f"pattern is {shown(pattern)}: give a regular expression, as a text")
        if (matcher := _matcher(pattern)).is_error():
            why = matcher.get_error().splitlines()[0]
            raise AdjudgeError(f'pattern "{pattern[:60]}" cannot be read ({why}): mend it')

    def value(self, text: str) -> float:
        """The reward of a text, in [0, 1]."""
        matcher, tokens = _matcher(self.pattern), list(well_formed(text).encode())
        matched = matcher.try_consume_tokens(tokens) == len(tokens) and bool(matcher.is_accepting())
        return float(matched and not matcher.is_error())


class LanguageReward(TextReward):
    """The share of a text's letters that are of the scripts that `language` ("en", "zh", …) is written in.

    It cannot tell languages of one script apart (English and French), nor Chinese from Japanese without kana. A text
    without letters is in no language: 0. Raises AdjudgeError for a language that is not in `SCRIPTS`.
    """

    name = "language"

    def __init__(self, language: str = "en") -> None:
        if not isinstance(language, str) or language not in SCRIPTS:
            raise AdjudgeError(f'no scripts are known for language "{language}": choose {", ".join(sorted(SCRIPTS))}')
        self.language = language

    def value(self, text: str) -> float:
        """The reward of a text, in [0, 1]."""
        letters = {letter: count for letter, count in Counter(text).items() if letter.isalpha()}
        own = sum(count for letter, count in letters.items() if script_of(letter) in SCRIPTS[self.language])
        return own / sum(letters.values()) if letters else 0.0


class RepetitionReward(TextReward):
    """The share of different ones among a text's runs of `n` words: 1 where none comes twice, towards 0 for a loop.

    Words are compared without case; each mark counts as one, and each letter of what is too long for a word, so that a
    loop without blanks is one too. A text of fewer than n words repeats nothing: 1. Raises AdjudgeError for n below 1.
    """

    name = "repetition"

    def __init__(self, n: int = 4) -> None:
        at_least(1, n=n)
        self.n = n

    def value(self, text: str) -> float:
        """The reward of a text, in [0, 1]."""
        numbers: dict[str, int] = {}  # so that a word of a megabyte is hashed once
        words = [numbers.setdefault(word, len(numbers)) for word in pieces_of(text.casefold())]
        runs = len(words) - self.n + 1
        if runs < 1:
            return 1.0
        return len(set(zip(*(words[start : start + runs] for start in range(self.n)), strict=True))) / runs


class LengthWindow(msgspec.Struct, frozen=True):
    """How many words a story should have. Raises AdjudgeError unless 0 < least ≤ most."""

    least: int = 200
    most: int = 800

    def __post_init__(self) -> None:
        if not (is_number(self.least, Real) and is_number(self.most, Real) and 0 < self.least <= self.most):
            raise AdjudgeError(f"a window of {self.least} to {self.most} words holds nothing: give 0 < least ≤ most")

    def reward(self, words: int) -> float:
        """1 inside the window, falling linearly to 0 at half its least and twice its most (the paper gives no f)."""
        if words < self.least:
            return max(0.0, 2.0 * words / self.least - 1.0)
        return min(1.0, max(0.0, 2.0 - words / self.most))


def checked_window(window: LengthWindow | None) -> LengthWindow:
    """The window, or the usual one where none is given; raises AdjudgeError for what is none."""
    if not isinstance(window, LengthWindow | None):
        raise AdjudgeError(f"window is {window!r:.40}: give LengthWindow(least, most)")
    return window or LengthWindow()


class LengthReward(TextReward):
    """1 for a text whose number of words is in the window, falling linearly outside it: see `LengthWindow`."""

    name = "length"

    def __init__(self, window: LengthWindow | None = None) -> None:
        self.window = checked_window(window)

    def value(self, text: str) -> float:
        """The reward of a text, in [0, 1]."""
        return self.window.reward(count_words(text))


def _matcher(pattern: str) -> Any:
    """A matcher that has seen no text: copies share an automaton that grows, and one text can spoil it for all."""
    from llguidance import LLMatcher

    return LLMatcher(_bytes(), LLMatcher.grammar_from_regex(pattern), log_level=0)


@cache
def _bytes() -> Any:
    """The tokenizer whose tokens are bytes."""
    from llguidance import LLTokenizer

    return LLTokenizer("byte")


@lru_cache(maxsize=1 << 16)
def script_of(letter: str) -> str:
    """The script of a letter: the first word of its Unicode name, widths aside; "" for one without a name."""
    first, _, rest = unicodedata.name(letter, "").partition(" ")
    return rest.partition(" ")[0] if first in ("FULLWIDTH", "HALFWIDTH") else first
