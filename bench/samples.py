"""Samples of public data sets, in the shapes judges read, with what people said about each."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec

from adjudge.bench.agreement.dataset import RatedPair, RatedText
from adjudge.bench.agreement.formats import load
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.verdict import Example, WritingTask

CREATIVE = frozenset({"creative_writing", "writing_song_lyrics", "writing_personal_essay", "roleplay", "chitchat"})
"""The scenarios of Auto-J that are about creative writing."""


class Sample(msgspec.Struct, frozen=True):
    """Subjects of a judge, and people's word on each: see `bench.judges.agreement_of`.

    It is 1 or 0 for a pair of which a or b is better and 0.5 for a tie, a number for an item, a number for each
    response of a group; None where nobody said.
    """

    subjects: list[Any]
    truth: list[Any]


def draw(folder: Path, name: str, count: int | None, groups: Collection[str] | None = None) -> Sample:
    """`count` rows of the file `name`, drawn by its name alone, or all in their order; of these the ones of `groups`.

    Raises AdjudgeError for a file that cannot be read, and for one that is of no known data set.
    """
    rows: Sequence[Any] = load([folder / name]).rows
    if count is not None:
        rows = random.Random(name).sample(rows, min(count, len(rows)))
    return sample_of([row for row in rows if groups is None or row.group in groups])


def sample_of(rows: Sequence[RatedText | RatedPair]) -> Sample:
    """Rows as subjects; of a text that nobody rated the score published for its system counts."""
    subjects = [row.pair if isinstance(row, RatedPair) else row.item for row in rows]
    return Sample(subjects, [_said(row) for row in rows])


def openmeva_groups(folder: Path, count: int) -> Sample:
    """The stories of `count` prompts of OpenMEVA, a group for each prompt."""
    drawn = draw(folder, "openmeva_roc/stories.jsonl", 1 << 30)
    groups: dict[str, list[tuple[str, float]]] = {}
    for item, human in zip(drawn.subjects, drawn.truth, strict=True):
        groups.setdefault(item.prompt, []).append((item.response, human))
    chosen = sorted(groups)[:count]
    subjects = [Group(prompt, tuple(story for story, _ in groups[prompt])) for prompt in chosen]
    return Sample(subjects, [tuple(human for _, human in groups[prompt]) for prompt in chosen])


def howtobench_outputs(folder: Path, count: int) -> Sample:
    """What two of the ten systems wrote for `count` open tasks of HoWToBench; people rated systems, not texts."""
    name = "howtobench/open.jsonl"
    by_task: dict[str, dict[str | None, Any]] = {}
    for row in load([folder / name]).rows:
        by_task.setdefault(row.cluster, {})[row.system] = row.item
    drawn = random.Random(name).sample(list(by_task.values()), min(count, len(by_task)))
    systems = ("gpt-4o-2024-11-20", "Llama-3.3-70B-Instruct")
    items = [outputs[system] for outputs in drawn for system in systems if system in outputs]
    return Sample(items, [None] * len(items))


def howtobench_systems(folder: Path) -> Sample:
    """What all ten systems wrote for the first instruction of each task, out of long texts 400 characters from the
    beginning and the end; the truth is the system's score for the task in the paper's Table 4.
    """
    paths = [folder / "howtobench" / f"{task}.jsonl" for task in get_args(WritingTask)]
    rows = load(paths, characters=400).rows
    first = {row.item.task: row.cluster for row in reversed(rows)}
    return sample_of([row for row in rows if row.cluster == first[row.item.task]])


def greetings_beside_good_ones(folder: Path, count: int, among: int) -> Sample:
    """`count` Chinese greetings, each with the same examples: the good ones of `among` others of the set."""
    drawn = draw(folder, "greetings/labels.jsonl", count + among)
    others = zip(drawn.subjects[count:], drawn.truth[count:], strict=True)
    examples = tuple(Example(item.prompt, item.response) for item, label in others if label == 1.0)
    return Sample([(item, examples) for item in drawn.subjects[:count]], drawn.truth[:count])


def _said(row: RatedText | RatedPair) -> float | None:
    if isinstance(row, RatedPair):
        return row.preferred
    return row.overall if row.published is None else row.published
