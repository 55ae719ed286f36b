"""From open questions to one rubric each: search, passages, rubric sets, variance filter, consolidation (QuRL, 3.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, get_args

import msgspec

from adjudge.engine.checking import at_least
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import LEAST_MASS
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges import template
from adjudge.rewards.judges.published_rubrics import SIX
from adjudge.rewards.judges.rubric_judge import RubricJudge
from adjudge.rewards.judges.rubric_scoring import Form
from adjudge.rewards.records.rubric import Rubric
from adjudge.rewards.records.verdict import Item
from adjudge.training.attrition import Count
from adjudge.training.rubrics.corpus import cut
from adjudge.training.rubrics.drafts import SCHEMA, rubric_record
from adjudge.training.rubrics.filtering import ALPHA, FEWEST, RubricSet, Spread
from adjudge.training.rubrics.questions import Question
from adjudge.training.rubrics.search import Search
from adjudge.training.rubrics.writing import (
    PASSAGES,
    PROMPTS,
    Answered,
    FoundPage,
    answer,
    consolidate,
    describe,
    write_sets,
)
from adjudge.training.stages import Drop, Passed, Texts, grouped, passed, sifted

Part = Literal["rubrics", "filter", "texts"]
PARTS: tuple[Part, ...] = get_args(Part)

SAMPLING = Sampling(max_tokens=2048, temperature=0.8)
"""How texts are written unless a miner is told otherwise."""

Save = Callable[[str, Sequence[Any]], None]
"""Told the rows of each stage by its name, as soon as it is over."""

Writer = Callable[[], AbstractContextManager[EngineFace]]
"""Opens a model that writes answers for the filter."""


class Mining(msgspec.Struct, frozen=True, kw_only=True):
    """How to mine.

    `pages` a question; `sets` written for each; `answers` that each model writes for the filter (the paper: 4 models, 5
    answers each); sets that spread them by less than `alpha` of the scale are dropped, by their standard deviation
    (`form` "fixed") or variance ("parity"; scores are then the most probable ones, too: see `rubric_scoring`).
    `min_mass` is the judge's. `without` leaves out, as the paper's ablations do: "rubrics" (every question gets the six
    fixed dimensions), "filter" (all sets are consolidated; with `sets` 1 the one set is the rubric), "texts" (sets are
    written from the question alone). Raises AdjudgeError for settings that make no sense.
    """

    pages: int = 5
    sets: int = 10
    answers: int = 5
    alpha: float = ALPHA
    form: Form = "fixed"
    without: frozenset[Part] = frozenset()
    language: str = "en"
    min_mass: float = LEAST_MASS
    attempts: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        at_least(1, pages=self.pages, sets=self.sets)
        at_least(FEWEST, answers=self.answers)
        if not 0 <= self.alpha < 1:
            raise AdjudgeError(f"alpha is {self.alpha}: give a share of the scale, from 0 to below 1")
        for part in self.without:
            if part not in PARTS:
                raise AdjudgeError(f'"{part}" cannot be left out: choose from {", ".join(PARTS)}')
        template.load("write", self.language, PROMPTS)


class Mined(msgspec.Struct, frozen=True):
    """A rubric for each question that has one, and what each stage left of questions, pages, sets and answers."""

    rows: list[dict[str, Any]]
    answers: list[Answered]
    counts: dict[str, list[Count]]
    dropped: list[Drop]

    @property
    def unanswered(self) -> list[str]:
        """Why what was dropped was so, but for questions of which only that follows: no page, no set, no answers."""
        last = "consolidate"  # where questions themselves are asked about
        return [drop.reason for drop in self.dropped if drop.stage == last or not isinstance(drop.row, Question)]


class Miner:
    """Mines rubrics with an engine, which also judges the answers; `writers` write them, or the engine does.

    With a `journal` nothing is asked twice. `texts` counts what was written, as `Texts` does. Raises AdjudgeError for
    settings that make no sense.
    """

    def __init__(
        self,
        engine: EngineFace,
        mining: Mining,
        *,
        search: Search | None = None,
        sampling: Sampling = SAMPLING,
        journal: Journal | None = None,
        writers: Sequence[Writer] = (),
    ) -> None:
        check_sampling(sampling)
        self.engine, self.mining, self.search = engine, mining, search
        self.sampling, self.journal = sampling, journal
        self.writers = tuple(writers) or (lambda: nullcontext(engine),)
        self.counts: dict[str, list[Count]] = {"questions": [], "pages": [], "rubric sets": [], "answers": []}
        self.dropped: list[Drop] = []
        self.texts: Counter[str] = Counter()

    def mine(self, questions: Sequence[Question], save: Save = lambda stage, rows: None) -> Mined:
        """A rubric for each question, in order; those without are dropped, each with its reason."""
        self.counts = {unit: [] for unit in self.counts}
        self.dropped, self.texts = [], Counter()
        if "rubrics" in self.mining.without:
            return Mined(fixed_rows(questions), given_answers(questions), self.counts, self.dropped)
        passages: dict[str, list[str]] = {}
        if "texts" not in self.mining.without:
            questions, passages = self._passages(questions, save)
        written = self._written("rubric sets", write_sets, self._texts(SCHEMA), questions, passages, self.mining.sets)
        questions = self._with("sets", questions, {one.question for one in written}, "no_set")
        sets = _by_question(written)
        answers = given_answers(questions)
        if "filter" not in self.mining.without:
            answers += self._written_answers(questions)
            save("answers", answers)
            enough = {name for name, own in _by_question(answers).items() if len(own) >= FEWEST}
            questions = self._with("answers", questions, enough, "too_few_answers")
            sets = _by_question(self._filter(questions, sets, _by_question(answers), save))
            questions = self._with("filter", questions, sets, "no_set_left")
        else:
            save("sets", written)
        consensus = self._written("questions", consolidate, self._texts(SCHEMA), questions, sets)
        final = {one.question: one for one in consensus}
        rows = [
            _row(question, final[question.id].rubric, len(sets[question.id]), final[question.id].mended)
            for question in questions
            if question.id in final
        ]
        return Mined(rows, answers, self.counts, self.dropped)

    def _passages(self, questions: Sequence[Question], save: Save) -> tuple[list[Question], dict[str, list[str]]]:
        found = self._search(questions)
        questions = self._with("search", questions, {page.question for page in found}, "no_page")
        described = self._written("pages", describe, self._texts(PASSAGES), found)
        save("passages", described)
        passages = {
            name: list(dict.fromkeys(passage for page in own for passage in page.passages))
            for name, own in _by_question(described).items()
        }
        return self._with("passages", questions, passages, "no_passage"), passages

    def _search(self, questions: Sequence[Question]) -> list[FoundPage]:
        """Each question's own pages, or else those that the search finds."""
        asked = [question for question in questions if not question.pages]
        if asked and self.search is None:
            raise AdjudgeError(
                f'question "{asked[0].id}" has no pages of its own: name a corpus to search, or leave texts out'
            )
        found = self.search([question.prompt for question in asked], self.mining.pages) if self.search else []
        pages = {question.id: question.pages for question in questions}
        pages |= {question.id: tuple(own) for question, own in zip(asked, found, strict=True)}
        return [
            FoundPage(question.id, question.prompt, piece.source, piece.text)
            for question in questions
            for page in pages[question.id]
            for piece in cut(page)
        ]

    def _written_answers(self, questions: Sequence[Question]) -> list[Answered]:
        """Those of every writer to the questions that came without answers."""
        mining = self.mining
        answers: list[Answered] = []
        asked = [question for question in questions if not question.answers]
        for number, writer in enumerate(self.writers if asked else ()):
            seed = mining.seed + number  # models of one name are not to write the same
            with writer() as engine:
                texts = Texts(engine, self.sampling, self.journal, attempts=mining.attempts, seed=seed)
                answers += self._written("answers", answer, texts, asked, mining.answers)
        return answers

    def _filter(
        self,
        questions: Sequence[Question],
        sets: Mapping[str, Sequence[RubricSet]],
        answers: Mapping[str, Sequence[Answered]],
        save: Save,
    ) -> list[RubricSet]:
        mining = self.mining
        came = [one for question in questions for one in sets[question.id]]
        spreads = {(one.question, one.number): one for one in self._spreads(questions, came, answers)}

        def why_not(one: RubricSet) -> str | None:
            return spreads[one.question, one.number].dropped_for(mining.alpha, mining.form)

        save(
            "sets",
            [{**one.record, **spreads[one.question, one.number].record, "dropped": why_not(one)} for one in came],
        )
        return self._passed("rubric sets", sifted("filter", came, why_not))

    def _spreads(
        self, questions: Sequence[Question], sets: Sequence[RubricSet], answers: Mapping[str, Sequence[Answered]]
    ) -> list[Spread]:
        """The scores of every answer under every set of its question."""
        mining = self.mining
        judge = RubricJudge(
            self.engine, scheme="fixed", form=mining.form, min_mass=mining.min_mass, journal=self.journal
        )
        prompts = {question.id: question.prompt for question in questions}
        items = [
            Item(prompts[one.question], own.text, rubric=one.rubric) for one in sets for own in answers[one.question]
        ]
        rewards = (verdict.score for verdict in judge.judge_iter(items))
        scores: Iterator[float | None] = iter(passed("scores", items, enumerate(rewards)).kept)
        return [Spread.of(one, [next(scores) for _ in answers[one.question]]) for one in sets]

    def _texts(self, schema: Mapping[str, Any]) -> Texts:
        mining = self.mining
        return Texts(
            self.engine, self.sampling, self.journal, schema=schema, attempts=mining.attempts, seed=mining.seed
        )

    def _written(self, unit: str, stage: Callable[..., Passed[Any]], texts: Texts, *about: Any) -> list[Any]:
        """What a stage kept that has texts written, after it and they were counted."""
        kept = self._passed(unit, stage(texts, *about, self.mining.language))
        self.texts += texts.counts
        return kept

    def _passed(self, unit: str, result: Passed[Any]) -> list[Any]:
        """What a stage kept, after it was counted."""
        self.counts[unit].append(Count.of(result))
        self.dropped += result.dropped
        return result.kept

    def _with(self, stage: str, questions: Sequence[Question], those: Collection[str], reason: str) -> list[Question]:
        """The questions that a stage has left something of."""
        left = sifted(stage, questions, lambda question: None if question.id in those else reason)
        return self._passed("questions", left)


def check_sampling(sampling: Sampling) -> None:
    """Refuse a sampling that writes the same text every time; raises AdjudgeError."""
    if sampling.temperature == 0:
        raise AdjudgeError("at temperature 0 all sets and answers are one text: give a temperature above 0")


def given_answers(questions: Iterable[Question]) -> list[Answered]:
    """The answers that the questions came with."""
    return [Answered(question.id, "given", text) for question in questions for text in question.answers]


def fixed_rows(questions: Iterable[Question]) -> list[dict[str, Any]]:
    """Every question with the six fixed dimensions: the paper's ablation without rubrics, which asks nothing."""
    return [_row(question, SIX, 0, False) for question in questions]


def item_rows(rows: Iterable[Mapping[str, Any]], answers: Iterable[Answered]) -> list[dict[str, Any]]:
    """Each answer to a question that has a rubric, as an item to judge by it."""
    by_question = _by_question(answers)
    return [
        {"id": f"{row['id']}/{number}", "prompt": row["prompt"], "response": own.text, "by": own.by}
        | {"rubric": row["rubric"]}
        for row in rows
        for number, own in enumerate(by_question.get(row["id"], ()), 1)
    ]


def _by_question(rows: Iterable[Any]) -> dict[str, list[Any]]:
    return grouped(rows, lambda row: row.question)


def _row(question: Question, rubric: Rubric, sets: int, mended: bool) -> dict[str, Any]:
    return {**question.record, "rubric": rubric_record(rubric), "sets": sets, "mended": mended}
