"""`SectionReward`: a reward of one section of a text alone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.parts.combining import OF_THE_TEXT, SHUT, scored_where
from adjudge.rewards.parts.function_reward import Function
from adjudge.rewards.parts.gated import shut_out
from adjudge.rewards.parts.layer import Around, inside
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward
from adjudge.rewards.visible import readable
from adjudge.rewards.words import count_words


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


def _paid(group: GroupReward, texts: Sequence[str | None]) -> GroupReward:
    """The same with 0 for a response that has no section, and its words; the reward may have gates of its own."""
    rewards = tuple(0.0 if text is None else value for text, value in zip(texts, group.rewards, strict=True))
    shut = tuple(1.0 if text is None else inner for text, inner in zip(texts, shut_out(group), strict=True))
    words = tuple(None if text is None else float(count_words(text)) for text in texts)
    return msgspec.structs.replace(group, rewards=rewards, measures={OF_THE_TEXT: words, **group.measures, SHUT: shut})
