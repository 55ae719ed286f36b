from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adjudge.bench.personal.perse import Rating, ratings, read_chosen, read_rated
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.row_files import read_rows
from adjudge.rewards.records.verdict import Comparison, Item, Pair, Review
from adjudge.training.readers.questions import ChoiceQuestion, RatingQuestion
from tests.jsonl import write_lines

DATA = Path(__file__).parents[3].parent / "shared/data/perse"


def example(n: int, score: int, reviewer: str = "ann") -> dict[str, Any]:
    named = {"reviewer_name": reviewer, "movie_id": f"m{n}", "movie_title": "T"}
    return {**named, "summ_plot": f"Plot {n}.", "clean_review": f"Words {n}.", "score": score}


def compared(*plots: tuple[str, str, str]) -> dict[str, Any]:
    """A row in Per-DOC's form: earlier pairs with their choice in the prompt, the last one's as its completion."""
    *earlier, (a, b, choice) = plots

    def shown(a: str, b: str) -> str:
        return f"[The Start of Plot A]\n{a}\n[The End of Plot A]\n[The Start of Plot B]\n{b}\n[The End of Plot B]\n"

    text = "".join(shown(a, b) + f'```json\n{{\n  "Choice": "Plot {old}",\n}}\n```\n' for a, b, old in earlier)
    text += shown(a, b) + 'Answer so: {"Choice": <"Plot A" or "Plot B">,}'
    return {"idx": 7, "review_id": "R1", "prompt": [text], "completion": f'{{"Choice": "Plot {choice}",}}'}


def test_the_last_example_of_a_row_is_to_be_foretold_from_the_others(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "PerMPST.k2.jsonl", {"examples": [example(1, 3), example(2, 8), example(3, 6)]})
    reviews = (Review("Plot 1.", "Words 1.", 3), Review("Plot 2.", "Words 2.", 8))
    item = Item("", "Plot 3.", id="1", reviews=reviews)
    assert read_rated(read_rows(path)) == [RatingQuestion(item, "ann", "", "Words 3.", 6)]


def test_what_is_known_before_leaves_out_what_any_row_is_to_foretell(tmp_path: Path) -> None:
    rows = [{"examples": [example(1, 3), example(2, 8)]}, {"examples": [example(2, 8), example(1, 3), example(4, 5)]}]
    other = {"examples": [example(2, 1, "bob"), example(9, 2, "bob")]}
    path = write_lines(tmp_path / "PerMPST.jsonl", *rows, other)
    assert ratings(read_rated(read_rows(path))) == [Rating("ann", "Plot 1.", 3), Rating("bob", "Plot 2.", 1)]


def test_choices_are_read_out_of_the_prompts_and_the_aspect_off_the_name(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "PerDOC.S.jsonl", compared(("old\na", "old b", "B"), ("a", "b", "A")))
    pair = Pair("a", "b", id="1", reviews=(Comparison("old\na", "old b", "b", "surprise"),))
    assert read_chosen(read_rows(path), path) == [ChoiceQuestion(pair, "R1", "", "surprise", "a")]
    [row] = read_chosen(read_rows(path), path, "wit")
    assert (row.aspect, row.pair.reviews[0].aspect) == ("wit", "wit")


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "p"},
        {"examples": []},
        {"examples": [{**example(1, 3), "score": None}]},
        {"examples": "none"},
    ],
)
def test_a_line_that_is_not_of_per_mpst_is_named(tmp_path: Path, row: dict[str, Any]) -> None:
    path = write_lines(tmp_path / "x.jsonl", {"examples": [example(1, 3)]}, row)
    with pytest.raises(AdjudgeError, match=r'line 2 of x.jsonl: "examples" are not those of Per-MPST'):
        read_rated(read_rows(path))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"examples": []}, '"prompt" and "completion" are not'),
        ({**compared(("a", "b", "A")), "completion": "Plot A"}, "2 plots and 0 choices"),
        ({**compared(("a", "b", "A")), "prompt": "none"}, "0 plots and 1 choices"),
        (
            compared(("a", "b", "A"), ("c\n[The End of Plot A]\n[The Start of Plot A]\n", "d", "A")),
            "5 plots and 2 choices",
        ),
    ],
)
def test_a_line_that_is_not_of_per_doc_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    path = write_lines(tmp_path / "PerDOC.I.jsonl", compared(("a", "b", "A")), row)
    with pytest.raises(AdjudgeError, match=f"line 2 of PerDOC.I.jsonl.*{message}"):
        read_chosen(read_rows(path), path)


def test_a_name_that_tells_no_aspect_is_refused(tmp_path: Path) -> None:
    for name in ("PerDOC.X.jsonl", "pairs.jsonl"):
        file = write_lines(tmp_path / name, compared(("a", "b", "A")))
        with pytest.raises(AdjudgeError, match="does not name its aspect"):
            read_chosen(read_rows(file), file)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"PerSE's samples are not at {DATA}")
def test_the_published_samples_are_read_whole() -> None:
    rated = read_rated(read_rows(DATA / "PerMPST.k3.sample.jsonl"))
    assert len(rated) == 10 and all(len(row.item.reviews) == 3 and 1 <= row.score <= 10 for row in rated)
    for row, source in zip(rated, read_rows(DATA / "PerMPST.k3.sample.jsonl"), strict=True):
        assert f'"Score": {row.score:g}}}' in source.columns["completion"]
        assert source.columns["prompt"][0].rindex(row.item.response) > source.columns["prompt"][0].rindex("[Review]\n`")
    file = DATA / "PerDOC.I.sample.jsonl"
    chosen = read_chosen(read_rows(file), file)
    assert len(chosen) == 10 and {row.aspect for row in chosen} == {"interestingness"}
    assert sorted(row.preferred for row in chosen) == ["a"] * 2 + ["b"] * 8
    assert sorted(row.pair.reviews[0].preferred for row in chosen) == ["a"] * 2 + ["b"] * 8
    assert all(len(row.pair.reviews) == 1 and min(len(row.pair.a), len(row.pair.b)) > 1000 for row in chosen)
