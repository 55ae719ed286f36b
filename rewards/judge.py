"""What all judges share: how subjects come in, how verdicts go out, and what a verdict rests on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from adjudge.engine.face import EngineFace
from adjudge.engine.prompt import Cut, Prompt
from adjudge.engine.score import Reason
from adjudge.engine.tokenizer import well_formed
from adjudge.rewards import template
from adjudge.rewards.asking import Answer, Asking, Question
from adjudge.rewards.journal import Journal, content_key
from adjudge.rewards.verdict import Item, Pair, PairVerdict, Verdict

Subject = TypeVar("Subject", Pair, Item)
Ruling = TypeVar("Ruling", PairVerdict, Verdict)

PASSING: tuple[Reason, ...] = ("timeout", "cancelled")
"""Reasons that lie in the moment, not in the texts: such a verdict is not kept, so that a later run asks again."""


class Judge(ABC, Generic[Subject, Ruling]):
    """Subjects in, verdicts out, in order; with a `journal`, what it holds is not judged again.

    A judge says what decides a verdict (`key`) and how subjects become verdicts (`_judge`).
    """

    verdict_type: type[Ruling]

    def __init__(self, journal: Journal | None = None) -> None:
        self.journal = journal

    def judge(self, subjects: Iterable[Subject]) -> list[Ruling]:
        """A verdict for every subject, in order."""
        return list(self.judge_iter(subjects))

    def judge_iter(self, subjects: Iterable[Subject], window: int = 16) -> Iterator[Ruling]:
        """Verdicts in order as they come, each journaled first; `window` subjects are in the engine at a time."""
        remaining = map(clean, subjects)
        while chunk := list(islice(remaining, window)):
            keys = [self.key(subject) for subject in chunk]
            known = self._remembered(keys)
            judged = self._judge({key: subject for key, subject in zip(keys, chunk, strict=True) if key not in known})
            for key, subject in zip(keys, chunk, strict=True):
                while key not in known:
                    verdict = next(judged)
                    if self.journal is not None and verdict.abstained not in PASSING:
                        self.journal.put(verdict.key, msgspec.json.encode(verdict))
                    known[verdict.key] = verdict
                yield msgspec.structs.replace(known[key], id=subject.id)
            next(judged, None)  # let the engine's call come to its end

    @abstractmethod
    def key(self, subject: Subject) -> str:
        """The journal's key: everything that decides the verdict."""

    @abstractmethod
    def _judge(self, subjects: Mapping[str, Subject]) -> Iterator[Ruling]:
        """A verdict for each of the subjects, given by their keys, in any order."""

    def _remembered(self, keys: Sequence[str]) -> dict[str, Ruling]:
        if self.journal is None:
            return {}
        return {key: msgspec.json.decode(raw, type=self.verdict_type) for key, raw in self.journal.get(keys).items()}


class AskingJudge(Judge[Subject, Ruling]):
    """A judge whose verdict rests on one round of questions to an engine, worded by the prompt file `kind`.

    A score whose label mass is below `min_mass` abstains. Texts too long for the model are shortened alike in all of a
    subject's questions (`cut`: "middle", "head", "tail"), or abstain ("never").
    """

    kind: ClassVar[str]

    def __init__(self, engine: EngineFace, asking: Asking, *, min_mass: float, cut: Cut, journal: Journal | None):
        super().__init__(journal)
        self.engine = engine
        self.asking = asking
        self.min_mass = min_mass
        self.cut = cut
        self.template = template.load(self.kind)

    def key(self, subject: Subject) -> str:
        """The journal's key: everything that decides the verdict."""
        return content_key(
            judge=self.kind,
            model=self.engine.fingerprint,
            adapter=self.engine.adapter,
            dtype=self.engine.dtype,
            template=self.template.hash,
            min_mass=self.min_mass,
            truncation=(self.cut, self.engine.max_prompt_tokens),
            sampling=self.asking.content,
            **self._content(clean(subject)),
        )

    def ask(self, subject: Subject) -> tuple[list[Question], bool]:
        """The questions of a subject, their prompts shortened to fit, and whether they had to be."""
        questions = self._questions(subject)
        prompts, shortened = self.engine.fit([question.prompt for question in questions], self.asking.reserve)
        fitted = [
            msgspec.structs.replace(question, prompt=prompt)
            for question, prompt in zip(questions, prompts, strict=True)
        ]
        return fitted, shortened

    def _judge(self, subjects: Mapping[str, Subject]) -> Iterator[Ruling]:
        asked = {key: self.ask(subject) for key, subject in subjects.items()}
        for key, answers in self.asking.ask({key: questions for key, (questions, _) in asked.items()}):
            yield self._conclude(subjects[key], answers, key, asked[key][1])

    def _prompt(self, data: Mapping[str, str], **trusted: Any) -> Prompt:
        """The prompt file filled in; `data` are untrusted."""
        messages, answer = self.template.render(data=data, cut=self.cut, mode=self.asking.mode, **trusted)
        return self.engine.chat(messages, answer)

    @abstractmethod
    def _content(self, subject: Subject) -> dict[str, Any]:
        """What decides the verdict besides what all such judges have in common."""

    @abstractmethod
    def _questions(self, subject: Subject) -> list[Question]:
        """What is asked about a subject."""

    @abstractmethod
    def _conclude(self, subject: Subject, answers: Mapping[str, Answer], key: str, truncated: bool) -> Ruling:
        """The verdict from the answers, by the names of the questions."""


def clean(subject: Subject) -> Subject:
    """The subject with its texts made encodable; policies write lone surrogates too."""
    fields = msgspec.structs.asdict(subject)
    texts = {name: well_formed(text) for name, text in fields.items() if isinstance(text, str)}
    return msgspec.structs.replace(subject, **texts)
