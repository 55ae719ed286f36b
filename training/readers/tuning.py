"""Rows to tune a model on in the personal judges' own questions, the review before the score (PerSE, 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.asking import ANSWER
from adjudge.rewards.judges.aspects import PERSE, Aspect
from adjudge.rewards.judges.personal import checked_k
from adjudge.training.readers.questions import ChoiceQuestion, Question, RatingQuestion, plain
from adjudge.training.stages import Passed, sifted


class TuningRow(msgspec.Struct, frozen=True):
    """A question, `system` and `prompt`, and what is to be answered, as `adjudge train sft` reads them."""

    id: str
    reviewer: str
    aspect: str
    system: str
    prompt: str
    response: str


class Tuning(msgspec.Struct, frozen=True):
    """The rows, and what each stage left of the questions."""

    rows: list[TuningRow]
    stages: list[Passed[Any]]


def tuning_rows(
    questions: Sequence[Question],
    *,
    split: str = "train",
    k: int | None = None,
    texts: bool = True,
    aspects: Sequence[Aspect] = PERSE,
) -> Tuning:
    """Rows of the questions on that side of the split ("" for all), after `k` reviews (None: as many as there are).

    A rating's row is the question of PersonalJudge in reasoned mode, answered by the reader's own review and then the
    score. A question is dropped whose review is missing ("no_review") or holds the score's tag ("tag_in_review"), or
    whose score is no whole number ("score_not_whole"), so that it is no label. A choice has no reasons in people's
    words: its rows, one in each order, are those of PersonalPairJudge in direct mode, answered by the choice.
    `aspects` leaves out others ("other_aspect"). Raises AdjudgeError where nothing is left.
    """
    if k is not None and checked_k(k) > (most := max(question.shown for question in questions)):
        raise AdjudgeError(f"k is {k}, but no question has more than {most} reviews: group with that k")
    here = sifted("split", questions, lambda one: None if split in ("", one.split) else f"in_{one.split or 'none'}")
    known = {aspect.name: aspect for aspect in aspects}
    sound = sifted("answers", here.kept, lambda one: _unsound(one, known))
    if not sound.kept:
        mend = "take other aspects or questions" if here.kept else "take another side of the split, or all"
        raise AdjudgeError(f"no question is left to tune on ({_reasons((here, sound))}): {mend}")
    rows: list[TuningRow] = []
    for question in sound.kept:
        shown = question.shown if k is None else k
        if isinstance(question, RatingQuestion):
            rows.append(_rating_row(question, shown, texts))
        else:
            rows += (_choice_row(question, shown, known[question.aspect], order) for order in ("ab", "ba"))
    return Tuning(rows, [here, sound])


def _rating_row(question: RatingQuestion, k: int, texts: bool) -> TuningRow:
    system, prompt = plain(question.messages(k, texts))
    response = f"{question.review.strip()}\n<ANSWER> {question.score:g} </ANSWER>"
    return TuningRow(question.item.id, question.reviewer, "", system, prompt, response)


def _choice_row(question: ChoiceQuestion, k: int, aspect: Aspect, order: str) -> TuningRow:
    messages, answer = question.messages(k, aspect, order, "direct")
    first = question.preferred == order[0]
    response = f"{answer}{1 if first else 2} </ANSWER>"
    return TuningRow(f"{question.pair.id} {order}", question.reviewer, aspect.name, *plain(messages), response)


def _unsound(question: Question, known: dict[str, Aspect]) -> str | None:
    """Why a question cannot be learnt from."""
    if isinstance(question, ChoiceQuestion):
        return None if question.aspect in known else "other_aspect"
    if not question.review.strip():
        return "no_review"
    if any(tag in question.review for tag in (*ANSWER.openings, *ANSWER.closings)):
        return "tag_in_review"
    return None if float(question.score).is_integer() else "score_not_whole"


def _reasons(stages: Iterable[Passed[Any]]) -> str:
    return ", ".join(sorted({drop.reason for stage in stages for drop in stage.dropped}))
