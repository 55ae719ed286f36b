"""What a model writes when it is asked for a rubric, and how that becomes a rubric whose points sum to 10."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.rubric_scoring import TOTAL, marks_of, written
from adjudge.rewards.records.rubric import Criterion, Level, Rubric
from adjudge.training.stages import Unusable, json_of, object_schema, text_schema

CONTENT, WRITING = 7, 3
"""Points of the two parts, as in the paper's examples (A.4)."""

STEP = 0.5
"""Points are mended in steps of this size."""

MOST_POINTS = 1000.0

_CRITERION = object_schema(
    name=text_schema(60),
    text=text_schema(200),
    points={"type": "integer", "minimum": 1, "maximum": 10},
    full=text_schema(200),
    none=text_schema(120),
)

SCHEMA = object_schema(
    content={"type": "array", "items": _CRITERION, "minItems": 1, "maxItems": 6},
    writing={"type": "array", "items": _CRITERION, "minItems": 1, "maxItems": 3},
)
"""The form of a draft, for engines that can hold a model to one; the longest there is has some 1,800 tokens."""


class DraftCriterion(msgspec.Struct, frozen=True):
    """A criterion in a model's words: what earns all of its points, and what earns none."""

    name: str
    text: str
    points: float
    full: str
    none: str


class Draft(msgspec.Struct, frozen=True):
    """A rubric in a model's words, in the paper's two dimensions: what is said, and how."""

    content: tuple[DraftCriterion, ...]
    writing: tuple[DraftCriterion, ...]


class Sound(msgspec.Struct, frozen=True):
    """A rubric that can be marked with the scheme "fixed", and whether its points had to be mended for that."""

    rubric: Rubric
    mended: bool


_draft = json_of(Draft)


def read_rubric_text(text: str) -> Sound:
    """The rubric in a model's text; raises Unusable ("unparsable", and those of `sound`)."""
    return sound(_draft(text))


def sound(draft: Draft) -> Sound:
    """The rubric of a draft; each criterion can be given none, half or all of its points.

    Points that do not sum to 10 are mended (`mended_points`). Raises Unusable: "part_missing" where a dimension has no
    criterion, "bad_points" for points that are no shares of anything, "too_many_criteria", and "invalid_rubric" for
    what a rubric may not be: an empty or repeated name, an empty text.
    """
    if not draft.content or not draft.writing:
        raise Unusable("part_missing")
    drafts = draft.content + draft.writing
    given = [one.points for one in drafts]
    points = mended_points(given)
    if len({one.name.strip().casefold() for one in drafts}) < len(drafts):
        raise Unusable("invalid_rubric")
    try:
        rubric = Rubric(tuple(map(_criterion, drafts, points)), points=TOTAL)
        marks_of(rubric, "fixed")
    except AdjudgeError as error:
        raise Unusable("invalid_rubric") from error
    return Sound(rubric, points != given)


def mended_points(points: Sequence[float]) -> list[float]:
    """The points as they are where they sum to 10 in half points; else shares of 10 in half points.

    Every criterion gets half a point, and each further half goes to the one that is furthest below its share (of equals
    the first). Raises Unusable ("bad_points", "too_many_criteria").
    """
    if not all(0 < value <= MOST_POINTS for value in points):
        raise Unusable("bad_points")
    if len(points) * STEP > TOTAL:
        raise Unusable("too_many_criteria")
    total = math.fsum(points)
    if total == TOTAL and all(value % STEP == 0 for value in points):
        return list(points)
    shares = [TOTAL * value / total for value in points]
    mended = [STEP] * len(points)
    while math.fsum(mended) < TOTAL:
        lacking = [share - value for share, value in zip(shares, mended, strict=True)]
        mended[lacking.index(max(lacking))] += STEP
    return mended


def rubric_record(rubric: Rubric) -> dict[str, Any]:
    """A rubric as its author would write it: what `rubric_of` reads."""
    record: dict[str, Any] = {}
    for name in ("scale", "points", "threshold"):
        if (value := getattr(rubric, name)) is not None:
            record[name] = value
    return {**record, "criteria": [_criterion_record(criterion) for criterion in rubric.criteria]}


def described(rubric: Rubric) -> str:
    """A rubric as a model reads it."""
    lines = []
    for criterion in rubric.criteria:
        lines.append(f"- {criterion.name} ({written(criterion.points or 0.0)} points): {criterion.text}")
        lines += [f"  {written(level.low)}: {level.text}" for level in criterion.levels if level.text != HALF]
    return "\n".join(lines)


HALF = "Between the two."


def _criterion(draft: DraftCriterion, points: float) -> Criterion:
    levels = (
        Level(0.0, 0.0, draft.none.strip()),
        Level(points / 2, points / 2, HALF),
        Level(points, points, draft.full.strip()),
    )
    return Criterion(draft.name.strip(), draft.text.strip(), points, levels)


def _criterion_record(criterion: Criterion) -> dict[str, Any]:
    record: dict[str, Any] = {"name": criterion.name, "text": criterion.text}
    for name in ("points", "weight", "veto"):
        if (value := getattr(criterion, name)) is not None:
            record[name] = value
    if criterion.levels:
        record["levels"] = {_scores(level): level.text for level in criterion.levels}
    return record


def _scores(level: Level) -> str:
    return "-".join(dict.fromkeys((written(level.low), written(level.high))))
