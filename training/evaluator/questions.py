"""What a judge in direct mode asks about rated rows: the tokens up to each answer slot, and what belongs there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from adjudge.engine.absent import AbsentEngine, Card
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.reward_head import RewardHead
from adjudge.engine.text.labels import LabelSet
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.engine.tokens import Tokens
from adjudge.rewards.judges.asking import Question
from adjudge.rewards.judges.aspects import Aspect
from adjudge.rewards.judges.kinds import kind_of, prepare
from adjudge.rewards.judges.pairwise import SCALE, PairwiseJudge, asked_about
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.records.rows import Row
from adjudge.training.evaluator.recipe import Asked, Scores
from adjudge.training.evaluator.targets import expected, ratings_of, soft_target

NUMBERS = SCALE.numbers or ()
"""The labels' values, in rising order: both judges have one scale."""


Places = tuple[tuple[int, bool], ...]


class Slot(msgspec.Struct, frozen=True):
    """An answer slot: the prompt that ends there, each label's tokens, and the distribution that people gave.

    Where it is `anchored`, that is the distribution to begin with alone: see `Rated`. `sentences` are the places of the
    tokens with which its response's sentences end, and whether each sentence is in its place.
    """

    tokens: Tokens
    labels: tuple[Tokens, ...]
    target: tuple[float, ...]
    aspect: str
    anchored: bool = False
    sentences: Places = ()

    @property
    def score(self) -> float:
        """People's mean score, on the labels' scale."""
        return expected(self.target, NUMBERS)


class Rated(msgspec.Struct, frozen=True):
    """A row with people's scores: the distributions over the labels, by aspect and side ("" or "_a", "_b").

    What is `anchored` the model is to answer as it does before training, not as people did (Li and Hoiem 2016).
    `places` says of the sentences of its response where each ends, in characters, and whether it stands where its
    author put it; it is empty where that is not known.
    """

    row: Row
    targets: dict[tuple[str, str], tuple[float, ...]]
    anchored: bool = False
    places: Places = ()

    @property
    def together(self) -> str | None:
        """What rows that are learnt together have in common; None for a row by itself."""
        value = self.row.columns.get("together")
        return None if value in (None, "") else f"together {value}"


class WordingEngine(AbsentEngine):
    """Words prompts as an engine with this tokenizer would, for a model that may be a reward model."""

    def __init__(self, name: str, tokenizer: Any, limit: int, reward_head: RewardHead | None = None) -> None:
        super().__init__(Card(name=name, max_prompt_tokens=limit), Tokenizer(tokenizer))
        self.limit, self._reward_head = limit, reward_head

    @property
    def reward_head(self) -> RewardHead | None:
        """The model's, where it has one."""
        return self._reward_head

    def ends(self, tokens: Tokens, rated: Rated) -> Places:
        """The tokens with which a response's sentences end; none where it does not stand in the prompt unshortened."""
        text = str(rated.row.columns.get("response") or "")
        if not (rated.places and text):
            return ()
        table = self.byte_table()
        starts, data, own = table.starts.numpy(), table.data.numpy(), np.array(tokens)
        lengths = starts[own + 1] - starts[own]
        reached = np.cumsum(lengths)
        spelt = data[np.arange(reached[-1]) + np.repeat(starts[own] - reached + lengths, lengths)].tobytes()
        begun = spelt.rfind(text.encode("utf-8", "surrogatepass"))
        sizes = [(len(text[:end].encode("utf-8", "surrogatepass")), kept) for end, kept in rated.places]
        return tuple((int(np.searchsorted(reached, begun + size)), kept) for size, kept in sizes) if begun >= 0 else ()


def check_columns(rows: Sequence[Row], asked: Asked, scores: Scores) -> None:
    """Raise AdjudgeError for the first row without what the judge reads, and for a column of scores that no row has."""
    kind, pairs = kind_of(asked.name), asked.name == "pairwise"
    for number, row in enumerate(rows, 1):
        if pairs and "response" in row.columns and not {"story_a", "story_b"} & row.columns.keys():
            raise AdjudgeError(
                f'{row.place} has a single text, "response", and pairs have story_a and story_b: set name ='
                ' "pointwise" in [judge], or name rows of pairs'
            )
        if not pairs and {"story_a", "story_b"} <= row.columns.keys() and "response" not in row.columns:
            raise AdjudgeError(
                f'{row.place} is a pair, story_a and story_b, and [judge] name is "{asked.name}": set it to "pairwise"'
            )
        kind.subject(row, number)
    told, columns = ("column", [scores.column]) if scores.column is not None else ("columns", scores.columns.values())
    for column in columns:
        name = f"{column}{_sides(asked)[0]}"
        if rows and not any(f"{column}{side}" in row.columns for row in rows for side in _sides(asked)):
            raise AdjudgeError(str(rows[0].without(name, f"[scores] {told} names it, and no row has it")))


def rated_rows(rows: Sequence[Row], asked: Asked, scores: Scores) -> list[Rated]:
    """People's scores of every row, on the labels' scale.

    Raises AdjudgeError for [scores] of an aspect that is not asked about; and naming the row: for one without any
    score, for a score that is none or outside the scale, for a value of "anchored" that is neither true nor false, and
    for "places" that are none.
    """
    judge, sides = _judge(asked, AbsentEngine()), _sides(asked)
    names = [aspect.name for aspect in judge.aspects]
    if idle := [name for name in scores.columns if name not in names]:
        raise AdjudgeError(
            f'[scores] columns has "{idle[0]}", which is not asked about: choose from {", ".join(names)}'
        )
    rated = []
    for row in rows:
        targets = {}
        for aspect in judge.aspects:
            for side in sides:
                if (ratings := ratings_of(row, scores, aspect.name, side)) is not None:
                    place = f"{row.place}: {aspect.name}{side}"
                    shares = soft_target(ratings, NUMBERS, scores.scale, place)
                    targets[aspect.name, side] = tuple(shares)
        if not targets:
            raise AdjudgeError(
                f"{row.place} has no score of {', '.join(names)}: name its column in [scores], or leave the row out"
            )
        rated.append(Rated(row, targets, _anchored(row), _places(row)))
    return rated


def _places(row: Row) -> Places:
    try:
        return msgspec.convert(row.columns.get("places") or (), Places)
    except msgspec.ValidationError as error:
        raise AdjudgeError(f'{row.place}: "places": {error}; write them as [[42, true], [97, false]]') from error


def _anchored(row: Row) -> bool:
    said = str(row.columns.get("anchored") or "false").lower()
    if said not in ("true", "1", "false", "0"):
        raise AdjudgeError(f'{row.place}: "anchored" is {said[:40]!r}: write true or false')
    return said in ("true", "1")


def check_varied(rated: Sequence[Rated]) -> None:
    """Raise AdjudgeError for an aspect on which all rows have the same score: there is nothing to learn of it."""
    given: dict[str, set[tuple[float, ...]]] = {}
    for one in rated:
        for (aspect, _), target in one.targets.items():
            given.setdefault(aspect, set()).add(target)
    for aspect, targets in given.items():
        if len(targets) == 1:
            score = expected(next(iter(targets)), NUMBERS)
            raise AdjudgeError(
                f"all rows to train on have the same score of {aspect}, {score:g}: there is nothing to learn;"
                " add rows with other scores, or leave the aspect out"
            )


def slots_of(rated: Sequence[Rated], asked: Asked, engine: WordingEngine) -> Iterator[tuple[list[Slot], bool]]:
    """The answer slots of each row that have a score, and whether its texts had to be shortened.

    Nothing else is asked about a row: most of the time would go into questions that nobody has answered.
    """
    whole = _judge(asked, engine)
    judges: dict[tuple[Aspect, ...], PairwiseJudge | PointwiseJudge] = {}
    for number, one in enumerate(rated, 1):
        scored_on = {aspect for aspect, _ in one.targets}
        aspects = tuple(aspect for aspect in whole.aspects if aspect.name in scored_on)
        if aspects not in judges:
            judges[aspects] = _judge(
                msgspec.structs.replace(asked, options={**asked.options, "aspects": aspects}), engine
            )
        judge = judges[aspects]
        subject = kind_of(asked.name).subject(one.row, number)
        questions, shortened = judge.ask(subject)
        scored = [
            (question, aspect, target)
            for question, aspect, side in _sided(judge, questions)
            if (target := one.targets.get((aspect, side))) is not None
        ]
        compiled = engine.compiled(
            [question.prompt for question, _, _ in scored], [question.labels for question, _, _ in scored]
        )
        if (longest := max((len(tokens) for tokens, _ in compiled), default=0)) > engine.limit:
            raise AdjudgeError(
                f"{one.row.place}: a question about it has {longest} tokens, its texts shortened as far as they may be,"
                f" and [optimiser] max_tokens or the model allow {engine.limit}: raise max_tokens, or leave the row out"
            )
        slots = [
            Slot(tokens, _spellings(labels), target, aspect, one.anchored, engine.ends(tokens, one))
            for (tokens, labels), (_, aspect, target) in zip(compiled, scored, strict=True)
        ]
        yield slots, shortened


def _judge(asked: Asked, engine: AbsentEngine) -> PairwiseJudge | PointwiseJudge:
    judge = prepare(asked.name, asked.options)(engine, None)
    assert isinstance(judge, PairwiseJudge | PointwiseJudge)
    return judge


def _sides(asked: Asked) -> tuple[str, ...]:
    return ("_a", "_b") if asked.name == "pairwise" else ("",)


def _sided(judge: PairwiseJudge | PointwiseJudge, questions: Sequence[Question]) -> Iterator[tuple[Question, str, str]]:
    """Each question with its aspect and the side that it asks about."""
    if isinstance(judge, PointwiseJudge):
        yield from ((question, question.name, "") for question in questions)
        return
    for question in questions:
        aspect, side = asked_about(question.name)
        yield question, aspect, f"_{side}"


def _spellings(labels: LabelSet) -> tuple[Tokens, ...]:
    """The tokens that each label may be written as; raises AdjudgeError for labels of more than one token."""
    if len(labels.reads) > 1:
        raise AdjudgeError("this model's tokenizer writes a label in several tokens, which train direct cannot learn")
    ids: list[list[int]] = [[] for _ in labels.labels]
    for spelling in labels.spellings:
        [(read, place)] = spelling.steps
        ids[spelling.label].append(labels.reads[read].token_ids[place])
    return tuple(map(tuple, ids))
