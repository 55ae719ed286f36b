"""`CheckReward`: what can be checked in a text without a model; `SectionReward`: a reward of one section alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.combining import OF_THE_TEXT, scored_where
from adjudge.rewards.function_reward import Function
from adjudge.rewards.gated import SHUT, shut_out
from adjudge.rewards.gates import TextReward
from adjudge.rewards.group import Group
from adjudge.rewards.guards.layer import Around, inside
from adjudge.rewards.reward import GroupReward, Reward
from adjudge.rewards.visible import readable
from adjudge.rewards.words import count_words, is_alone


class Check(msgspec.Struct, frozen=True):
    """Things to check in a text.

    `ends_with`: the text, without blanks around it, ends with one of these. `mentions`: each of these words or phrases
    stands in it, whatever its case, as a whole word (a mark wherever it stands). `avoids`: none of these does.
    `sentences`: it has so many, from the first number to the second (see `count_sentences`). Raises AdjudgeError where
    nothing is to be checked.
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
        if not all(map(readable, (*self.ends_with, *self.mentions, *self.avoids))):
            raise AdjudgeError("a check looks for a text in which nothing is to be seen: remove it")
        if self.sentences is not None and not (len(self.sentences) == 2 and 0 < self.sentences[0] <= self.sentences[1]):
            raise AdjudgeError(f"sentences is {list(self.sentences)}: give the least and the most, above 0")


class CheckReward(TextReward):
    """The share of the things to check that hold in a response (each of `mentions` is one); a blank one holds none."""

    name = "check"

    def __init__(self, check: Check) -> None:
        self.check = check

    def value(self, text: str) -> float:
        """The reward of a text, in [0, 1]."""
        text = readable(text).strip()
        held = [holds(text) for holds in self._checks()]
        return sum(held) / len(held) if text else 0.0

    def _checks(self) -> list[Callable[[str], bool]]:
        check, checks = self.check, [_finder(phrase) for phrase in self.check.mentions]
        if check.ends_with:
            checks.append(lambda text: text.endswith(tuple(map(readable, check.ends_with))))
        if check.avoids:
            checks.append(lambda text: not any(_finder(phrase)(text) for phrase in check.avoids))
        if check.sentences:
            least, most = check.sentences
            checks.append(lambda text: least <= count_sentences(text) <= most)
        return checks


class SectionReward(Around):
    """A reward that sees one section of a response, <tag>…</tag>: QuRL's answer, without the thinking before it.

    With `after` it sees what follows a section: after="think" what comes after </think>, where a policy's own template
    has it think. "answer" is the tag where neither is given; raises AdjudgeError where both are.

    A response without that section, or with a blank one, is worth 0: it has not failed to be judged, and nothing is
    asked about it (the measure "shut" is 1 there, and 0 elsewhere). Of several sections the first is taken; `Gated` by
    a `FormatReward` shuts them out, and pays what it is told to where 0 is too much for no section (a tournament).
    """

    def __init__(self, reward: Reward | Function, tag: str | None = None, *, after: str | None = None) -> None:
        if tag is not None and after is not None:
            raise AdjudgeError(f'a reward sees the section "{tag}", or what comes after "{after}": give one of them')
        self.tag, self.after = tag or "answer", after
        super().__init__(inside(reward, f"what sees the section {self.tag}"))

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        """The rewards of each group, in order."""
        found = [[self._section(response) or None for response in group.responses] for group in groups]
        scored = scored_where(self.name, self.reward, groups, found)
        return [_paid(group, texts) for group, texts in zip(scored, found, strict=True)]

    def _section(self, response: str) -> str:
        return section_of(response, self.tag) if self.after is None else section_after(response, self.after)


def section_of(text: str, tag: str) -> str:
    """What stands between <tag> and the next </tag>, without blanks around it; "" where there is none to be seen."""
    _, opened, rest = text.partition(f"<{tag}>")
    inside, closed, _ = rest.partition(f"</{tag}>")
    return _seen(inside) if opened and closed else ""


def section_after(text: str, tag: str) -> str:
    """What follows the first </tag>, without blanks around it; "" where there is none: a thought without an end."""
    return _seen(text.partition(f"</{tag}>")[2])


def _seen(text: str) -> str:
    """A text without blanks around it, "" where there is nothing in it that readers see."""
    return text.strip() if readable(text).strip() else ""


def count_sentences(text: str) -> int:
    """How many sentences a text has: stretches of other characters between . ! ? … and the Chinese forms of these."""
    return sum(bool(part.strip()) for part in re.split(r"[.!?。！？…]+", text))


def _finder(phrase: str) -> Callable[[str], bool]:
    """Whether a readable text has the phrase; as a whole word, where its script has blanks between words."""
    phrase = readable(phrase)
    before, after = (r"\w" if re.match(r"\w", end) and not is_alone(end) else "" for end in (phrase[0], phrase[-1]))
    found = re.compile(
        f"(?<!{before})" * bool(before) + re.escape(phrase) + f"(?!{after})" * bool(after), re.IGNORECASE
    )
    return lambda text: found.search(text) is not None


def _paid(group: GroupReward, texts: Sequence[str | None]) -> GroupReward:
    """The same with 0 for a response that has no section, and its words; the reward may have gates of its own."""
    rewards = tuple(0.0 if text is None else value for text, value in zip(texts, group.rewards, strict=True))
    shut = tuple(1.0 if text is None else inner for text, inner in zip(texts, shut_out(group), strict=True))
    words = tuple(None if text is None else float(count_words(text)) for text in texts)
    return msgspec.structs.replace(group, rewards=rewards, measures={OF_THE_TEXT: words, **group.measures, SHUT: shut})
