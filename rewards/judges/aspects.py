"""What a judge looks at: the aspects of HANNA and StoryER, and the user's own."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias

import msgspec

from adjudge.engine.checking import shown
from adjudge.engine.errors import AdjudgeError, reason
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.records.verdict import check_texts

HEAVIEST = 1e6
"""Weight of an aspect: sums of scores stay finite."""
Aspects: TypeAlias = "str | Aspect | Mapping[str, Any] | Sequence[str | Aspect | Mapping[str, Any]]"
"""Aspects as they are given, see `aspects_of`."""
_PIECE = re.compile(r'(?:=\s*"[^"]*"(?=\s*(?:,|$))|[^,])+')
"""What stands between commas that are in no quotes."""
_WEIGHT = re.compile(r"\*\s*\d+(?:\.\d*)?$")
"""A weight where none is read: after a meaning."""
ENDS = ".?!…。？！"
"""What a meaning ends with."""
CLOSING = ")]}）］｝」』】》〉\"'”’“‘»«›‹"
"""What may stand after that: brackets and quotes, as languages close them."""


class Aspect(msgspec.Struct, frozen=True):
    """A dimension judged: its name, what it means (one sentence for the prompt), and its weight in the preference."""

    name: str
    definition: str
    weight: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.weight, int) and not isinstance(self.weight, bool):  # 2 and 2.0 are one weight, and one key
            msgspec.structs.force_setattr(self, "weight", float(self.weight))


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
    unless it is, or nearly is, a name; a meaning in quotes is taken as it stands: `clear="In prose, style, ending?"`.
    Raises AdjudgeError for a name nobody knows, one after a meaning that has not come to an end (it may be part of
    it), a weight that is no number or stands after a meaning, an empty list, and a name given twice.
    """
    known = {aspect.name.lower(): aspect for aspects in (*reversed(SETS.values()), preferred) for aspect in aspects}
    chosen: list[Aspect] = []
    for part in _pieces(text, (*known, *SETS)):
        written, equals, definition = (piece.strip() for piece in part.partition("="))
        name, star, weight = (piece.strip() for piece in written.partition("*"))
        if part.lower() in SETS:
            chosen += SETS[part.lower()]
            continue
        if equals and name and definition.strip('" '):
            aspect = Aspect(name, _meaning(name, definition))
        elif name.lower() in known:
            aspect = known[name.lower()]
        else:
            raise AdjudgeError(
                f'unknown aspect "{part}": choose hanna, storyer, perse, or names from {", ".join(sorted(known))};'
                f' give your own as "{name or "name"}=what it means", in quotes where commas part what it means'
            )
        chosen.append(msgspec.structs.replace(aspect, weight=_weight(weight, part)) if star else aspect)
    return checked_aspects(chosen)


def aspects_of(given: Aspects, preferred: Sequence[Aspect] = ()) -> tuple[Aspect, ...]:
    """Aspects as text (`parse_aspects`), objects or their fields, {name: meaning}, or a list of these, checked."""
    if isinstance(given, str):
        return parse_aspects(given, preferred)
    if isinstance(given, Mapping):
        if not {"name", "definition"} <= given.keys():
            return checked_aspects([_aspect({"name": name, "definition": meaning}) for name, meaning in given.items()])
        return checked_aspects([_aspect(given)])
    if isinstance(given, Aspect):
        return checked_aspects([given])
    if not isinstance(given, Iterable):
        raise AdjudgeError(f"aspects is {shown(given)}: give names, {{name: meaning}}, or a list of Aspect objects")
    each = [aspects_of(part, preferred) if isinstance(part, str | Mapping) else (part,) for part in given]
    return checked_aspects([aspect for some in each for aspect in some])


def _aspect(fields: Mapping[str, Any]) -> Aspect:
    try:
        if unknown := fields.keys() - set(Aspect.__struct_fields__):
            raise AdjudgeError(f"an aspect has {sorted(unknown)[0]!r:.40}: give its name, definition and weight")
        return msgspec.convert(fields, Aspect)
    except msgspec.ValidationError as error:
        raise AdjudgeError(
            f"{fields!r:.60} is no aspect ({reason(error)}): give name, definition and weight"
        ) from error


def _pieces(text: str, names: Sequence[str]) -> list[str]:
    """What stands between commas; within a meaning a comma parts nothing, unless a name or nearly one follows it."""
    pieces: list[str] = []
    for piece in filter(None, map(str.strip, _PIECE.findall(text))):
        meaning = pieces[-1].partition("=")[2].strip() if pieces and "=" not in piece else ""
        if not meaning or _is_quoted(meaning):
            pieces.append(piece)
        elif not difflib.get_close_matches(piece.partition("*")[0].strip().lower(), names, 1, 0.8):
            pieces[-1] += f", {piece}"
        elif meaning.rstrip(CLOSING).endswith(tuple(ENDS)):
            pieces.append(piece)
        else:
            _meaning(pieces[-1].partition("=")[0].partition("*")[0].strip(), meaning)
            raise AdjudgeError(
                f'"{piece}" is an aspect, or part of what "{pieces[-1][:60]}" means: put what that means in quotes, or'
                " end it with a full stop or question mark before the comma"
            )
    return pieces


def _is_quoted(meaning: str) -> bool:
    return len(meaning) > 1 and meaning[0] == meaning[-1] == '"'


def _meaning(name: str, definition: str) -> str:
    """What an aspect means, without quotes around it; raises AdjudgeError for a weight at its end."""
    if _is_quoted(definition):
        return definition[1:-1].strip()
    if found := _WEIGHT.search(definition):
        raise AdjudgeError(
            f'what the aspect "{name}" means ends in "{found[0]}": write {name}{found[0]}=… for a weight, or put the'
            " meaning in quotes"
        )
    return definition


def _weight(text: str, part: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise AdjudgeError(f'the weight of "{part}" is no number: write name*2.5') from error


def checked_aspects(aspects: Sequence[Aspect]) -> tuple[Aspect, ...]:
    """The aspects, refused when none is given, a name comes twice, or the weights cannot be averaged."""
    if not aspects:
        raise AdjudgeError("no aspects given: choose hanna, storyer, perse, or names separated by commas")
    if other := next((one for one in aspects if not isinstance(one, Aspect)), None):
        raise AdjudgeError(f"{str(other)[:40]!r} is no aspect: give names, or Aspect objects")
    for one in aspects:
        check_texts("an aspect", {"name": one.name, "definition": one.definition})
        weight: Any = one.weight
        if isinstance(weight, bool) or not isinstance(weight, Real):
            raise AdjudgeError(f'the weight of the aspect "{one.name}" is {shown(weight)}: give a number')
    aspects = [
        msgspec.structs.replace(one, name=well_formed(one.name), definition=well_formed(one.definition))
        for one in aspects
    ]
    if slash := next((aspect.name for aspect in aspects if "/" in aspect.name), None):
        raise AdjudgeError(f'the aspect "{slash}" has a slash in its name, which parts of parts have: give it another')
    if star := next((aspect for aspect in aspects if "*" in aspect.name), None):
        name, heavy = (part.strip() for part in star.name.split("*", 1))
        mend = f'{{"name": "{name}", "definition": …, "weight": {heavy or 2}}}'
        raise AdjudgeError(f'the aspect "{star.name}" has a * in its name, which is no weight here: give {mend}')
    if blank := next((aspect for aspect in aspects if not aspect.name.strip() or not aspect.definition.strip()), None):
        raise AdjudgeError(f'the aspect "{blank.name}" wants a name and a meaning: say in a sentence what it asks')
    counts = Counter(aspect.name for aspect in aspects)
    if double := next((name for name, count in counts.items() if count > 1), None):
        raise AdjudgeError(f'aspect "{double}" is given twice: leave one out')
    if not all(0 <= aspect.weight <= HEAVIEST for aspect in aspects) or not any(aspect.weight for aspect in aspects):
        weights = ", ".join(f"{aspect.name}*{aspect.weight:g}" for aspect in aspects)
        raise AdjudgeError(f"the aspects weigh {weights}: give weights from 0 to {HEAVIEST:g}, not all 0")
    return tuple(aspects)
