"""`CheckReward`: what can be checked in a text without a model."""

from __future__ import annotations

import re
from collections.abc import Callable
from numbers import Integral
from typing import Any

import msgspec

from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.parts.gates import TextReward
from adjudge.rewards.visible import readable
from adjudge.rewards.words import is_alone


class Check(msgspec.Struct, frozen=True):
    """Things to check in a text.

    Blanks around a text or a phrase do not matter. `ends_with`: the text ends with one of these. `mentions`: each of
    these words or phrases stands in it, whatever its case, as a whole word (a mark wherever it stands). `avoids`: none
    of these does. `sentences`: it has so many, from the first number to the second (see `count_sentences`). Raises
    AdjudgeError where nothing is to be checked.
    """

    ends_with: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()
    avoids: tuple[str, ...] = ()
    sentences: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for name in ("ends_with", "mentions", "avoids"):
            if isinstance(given := getattr(self, name), str) or not all(isinstance(each, str) for each in given):
                raise AdjudgeError(f"{name} is {given!r:.40}: give a tuple of texts")
        if not (self.ends_with or self.mentions or self.avoids or self.sentences):
            raise AdjudgeError("a check checks nothing: give ends_with, mentions, avoids or sentences")
        if not all(map(_seen, (*self.ends_with, *self.mentions, *self.avoids))):
            raise AdjudgeError("a check looks for a text in which nothing is to be seen: remove it")
        if self.sentences is not None and not _is_range(self.sentences):
            raise AdjudgeError(f"sentences is {shown(self.sentences)}: give the least and the most, above 0")


class CheckReward(TextReward):
    """The share of the things to check that hold in a response (each of `mentions` is one); a blank one holds none."""

    name = "check"

    def __init__(self, check: Check) -> None:
        if not isinstance(check, Check):
            raise AdjudgeError(f"check is {shown(check)}: give Check(mentions=…, ends_with=…)")
        self.check = check

    def value(self, text: str) -> float:
        """The reward of a text, in [0, 1]."""
        text = _seen(text)
        held = [holds(text) for holds in self._checks()]
        return sum(held) / len(held) if text else 0.0

    def _checks(self) -> list[Callable[[str], bool]]:
        check, checks = self.check, [_finder(phrase) for phrase in self.check.mentions]
        if check.ends_with:
            checks.append(lambda text: text.endswith(tuple(map(_seen, check.ends_with))))
        if check.avoids:
            checks.append(lambda text: not any(_finder(phrase)(text) for phrase in check.avoids))
        if check.sentences:
            least, most = check.sentences
            checks.append(lambda text: least <= count_sentences(text) <= most)
        return checks


def count_sentences(text: str) -> int:
    """How many sentences a text has: stretches of other characters between . ! ? … and the Chinese forms of these."""
    return sum(bool(part.strip()) for part in re.split(r"[.!?。！？…]+", text))


def _is_range(given: Any) -> bool:
    """Whether it is two whole numbers above 0, the less one first."""
    numbers = isinstance(given, tuple | list) and len(given) == 2 and all(is_number(one, Integral) for one in given)
    return numbers and 0 < given[0] <= given[1]


def _seen(text: str) -> str:
    """What is to be seen of a text, without blanks around it."""
    return readable(text).strip()


def _finder(phrase: str) -> Callable[[str], bool]:
    """Whether a readable text has the phrase; as a whole word, where its script has blanks between words."""
    phrase = _seen(phrase)
    before, after = (r"\w" if re.match(r"\w", end) and not is_alone(end) else "" for end in (phrase[0], phrase[-1]))
    found = re.compile(
        f"(?<!{before})" * bool(before) + re.escape(phrase) + f"(?!{after})" * bool(after), re.IGNORECASE
    )
    return lambda text: found.search(text) is not None
