"""Samples of public data sets, in the shapes judges read, with what people said about each."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import msgspec

from adjudge.bench.howtobench import TABLE_4, items_of
from adjudge.bench.perse import read_chosen, read_rated
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.group import Group
from adjudge.rewards.row_files import read_rows
from adjudge.rewards.rows import Row
from adjudge.rewards.verdict import Example, Item, Pair, WritingTask
from adjudge.rewards.wire import writing_of

Record = Mapping[str, Any]


class Sample(msgspec.Struct, frozen=True):
    """Subjects of a judge, and people's word on each: see `bench.judges.agreement_of`.

    It is 1 or 0 for a pair of which a or b is better and 0.5 for a tie, a number for an item, a number for each
    response of a group; None where nobody said.
    """

    subjects: list[Any]
    truth: list[Any]


def draw(folder: Path, name: str, count: int, read: Callable[[Record], Iterator[tuple[Any, Any]]]) -> Sample:
    """`count` records of the JSONL file `name`, drawn by its name alone, each read into (subject, truth) couples.

    Raises AdjudgeError for a file that is not there or whose records are not what they should be.
    """
    path = folder / name
    try:
        records = [msgspec.json.decode(line) for line in path.read_bytes().splitlines() if line.strip()]
    except (OSError, msgspec.DecodeError) as error:
        raise AdjudgeError(f"cannot read {path} ({error}): name the folder of the data sets") from error
    drawn = random.Random(name).sample(records, min(count, len(records)))
    try:
        couples = [couple for record in drawn for couple in read(record)]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise AdjudgeError(f"{path} has other columns than it should ({error!r})") from error
    return Sample([subject for subject, _ in couples], [truth for _, truth in couples])


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a text")
    return value


def autoj_pair(record: Record) -> Iterator[tuple[Pair, float]]:
    """Auto-J's pairs of answers; label 0 is the first, 1 the second, 2 a tie."""
    first, second, prompt = (_text(record[name]) for name in ("response 1", "response 2", "prompt"))
    pair = Pair(first, second, prompt)
    yield pair, {0: 1.0, 1: 0.0, 2: 0.5}[record["label"]]


def creative_autoj_pair(record: Record) -> Iterator[tuple[Pair, float]]:
    """Those of them that are about creative writing."""
    if record["scenario"] in CREATIVE:
        yield from autoj_pair(record)


CREATIVE = frozenset({"creative_writing", "writing_song_lyrics", "writing_personal_essay", "roleplay", "chitchat"})


def hanna_item(record: Record) -> Iterator[tuple[Item, float]]:
    """HANNA's stories; the mean over raters and criteria."""
    yield Item(_text(record["prompt"]), _text(record["story"])), fmean(map(fmean, record["ratings"].values()))


def openmeva_item(record: Record) -> Iterator[tuple[Item, float]]:
    """OpenMEVA's five-sentence stories, with their mean human score."""
    yield Item(_text(record["prompt"]), _text(record["story"])), record["human"]


def openmeva_groups(folder: Path, count: int) -> Sample:
    """The stories of `count` prompts of OpenMEVA, a group for each prompt."""
    whole = draw(folder, "openmeva_roc/stories.jsonl", 1 << 30, openmeva_item)
    groups: dict[str, list[tuple[str, float]]] = {}
    for item, human in zip(whole.subjects, whole.truth, strict=True):
        groups.setdefault(item.prompt, []).append((item.response, human))
    chosen = sorted(groups)[:count]
    subjects = [Group(prompt, tuple(story for story, _ in groups[prompt])) for prompt in chosen]
    return Sample(subjects, [tuple(human for _, human in groups[prompt]) for prompt in chosen])


def perse_items(folder: Path) -> Sample:
    """PerSE's sample of single reviews; what the reader scored."""
    reviews = read_rated(folder / "perse/PerMPST.k3.sample.jsonl")
    return Sample([one.item for one in reviews], [one.score for one in reviews])


def perse_pairs(folder: Path) -> Sample:
    """PerSE's sample of comparisons, all on interestingness; what the reader chose."""
    choices = read_chosen(folder / "perse/PerDOC.I.sample.jsonl")
    return Sample([one.pair for one in choices], [float(one.preferred == "a") for one in choices])


def howtobench_items(record: Record) -> Iterator[tuple[Item, None]]:
    """What two of the ten systems wrote for a task of HoWToBench; people rated systems, not texts."""
    prompt = "\n\n".join(filter(None, (record["instruction"], record["information"])))
    for system in ("gpt-4o-2024-11-20", "Llama-3.3-70B-Instruct"):
        yield Item(prompt, _text(record["outputs"][system]), id=f"{record['id']} {system}"), None


def howtobench_systems(folder: Path) -> Sample:
    """What all ten systems wrote for the first instruction of each task, out of long texts 400 characters from the
    beginning and the end; the truth is the system's score for the task in the paper's Table 4.
    """
    rows = [row for task in get_args(WritingTask) for row in read_rows(folder / "howtobench" / f"{task}.jsonl")]
    lines = [Row(f"item {place}", line) for place, line in enumerate(items_of(rows, per_task=1, characters=400), 1)]
    truth = [TABLE_4[line.columns["task"]].get(line.columns["system"]) for line in lines]
    return Sample([writing_of(line, place) for place, line in enumerate(lines, 1)], truth)


def greeting_item(record: Record) -> Iterator[tuple[Item, float]]:
    """Chinese greetings, labelled good (1) or bad (0)."""
    yield Item(_text(record["query"]), _text(record["response"])), float(record["label"])


def greetings_beside_good_ones(folder: Path, count: int, among: int) -> Sample:
    """`count` Chinese greetings, each with the same examples: the good ones of `among` others of the set."""
    drawn = draw(folder, "greetings/labels.jsonl", count + among, greeting_item)
    others = zip(drawn.subjects[count:], drawn.truth[count:], strict=True)
    examples = tuple(Example(item.prompt, item.response) for item, label in others if label == 1.0)
    return Sample([(item, examples) for item in drawn.subjects[:count]], drawn.truth[:count])


def greeting_pair(record: Record) -> Iterator[tuple[Pair, float]]:
    """Pairs of Chinese greetings, of which the first was preferred."""
    yield Pair(_text(record["chosen"]), _text(record["rejected"]), _text(record["query"])), 1.0
