"""Stories with human scores, and the pairs of them that rationales are written for (EvolvR, 3.2.1 and B.2)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from math import isqrt
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.judges.aspects import Aspect
from adjudge.rewards.records.rows import Row, as_json, number_of
from adjudge.training.evaluator.targets import nearest
from adjudge.training.evolve.rationale import Rationale, Scored, score_of
from adjudge.training.stages import grouped, read_stage

NEEDED_BY = "synthesis"

Raters = Literal["mean", "each"]
"""How several raters' scores of a story are taken: as the label `nearest` to their mean, or each as one of its own."""


class Rated(msgspec.Struct, frozen=True):
    """A story and what people said of it: scores by the aspect's name in lower case."""

    id: str
    prompt: str
    story: str
    scores: dict[str, tuple[int, ...]]

    def on(self, aspect: Aspect) -> Iterator[Scored]:
        """The story with each of its scores on that aspect."""
        for score in sorted(set(self.scores.get(aspect.name.lower(), ()))):
            yield Scored(self.id, self.prompt, self.story, score)


class Strata(msgspec.Struct, frozen=True):
    """What was sampled of one aspect: how many questions of each combination of scores, and how many there could be."""

    aspect: str
    taken: dict[tuple[int, ...], int]
    available: dict[tuple[int, ...], int]


def read_stories(path: Path, raters: Raters = "mean") -> list[Rated]:
    """The stories of a file: HANNA's shape (story_id, prompt, story, ratings), or rows of prompt, story and scores.

    `scores` (or `ratings`) is an object from aspects to a number or to a list of numbers, one of each rater. Raises
    AdjudgeError naming the line: what is missing, no number or outside 1..5, an id that comes twice.
    """
    stories = [_rated(row, number, raters) for number, row in enumerate(read_stage(path), 1)]
    seen: set[str] = set()
    for story in stories:
        if story.id in seen:
            raise AdjudgeError(f'{path.name}: the id "{story.id}" comes twice: give each story its own')
        seen.add(story.id)
    return stories


def sample_questions(
    stories: Sequence[Rated], aspects: Sequence[Aspect], *, each: int, pointwise: bool = False, seed: int = 0
) -> tuple[list[Rationale], list[Strata]]:
    """Questions without their rationales: up to `each` for every combination of scores of every aspect.

    A pair comes in both orders (so `each` pairs are twice as many questions); a combination with fewer pairs gives all
    it has. Pointwise, a combination is one score. The same seed draws the same questions. Raises AdjudgeError for an
    aspect that no story was scored on, and one on which all have one score: it could teach nothing else.

    Source: EvolvR, B.2: "every possible score-pair combination" with a balanced number of samples, and of every pair
    its swapped one. A combination is a set of two scores here, as the pair is swapped in any case: (2, 4) and (4, 2)
    have `each` questions apiece, (4, 4) has twice as many. Were combinations ordered, all would have as many; the paper
    says neither.
    """
    questions: list[Rationale] = []
    strata: list[Strata] = []
    for aspect in aspects:
        by_score = _by_score(stories, aspect)
        draw = random.Random(f"{seed} {aspect.name}")
        taken, available = {}, {}
        for scores in combinations_with_replacement(sorted(by_score), 1 if pointwise else 2):
            groups = _in_order(draw, [by_score[score] for score in scores], each)
            available[scores] = _count(by_score, scores)
            taken[scores] = len(groups)
            for group in groups:
                for shown in (group,) if pointwise else (group, group[::-1]):
                    question = Rationale(id="", aspect=aspect, stories=shown)
                    questions.append(msgspec.structs.replace(question, id=question.pair))
        strata.append(Strata(aspect.name, taken, available))
    return questions, strata


def _by_score(stories: Sequence[Rated], aspect: Aspect) -> dict[int, list[Scored]]:
    found = grouped((scored for story in stories for scored in story.on(aspect)), lambda scored: scored.score)
    if not found:
        known = sorted({name for story in stories for name in story.scores})
        raise AdjudgeError(
            f'no story has a score on "{aspect.name}": choose --aspects from those they have ({", ".join(known)})'
        )
    if len(found) == 1:
        raise AdjudgeError(
            f'every story has the score {next(iter(found))} on "{aspect.name}": give stories with other scores too, or'
            " leave it out with --aspects"
        )
    return found


def _in_order(draw: random.Random, classes: Sequence[Sequence[Scored]], each: int) -> list[tuple[Scored, ...]]:
    """Up to `each` different stories, or pairs of different stories, one of each class, in an order drawn with them."""
    if len(classes) == 1:
        [only] = classes
        return [(story,) for story in draw.sample(only, min(each, len(only)))]
    first, second = classes
    same = first is second
    total = len(first) * (len(first) - 1) // 2 if same else len(first) * len(second)
    pairs: list[tuple[Scored, ...]] = []
    # A few more than wanted, since with several raters a story may meet itself under another score.
    for number in draw.sample(range(total), min(total, 2 * each + 8)):
        a, b = _triangle(number) if same else divmod(number, len(second))
        if first[a].id != second[b].id and len(pairs) < each:
            pairs.append((first[a], second[b]))
    return pairs


def _triangle(number: int) -> tuple[int, int]:
    """The `number`-th pair (a, b) with b < a: (1, 0), (2, 0), (2, 1), (3, 0), ..."""
    a = (1 + isqrt(1 + 8 * number)) // 2
    return a, number - a * (a - 1) // 2


def _count(by_score: Mapping[int, Sequence[Scored]], scores: tuple[int, ...]) -> int:
    """How many questions a combination could give."""
    classes = [by_score[score] for score in scores]
    if len(classes) == 1:
        return len(classes[0])
    if scores[0] == scores[1]:
        return len(classes[0]) * (len(classes[0]) - 1) // 2
    both = {story.id for story in classes[0]} & {story.id for story in classes[1]}
    return len(classes[0]) * len(classes[1]) - len(both)


def _rated(row: Row, number: int, raters: Raters) -> Rated:
    own = next((row.columns[name] for name in ("id", "story_id") if row.columns.get(name) not in (None, "")), number)
    name = "ratings" if "ratings" in row.columns else "scores"
    scores = row.columns.get(name)
    if not isinstance(scores, dict) or not scores:
        raise AdjudgeError(f'{row.place}: "{name}" is no object from aspects to scores (needed by {NEEDED_BY})')
    return Rated(
        id=well_formed(str(own)),
        prompt=well_formed(row.text("prompt", NEEDED_BY)),
        story=well_formed(row.text("story", NEEDED_BY)),
        scores={
            str(aspect).strip().lower(): _scores(value, row.place, f"{name} {aspect}", raters)
            for aspect, value in scores.items()
            if value is not None
        },
    )


def _scores(value: Any, place: str, name: str, raters: Raters) -> tuple[int, ...]:
    values = []
    for one in value if isinstance(value, list) else [value]:
        if (score := number_of(one)) is None or not 1 <= score <= 5:
            raise AdjudgeError(f'{place}: "{name}" is {as_json(one)}, not a number from 1 to 5')
        values.append(score)
    if not values:
        return ()
    if raters == "each":
        return tuple(score_of(one, place, name) for one in values)
    return (nearest(fmean(values), range(1, 6)),)
