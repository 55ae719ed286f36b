"""A rationale: one or two stories with human scores on an aspect, and the analysis that leads to the scores."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.text.prompt import Message
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.judges import template
from adjudge.rewards.judges.aspects import SETS, Aspect
from adjudge.rewards.judges.pairwise import SCALE, PairwiseJudge, texts_of_question
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.records.rows import Row, id_of, number_of
from adjudge.rewards.records.verdict import Pair
from adjudge.training.stages import read_stage

NEEDED_BY = "a rationale"

OURS = (
    *("id", "pair", "aspect", "definition", "persona", "system", "prompt", "response"),
    *("drafts", "passed", "confidence", "dropped"),
    *(f"{name}_{side}" for side in "ab" for name in ("id", "prompt", "story", "score")),
)
"""The columns of a rationale; others pass through."""


class Scored(msgspec.Struct, frozen=True):
    """A story, the prompt it answers, and the score that people gave it on the aspect."""

    id: str
    prompt: str
    story: str
    score: int


class Rationale(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """`response` is an analysis that should end in the scores of `stories` (two, or one: pointwise) on `aspect`.

    `drafts` are its earlier wordings, `passed` the stages it has passed, in order, `confidence` the probability that
    the model gave each human score, `dropped_by` the stage that left it out, where one did; `more` are the user's own
    columns.
    """

    id: str
    aspect: Aspect
    stories: tuple[Scored, ...]
    persona: str = ""
    response: str = ""
    drafts: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    confidence: tuple[float, ...] | None = None
    dropped_by: str = ""
    more: dict[str, Any] = {}

    @property
    def scores(self) -> tuple[str, ...]:
        """The human scores, as labels."""
        return tuple(str(story.score) for story in self.stories)

    @property
    def pair(self) -> str:
        """What the rationales of one question have in common: aspect, stories, their order and scores."""
        return f"{self.aspect.name}/{'-'.join(f'{story.id}:{story.score}' for story in self.stories)}"

    @cached_property
    def messages(self) -> list[Message]:
        """The question that the rationale answers, word for word as the judge in reasoned mode asks it."""
        how: dict[str, Any] = {"mode": "reasoned", "layout": "shared"}
        if len(self.stories) == 2:
            a, b = self.stories
            pair = Pair(a.story, b.story, prompt_a=a.prompt, prompt_b=b.prompt)
            data, about = texts_of_question(pair, "ab", self.aspect)
            return template.load(PairwiseJudge.kind).render(data=data, **how, **about)[0]
        [a] = self.stories
        about = {"aspect": self.aspect.name, "definition": self.aspect.definition}
        return template.load(PointwiseJudge.kind).render(data={"prompt": a.prompt, "story": a.story}, **how, **about)[0]

    @property
    def question(self) -> tuple[str, str]:
        """The same as plain texts: the system's and the user's."""
        system, user = ("".join(segment.text for segment in one.content.segments) for one in self.messages)
        return system, user

    @property
    def record(self) -> dict[str, Any]:
        """As it is written: `system`, `prompt` and `response` are what `adjudge train sft` reads."""
        sides = {
            f"{name}_{side}": value
            for side, story in zip("ab", self.stories, strict=False)
            for name, value in msgspec.structs.asdict(story).items()
        }
        system, prompt = self.question
        ours = {
            "id": self.id,
            "pair": self.pair,
            "aspect": self.aspect.name,
            "definition": self.aspect.definition,
            "persona": self.persona,
            **sides,
            "system": system,
            "prompt": prompt,
            "response": self.response,
            "drafts": self.drafts,
            "passed": self.passed,
        }
        return {**self.more, **ours, **({} if self.confidence is None else {"confidence": self.confidence})}


def read_rationales(path: Path) -> list[Rationale]:
    """The rationales of a JSONL, JSON, CSV or Parquet file; `prompt` and `system` are made anew from the stories.

    Raises AdjudgeError naming the line: a column that is missing or no text, a score outside the scale, an id that
    comes twice, an aspect that nobody knows and that is not explained; and for a file that breaks off.
    """
    rows = read_stage(path)
    rationales = [_rationale(row, number) for number, row in enumerate(rows, 1)]
    width = len(rationales[0].stories)
    if mixed := next((place for place, one in enumerate(rationales) if len(one.stories) != width), None):
        raise AdjudgeError(f"{rows[mixed].place}: rationales of pairs and of single stories are mixed: part them")
    return rationales


def score_of(value: Any, place: str, name: str) -> int:
    """A human score; raises AdjudgeError for what is no whole number of the scale."""
    text = str(value).strip()
    if isinstance(value, float) and value.is_integer():
        text = str(int(value))
    if isinstance(value, bool) or text not in SCALE.labels:
        raise AdjudgeError(
            f'{place}: "{name}" is {text[:40]}, not a whole number from {SCALE.labels[0]} to {SCALE.labels[-1]}'
        )
    return int(text)


def _rationale(row: Row, number: int) -> Rationale:
    sides = "ab" if row.optional_text("story_b", NEEDED_BY) is not None else "a"
    return Rationale(
        id=id_of(row, number),
        aspect=_aspect(row),
        stories=tuple(_story(row, side) for side in sides),
        persona=row.optional_text("persona", NEEDED_BY) or "",
        response=well_formed(row.text("response", NEEDED_BY)),
        drafts=_texts(row, "drafts"),
        passed=_texts(row, "passed"),
        confidence=_confidence(row),
        dropped_by=_dropped_by(row),
        more={name: value for name, value in row.columns.items() if name not in OURS},
    )


def _aspect(row: Row) -> Aspect:
    name = well_formed(row.text("aspect", NEEDED_BY)).strip()
    if (definition := row.optional_text("definition", NEEDED_BY)) is not None:
        return Aspect(name, well_formed(definition))
    for aspects in SETS.values():
        for aspect in aspects:
            if aspect.name == name.lower():
                return aspect
    raise AdjudgeError(f'{row.place}: aspect "{name[:40]}" is unknown: say what it means in a column "definition"')


def _story(row: Row, side: str) -> Scored:
    story = well_formed(row.text(f"story_{side}", NEEDED_BY))
    own = row.columns.get(f"id_{side}")
    return Scored(
        id=hashlib.sha256(story.encode()).hexdigest()[:8] if own in (None, "") else str(own),
        prompt=well_formed(row.text(f"prompt_{side}", NEEDED_BY)),
        story=story,
        score=score_of(row.columns.get(f"score_{side}"), row.place, f"score_{side}"),
    )


def _texts(row: Row, name: str) -> tuple[str, ...]:
    value = row.columns.get(name)
    if value in (None, ""):
        return ()
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise AdjudgeError(f'{row.place}: "{name}" is not a list of strings: leave it out')
    return tuple(map(well_formed, value))


def _confidence(row: Row) -> tuple[float, ...] | None:
    value = row.columns.get("confidence")
    if value in (None, ""):
        return None
    chances = list(map(number_of, value)) if isinstance(value, list) else [None]
    if None in chances:
        raise AdjudgeError(f'{row.place}: "confidence" is not a list of numbers: leave it out')
    return tuple(value)


def _dropped_by(row: Row) -> str:
    dropped = row.columns.get("dropped")
    return str(dropped.get("stage", "")) if isinstance(dropped, dict) else ""
