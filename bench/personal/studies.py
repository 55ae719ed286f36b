"""`adjudge bench personal-studies`: what a reader's earlier reviews are worth, and their order and texts (PerSE, 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
from rich.table import Table
from rich.text import Text

from adjudge.bench.csv_table import write_rows
from adjudge.bench.personal.baselines import MatrixFactorisation, prior_choice, reviewer_mean
from adjudge.bench.personal.perse import Rating, ratings
from adjudge.bench.personal.personal import CORRELATIONS, StudyLine, choices_line, orders_line, random_line, rating_line
from adjudge.bench.personal.published import CHOICES, RATINGS
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.rewards.judges.aspects import PERSE, Aspect
from adjudge.rewards.judges.judge import How
from adjudge.rewards.judges.personal import PersonalJudge, PersonalPairJudge, checked_k
from adjudge.rewards.visible import visible
from adjudge.training.readers.questions import ChoiceQuestion, Question, RatingQuestion
from adjudge.training.terminal import cell, right, ruled_table


class Plan(msgspec.Struct, frozen=True):
    """What is studied: every k of `ks`, and so many `shuffles` of the reviews, drawn by `seed`."""

    ks: tuple[int, ...]
    shuffles: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.ks or len(set(self.ks)) != len(self.ks):
            raise AdjudgeError("k is studied at no number, or twice at one: give each once, such as 0,1,3")
        for k in self.ks:
            checked_k(k)
        if self.shuffles != 0 and self.shuffles < 2:
            raise AdjudgeError(f"{self.shuffles} order has no spread: give 2 shuffles or more, or 0 for no such study")


class Sides(msgspec.Struct, frozen=True):
    """The questions that are asked, of unseen readers, and those that the baselines may learn from."""

    asked: list[Question]
    known: list[Question]


def sides_of(questions: Sequence[Question], limit: int | None = None) -> Sides:
    """The test side, or all where nothing is split, the first `limit` of them; the train side is known."""
    split = any(question.split for question in questions)
    asked = [question for question in questions if not split or question.split == "test"]
    if not asked:
        raise AdjudgeError('no question has the split "test": group the reviews with some readers unseen')
    return Sides(asked[:limit], [question for question in questions if question.split == "train"])


def plan_of(ks: Sequence[int] | None, asked: Sequence[Question], shuffles: int, seed: int) -> Plan:
    """The plan, by default every k for which all questions have the reviews; raises AdjudgeError for a larger one."""
    most = min(question.shown for question in asked)
    if ks is None:
        return Plan(tuple(range(min(most, 5) + 1)), shuffles, seed)
    if max(ks, default=0) > most:
        raise AdjudgeError(f"k is {max(ks)}, but a question has {most} reviews: group the reviews with --k {max(ks)}")
    return Plan(tuple(ks), shuffles, seed)


def study(
    engine: EngineFace, sides: Sides, plan: Plan, how: How, aspects: Sequence[Aspect] = PERSE
) -> Iterator[StudyLine]:
    """The lines of all studies of these questions, as they come: first ours, then the baselines, then the paper's."""
    rated = [one for one in sides.asked if isinstance(one, RatingQuestion)]
    if rated:
        known = [one for one in sides.known if isinstance(one, RatingQuestion)]
        yield from study_ratings(engine, rated, _ratings(rated, known), plan, how)
    else:
        chosen = [one for one in sides.asked if isinstance(one, ChoiceQuestion)]
        yield from study_choices(engine, chosen, plan, how, aspects)


def study_ratings(
    engine: EngineFace, rated: Sequence[RatingQuestion], known: Sequence[Rating], plan: Plan, how: How
) -> Iterator[StudyLine]:
    """Scores after k reviews, with and without their texts, and with the reviews in other orders."""
    for texts in (True, False):
        for k in plan.ks:
            if k or texts:  # without reviews there are no texts to leave out
                judge = PersonalJudge(engine, k=k, texts=texts, **how)
                name = "judge" if texts else "judge, no texts"
                yield _counted(engine, partial(rating_line, "k", name, k, judge.judge, rated))
    for k in plan.ks if plan.shuffles else ():
        if k > 1:
            yield _counted(
                engine, partial(orders_line, PersonalJudge(engine, k=k, **how), rated, plan.shuffles, plan.seed)
            )
    if 0 in plan.ks:
        yield random_line(rated)
    for k in filter(None, plan.ks):
        yield rating_line("baseline", "reviewer mean", k, partial(reviewer_mean, k=k), rated)
        if known:
            factors = MatrixFactorisation(known, k=k, seed=plan.seed)
            yield rating_line("baseline", "matrix factorisation", k, factors.judge, rated)
    for who, k, values in RATINGS:
        yield StudyLine("paper", who, k, None, None, dict(zip(CORRELATIONS, values, strict=True)))


def study_choices(
    engine: EngineFace, chosen: Sequence[ChoiceQuestion], plan: Plan, how: How, aspects: Sequence[Aspect]
) -> Iterator[StudyLine]:
    """Choices after k pairs; each pair is asked about on its own aspect only, and counts for that."""
    named = {row.aspect for row in chosen}
    asked = tuple(aspect for aspect in aspects if aspect.name in named)
    if unknown := named - {aspect.name for aspect in asked}:
        raise AdjudgeError(f"no aspect is called {', '.join(sorted(unknown))}: give --aspects with what it means")
    for k in plan.ks:
        judges = {aspect.name: PersonalPairJudge(engine, (aspect,), k=k, **how).compare for aspect in asked}
        yield _counted(engine, partial(choices_line, "k", "judge", k, judges, chosen))
    prior = {aspect.name: partial(prior_choice, aspects=(aspect,)) for aspect in asked}
    yield choices_line("baseline", "prior choice", 1, prior, chosen)
    for who, values in CHOICES:
        yield StudyLine("paper", who, 1, None, None, dict(values))


def _counted(engine: EngineFace, make: Callable[[], StudyLine]) -> StudyLine:
    """A line with the tokens that it took."""
    before = engine.stats.tokens_computed
    line = make()
    return msgspec.structs.replace(line, tokens=engine.stats.tokens_computed - before)


def _ratings(rated: Sequence[RatingQuestion], known: Sequence[RatingQuestion]) -> list[Rating]:
    """What matrix factorisation learns from: all scores of the known readers, or else the earlier ones of all."""
    if not known:
        return ratings(rated)
    given = {(row.reviewer, row.item.response): row.score for row in known}
    given |= {(row.reviewer, old.plot): old.score for row in known for old in row.item.reviews}
    return [Rating(*key, score) for key, score in given.items()]


def study_table(lines: Sequence[StudyLine]) -> Table:
    """One line each; "± x" is the standard deviation over orders."""
    names = list(dict.fromkeys(name for line in lines for name in line.measures))
    table = ruled_table("study", "who", *right("k", "count", "abstained", *names, "spread", "tokens"))
    for line in lines:
        values = (_number(line.measures.get(name), line.deviations.get(name)) for name in names)
        *counts, tokens = (cell(number, missing="–") for number in (line.k, line.count, line.abstained, line.tokens))
        table.add_row(line.study, Text(visible(line.who)), *counts, *values, _number(line.spread), tokens)
    return table


def write_study(path: Path, lines: Sequence[StudyLine]) -> None:
    """The same as CSV, whole or not at all; raises AdjudgeError where it cannot be written."""
    names = list(dict.fromkeys(name for line in lines for name in line.measures))
    header = ["study", "who", "k", "count", "abstained", *names, *(f"{name} sd" for name in names), "spread", "tokens"]
    rows = []
    for line in lines:
        values = [*(line.measures.get(name) for name in names), *(line.deviations.get(name) for name in names)]
        cells = [line.study, line.who, line.k, line.count, line.abstained, *values, line.spread, line.tokens]
        rows.append(["" if cell is None else f"{cell:.4f}" if isinstance(cell, float) else cell for cell in cells])
    write_rows(path, header, rows)


def _number(value: float | None, deviation: float | None = None) -> str:
    return "–" if value is None else f"{value:z.3f}" + ("" if deviation is None else f" ± {deviation:.3f}")
