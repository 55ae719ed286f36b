"""Samples of public data sets, in the shapes judges read, with what people said about each."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import msgspec

from adjudge.bench.agreement.dataset import RatedPair, RatedText
from adjudge.bench.agreement.formats import load
from adjudge.bench.howtobench import TABLE_4, items_of
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.group import Group
from adjudge.rewards.row_files import read_rows
from adjudge.rewards.rows import Row
from adjudge.rewards.verdict import Example, Item, WritingTask
from adjudge.rewards.wire import writing_of


class Sample(msgspec.Struct, frozen=True):
    """Subjects of a judge, and people's word on each: see `bench.judges.agreement_of`.

    It is 1 or 0 for a pair of which a or b is better and 0.5 for a tie, a number for an item, a number for each
    response of a group; None where nobody said.
    """

    subjects: list[Any]
    truth: list[Any]


def drawn(folder: Path, name: str, count: int) -> list[Any]:
    """`count` rated texts or pairs of a file, drawn by its name alone; raises AdjudgeError for one that has none."""
    path = folder / name
    try:
        rows = load([path]).rows
    except AdjudgeError as error:
        raise AdjudgeError(f"cannot read {path} ({error}): name the folder of the data sets") from error
    return random.Random(name).sample(rows, min(count, len(rows)))


def some(folder: Path, name: str, count: int) -> Sample:
    """`count` of them, as they are."""
    return sample_of(drawn(folder, name, count))


def sample_of(rows: Iterable[RatedText | RatedPair]) -> Sample:
    """Rated texts with people's mean score, or pairs with what they preferred."""
    couples = [(row.item, row.overall) if isinstance(row, RatedText) else (row.pair, row.preferred) for row in rows]
    return Sample([subject for subject, _ in couples], [truth for _, truth in couples])


def creative_pairs(folder: Path, name: str, count: int) -> Sample:
    """Those of `count` drawn pairs of Auto-J that are about creative writing."""
    return sample_of(row for row in drawn(folder, name, count) if row.group in CREATIVE)


CREATIVE = frozenset({"creative_writing", "writing_song_lyrics", "writing_personal_essay", "roleplay", "chitchat"})


def story_groups(folder: Path, name: str, count: int) -> Sample:
    """The stories of `count` prompts, a group for each prompt."""
    groups: dict[str, list[tuple[str, float | None]]] = {}
    for row in drawn(folder, name, 1 << 30):
        groups.setdefault(row.item.prompt, []).append((row.item.response, row.overall))
    chosen = sorted(groups)[:count]
    subjects = [Group(prompt, tuple(story for story, _ in groups[prompt])) for prompt in chosen]
    return Sample(subjects, [tuple(human for _, human in groups[prompt]) for prompt in chosen])


def whole(folder: Path, name: str) -> Sample:
    """All of a file, in its order."""
    return sample_of(load([folder / name]).rows)


def howtobench_items(folder: Path, name: str, count: int) -> Sample:
    """What two of the ten systems wrote for `count` tasks of HoWToBench; people rated systems, not texts."""
    rows = read_rows(folder / name)
    lines = items_of(random.Random(name).sample(rows, min(count, len(rows))))
    some = ("gpt-4o-2024-11-20", "Llama-3.3-70B-Instruct")
    items = [Item(line["prompt"], line["response"], id=line["id"]) for line in lines if line["system"] in some]
    return Sample(items, [None] * len(items))


def howtobench_systems(folder: Path, name: str) -> Sample:
    """What all ten systems wrote for the first instruction of each task, out of long texts 400 characters from the
    beginning and the end; the truth is the system's score for the task in the paper's Table 4.
    """
    rows = [row for task in get_args(WritingTask) for row in read_rows(folder / name / f"{task}.jsonl")]
    lines = [Row(f"item {place}", line) for place, line in enumerate(items_of(rows, per_task=1, characters=400), 1)]
    truth = [TABLE_4[line.columns["task"]].get(line.columns["system"]) for line in lines]
    return Sample([writing_of(line, place) for place, line in enumerate(lines, 1)], truth)


def beside_good_ones(folder: Path, name: str, count: int, among: int) -> Sample:
    """`count` labelled texts, each with the same examples: the good ones of `among` others of the set."""
    rows = drawn(folder, name, count + among)
    examples = tuple(Example(row.item.prompt, row.item.response) for row in rows[count:] if row.overall == 1.0)
    found = sample_of(rows[:count])
    return Sample([(item, examples) for item in found.subjects], found.truth)
