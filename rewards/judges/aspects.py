"""What a judge looks at: the aspects of HANNA and StoryER, and the user's own."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.text.tokenizer import well_formed

HEAVIEST = 1e6
"""Weight of an aspect: sums of scores stay finite."""
Aspects: TypeAlias = "str | Aspect | Sequence[str | Aspect]"
"""Aspects as they are given: objects, or names as in `parse_aspects`."""


class Aspect(msgspec.Struct, frozen=True):
    """A dimension judged: its name, what it means (one sentence for the prompt), and its weight in the preference."""

    name: str
    definition: str
    weight: float = 1.0


HANNA: tuple[Aspect, ...] = (
    Aspect("relevance", "How well does the story answer the writing prompt it was given?"),
    Aspect("coherence", "Does the story make sense, each part following from the ones before?"),
    Aspect("empathy", "How well does the story let the reader understand and share what its characters feel?"),
    Aspect("surprise", "How well does the story avoid the expected, and does its end come as a surprise that fits?"),
    Aspect("engagement", "How strongly does the story hold the reader's attention and make one want to read on?"),
    Aspect("complexity", "How rich is the story in detail, ideas and layers?"),
)
"""The six criteria of the HANNA benchmark (Chhun et al., 2022), in words of our own."""

STORYER: tuple[Aspect, ...] = (
    Aspect("coherence", "Does the story make sense, each part following from the ones before?"),
    Aspect("ending", "Does the story end well, with an ending that completes what came before?"),
    Aspect("style", "How well is the story written: word choice, rhythm, and a voice of its own?"),
    Aspect(
        "character development",
        "Are the characters distinct, and do they change or show themselves through what they do?",
    ),
    Aspect("empathy", "How well does the story let the reader understand and share what its characters feel?"),
)
"""The five aspects of StoryER (Chen et al., 2022), in words of our own."""

PERSE: tuple[Aspect, ...] = (
    Aspect("interestingness", "Which plot holds this reader's interest more?"),
    Aspect("adaptability", "Which plot promises this reader more as the ground plan of a whole novel or film?"),
    Aspect("surprise", "Which plot keeps this reader guessing more, and takes the less expected turns?"),
    Aspect("character development", "In which plot do the people, and what befalls them, matter more to this reader?"),
    Aspect("ending", "Which plot closes in the way that pleases this reader more?"),
)
"""The five aspects of PerSE's comparisons (Wang et al., 2023; A.1.1), in words of our own."""

SETS: dict[str, tuple[Aspect, ...]] = {"hanna": HANNA, "storyer": STORYER, "perse": PERSE}


def parse_aspects(text: str, preferred: Sequence[Aspect] = ()) -> tuple[Aspect, ...]:
    """Aspects from the command line: names, also of sets, after commas; one's own as `name=what it means`.

    A name that several sets know means what it means in `preferred`, else in the first of them. A name may carry its
    weight: `coherence*3,wit*0.5=Is it funny?`. What stands after the comma in a meaning of one's own belongs to it,
    unless it is, or nearly is, a name. Raises AdjudgeError for a name nobody knows, a weight that is no number, an
    empty list, and a name given twice.
    """
    known = {aspect.name.lower(): aspect for aspects in (*reversed(SETS.values()), preferred) for aspect in aspects}
    chosen: list[Aspect] = []
    for part in _pieces(text, (*known, *SETS)):
        written, equals, definition = (piece.strip() for piece in part.partition("="))
        name, star, weight = (piece.strip() for piece in written.partition("*"))
        if part.lower() in SETS:
            chosen += SETS[part.lower()]
            continue
        if equals and name and definition:
            aspect = Aspect(name, definition)
        elif name.lower() in known:
            aspect = known[name.lower()]
        else:
            raise AdjudgeError(
                f'unknown aspect "{part}": choose hanna, storyer, perse, or names from {", ".join(sorted(known))};'
                f' give your own as "{name or "name"}=what it means"'
            )
        chosen.append(msgspec.structs.replace(aspect, weight=_weight(weight, part)) if star else aspect)
    return checked(chosen)


def aspects_of(given: Aspects, preferred: Sequence[Aspect] = ()) -> tuple[Aspect, ...]:
    """Aspects as text (`parse_aspects`), all together or each, or as they are, checked."""
    if isinstance(given, str):
        return parse_aspects(given, preferred)
    if isinstance(given, Aspect):
        return checked([given])
    each = [aspects_of(part, preferred) if isinstance(part, str) else (part,) for part in given]
    return checked([aspect for some in each for aspect in some])


def _pieces(text: str, names: Sequence[str]) -> list[str]:
    """What stands between commas; within a meaning a comma parts nothing, unless a name or nearly one follows it."""
    pieces: list[str] = []
    for piece in filter(None, map(str.strip, text.split(","))):
        within = bool(pieces) and "=" not in piece and pieces[-1].partition("=")[2].strip()
        if within and not difflib.get_close_matches(piece.partition("*")[0].strip().lower(), names, 1, 0.8):
            pieces[-1] += f", {piece}"
        else:
            pieces.append(piece)
    return pieces


def _weight(text: str, part: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise AdjudgeError(f'the weight of "{part}" is no number: write name*2.5') from error


def checked(aspects: Sequence[Aspect]) -> tuple[Aspect, ...]:
    """The aspects, refused when none is given, a name comes twice, or the weights cannot be averaged."""
    if not aspects:
        raise AdjudgeError("no aspects given: choose hanna, storyer, perse, or names separated by commas")
    if other := next((one for one in aspects if not isinstance(one, Aspect)), None):
        raise AdjudgeError(f"{str(other)[:40]!r} is no aspect: give names, or Aspect objects")
    aspects = [
        msgspec.structs.replace(one, name=well_formed(one.name), definition=well_formed(one.definition))
        for one in aspects
    ]
    if slash := next((aspect.name for aspect in aspects if "/" in aspect.name), None):
        raise AdjudgeError(f'the aspect "{slash}" has a slash in its name, which parts of parts have: give it another')
    counts = Counter(aspect.name for aspect in aspects)
    if double := next((name for name, count in counts.items() if count > 1), None):
        raise AdjudgeError(f'aspect "{double}" is given twice: leave one out')
    if not all(0 <= aspect.weight <= HEAVIEST for aspect in aspects) or not any(aspect.weight for aspect in aspects):
        weights = ", ".join(f"{aspect.name}*{aspect.weight:g}" for aspect in aspects)
        raise AdjudgeError(f"the aspects weigh {weights}: give weights from 0 to {HEAVIEST:g}, not all 0")
    return tuple(aspects)
