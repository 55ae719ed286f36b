"""Disturbances: what makes a text worse, by a known amount (Tree of Writing, 6.2 and Table 7).

`DISTURBANCES` need no model and are pure functions of text and seed; `TRANSFERS` have a model write the text anew in
another genre. A judge must score a disturbed text below the text it was made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.text.prompt import Prompt
from adjudge.rewards.judges import template
from adjudge.rewards.records.rows import Row
from adjudge.training.chosen import chosen
from adjudge.training.stages import Passed, Texts, Unusable, passed
from adjudge.training.writing.passages import Language, Unit, language_of, passages_of
from adjudge.training.writing.texts import Source

FOLDER = Path(__file__).parent / "prompts"
MOST = 3
"""Passages that are dropped or repeated at most, as published."""
UNDISTURBED = "none"
"""The kind of a text that is itself."""


class Disturbed(msgspec.Struct, frozen=True):
    """A text made worse: how many of its units (paragraphs, sentences, the text) were touched."""

    text: str
    amount: int
    unit: Unit


def drop(text: str, random: Random, most: int = MOST) -> Disturbed | None:
    """The text without one to `most` of its passages, one of which stays; None where it has only one."""
    found = passages_of(text)
    count = len(found.parts)
    if count < 2:
        return None
    amount = random.randint(1, min(most, count - 1))
    gone = set(random.sample(range(count), amount))
    return Disturbed(found.text(place for place in range(count) if place not in gone), amount, found.unit)


def repeat(text: str, random: Random, most: int = MOST) -> Disturbed | None:
    """The text with one to `most` of its passages once more, not beside themselves if there is another place.

    None where it has only one passage.
    """
    found = passages_of(text)
    count = len(found.parts)
    if count < 2:
        return None
    amount = random.randint(1, min(most, count))
    order = list(range(count))
    for passage in random.sample(range(count), amount):
        places = [place for place in range(len(order) + 1) if passage not in order[max(0, place - 1) : place + 1]]
        order.insert(random.choice(places or [0]), passage)
    return Disturbed(found.text(order), amount, found.unit)


DISTURBANCES: dict[str, Callable[[str, Random, int], Disturbed | None]] = {"drop": drop, "repeat": repeat}
"""By name, those that need no model: of text, source of chance, and how many passages at most."""

TRANSFERS: dict[str, dict[Language, str]] = {
    "to_comment": {"en": "comment on current affairs", "zh": "评论"},
    "to_letter": {"en": "letter", "zh": "书信"},
    "to_official": {"en": "official document", "zh": "公文"},
    "to_poem": {"en": "poem", "zh": "诗歌"},
}
"""By name, the genres that a model turns a text into, in the words of its prompts."""

KINDS = (*DISTURBANCES, *TRANSFERS)


def disturbed(kind: str, text: str, *, most: int = MOST, seed: int = 0) -> Disturbed | None:
    """The text disturbed as one of `DISTURBANCES`, the same whenever it is asked for; None where it is too short.

    Raises AdjudgeError for a kind that is not there, and for a `most` below 1.
    """
    if kind not in DISTURBANCES:
        raise AdjudgeError(f'no disturbance without a model is called "{kind[:40]}": choose {", ".join(DISTURBANCES)}')
    if most < 1:
        raise AdjudgeError(f"most is {most}: let at least one passage be disturbed")
    return DISTURBANCES[kind](text, Random(f"{seed} {kind} {text}".encode("utf-8", "surrogatepass")), most)


def parse_kinds(text: str | None, known: Sequence[str] = KINDS) -> tuple[str, ...]:
    """Names after commas, each once, all known ones for None; raises AdjudgeError as `chosen` does."""
    return tuple(dict.fromkeys(chosen(text, known, "disturbance")))


def disturb(
    rows: Sequence[Row],
    kinds: Sequence[str] = KINDS,
    texts: Texts | None = None,
    *,
    most: int = MOST,
    seed: int = 0,
) -> Passed[dict[str, Any]]:
    """Every row as it is, then disturbed in each way; `disturbance` says of which row (`of`), which `kind`, how much.

    The text is the row's `response`, `text` or `story`. Texts too short for a kind are dropped ("too_short"), as are
    transfers that left a text as it was ("unchanged"). `texts` writes the transfers. Raises AdjudgeError for a row
    without a text, and for transfers where nobody is to write them.
    """
    if texts is None and (transfers := [kind for kind in kinds if kind in TRANSFERS]):
        raise AdjudgeError(f"{', '.join(transfers)} need a model to write them")
    sources = [Source.of(row, number, "disturbances") for number, row in enumerate(rows, 1)]
    wanted = [_Wanted(source, kind) for source in sources for kind in (UNDISTURBED, *kinds)]
    return passed("disturb", wanted, chain(_made(wanted, most, seed), _written(wanted, texts)))


class _Wanted(msgspec.Struct, frozen=True):
    """A text to disturb, and the kind."""

    source: Source
    kind: str

    @property
    def text(self) -> str:
        return self.source.text

    @property
    def record(self) -> dict[str, Any]:
        return self.row(Disturbed(self.text, 0, "text"))

    def row(self, made: Disturbed) -> dict[str, Any]:
        of = self.source.id
        about = {"of": of, "kind": self.kind, "amount": made.amount, "unit": made.unit}
        return {**self.source.others, "id": f"{of}/{self.kind}", "response": made.text, "disturbance": about}


def _made(wanted: Sequence[_Wanted], most: int, seed: int) -> Iterator[tuple[int, dict[str, Any] | Unusable]]:
    for place, one in enumerate(wanted):
        if one.kind == UNDISTURBED:
            yield place, one.record
        elif one.kind in DISTURBANCES:
            made = disturbed(one.kind, one.text, most=most, seed=seed)
            yield place, Unusable("too_short") if made is None else one.row(made)


def _written(wanted: Sequence[_Wanted], texts: Texts | None) -> Iterator[tuple[int, dict[str, Any] | Unusable]]:
    """The transfers; a text without a word has nothing to be written anew."""
    places = [place for place, one in enumerate(wanted) if one.kind in TRANSFERS]
    asked = [place for place in places if wanted[place].text.strip()]
    yield from ((place, Unusable("too_short")) for place in places if place not in set(asked))
    if texts is None or not asked:
        return
    prompts = [_prompt(wanted[place], texts) for place in asked]
    for number, found in texts.write(prompts, str.strip):
        place = asked[number]
        if isinstance(found, Unusable):
            yield place, found
        elif found == wanted[place].text.strip():
            yield place, Unusable("unchanged")
        else:
            yield place, wanted[place].row(Disturbed(found, 1, "text"))


def _prompt(one: _Wanted, texts: Texts) -> Prompt:
    language = language_of(one.text)
    asked = template.load("transfer", language, FOLDER)
    return texts.prompt(*asked.render(data={"text": one.text}, genre=TRANSFERS[one.kind][language]))
