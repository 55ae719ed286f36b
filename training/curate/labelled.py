"""Texts that people called good or not, and how they are divided: to learn from, and held out to choose by."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import content_key
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.verdict import Item
from adjudge.rewards.records.wire import item_of, label_of
from adjudge.training.prompts import plain


class Labelled(msgspec.Struct, frozen=True):
    """A text and whether people called it good."""

    item: Item
    good: bool


class Division(msgspec.Struct, frozen=True):
    """Texts to learn from and texts held out; no prompt is on both sides, however it is spaced."""

    learnt: tuple[Labelled, ...]
    held_out: tuple[Labelled, ...]

    @property
    def prompts(self) -> list[str]:
        """The prompts of the texts to learn from, each once, in order."""
        return list(dict.fromkeys(one.item.prompt for one in self.learnt))

    def some_prompts(self, count: int, seed: int, number: int) -> list[str]:
        """`count` of the prompts (all, where there are fewer), drawn for the round of that number."""
        prompts = self.prompts
        return _drawn(seed, number, "prompts").sample(prompts, min(count, len(prompts)))

    def some_texts(self, count: int, seed: int, number: int) -> list[Labelled]:
        """`count` of the texts to learn from, half of them good where there are enough, drawn for that round."""
        found: list[Labelled] = []
        for good, wanted in ((True, count // 2), (False, count - count // 2)):
            texts = [one for one in self.learnt if one.good == good]
            found += _drawn(seed, number, f"texts {good}").sample(texts, min(wanted, len(texts)))
        return found


def labelled_of(rows: Sequence[Row]) -> list[Labelled]:
    """The texts of rows with `prompt`, `response` and `label` (1 good, 0 not), and `id` where they have one.

    Raises AdjudgeError naming the row: a column that is missing or wrong, a text that an earlier row labels otherwise;
    and for texts that all have one label.
    """
    found: list[Labelled] = []
    labels: dict[tuple[str, str], bool] = {}
    for number, row in enumerate(rows, 1):
        item, label = item_of(row, number), label_of(row)
        if label is None:
            raise AdjudgeError(f'{row.place}: "label" is missing: write 1 for good, 0 for not good')
        if labels.setdefault((item.prompt, item.response), label) != label:
            raise AdjudgeError(f"{row.place}: this text has the other label in an earlier row: leave one of them out")
        found.append(Labelled(item, label))
    if len({one.good for one in found}) < 2:
        raise AdjudgeError(f"every label is {int(found[0].good)}: give good texts (1) and others (0)")
    return found


def divide(texts: Sequence[Labelled], share: float, seed: int) -> Division:
    """Hold out that `share` of the prompts, alike among those with good texts, with others, and with both.

    Which ones depends on `seed` and on the prompts, not on their order. Raises AdjudgeError for a share outside (0, 1),
    and where one side would be without good texts or without others.
    """
    if not 0 < share < 1:
        raise AdjudgeError(f"the share held out is {share}: give one between 0 and 1")
    labels: dict[str, set[bool]] = {}
    for one in texts:
        labels.setdefault(plain(one.item.prompt), set()).add(one.good)
    held: set[str] = set()
    for kind in ({True}, {False}, {True, False}):
        prompts = [prompt for prompt in labels if labels[prompt] == kind]
        prompts.sort(key=lambda prompt: content_key(prompt=prompt, seed=seed))
        held.update(prompts[: round(share * len(prompts))])
    division = Division(
        tuple(one for one in texts if plain(one.item.prompt) not in held),
        tuple(one for one in texts if plain(one.item.prompt) in held),
    )
    for side, name in ((division.learnt, "to learn from"), (division.held_out, "held out")):
        if len({one.good for one in side}) < 2:
            raise AdjudgeError(
                f"of {len(labels)} prompts there would be no {'others' if side and side[0].good else 'good texts'}"
                f" {name}: give texts to more prompts, or another share to hold out"
            )
    return division


def _drawn(seed: int, number: int, what: str) -> random.Random:
    return random.Random(content_key(seed=seed, round=number, what=what))
