"""`RubricJudge`: a text graded by the criteria of a rubric, one question each (QuRL; and any weighted rubric)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Unpack, cast

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.rewards.judges.asking import Answer, Question
from adjudge.rewards.judges.judge import WINDOW, How, ItemJudge
from adjudge.rewards.judges.rubric_scoring import (
    SAME,
    Form,
    Mark,
    Scheme,
    SchemeUnfit,
    check_names,
    marks_of,
    mean,
    reward,
    scheme_of,
    vetoed,
    written,
)
from adjudge.rewards.records.rubric import Criterion, Rubric, check_rubric, is_whole
from adjudge.rewards.records.verdict import Item, RubricVerdict, Verdict


class RubricJudge(ItemJudge):
    """Grades texts by a rubric: the item's own, or else the judge's `rubric`.

    The criteria of an item are asked as siblings of one prompt (the paper has one text grade them all), so that none
    leans on another's grade. `scheme` says what each can be given, by default what the rubric itself implies
    (`scheme_of`), and `form` how the scores become the verdict's, in [0, 1]: see `rubric_scoring`. A part of the
    breakdown holds a criterion's score in its own points. A criterion that abstains makes the text abstain if it has
    weight or may veto. `how` is that of `AskingJudge`.

    Own rubrics are data: they may have been mined from pages that anybody can write, so their words are untrusted like
    the text itself; those of the judge's rubric are its author's and trusted. Raises AdjudgeError for a rubric that the
    scheme cannot mark; an item's own is checked before its window is asked.
    """

    kind = "rubric"
    range = (0.0, 1.0)
    verdict_type = RubricVerdict

    def __init__(
        self,
        engine: EngineFace,
        rubric: Rubric | None = None,
        *,
        scheme: Scheme | None = None,
        form: Form = "fixed",
        **how: Unpack[How],
    ) -> None:
        check_rubric(rubric, "rubric")
        super().__init__(engine, **how)
        self.rubric, self.scheme, self.form = rubric, scheme, form
        check_names(scheme, form)
        if rubric is not None:
            marks_of(rubric, scheme_of(rubric, scheme), form)

    def judge(self, subjects: Iterable[Item]) -> list[RubricVerdict]:  # type: ignore[override]
        """A verdict for every item, in order."""
        return list(self.judge_iter(subjects))

    def judge_iter(self, subjects: Iterable[Item], window: int = WINDOW) -> Iterator[RubricVerdict]:
        """Verdicts in order as they come: see `Judge.judge_iter`."""
        return cast("Iterator[RubricVerdict]", super().judge_iter(subjects, window))

    def _content(self, item: Item) -> dict[str, Any]:
        rubric, scheme, _ = self._marking(item)
        return {
            "rubric": rubric,
            "own": item.rubric is not None,
            "scheme": scheme,
            "form": self.form,
            "prompt": item.prompt,
            "response": item.response,
        }

    def _questions(self, item: Item) -> list[Question]:
        _, scheme, marks = self._marking(item)
        descriptions = [_described(mark.criterion, scheme) for mark in marks]
        whole = "\n\n".join(descriptions)
        total = written(sum(mark.values[-1] for mark in marks))
        data = {"prompt": item.prompt, "response": item.response}
        questions = []
        for mark, description in zip(marks, descriptions, strict=True):
            name = mark.criterion.name
            words = {"name": name, "criterion": description, "rubric": whole}
            counts = {"points": written(mark.values[-1]), "total": total, "choices": _choices(mark, scheme)}
            trusted = {"scheme": scheme} | counts | ({} if item.rubric else words)
            prompt = self._prompt(data | words if item.rubric else data, **trusted)
            questions.append(Question(name, prompt, mark.labels))
        return questions

    def _conclude(self, item: Item, answers: Mapping[str, Answer], key: str, truncated: bool) -> Verdict:
        rubric, scheme, marks = self._marking(item)
        parts = {mark.criterion.name: self._part(answers[mark.criterion.name], mark.weight) for mark in marks}
        decisive = [parts[mark.criterion.name] for mark in marks if mark.weight or mark.bound is not None]
        abstained = next((part.abstained for part in decisive if part.abstained), None)
        counted = [mark for mark in marks if parts[mark.criterion.name].distribution is not None]
        chances = [parts[mark.criterion.name].distribution or () for mark in counted]
        score = None if abstained else reward(counted, chances, self.form)
        verdict = msgspec.structs.asdict(self._verdict(score, parts, answers, key, truncated))
        if abstained:
            return RubricVerdict(**verdict | {"abstained": abstained})
        average = None if scheme == "binary" else mean(counted, chances, self.form)
        vetoes = vetoed(counted, chances, self.form)
        accepted = None
        if rubric.threshold is not None and average is not None:
            accepted = average >= rubric.threshold - SAME and not vetoes
        return RubricVerdict(**verdict, mean=average, acceptable=accepted, vetoed=vetoes)

    def _marking(self, item: Item) -> tuple[Rubric, Scheme, Sequence[Mark]]:
        """The rubric of an item, the scheme, and how its criteria are marked."""
        rubric = item.rubric or self.rubric
        if rubric is None:
            raise AdjudgeError(f'item "{item.id}": "rubric" is missing, and the judge has none: give either')
        scheme = scheme_of(rubric, self.scheme)
        try:
            return rubric, scheme, marks_of(rubric, scheme, self.form)
        except SchemeUnfit as error:
            raise SchemeUnfit(f'the rubric of item "{item.id}": {error}') from error


def _described(criterion: Criterion, scheme: Scheme) -> str:
    """A criterion as the judge reads it: its name and text, and what earns which score."""
    lines = [f"{criterion.name}: {criterion.text}"]
    if scheme == "binary":
        lines += [f"Met when: {level.text}" for level in criterion.levels[-1:]]
    else:
        for level in criterion.levels:
            scores = dict.fromkeys((written(level.low), written(level.high)))
            lines.append(f"{'-'.join(scores)}: {level.text}")
    return "\n".join(lines)


def _choices(mark: Mark, scheme: Scheme) -> str:
    """What can be answered, in words."""
    if scheme == "binary":
        return "Yes or No"
    labels = mark.labels.labels
    if all(map(is_whole, mark.values)) and all(later == earlier + 1 for earlier, later in pairwise(mark.values)):
        return f"a whole number from {labels[0]} to {labels[-1]}"
    return f"one of {', '.join(labels)}"
