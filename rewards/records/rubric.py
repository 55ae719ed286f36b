"""Rubrics: criteria with the scores each can be given, from TOML, JSON, a row of data or a five-level checklist."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Sequence
from itertools import pairwise
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import AdjudgeError, reason

MAX_SCORES = 101
"""Scores that one criterion can be given at most."""
MAX_CRITERIA = 1000
LARGEST = 1e6
"""Points, scores and weights beyond this are nobody's: a row's own rubric may have been written by anybody."""

CHECKLIST_TEXT = "criteria_description"

DECODERS: dict[str, Callable[[str], Any]] = {".toml": tomllib.loads, ".json": msgspec.json.decode}
"""How a file of a suffix is read."""

_SCORE = r"\d+(?:\.\d+)?"
_LEVEL = re.compile(rf"\s*({_SCORE})\s*(?:[-–]\s*({_SCORE})\s*)?", re.ASCII)
_MARKS = frozenset("\ue000\ue001")

Record = TypeVar("Record", bound=msgspec.Struct)


class Level(msgspec.Struct, frozen=True):
    """What a text is like that earns a score from `low` to `high` on a criterion, in words."""

    low: float
    high: float
    text: str

    @property
    def values(self) -> tuple[float, ...]:
        """The scores of this level: one, or the whole numbers from `low` to `high`."""
        return (self.low,) if self.low == self.high else _whole(self.low, self.high)


class Criterion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that a rubric looks at.

    It can be given the scores that its `levels` name, or without levels 0, 1, … `points`, or without both those of the
    rubric's scale. `weight` is how it counts (see `Rubric`). `veto` is the score it must reach, or nothing else counts:
    below it the whole text is worth 0. Raises AdjudgeError for a text that is no string, and a number that is none.
    """

    name: str
    text: str
    points: float | None = None
    levels: tuple[Level, ...] = ()
    weight: float | None = None
    veto: float | None = None

    def __post_init__(self) -> None:
        for name in ("name", "text"):
            if not isinstance(value := getattr(self, name), str):
                raise AdjudgeError(f"{name} of a criterion is {shown(value)}: give a string")
        for name in ("points", "weight", "veto"):
            number: Any = getattr(self, name)
            if number is not None:
                _check_real(number, f'{name} of the criterion "{self.name}"')
            if is_number(number, Integral):  # 2 and 2.0 are one number, and one key
                msgspec.structs.force_setattr(self, name, float(number))

    @property
    def values(self) -> tuple[float, ...]:
        """The scores that can be given, ascending, as far as the criterion itself says."""
        if self.levels:
            return tuple(value for level in self.levels for value in level.values)
        return () if self.points is None else _whole(0.0, self.points)


class Rubric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Criteria, and what holds for all of them.

    `scale` is the lowest and the highest score of criteria without points and levels (whole numbers). `points`, where
    given, is what the points of all criteria sum to. Either every criterion has a weight or none; without weights each
    counts by its points. `threshold` is the weighted mean from which on a text is acceptable; the criteria must then
    have one scale. Raises AdjudgeError naming the criterion and the mend.
    """

    criteria: tuple[Criterion, ...]
    scale: tuple[float, float] | None = None
    points: float | None = None
    threshold: float | None = None

    def __post_init__(self) -> None:
        if not self.criteria:
            raise AdjudgeError("the rubric has no criteria: give at least one")
        if len(self.criteria) > MAX_CRITERIA:
            raise AdjudgeError(f"the rubric has {len(self.criteria)} criteria: give at most {MAX_CRITERIA}")
        if self.scale is not None:
            _check_scale(self.scale)
        for name in ("points", "threshold"):
            if (number := getattr(self, name)) is not None:
                _check_real(number, f"{name} of the rubric")
        for number, criterion in enumerate(self.criteria, 1):
            if not isinstance(criterion, Criterion):
                raise AdjudgeError(f"{_called(number)} is {shown(criterion)}: give Criterion(…) objects")
            try:
                _check_criterion(criterion, self.values(criterion))
                if any(criterion.name == earlier.name for earlier in self.criteria[: number - 1]):
                    raise AdjudgeError("the name is given twice: rename one")
            except AdjudgeError as error:
                raise AdjudgeError(f"{_called(number, criterion.name)}: {error}") from error
        _check_weights(self.criteria)
        _check_total(self)
        _check_threshold(self)

    def values(self, criterion: Criterion) -> tuple[float, ...]:
        """The scores that a criterion can be given, ascending; none where nobody says which."""
        return criterion.values or (() if self.scale is None else _whole(*self.scale))


def check_rubric(rubric: Rubric | None, place: str) -> None:
    """Raise AdjudgeError for what is given as a rubric and is none."""
    if rubric is not None and not isinstance(rubric, Rubric):
        raise AdjudgeError(f"{place} is {shown(rubric)}: give a Rubric, as read_rubric reads one from a file")


def read_rubric(path: str | Path) -> Rubric:
    """The rubric of a `.toml` or `.json` file; raises AdjudgeError naming the file, the criterion and the mend."""
    path = Path(path)
    decode = DECODERS.get(path.suffix.lower())
    if decode is None:
        raise AdjudgeError(f"{path} is neither .toml nor .json: name a rubric file of either kind")
    try:
        record = decode(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise AdjudgeError(f"cannot read {path} ({error.strerror}): name a file that can be read") from error
    except (ValueError, RecursionError) as error:
        kind = path.suffix[1:].upper()
        raise AdjudgeError(f"{path.name} is not {kind} ({reason(error)}): mend it there") from error
    rubric = rubric_of(record, path.name)
    if _MARKS & set(msgspec.json.encode(rubric).decode()):
        raise AdjudgeError(f"{path.name} holds U+E000 or U+E001, which mark the places of data: remove them")
    return rubric


def rubric_of(record: Any, place: str) -> Rubric:
    """The rubric of a decoded JSON or TOML object; raises AdjudgeError that begins with `place`.

    Its fields are those of `Rubric` and `Criterion`, but `levels` is an object: each score, or range of whole scores
    ("3-4"), with its words, from the lowest to the highest.
    """
    if isinstance(record, dict) and isinstance(entries := record.get("criteria"), list):
        read = [_criterion(entry, number, place) for number, entry in enumerate(entries, 1)]
        record = {**record, "criteria": read}
    try:
        return _converted(record, Rubric, "a rubric")
    except AdjudgeError as error:
        raise AdjudgeError(f"{place}: {error}") from error


def rubric_of_checklist(checklist: Any, place: str) -> Rubric:
    """The rubric of a WritingBench checklist: objects with `name`, `criteria_description` and the words of each level.

    The levels are "1-2", "3-4", … "9-10" there. Raises AdjudgeError that begins with `place`.
    """
    if not isinstance(checklist, list):
        raise AdjudgeError(f"{place}: the checklist is a {type(checklist).__name__}, not a list of criteria: give one")
    criteria = []
    for number, entry in enumerate(checklist, 1):
        if not isinstance(entry, dict) or not {"name", CHECKLIST_TEXT} <= entry.keys():
            raise AdjudgeError(
                f'{place}: {_called(number)} of the checklist needs "name", "{CHECKLIST_TEXT}" and its levels'
            )
        levels = {key: text for key, text in entry.items() if key not in ("name", CHECKLIST_TEXT)}
        criteria.append({"name": entry["name"], "text": entry[CHECKLIST_TEXT], "levels": levels})
    return rubric_of({"criteria": criteria}, place)


def is_whole(value: float) -> bool:
    """Whether a score is a whole number."""
    return value % 1 == 0


def _criterion(entry: Any, number: int, place: str) -> Criterion:
    """A criterion as its author writes it: its levels are an object."""
    where = f"{place}: {_called(number, entry.get('name') if isinstance(entry, dict) else None)}"
    if isinstance(entry, dict) and "levels" in entry:
        if not isinstance(levels := entry["levels"], dict):
            raise AdjudgeError(f"{where}: levels is {shown(levels)}: give an object, each score with its words")
        entry = {**entry, "levels": [_level(str(key), text, where) for key, text in levels.items()]}
    try:
        return _converted(entry, Criterion, "a criterion")
    except AdjudgeError as error:
        raise AdjudgeError(f"{where}: {error}") from error


def _converted(record: Any, kind: type[Record], what: str) -> Record:
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError as error:
        fields = ", ".join(field.name for field in msgspec.structs.fields(kind))
        raise AdjudgeError(f"{reason(error)} ({what} has {fields})") from error


def _level(key: str, text: Any, where: str) -> Level:
    found = _LEVEL.fullmatch(key)
    if not isinstance(text, str):
        raise AdjudgeError(f'{where}: level "{key[:40]}" is {shown(text)}: give its words')
    if not found:
        raise AdjudgeError(f'{where}: level "{key[:40]}" is no score: name it by one ("3") or a range ("3-4")')
    return Level(float(found[1]), float(found[2] or found[1]), text)


def _check_real(number: Any, name: str) -> None:
    if isinstance(number, bool) or not isinstance(number, Real):
        raise AdjudgeError(f"{name} is {shown(number)}: give a number")


def _check_scale(scale: Sequence[float]) -> None:
    if not (isinstance(scale, tuple | list) and len(scale) == 2):
        raise AdjudgeError(f"scale is {shown(scale)}: give the lowest score and the highest")
    low, high = scale
    for end in scale:
        _check_real(end, "an end of the scale")
    if not (is_whole(low) and is_whole(high) and 0 <= low < high <= LARGEST and high < low + MAX_SCORES):
        raise AdjudgeError(
            f"scale is {low:g} to {high:g}: give two whole numbers, the lower first, at most {MAX_SCORES - 1} apart"
        )


def _check_level(low: float, high: float) -> None:
    if not 0 <= low <= high <= LARGEST:
        raise AdjudgeError(f"a level is from {low:g} to {high:g}: give scores from 0 to {LARGEST:g}, the lower first")
    if low != high and not (is_whole(low) and is_whole(high) and high < low + MAX_SCORES):
        raise AdjudgeError(
            f"a level is from {low:g} to {high:g}, which is no range of up to {MAX_SCORES} whole scores: give each"
            " score a level"
        )


def _check_criterion(criterion: Criterion, values: Sequence[float]) -> None:
    points, veto = criterion.points, criterion.veto
    if not criterion.name.strip() or not criterion.text.strip():
        raise AdjudgeError("name or text is empty: say what is looked at")
    for level in criterion.levels:
        _check_level(level.low, level.high)
    if points is not None and not 0 < points <= LARGEST:
        raise AdjudgeError(f"points is {points:g}: give a number above 0, up to {LARGEST:g}")
    if points is not None and not criterion.levels and not (is_whole(points) and points < MAX_SCORES):
        raise AdjudgeError(
            f"points is {points:g}: give a whole number below {MAX_SCORES}, or levels that name the scores"
        )
    if any(later <= earlier for earlier, later in pairwise(values)):
        raise AdjudgeError("the levels do not ascend: write them from the lowest score to the highest, each score once")
    if len(values) == 1 or len(values) > MAX_SCORES:
        raise AdjudgeError(f"{len(values)} scores can be given: give levels for 2 to {MAX_SCORES}")
    if points is not None and points != values[-1]:
        raise AdjudgeError(f"points is {points:g} but the highest level {values[-1]:g}: make them the same")
    if veto is not None and not (values[0] if values else 0) < veto <= (values[-1] if values else 1):
        among = f"{values[0]:g} and up to {values[-1]:g}" if values else "0 and up to 1"
        raise AdjudgeError(f"veto is {veto:g}: give the score that must be reached, above {among}")


def _check_weights(criteria: Sequence[Criterion]) -> None:
    weights = [criterion.weight for criterion in criteria]
    for number, (criterion, weight) in enumerate(zip(criteria, weights, strict=True), 1):
        if (weight is None) != (weights[0] is None):
            raise AdjudgeError(f"{_called(number, criterion.name)}: give every criterion a weight, or none")
        if weight is not None and not 0 <= weight <= LARGEST:
            raise AdjudgeError(
                f"{_called(number, criterion.name)}: weight is {weight:g}: give one from 0 to {LARGEST:g}"
            )
    if weights[0] is not None and not any(weights):
        raise AdjudgeError("the weights sum to 0: give at least one criterion a weight above 0")


def _check_total(rubric: Rubric) -> None:
    if rubric.points is None:
        return
    tops = []
    for number, criterion in enumerate(rubric.criteria, 1):
        if not (values := rubric.values(criterion)):
            raise AdjudgeError(
                f"{_called(number, criterion.name)}: points are missing, give some of the {rubric.points:g}"
            )
        tops.append(values[-1])
    if not math.isclose(total := math.fsum(tops), rubric.points):
        raise AdjudgeError(
            f"the criteria's points sum to {total:g}, not to the {rubric.points:g} stated: mend them or the total"
        )


def _check_threshold(rubric: Rubric) -> None:
    if rubric.threshold is None:
        return
    scales = {(values[0], values[-1]) if (values := rubric.values(one)) else None for one in rubric.criteria}
    [scale] = scales if len(scales) == 1 else [None]
    if scale is None:
        raise AdjudgeError("a threshold needs criteria of one scale: give them the same lowest and highest score")
    if not scale[0] < rubric.threshold <= scale[1]:
        raise AdjudgeError(
            f"threshold is {rubric.threshold:g}: give one above {scale[0]:g} and up to {scale[1]:g}, the scale"
        )


def _called(number: int, name: Any = None) -> str:
    return f'criterion {number} ("{name[:40]}")' if isinstance(name, str) else f"criterion {number}"


def _whole(low: float, high: float) -> tuple[float, ...]:
    """low, low + 1, … high; nothing where that makes no sense, which the checks then say."""
    if not (math.isfinite(low) and low <= high < low + MAX_SCORES):
        return ()
    return tuple(float(low + step) for step in range(int(high - low) + 1))
