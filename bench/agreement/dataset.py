"""Texts that people have judged, whatever file they came from: single texts with scores, or pairs with a preference."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Literal

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.verdict import Item, Pair

SAID = ("scores", "label", "human", "published")
"""Columns of what people said, which no judge reads."""

OVERALL = "overall"
"""What people's one score of a whole text is called."""


class RatedText(msgspec.Struct, frozen=True):
    """A text and what its raters gave it, by aspect; `overall` is the name of one score of the whole.

    `cluster` is the prompt, whose texts are drawn together, `system` what wrote it, `checklist` the row's own rubric
    in WritingBench's form. Of a text that nobody rated by itself, but whose system has a published score, that stands
    in `published`.
    """

    item: Item
    scores: Mapping[str, tuple[float, ...]]
    cluster: str
    place: str
    system: str | None = None
    published: float | None = None
    checklist: Any = None

    @property
    def overall(self) -> float | None:
        """People's score of the whole: the one they gave, or the mean of their aspects; None without any."""
        if OVERALL in self.scores:
            return fmean(self.scores[OVERALL])
        return fmean(map(fmean, self.scores.values())) if self.scores else None

    @property
    def said(self) -> float | None:
        """The published score of its system where there is one, or else people's own of the whole."""
        return self.overall if self.published is None else self.published

    @property
    def id(self) -> str:
        """The item's."""
        return self.item.id

    def called(self, name: str) -> RatedText:
        """The same with another id."""
        return msgspec.structs.replace(self, item=msgspec.structs.replace(self.item, id=name))


class RatedPair(msgspec.Struct, frozen=True):
    """Two texts and what people said: `preferred` is 1 for a, 0 for b, 0.5 for a tie, or the mean of several voices.

    `group` is what tables part by (a scenario, a subset). Where people were asked about one aspect, that is `aspect`.
    """

    pair: Pair
    preferred: float
    cluster: str
    place: str
    group: str | None = None
    aspect: str | None = None

    @property
    def id(self) -> str:
        """The pair's."""
        return self.pair.id

    def called(self, name: str) -> RatedPair:
        """The same with another id."""
        return msgspec.structs.replace(self, pair=msgspec.structs.replace(self.pair, id=name))


class DataSet(msgspec.Struct, frozen=True):
    """Rated texts, or rated pairs (then `scale` says nothing).

    `scale` has the ends of people's scores, `aspects` the option of judges that fits them best, `unrated` how many
    texts of the files nobody rated, which are left out.
    """

    name: str
    what: Literal["items", "pairs"]
    rows: tuple[Any, ...]
    scale: tuple[float, float] = (1.0, 5.0)
    aspects: str | None = None
    unrated: int = 0

    @property
    def clusters(self) -> list[str]:
        """The prompt of each row."""
        return [row.cluster for row in self.rows]


def joined(sets: Sequence[DataSet]) -> DataSet:
    """Several files as one set; raises AdjudgeError for other kinds or scales, and an id that stands twice."""
    first = sets[0]
    for other in sets[1:]:
        if (other.what, other.scale) != (first.what, first.scale):
            raise AdjudgeError(f"{first.name} and {other.name} do not go together: measure them one by one")
    rows = tuple(row for one in sets for row in one.rows)
    seen: dict[str, str] = {}
    for row in rows:
        if earlier := seen.get(row.id):
            raise AdjudgeError(f'{row.place} has the id "{row.id[:40]}" of {earlier}: give each row one of its own')
        seen[row.id] = row.place
    return msgspec.structs.replace(
        first,
        name=" + ".join(dict.fromkeys(one.name for one in sets)),
        rows=rows,
        unrated=sum(one.unrated for one in sets),
    )


def turned(dataset: DataSet) -> DataSet:
    """Rated texts whose lowest score was the best, with their scores turned round: the worst is the lowest again."""
    ends = sum(dataset.scale)
    rows = (
        msgspec.structs.replace(
            row, scores={name: tuple(ends - score for score in scores) for name, scores in row.scores.items()}
        )
        for row in dataset.rows
    )
    return msgspec.structs.replace(dataset, rows=tuple(rows))


def checked(dataset: DataSet) -> DataSet:
    """The same; raises AdjudgeError naming the row with a score outside the scale, or a preference outside 0 to 1."""
    low, high = dataset.scale
    for row in dataset.rows if dataset.what == "items" else ():
        for name, scores in row.scores.items():
            for score in scores:
                if not low <= score <= high:
                    raise AdjudgeError(
                        f'{row.place}: "{name}" is {score:g}, outside the scale of {dataset.name}, {low:g} to {high:g}:'
                        " correct it, or give the scale with --scale"
                    )
    for row in dataset.rows if dataset.what == "pairs" else ():
        if not 0 <= row.preferred <= 1:
            raise AdjudgeError(f"{row.place}: the preference is {row.preferred:g}, outside 0 to 1: correct it")
    return dataset


def drawn(dataset: DataSet, limit: int | None, seed: int = 0) -> DataSet:
    """All rows of `limit` prompts, in their order in the file.

    Each prompt gets a number from the seed and itself, and the lowest win: the prompts of a smaller limit are among
    those of a larger one, and no other prompt matters.
    """
    prompts = dict.fromkeys(dataset.clusters)
    kept = set(sorted(prompts, key=lambda prompt: _lot(seed, prompt))[: len(prompts) if limit is None else limit])
    return msgspec.structs.replace(dataset, rows=tuple(row for row in dataset.rows if row.cluster in kept))


def judged_row(row: RatedText | RatedPair) -> dict[str, Any]:
    """A row as `adjudge judge` reads it; what people said stands beside it, and passes through to the verdicts."""
    said: dict[str, Any]
    own: Mapping[str, Any] = {}
    if isinstance(row, RatedText):
        item = row.item
        texts = {name: getattr(item, name) for name in ("id", "prompt", "response", "reference", "genre", "task")}
        own, columns = item.columns, texts
        columns |= {"checklist": row.checklist, "reviews": msgspec.to_builtins(item.reviews) or None}
        said = {"human": dict(row.scores), "system": row.system, "published": row.published}
    else:
        pair = row.pair
        columns = {"id": pair.id, "prompt": pair.prompt, "prompt_a": pair.prompt_a, "prompt_b": pair.prompt_b}
        columns |= {"story_a": pair.a, "story_b": pair.b, "reviews": msgspec.to_builtins(pair.reviews) or None}
        said = {"human": row.preferred, "group": row.group, "aspect": row.aspect}
    return {**own, **{name: value for name, value in {**columns, **said}.items() if value is not None and value != {}}}


def _lot(seed: int, prompt: str) -> bytes:
    return hashlib.blake2b(repr((seed, prompt)).encode("utf-8", "backslashreplace"), digest_size=16).digest()
