"""What all judges share: how subjects come in, how verdicts go out, and what a verdict rests on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from inspect import getattr_static
from itertools import chain, islice
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypedDict, TypeVar

import msgspec

from adjudge.engine.absent import AbsentEngine, ModelNeeded
from adjudge.engine.checking import at_least, is_number, shown
from adjudge.engine.errors import AdjudgeError, CallTooLarge
from adjudge.engine.face import EngineFace, checked_engine
from adjudge.engine.models.aliases import reads_normalised
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import LEAST_MASS, UNKEPT, Reason, Score
from adjudge.engine.text.prompt import Cut, Prompt, checked_cut
from adjudge.engine.text.written_scores import AnswerFormat
from adjudge.rewards.journal import Journal, content_key
from adjudge.rewards.judges import template
from adjudge.rewards.judges.asking import (
    ANSWER,
    SAMPLING,
    Answer,
    Asking,
    Direct,
    Mode,
    Question,
    Reasoned,
    checked_sampling,
)
from adjudge.rewards.judges.kept_answers import KeptAnswers
from adjudge.rewards.judges.normalising import RULES, normalised
from adjudge.rewards.judges.template import Data, Layout, Template
from adjudge.rewards.records.rows import Row, encodable
from adjudge.rewards.records.verdict import Item, Pair, PairVerdict, Part, Verdict, abstention, each_of, least_mass

Subject = TypeVar("Subject", Pair, Item)
Ruling = TypeVar("Ruling", PairVerdict, Verdict)
Asked = TypeVar("Asked", bound=Hashable)

WINDOW = 256
"""What is in the engine at a time: enough that it seldom runs empty at the end of one window, before the next."""

SCORING = ("_judge", "_questions", "_conclude", "questions", "score_of")
"""The methods that say what the scores of a judge are."""


class Concluded(NamedTuple, Generic[Ruling]):
    """A verdict with the answers that it rests on, packed, and the names among them of the questions' hashes."""

    verdict: Ruling
    answers: bytes
    questions: Mapping[bytes, str]


class Judge(ABC, Generic[Subject, Ruling]):
    """Subjects in, verdicts out, in order; with a `journal`, what it holds is not judged again.

    A judge says what decides a verdict (`key`) and how subjects become verdicts (`_judge`). Raises AdjudgeError for
    subjects of another kind, and for a journal that is none.
    """

    verdict_type: type[Ruling]
    range: ClassVar[tuple[float, float] | None] = None
    """The lowest and the highest score, as far as that is known; a preference is a probability."""

    def __init_subclass__(cls, **how: Any) -> None:
        """What asks, or concludes, otherwise than the judge whose range it has, has none until it declares one."""
        super().__init_subclass__(**how)
        whose: Any = next(made for made in cls.__mro__ if "range" in vars(made))
        if whose is cls:
            return
        if issubclass(whose, Judge):
            others = any(getattr_static(cls, name, None) is not getattr_static(whose, name, None) for name in SCORING)
        else:  # a class beside, which was put before the judge
            others = not vars(cls).keys().isdisjoint(SCORING)
        cls.range = None if others else whose.range

    def __init__(self, journal: Journal | None = None) -> None:
        if journal is not None and not isinstance(journal, Journal):
            raise AdjudgeError(f"journal is {shown(journal)}: open it, as Journal(path)")
        self.journal = journal

    def judge(self, subjects: Iterable[Subject]) -> list[Ruling]:
        """A verdict for every subject, in order."""
        return list(self.judge_iter(subjects))

    def judge_iter(self, subjects: Iterable[Subject], window: int = WINDOW) -> Iterator[Ruling]:
        """Verdicts in order as they come, each journaled first; `window` subjects are in the engine at a time.

        Fewer where its queue never takes so many.
        """
        at_least(1, window=window)
        kind: Any = Pair if issubclass(self.verdict_type, PairVerdict) else Item
        remaining: Iterator[Subject] = map(clean, each_of(subjects, kind))
        while chunk := list(islice(remaining, window)):
            done = 0
            try:
                for verdict in self._together(chunk):
                    yield verdict
                    done += 1
            except CallTooLarge:
                if len(chunk) == 1:
                    raise
                window, remaining = len(chunk) // 2, chain(chunk[done:], remaining)

    def _together(self, chunk: Sequence[Subject]) -> Iterator[Ruling]:
        """Verdicts in order on subjects that are in the engine at one time."""
        keys = [self.key(subject) for subject in chunk]
        known = {} if self.journal is None else {key: self._read(raw) for key, raw in self.journal.get(keys).items()}
        judged = self._judge({key: subject for key, subject in zip(keys, chunk, strict=True) if key not in known})
        for key, subject in zip(keys, chunk, strict=True):
            while key not in known:
                verdict = self._kept(next(judged))
                known[verdict.key] = verdict
            yield msgspec.structs.replace(known[key], id=subject.id)
        next(judged, None)  # let the engine's call come to its end

    @abstractmethod
    def key(self, subject: Subject) -> str:
        """The journal's key: everything that decides the verdict."""

    @abstractmethod
    def _judge(self, subjects: Mapping[str, Subject]) -> Iterator[Ruling | Concluded[Ruling]]:
        """A verdict for each of the subjects, given by their keys, in any order; with answers that are to be kept."""

    def _kept(self, found: Ruling | Concluded[Ruling]) -> Ruling:
        """The verdict as the journal has it, kept there with what it rests on if it lasts.

        That may be another's: of processes that share a journal the first one's stays, and all go by it.
        """
        verdict, answers, questions = found if isinstance(found, Concluded) else (found, None, {})
        verdict = self._signed(verdict)
        if self.journal is None or not lasts(verdict):
            return verdict
        return self._read(self.journal.put(verdict.key, msgspec.json.encode(verdict), answers, questions))

    def _signed(self, verdict: Ruling) -> Ruling:
        """The verdict with the adapter that it was judged with, where there was one."""
        adapter = getattr(getattr(self, "engine", None), "adapter", None)
        return msgspec.structs.replace(verdict, adapter=adapter) if adapter else verdict

    def _read(self, kept: bytes) -> Ruling:
        assert self.journal is not None
        return self.journal.decoded(kept, self.verdict_type)  # type: ignore[no-any-return]


class How(TypedDict, total=False):
    """How a judge asks: what every judge that asks takes by name. See `PromptedJudge`."""

    mode: Mode
    language: str
    layout: Layout
    min_mass: float
    cut: Cut
    journal: Journal | None
    sampling: Sampling | None
    attempts: int
    n: int
    seed: int


class PromptedJudge(Judge[Subject, Ruling]):
    """A judge that asks an engine in the words of the prompt file `kind`.

    In `mode` "direct" each question ends at its answer slot, in "reasoned" the model first analyses in writing: how it
    writes (`sampling`), and `attempts`, `n` and `seed` are those of `Reasoned`. Prompts are in `language`, their parts
    in the order that shares most, or in the paper's (`layout`). A score whose label mass is below `min_mass` abstains.
    Texts too long for the model are shortened alike in all of a subject's questions (`cut`: "middle", "head", "tail"),
    or abstain ("never"). With a `journal`, what was judged before under the same conditions is not judged again.
    A model that `reads_normalised` is shown texts as they would be typed.
    """

    kind: ClassVar[str]
    folder: ClassVar[Path] = template.FOLDER
    answer_format: ClassVar[AnswerFormat] = ANSWER

    def __init__(
        self,
        engine: EngineFace,
        *,
        mode: Mode = "direct",
        language: str = "en",
        layout: Layout = "shared",
        min_mass: float = LEAST_MASS,
        cut: Cut = "middle",
        journal: Journal | None = None,
        sampling: Sampling | None = None,
        attempts: int = 3,
        n: int = 1,
        seed: int = 0,
    ) -> None:
        if layout not in ("shared", "paper"):
            raise AdjudgeError(f'layout is "{layout}": choose shared or paper')
        if mode not in ("direct", "reasoned"):
            raise AdjudgeError(f'mode is "{mode}": choose direct or reasoned')
        if checked_sampling(sampling) is not None and mode == "direct":
            raise AdjudgeError('sampling was given to a judge that writes nothing: give it mode="reasoned"')
        if n != 1 and mode == "direct":
            raise AdjudgeError(f'n is {shown(n)}, and only a judge that writes says it anew: give it mode="reasoned"')
        if not (is_number(min_mass, Real) and 0 <= min_mass <= 1):
            raise AdjudgeError(f"min_mass is {shown(min_mass)}: give a probability from 0 to 1")
        min_mass = float(min_mass)  # 0 and 0.0 are one, and one key
        super().__init__(journal)
        self.engine = checked_engine(engine)
        how: Any = {"attempts": attempts, "n": n, "seed": seed, "min_mass": min_mass}
        self.asking: Asking = (
            Direct(engine)
            if mode == "direct"
            else Reasoned(engine, sampling or SAMPLING, form=self.answer_format, **how)
        )
        self.language = language
        self.layout = layout
        self.min_mass = min_mass
        self.cut = checked_cut(cut)
        self.template = self._load(language)

    @property
    def reads_normalised(self) -> bool:
        """Whether texts are shown normalised to the weights that the engine has now."""
        return reads_normalised(self.engine.fingerprint, self.engine.adapter)

    def key(self, subject: Subject) -> str:
        """The journal's key: everything that decides the verdict."""
        shown = {"shown": ("normalised", RULES)} if self.reads_normalised else {}
        return content_key(
            **shown,
            **self._answering,
            judge=self.kind,
            template=(self.template.hash, self.layout),
            min_mass=self.min_mass,
            truncation=(self.cut, self.engine.max_prompt_tokens),
            **self._content(clean(subject)),
        )

    @property
    def _answering(self) -> dict[str, Any]:
        """What decides an answer besides its question."""
        return {**self.engine.content, "sampling": self.asking.content}

    def _load(self, language: str) -> Template:
        """Its prompt file in that language."""
        return template.load(self.kind, language, self.folder)

    def _prompt(self, data: Mapping[str, Data], **trusted: Any) -> Prompt:
        """The prompt file filled in; `data` are untrusted."""
        if self.reads_normalised:
            data = {name: normalised(text) for name, text in data.items()}
        how = {"mode": self.asking.mode, "layout": self.layout}
        messages, answer = self.template.render(data=data, cut=self.cut, **how, **trusted)
        return self.engine.chat(messages, answer)

    def _part(self, answer: Answer, weight: float = 1.0) -> Part:
        """A part that rests on an answer of one score: its expected value, or why there is none."""
        [score] = answer.scores
        if reason := self._weakest([score])[1]:
            return Part(None, weight, mass=score.mass, abstained=reason)
        [spread] = answer.spreads or (None,)
        told = msgspec.UNSET if spread is None else spread
        return Part(score.expected, weight, score.probabilities, score.mass, spread=told)

    def _weakest(self, scores: Sequence[Score]) -> tuple[float | None, Reason | None]:
        """The least label mass of scores, and why they are no verdict if they are none.

        Of several reasons one that another run may not have: what was cut short must not be kept as what it came to.
        """
        mass = least_mass(scores)
        reasons = sorted((score.reason for score in scores if score.reason), key=lambda reason: reason not in UNKEPT)
        reason = next(iter(reasons), None)
        return mass, "low_mass" if reason is None and mass is not None and mass < self.min_mass else reason

    @abstractmethod
    def _content(self, subject: Subject) -> dict[str, Any]:
        """What decides the verdict besides what all such judges have in common."""


class AskingJudge(PromptedJudge[Subject, Ruling]):
    """Such a judge whose verdict rests on one round of questions; what its journal was answered is not asked again."""

    def ask(self, subject: Subject) -> tuple[list[Question], bool]:
        """The questions of a subject, their prompts shortened to fit, and whether they had to be."""
        questions = self._questions(subject)
        prompts, shortened = self.engine.fit([question.prompt for question in questions], self.asking.reserve)
        fitted = [
            msgspec.structs.replace(question, prompt=prompt)
            for question, prompt in zip(questions, prompts, strict=True)
        ]
        return fitted, shortened

    def _judge(self, subjects: Mapping[str, Subject]) -> Iterator[Concluded[Ruling]]:
        asked = {key: self.ask(subject) for key, subject in subjects.items()}
        for key, answers in self._answered({key: questions for key, (questions, _) in asked.items()}):
            yield self._concluded(subjects[key], asked[key], answers, key)

    def _answered(self, subjects: Mapping[Asked, Sequence[Question]]) -> Iterator[tuple[Asked, dict[str, Answer]]]:
        """As `Asking.ask`, but for what the journal was answered before, by whatever verdict."""
        known = {subject: self._known(questions) for subject, questions in subjects.items()}
        left = {
            subject: [question for question in questions if question.name not in known[subject]]
            for subject, questions in subjects.items()
        }
        for subject, answers in self.asking.ask(left):
            yield subject, answers | known[subject]

    def _known(self, questions: Sequence[Question]) -> dict[str, Answer]:
        """The answers that the journal holds, by the names of their questions."""
        if self.journal is None:
            return {}
        known: dict[str, Answer] = {}
        for question in questions:
            if (place := self.journal.asked(self._hash(question))) is None:
                continue
            packed, name = place
            with self.journal.naming_damage():
                known[question.name] = KeptAnswers.unpacked(packed).by_name[name].answer(question.labels)
        return known

    def _hash(self, question: Question) -> bytes:
        """Of all that decides the answer to a question; the least mass does where the mean leaves out what has less."""
        least = {"min_mass": self.min_mass} if self.asking.n > 1 else {}
        return bytes.fromhex(content_key(**self._answering, **least, question=question.identity)[:32])

    def _concluded(
        self, subject: Subject, asked: tuple[Sequence[Question], bool], answers: Mapping[str, Answer], key: str
    ) -> Concluded[Ruling]:
        """The verdict from the answers to what was asked, with these, so that it can be concluded anew."""
        questions, truncated = asked
        answers = {question.name: answers[question.name] for question in questions}  # as asked, whichever came first
        verdict = self._conclude(subject, answers, key, truncated)
        answered = [  # an abstention may be for want of context, of which another engine has more
            question for question in questions if all(score.reason is None for score in answers[question.name].scores)
        ]
        hashes = {} if self.journal is None else {self._hash(question): question.name for question in answered}
        return Concluded(verdict, KeptAnswers.of(answers, truncated).packed, hashes)

    def conclude(self, subject: Subject, answers: Mapping[str, Answer], truncated: bool) -> Ruling:
        """The verdict on a subject whose questions, by their names, were answered so."""
        subject = clean(subject)
        return self._signed(self._conclude(subject, answers, self.key(subject), truncated))

    @abstractmethod
    def _questions(self, subject: Subject) -> list[Question]:
        """What is asked about a subject."""

    @abstractmethod
    def _conclude(self, subject: Subject, answers: Mapping[str, Answer], key: str, truncated: bool) -> Ruling:
        """The verdict from the answers, by the names of the questions."""


class ItemJudge(AskingJudge[Item, Verdict]):
    """Such a judge of single texts."""

    verdict_type = Verdict

    def _verdict(
        self,
        score: float | None,
        parts: dict[str, Part],
        answers: Mapping[str, Answer],
        key: str,
        truncated: bool,
    ) -> Verdict:
        """The verdict from its parts; without a score where one that counts has abstained."""
        abstained = abstention(parts)
        return Verdict(
            id="",
            score=None if abstained else score,
            breakdown=parts,
            abstained=abstained,
            truncated=truncated,
            model=self.engine.name,
            key=key,
            analysis={name: answer.analyses for name, answer in answers.items() if answer.analyses} or None,
        )


def check_subject(judge: Judge[Subject, Any], subject: Subject, place: str) -> None:
    """Raise what the judge does of a subject that lacks what it reads, naming the `place` it came from, not its id."""
    subject = clean(subject)
    try:
        judge.key(subject)
    except AdjudgeError as error:
        own = f'{"pair" if isinstance(subject, Pair) else "item"} "{subject.id}": '
        error.args = (f"{place}: {str(error).removeprefix(own)}",)
        raise


def check_rows(
    open_judge: Callable[[EngineFace, Journal | None], Judge[Any, Any]], rows: Sequence[Row], subjects: Sequence[Any]
) -> None:
    """Find the mistakes in options and rows that only the judge itself finds, before its model is loaded.

    Raises AdjudgeError naming the row's place, SchemeUnfit where its rubric and the scheme do not go together.
    """
    try:
        judge = open_judge(AbsentEngine(), None)
    except ModelNeeded:
        return
    for row, subject in zip(rows, subjects, strict=True):
        check_subject(judge, subject, row.place)


def lasts(ruling: Verdict | PairVerdict) -> bool:
    """Whether a later run would say the same: nothing in it, not even of no weight, abstained for another's sake."""
    parts = ruling.breakdown if isinstance(ruling, Verdict) else ruling.aspects
    return all(reason not in UNKEPT for reason in (ruling.abstained, *(part.abstained for part in parts.values())))


def clean(subject: Subject) -> Subject:
    """The subject with its texts made encodable, at any depth; policies write lone surrogates too."""
    return encodable(subject)  # type: ignore[no-any-return]
