"""Old answers, new verdicts: what a judge would conclude from what another one was already told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.asking import Answer
from adjudge.rewards.judges.judge import AskingJudge, Ruling, Subject, clean
from adjudge.rewards.judges.kept_answers import KeptAnswers


class Rescoring(Generic[Subject, Ruling]):
    """`judge`'s verdicts from the answers that `earlier` was given, as its `journal` kept them; no model is asked.

    Only an answer to the very same question counts: same words, same labels, written in the same way. So weights,
    aggregation, fewer aspects or one order instead of both can be had anew, another wording cannot. A text that had to
    be shortened for `earlier` counts as it was shortened then. Both judges may stand on an `AbsentEngine`. Raises
    AdjudgeError, as it comes to them, for questions that nobody answered and for subjects whose answers are not kept.
    """

    def __init__(
        self, earlier: AskingJudge[Subject, Ruling], judge: AskingJudge[Subject, Ruling], journal: Journal
    ) -> None:
        asked, asks = ((one.asking.content, one.asking.n > 1 and one.min_mass) for one in (earlier, judge))
        if asked != asks:  # the least mass decides which of several analyses count
            raise AdjudgeError(
                "the answers were written in another way (mode, sampling, seed, or least mass of several samples):"
                " judge again instead"
            )
        self.earlier: AskingJudge[Subject, Ruling] = earlier
        self.judge: AskingJudge[Subject, Ruling] = judge
        self.journal = journal

    def holds(self, subject: Subject) -> bool:
        """Whether the journal has the answers on a subject: it has none of one that had no time."""
        return self.journal.answers(self.earlier.key(clean(subject))) is not None

    def judge_iter(self, subjects: Iterable[Subject]) -> Iterator[Ruling]:
        """A verdict for every subject, in order."""
        for number, subject in enumerate(subjects, 1):
            yield self._rescored(clean(subject), f'"{subject.id}"' if subject.id else f"row {number}")

    compare_iter = judge_iter

    def _rescored(self, subject: Subject, name: str) -> Ruling:
        packed = self.journal.answers(self.earlier.key(subject))
        if packed is None:
            raise AdjudgeError(f"{self.journal.path} keeps no answers on {name}: judge it again instead")
        with self.journal.naming_damage():
            kept = KeptAnswers.unpacked(packed)
        asked = {question.identity: question.name for question in self.earlier.ask(subject)[0]}
        answers: dict[str, Answer] = {}
        for question in self.judge.ask(subject)[0]:
            answer = kept.by_name.get(asked.get(question.identity, ""))
            if answer is None:
                raise AdjudgeError(
                    f'on {name} the question "{question.name}" was never asked in these words:'
                    " only weights and what is made of answers can change here, judge it again instead"
                )
            answers[question.name] = answer.answer(question.labels)
        verdict: Ruling = self.judge.conclude(subject, answers, kept.truncated)
        return msgspec.structs.replace(verdict, id=subject.id)
