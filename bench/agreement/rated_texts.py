"""Public files of single texts with scores: HANNA, OpenMEVA, StoryER, Per-MPST, HoWToBench, WritingBench, our own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from adjudge.bench.agreement.dataset import OVERALL, SAID, RatedText
from adjudge.bench.agreement.reading import given_number, numbers_of, rating_of
from adjudge.bench.personal.perse import read_rated
from adjudge.bench.tree.howtobench import TABLE_4, items_of
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.rows import Row, lines_of
from adjudge.rewards.records.verdict import Item
from adjudge.rewards.records.wire import item_of

HANNA_CRITERIA = ("relevance", "coherence", "empathy", "surprise", "engagement", "complexity")

IDS = ("id", "story_id", "doc")
"""Columns that name a row, of which the first counts."""

STORYER_ASPECTS = (
    "beginning",
    "middle",
    "ending",
    "character development",
    "scene description",
    "heartwarming",
    "sadness",
    "horror",
    "humour",
    "idea",
)
"""By their numbers, from 1; ours are the names, after what raters wrote about each. The fourth is the judge's aspect of
that name, and the third."""


def hanna_table(rows: Sequence[Row], path: Path) -> Iterator[RatedText]:
    """HANNA's annotations: a row for each rater of a story."""
    raters: dict[str, list[Row]] = {}
    for row in rows:
        raters.setdefault(str(row.columns["Story ID"]), []).append(row)
    for name, rated in raters.items():
        first = rated[0]
        for row in rated:
            for column in ("Prompt", "Story", "Model"):
                if row.columns.get(column) != first.columns.get(column):
                    raise AdjudgeError(
                        f'{row.place}: story {name[:40]} has another "{column}" than in {first.place}:'
                        " number the stories anew"
                    )
        prompt, story = (lines_of(first.text(column, "HANNA")) for column in ("Prompt", "Story"))
        scores = {
            criterion: tuple(given_number(row, criterion.capitalize()) for row in rated) for criterion in HANNA_CRITERIA
        }
        system = first.optional_text("Model", "HANNA")
        yield RatedText(Item(prompt, story, f"hanna {name}"), scores, prompt, first.place, system)


def ratings(rows: Sequence[Row], path: Path) -> Iterator[RatedText]:
    """Stories with `ratings`, an object of aspects with one number or a list of raters' (HANNA as JSONL)."""
    for number, row in enumerate(rows, 1):
        given = row.columns["ratings"]
        if not isinstance(given, dict) or not given:
            raise AdjudgeError(f'{row.place}: "ratings" is not an object of aspects: write {{"Coherence": [4, 5, 3]}}')
        scores = {str(name).lower(): numbers_of(row, f"ratings.{name}", value) for name, value in given.items()}
        item = Item(row.text("prompt", "a rated story"), row.text("story", "a rated story"), _id(row, number))
        yield RatedText(item, scores, item.prompt, row.place, _system(row))


def openmeva(rows: Sequence[Row], path: Path) -> Iterator[RatedText]:
    """OpenMEVA's MANS: for each prompt the stories of several systems, five scores each."""
    for row in rows:
        prompt, stories = row.text("prompt", "OpenMEVA"), row.columns["gen"]
        if not isinstance(stories, dict):
            raise AdjudgeError(f'{row.place}: "gen" is not an object of systems: give mans_roc.json or mans_wp.json')
        for system, story in stories.items():
            if not isinstance(story, dict) or not isinstance(story.get("text"), str):
                raise AdjudgeError(f'{row.place}: "gen.{system}.text" is missing: give mans_roc.json or mans_wp.json')
            scores = numbers_of(row, f"gen.{system}.score", story.get("score", []))
            item = Item(prompt, story["text"], f"{row.columns.get('key', row.place)}/{system}")
            yield RatedText(item, {OVERALL: scores}, prompt, row.place, system)


def openmeva_lines(rows: Sequence[Row], path: Path) -> Iterator[RatedText]:
    """The same as lines: `prompt`, `story`, `human` (one number or several), optionally `doc` and `system`."""
    for number, row in enumerate(rows, 1):
        item = Item(row.text("prompt", "OpenMEVA"), row.text("story", "OpenMEVA"), _id(row, number))
        yield RatedText(
            item, {OVERALL: numbers_of(row, "human", row.columns["human"])}, item.prompt, row.place, _system(row)
        )


def storyer(rows: Sequence[Row], path: Path) -> Iterator[RatedText]:
    """StoryER's ratings: `comments` of an aspect's number (-1 where there is none), its score, and why.

    Their `score` is how many readers voted for the story, and is not read. Stories that nobody rated are left out.
    """
    for number, row in enumerate(rows, 1):
        given: dict[str, list[float]] = {}
        comments = row.columns["comments"]
        if not isinstance(comments, list):
            raise AdjudgeError(f'{row.place}: "comments" is {str(comments)[:40]}, not a list')
        for comment in comments:
            if not isinstance(comment, list) or len(comment) < 2:
                raise AdjudgeError(f"{row.place}: a comment is {str(comment)[:40]}, not [aspect, score, words]")
            aspect, score = (given_number(row, "comments", value) for value in comment[:2])
            if aspect == -1:
                continue
            if aspect not in range(1, len(STORYER_ASPECTS) + 1):
                raise AdjudgeError(
                    f"{row.place}: a comment is on aspect {aspect:g}: StoryER has 1 to 10, and -1 for none"
                )
            given.setdefault(STORYER_ASPECTS[int(aspect) - 1], []).append(score)
        prompt, story = (lines_of(row.text(name, "StoryER")) for name in ("prompt", "story"))
        if given:
            scores = {name: tuple(values) for name, values in given.items()}
            yield RatedText(Item(prompt, story, _id(row, number)), scores, prompt, row.place)


def per_mpst(rows: Sequence[Row], path: Path) -> Iterator[RatedText]:
    """Per-MPST: the last of a reader's reviews is to be foreseen; readers are drawn whole."""
    for row, rated in zip(rows, read_rated(rows), strict=True):
        yield RatedText(rated.item, {OVERALL: (rated.score,)}, rated.reviewer, row.place)


def howtobench(rows: Sequence[Row], path: Path, characters: int | None = None) -> Iterator[RatedText]:
    """HoWToBench: what ten systems wrote; people's word is on systems, the paper's Table 4."""
    for number, columns in enumerate(items_of(rows, characters=characters), 1):
        place = f"output {number} of {path.name}"
        item = item_of(Row(place, columns), number, ("genre", "task"))
        published = TABLE_4.get(columns["task"], {}).get(columns["system"])
        yield RatedText(item, {}, columns["instruction"], place, columns["system"], published)


def writingbench(rows: Sequence[Row], path: Path) -> Iterator[RatedText]:
    """WritingBench: requests with their checklists, and responses by `index`, in the same rows or in rows of their own.

    A response's `score` (1 to 10, people's) may be absent; then the texts are judged and agree with nobody.
    """
    requests: dict[str, Row] = {}
    for row in rows:
        if "query" in row.columns:
            if row.columns.get("index") is None:
                raise AdjudgeError(f'{row.place}: "index" is missing, by which a request and its responses go together')
            known = requests.setdefault(str(row.columns["index"]), row)
            if known.columns["query"] != row.columns["query"]:
                raise AdjudgeError(f"{row.place}: its index {row.columns['index']} is that of {known.place} too")
    responses = [row for row in rows if "response" in row.columns]
    if not responses:
        raise AdjudgeError(
            f'{path.name} has requests and no responses: name a file with "index" and "response" beside it'
        )
    for number, row in enumerate(responses, 1):
        request = requests.get(str(row.columns.get("index")))
        if request is None:
            raise AdjudgeError(f"{row.place}: no request has the index {row.columns.get('index')}: name its file too")
        item = Item(request.text("query", "WritingBench"), row.text("response", "WritingBench"), _id(row, number))
        given = row.columns.get("score")
        scores: Mapping[str, tuple[float, ...]] = {} if given is None else {OVERALL: numbers_of(row, "score", given)}
        checklist = request.columns.get("checklist")
        yield RatedText(item, scores, item.prompt, row.place, _system(row), checklist=checklist)


def labelled(rows: Sequence[Row], path: Path) -> Iterator[RatedText]:
    """Texts that are good (1) or not (0): `prompt` or `query`, `response`, `label`. Those without one are left out."""
    for number, row in enumerate(rows, 1):
        if rating_of(row, "label") is None:
            continue
        prompt = row.text("query" if "query" in row.columns else "prompt", "a labelled text")
        response = row.text("response", "a labelled text")
        item = Item(prompt, response, _id(row, number), columns=_further(row))
        yield RatedText(item, {OVERALL: (given_number(row, "label"),)}, prompt or row.place, row.place)


def scored(rows: Sequence[Row], path: Path) -> Iterator[RatedText]:
    """Lines as `adjudge judge` reads them, with `scores`: a number, raters' numbers, or an object of them by aspect.

    Those without a prompt are drawn one by one, and those that nobody rated left out.
    """
    for number, row in enumerate(rows, 1):
        given = rating_of(row, "scores")
        if given is None:
            continue
        if given == {}:
            raise AdjudgeError(f'{row.place}: "scores" is an empty object: every row needs its score')
        by_aspect = cast("Mapping[str, Any]", given if isinstance(given, dict) else {OVERALL: given})
        scores = {str(name).lower(): numbers_of(row, f"scores.{name}", value) for name, value in by_aspect.items()}
        item = item_of(row, number, ("genre", "task"))
        cluster = _first(row, "cluster") or item.prompt or row.place
        checklist = row.columns.get("checklist")
        item = msgspec.structs.replace(item, id=_id(row, number), columns=_further(row))
        yield RatedText(item, scores, cluster, row.place, _system(row), checklist=checklist)


def _further(row: Row) -> dict[str, Any]:
    """The columns of a file of one's own, which a judge of one's own may read, but for what people said."""
    return {name: value for name, value in row.columns.items() if name not in SAID}


def _id(row: Row, number: int) -> str:
    """The row's own name where it has one; texts of several systems share one."""
    named = _first(row, *IDS)
    system = _system(row)
    return str(number) if named is None else named if system is None else f"{named}/{system}"


def _system(row: Row) -> str | None:
    return _first(row, "system", "model")


def _first(row: Row, *names: str) -> str | None:
    return next((str(row.columns[name]) for name in names if row.columns.get(name) not in (None, "")), None)
