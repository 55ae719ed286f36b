"""`Judged`: what rewards that ask a judge have in common; and what its judge needs of a prompt's row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from adjudge.engine.checking import shown
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.rewards.engines.specification import JudgeSource, JudgeSpec
from adjudge.rewards.judge_rewards.references import Reference, Referenced
from adjudge.rewards.judges.judge import Judge, check_rows, check_subject
from adjudge.rewards.judges.kinds import KINDS, kind_of, prepare
from adjudge.rewards.judges.options import options_by_name
from adjudge.rewards.judges.own import OwnJudge
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.rows import ColumnMissing, Row
from adjudge.rewards.records.verdict import Item, Pair
from adjudge.rewards.records.wire import builtin, columns_read, item_of, pair_of
from adjudge.rewards.reward import Reward, engines_of

Subject = Item | Pair
OWN_NAMES = ("id", "prompt", "prompt_a", "prompt_b", "response", "story_a", "story_b", "reference")
"""Columns that the group itself fills in."""


class Judged(Reward):
    """A reward that asks a judge, open or a specification, about responses, and holds them against a `reference`.

    Raises AdjudgeError for what is no judge, and no reference.
    """

    def __init__(self, judge: Judge[Any, Any] | JudgeSpec, reference: Reference | None, name: str | None) -> None:
        if not isinstance(reference, Reference | None):
            raise AdjudgeError(
                f"reference is {shown(reference)}: give StaticReference(), or DynamicReference(a model or an engine)"
            )
        self.source, self.reference = JudgeSource(judge), reference
        self.name = name or self.source.kind or "judge"

    @property
    def engines(self) -> tuple[EngineFace, ...]:
        """Those of the judge and of the references, as far as they are open."""
        return engines_of(self.source, self.reference)

    def referenced(self, groups: Sequence[Group]) -> list[Referenced]:
        """The reference of each group, in order: the group's own where the reward has none."""
        if self.reference is None:
            return [Referenced(group.reference) for group in groups]
        return self.reference.of(groups, self.source.judge.journal)

    def verdicts(self, groups: Sequence[Group]) -> list[list[tuple[str, Subject | None, Any]]]:
        """The responses of each group with what was asked about them and the verdict, all from one call of the judge.

        No window splits a group, or the trie. Where the reference could not be written nothing is asked, and the reason
        stands for the verdict. Raises AdjudgeError naming prompt and column for what the judge cannot read.
        """
        references = self.referenced(groups)
        asked: list[Sequence[Subject | None]] = [
            self.subjects(group, number, one.text) if one.abstained is None else (None,) * len(group.responses)
            for number, (group, one) in enumerate(zip(groups, references, strict=True), 1)
        ]
        subjects = [subject for own in asked for subject in own if subject is not None]
        judging = self.source.judge.judge_iter(subjects, window=max(1, len(subjects)))
        found = iter(list(judging))  # to its end: the engine may sleep
        return [
            [
                (response, subject, one.abstained if subject is None else next(found))
                for response, subject in zip(group.responses, own, strict=True)
            ]
            for group, one, own in zip(groups, references, asked, strict=True)
        ]

    def subjects(self, group: Group, number: int, reference: str | None) -> tuple[Subject, ...]:
        """What is asked about a group; columns are read once for all its responses."""
        if not group.responses:
            return ()
        judge, place, kind = self.source.judge, group.place(number), KINDS.get(self.source.kind or "")
        reads = kind.reads if kind else judge.reads if isinstance(judge, OwnJudge) else ()
        columns = {}
        for name in columns_read(reads):
            group.shared(name, place)
            if name in group.columns:
                columns[name] = builtin(group.columns[name])
        own = {"id": group.id, "prompt": group.prompt, "response": "", "story_a": "", "story_b": reference}
        row, pairs = Row(place, {**columns, **own, "reference": reference}), self.source.of_pairs
        with _columns_of(Row(place, dict(group.columns))):
            subject: Subject = (pair_of if pairs else item_of)(row, number, reads)
        responses = [{"a" if pairs else "response": response} for response in group.responses]
        subjects = tuple(msgspec.structs.replace(subject, **response) for response in responses)
        check_subject(judge, subjects[0], place)
        return subjects


@contextmanager
def _columns_of(row: Row) -> Iterator[None]:
    """Within the block a column that is missing is told beside those of the row, and not beside what we fill in."""
    try:
        yield
    except ColumnMissing as error:
        raise row.without(error.column, "its judge reads it") from None


def check_prompts(kind: str, rows: Sequence[Row], options: Mapping[str, Any]) -> None:
    """Raise AdjudgeError naming place and column where a judge by name (`KINDS`) could not read a prompt's row."""
    blank = dict.fromkeys(OWN_NAMES, "")
    subjects = []
    for row in rows:
        with _columns_of(row):
            subjects.append(kind_of(kind).subject(Row(row.place, {**row.columns, **blank}), 1))
    if kind in KINDS and KINDS[kind].reads:
        with options_by_name():
            open_judge = prepare(kind, options)
        check_rows(open_judge, rows, subjects)
