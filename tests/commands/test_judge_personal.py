"""`adjudge judge --judge personal` as a user meets it, in this process, with a tiny model of random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.aspects import PERSE
from adjudge.rewards.judges.kinds import KINDS, named, of_pairs, prepare, usual
from adjudge.rewards.judges.personal import PersonalJudge, PersonalPairJudge
from adjudge.rewards.records.rows import Row
from tests.jsonl import read_lines, write_lines

Run = Callable[..., Result]

REVIEWS = [{"plot": f"Old {n}.", "review": "Dull.", "score": n} for n in (3, 4, 9)]
CHOICES = [{"a": "Left.", "b": "Right.", "preferred": "b", "aspect": "ending"}]
ITEM = {"prompt": "", "response": "A lamp goes out.", "reviews": REVIEWS}
PAIR = {"prompt": "", "story_a": "A lamp goes out.", "story_b": "A lamp burns.", "reviews": CHOICES}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    command = ("judge", "r.jsonl", "-o", "v.jsonl", "--judge", "personal", "--model", "dummy:tiny-llama")
    return lambda *options: CliRunner().invoke(app, [*command, *options])


def written(*rows: dict[str, Any]) -> None:
    write_lines("r.jsonl", *rows)


def verdicts() -> list[dict[str, Any]]:
    return read_lines("v.jsonl")


def test_rows_with_a_response_are_rated_from_1_to_10(run: Run) -> None:
    silent = [{name: value for name, value in review.items() if name != "review"} for review in REVIEWS]
    written(ITEM, {**ITEM, "reviews": silent, "id": "x", "genre": "tale"})
    result = run("--min-mass", "0", "--without", "texts")
    assert result.exit_code == 0, result.output
    first, second = verdicts()
    assert first["score"] == second["score"] == first["breakdown"]["rating"]["score"] and 1 < first["score"] < 10
    assert (second["id"], second["genre"], "reviews" in second) == ("x", "tale", False)
    assert "2 items" in result.output and "rating" in result.output


def test_rows_with_two_stories_are_compared_on_perses_aspects_and_with_what_was_expected(run: Run) -> None:
    written({**PAIR, "expected": "a"}, {**PAIR, "expected": "b"})
    result = run("--min-mass", "0")
    assert result.exit_code == 0, result.output
    first, second = verdicts()
    assert list(first["aspects"]) == [aspect.name for aspect in PERSE]
    assert 0 < first["preference"] == second["preference"] < 1
    assert "agrees with the intended order on 1 of 2" in result.output.replace("\n", " ")


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([ITEM, {**ITEM, "reviews": []}], (), r'line 2 of r.jsonl: its reader has no "reviews"'),
        ([PAIR, {**PAIR, "reviews": None}], (), r'line 2 of r.jsonl: its reader has no "reviews"'),
        ([ITEM, PAIR], (), r'line 2 of r.jsonl: "response" is missing'),
        (
            [{**ITEM, "reviews": [{**REVIEWS[0], "score": 11}]}],
            (),
            r"line 1 of r.jsonl: review 1 has the score 11",
        ),
        ([{**ITEM, "reviews": "none"}], (), r'line 1 of r.jsonl: "reviews" cannot be read \(not JSON\)'),
        (
            [{**ITEM, "reviews": [{"plot": "p", "score": 3}]}],
            (),
            'line 1 .*review 1 has no "review"',
        ),
        ([ITEM], ("--without", "plots"), "can leave out is texts"),
    ],
)
def test_mistakes_are_found_before_a_model_is_opened(
    run: Run, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]], options: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr("adjudge.engine.engine.Engine.__init__", lambda *_, **__: pytest.fail("a model was opened"))
    written(*rows)
    result = run(*options)
    assert isinstance(result.exception, AdjudgeError)
    with pytest.raises(AdjudgeError, match=message):
        raise result.exception
    assert not Path("v.jsonl").exists()


def test_the_first_rows_columns_decide_which_judge_is_meant() -> None:
    rows = {"response": "personal", "story_a": "personal of pairs", "story_b": "personal of pairs"}
    assert {column: named("personal", [Row("line 1", {column: "x"})]) for column in rows} == rows
    assert named("rubric", [Row("line 1", {"story_a": "x"})]) == "rubric"


def test_house_reads_stories_one_at_a_time_unless_orders_are_asked_for() -> None:
    assert usual("house", {}) == "pointwise" and of_pairs("pointwise") in KINDS
    assert usual("house", {"orders": "both"}) == usual("smollm2-135m", {}) == usual(None, {}) == "pairwise"


def test_k_is_the_users_and_without_it_the_papers(tmp_path: Path) -> None:
    engine = Engine("dummy:tiny-llama", kv_cache_gb=0.05)
    with Journal(tmp_path / "j") as journal:
        for name, kind, usual in (("personal", PersonalJudge, 3), ("personal of pairs", PersonalPairJudge, 1)):
            for options, k in (({}, usual), ({"k": 0}, 0), ({"k": 5}, 5)):
                judge = prepare(name, options)(engine, journal)
                assert isinstance(judge, kind) and judge.k == k
    with pytest.raises(AdjudgeError, match="show 0 to 5"):
        prepare("personal", {"k": 6})
    unread = [Row("line 1", {"prompt": "", "response": "x"})]
    assert KINDS["personal"].subjects(unread, {"k": 0})[0].reviews == ()


def test_an_aspect_by_name_means_what_perse_means_by_it(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        opened = prepare("personal of pairs", {"aspects": "ending,coherence"})
        judge = opened(Engine("dummy:tiny-llama", kv_cache_gb=0.05), journal)
    assert isinstance(judge, PersonalPairJudge)
    assert judge.aspects[0] == PERSE[-1] and judge.aspects[1].name == "coherence"
