"""`adjudge rank` as a user meets it, in this process, with a tiny model of random weights."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal
from adjudge.rewards.records.row_files import read_rows
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.wire import gathered
from adjudge.training.evaluator.preference import preferences_of
from tests.engine.remote.peer import Peer, says
from tests.jsonl import read_lines, write_lines

Run = Callable[..., Result]

SHORT = ("--aspects", "coherence", "--orders", "ab", "--model", "dummy:tiny-llama")
STORIES = [f"Story {n}: the sea was {n}." for n in range(5)]
GROUPS = [
    {"id": "sea", "prompt": "Tell one.", "responses": [*STORIES, STORIES[0]], "reference": "A lamp.", "genre": "tale"},
    {"id": "\x1b[2J[red]", "prompt": "Another.", "responses": STORIES[:3]},
    {"prompt": "Alone.", "responses": ["<ANSWER> 5 </ANSWER>"]},
]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "g.jsonl", *GROUPS)
    return lambda *arguments: CliRunner().invoke(app, ["rank", *arguments])


@pytest.mark.parametrize("rows", [[GROUPS[2]], [{"prompt": "p", "response": "r"}] * 2])
def test_a_file_of_nothing_to_compare_is_refused_before_the_model_is_opened(
    run: Run, tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    write_lines(tmp_path / "alone.jsonl", *rows)
    error = run("alone.jsonl", "--model", str(tmp_path / "none")).exception
    assert str(error).startswith("alone.jsonl: no prompt that was read has two different texts to compare: give one")
    assert not Path("alone.ranks.jsonl").exists()


def test_rank_writes_a_line_for_each_group_and_a_table(run: Run) -> None:
    result = run("g.jsonl", *SHORT)
    assert result.exit_code == 0, result.output
    sea, other, alone = read_lines("g.ranks.jsonl")
    assert [sea["id"], other["id"], alone["id"]] == ["sea", "\x1b[2J[red]", "3"]
    assert sea["genre"] == "tale" and "responses" not in sea and "reference" not in sea
    assert len(sea["outcomes"]) == 15 and len(other["outcomes"]) == 3  # type: ignore[arg-type]
    strengths = sea["strengths"]
    assert isinstance(strengths, list) and len(set(strengths)) == 5 and strengths[0] == strengths[5]
    assert sum({*strengths, sea["reference_strength"]}) == pytest.approx(0, abs=1e-9)
    assert other["preferences"] is None and alone["strengths"] == [0.0]
    assert "3 groups, 18 pairs" in result.stdout and "abstained on 0 of 18" in result.stdout
    assert "⟨U+001B⟩[2J[red]" in result.stdout


def test_another_run_that_is_gone_on_from_is_said(run: Run) -> None:
    assert run("g.jsonl", *SHORT).exit_code == 0
    assert run("g.jsonl", *SHORT, "--resume").stderr == ""
    other = run("g.jsonl", *SHORT, "--resume", "--ranking", "borda")
    assert "the run that this one goes on from had other options; adjudge replay g.ranks.jsonl.jour" in other.stderr


def test_ranks_say_who_is_first_and_equals_share_one(run: Run) -> None:
    assert run("g.jsonl", *SHORT).exit_code == 0
    sea, _, alone = read_lines("g.ranks.jsonl")
    strengths, ranks = sea["strengths"], sea["ranks"]
    assert isinstance(strengths, list) and isinstance(ranks, list) and alone["ranks"] == [1]
    assert ranks == [1 + sum(other > mine for other in strengths) for mine in strengths]
    assert ranks[0] == ranks[5] and len({*ranks}) == 5


def test_rows_of_one_response_each_are_gathered_by_their_prompt(run: Run) -> None:
    group = {**GROUPS[0], "id": "1"}
    rows = [
        {
            "prompt": group["prompt"],
            "response": text,
            "reference": group["reference"],
            "genre": "tale",
            "id": f"r{place}",
        }
        for place, text in enumerate(group["responses"])  # type: ignore[arg-type]
    ]
    other = {"prompt": "Alone.", "response": "One.", "id": "x"}
    write_lines("long.jsonl", *rows[:2], other, *rows[2:])
    write_lines("g.jsonl", group)
    assert run("g.jsonl", *SHORT).exit_code == 0
    result = run("long.jsonl", "-o", "long.ranks.jsonl", *SHORT)
    assert result.exit_code == 0, result.output
    [whole], [long, alone] = read_lines("g.ranks.jsonl"), read_lines("long.ranks.jsonl")
    assert long.pop("ids") == [f"r{place}" for place in range(6)]
    assert long == whole and (alone["id"], alone["ids"], alone["ranks"]) == ("x", ["x"], [1])
    assert run("long.jsonl", "-o", "one.jsonl", "--limit", "1", *SHORT).exit_code == 0
    assert [line["id"] for line in read_lines("one.jsonl")] == ["1"]


def test_rows_of_one_prompt_may_lack_its_reference_and_have_ids_of_their_own() -> None:
    rows = [
        {"id": 1.0, "ids": "mine", "reference": None},
        {"id": 2, "ids": "mine", "reference": ""},
        {"ids": "other"},
        {"id": "4", "reference": math.nan},
        {"id": "5", "reference": "R"},
    ]
    texts = {"prompt": "p", "response": "a"}
    [row] = gathered([Row(f"line {number}", {**texts, **columns}) for number, columns in enumerate(rows)])
    assert row.columns["reference"] == "R" and row.columns["ids"] == ["1", "2", None, "4", "5"]
    assert row.columns["input_ids"] == ["mine", "mine", "other", None, None] and "id" not in row.columns
    [row] = gathered([Row("line 1", {**texts, "id": "one"})] * 2)
    assert (row.columns["id"], row.columns["ids"], row.columns["reference"]) == ("one", ["one", "one"], None)


def test_the_best_and_the_worst_of_each_group_are_preferences_that_trainers_read(run: Run) -> None:
    result = run("g.jsonl", *SHORT, "--preferences", "p.jsonl")
    assert result.exit_code == 0, result.output
    assert "preferences: p.jsonl, of 2 of 3 groups; 1 left out, of no two strengths" in result.stdout
    for preference, line, group in zip(read_lines("p.jsonl"), read_lines("g.ranks.jsonl"), GROUPS, strict=False):
        strengths: list[float] = line["strengths"]  # type: ignore[assignment]
        responses: list[str] = group["responses"]  # type: ignore[assignment]
        best, worst = (responses[strengths.index(pick(strengths))] for pick in (max, min))
        assert preference == {
            "id": group["id"],
            "prompt": group["prompt"],
            "chosen": best,
            "rejected": worst,
            "margin": pytest.approx(max(strengths) - min(strengths)),
        }
    assert [one.chosen for one in preferences_of(read_rows(Path("p.jsonl")))] == [
        line["chosen"] for line in read_lines("p.jsonl")
    ]
    again = run("g.jsonl", *SHORT, "-o", "o.jsonl", "--preferences", "p.jsonl")
    assert "p.jsonl exists" in str(again.exception)
    assert "call it p.jsonl" in str(run("g.jsonl", *SHORT, "--preferences", "p.csv", "--resume").exception)
    kept = Path("p.jsonl").read_bytes()
    assert run("g.jsonl", *SHORT, "--preferences", "p.jsonl", "--resume").exit_code == 0
    assert Path("p.jsonl").read_bytes() == kept
    write_lines(Path("mine.jsonl"), {"chosen": 1})
    assert "mine.jsonl exists" in str(run("g.jsonl", *SHORT, "--preferences", "mine.jsonl", "--resume").exception)
    assert "- is no file" in str(run("g.jsonl", *SHORT, "--preferences", "-", "--resume").exception)


def test_pairing_ranking_and_budget_are_the_users(run: Run) -> None:
    assert run("g.jsonl", *SHORT, "--pairing", "uncertain", "--budget", "7", "--ranking", "borda").exit_code == 0
    sea, other, _ = read_lines("g.ranks.jsonl")
    assert len(sea["outcomes"]) == 7 and len(other["outcomes"]) == 3  # type: ignore[arg-type]
    assert sea["errors"] == [None] * 6 and all(0 < strength < 1 for strength in sea["strengths"])  # type: ignore[attr-defined]


def test_a_stopped_run_goes_on_from_its_journal_and_judges_no_pair_twice(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("g.jsonl", "-o", "r.jsonl", "--pairing", "uncertain", "--k", "3", *SHORT)
    put, left = Journal.put, iter(range(4))

    def stop_after_four(self: Journal, *what: Any) -> bytes:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return put(self, *what)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "put", stop_after_four)
        stopped = run(*options)
    assert stopped.exit_code == 130
    assert re.search(r" [1-4] of 12 comparisons are kept; run again with --resume", stopped.stderr)
    assert len(Journal("r.jsonl.journal")) == 4

    with pytest.raises(AdjudgeError, match="exists: --resume continues that run"):
        raise run(*options).exception  # type: ignore[misc]
    assert run(*options, "--resume").exit_code == 0
    assert len(Journal("r.jsonl.journal")) == 12
    ranked = read_lines("r.jsonl")
    again = run(*options, "--resume")
    assert "nothing was asked anew" in again.stdout and read_lines("r.jsonl") == ranked
    assert run("g.jsonl", "-o", "fresh.jsonl", *options[3:]).exit_code == 0
    assert read_lines("fresh.jsonl") == ranked


@pytest.mark.parametrize(
    ("group", "options", "message"),
    [
        ({"prompt": "p", "responses": []}, (), 'line 4 of g.jsonl: "responses" is empty'),
        ({"prompt": "p", "responses": "a"}, (), 'line 4 of g.jsonl: "responses" is "a", not a list'),
        ({"prompt": "p", "response": "a"}, (), 'line 4 of g.jsonl: "responses" is missing .or "response", one a row'),
        (
            GROUPS[0],
            ("--pairing", "uncertain", "--budget", "3"),
            "line 1 of g.jsonl: budget is 3: give at least 5",
        ),
        (GROUPS[0], ("--budget", "9"), 'budget goes with pairing "uncertain"'),
        (GROUPS[0], ("--pairing", "circular", "--k", "1"), "k is 1"),
        (GROUPS[0], ("--k", "3"), "--k is for pairings that leave pairs out"),
        (GROUPS[0], ("-o", "g.jsonl"), "both the groups and the output"),
    ],
)
def test_mistakes_are_named_before_the_model_is_loaded(
    run: Run, group: dict[str, object], options: tuple[str, ...], message: str
) -> None:
    write_lines("g.jsonl", *GROUPS, group)
    with pytest.raises(AdjudgeError, match=message):
        raise run("g.jsonl", "--model", "no such model", *options).exception  # type: ignore[misc]
    assert not Path("g.ranks.jsonl").exists()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"prompt": "p"},
            'line 2 of long.jsonl: "response" is missing .needed by a tournament, or "responses", a list',
        ),
        ({"prompt": "p", "response": 5}, 'line 2 of long.jsonl: "response" is 5, not a string'),
        ({"response": "b"}, 'line 2 of long.jsonl: "prompt" is missing'),
        ({"prompt": "p", "response": "b", "reference": "s"}, "line 2 of long.jsonl: another reference than line 1"),
    ],
)
def test_mistakes_in_single_rows_are_named_with_their_lines(run: Run, row: dict[str, object], message: str) -> None:
    write_lines("long.jsonl", {"prompt": "p", "response": "a", "reference": "r"}, row)
    with pytest.raises(AdjudgeError, match=message):
        raise run("long.jsonl", "--model", "no such model").exception  # type: ignore[misc]


def test_a_tournament_is_a_judge_like_others(tmp_path: Path) -> None:
    row = {"prompt": "Tell one.", "responses": ["One lamp.", "Two lamps went out.", "Three."], "id": "g"}
    (tmp_path / "g.jsonl").write_text(json.dumps(row) + "\n")
    judged = ["judge", str(tmp_path / "g.jsonl"), "--judge", "tournament", "-o", str(tmp_path / "j.jsonl"), *SHORT]
    for command in (["rank", str(tmp_path / "g.jsonl"), *SHORT], judged):
        assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    ranked, same = ((tmp_path / name).read_bytes() for name in ("g.ranks.jsonl", "j.jsonl"))
    assert ranked == same and json.loads(ranked)["id"] == "g"
    for other in (("--rubric", "six"), ("--k", "3")):
        with pytest.raises(AdjudgeError, match=f"{other[0]} is for --judge"):
            CliRunner().invoke(app, [*judged, *other], catch_exceptions=False)


OWN = """
from adjudge import OwnJudge, PersonalPairJudge, PointwisePairJudge
from adjudge.rewards.judges.judge import Judge
from adjudge.rewards.records.verdict import PairVerdict

class Mine(PointwisePairJudge):
    pass

class Longer(Judge):
    verdict_type = PairVerdict

    def __init__(self, engine, *, journal=None):
        super().__init__(journal)

    def key(self, pair):
        return pair.a + pair.b

    def _judge(self, pairs):
        for key, pair in pairs.items():
            yield PairVerdict("", 0.9 if len(pair.a) > len(pair.b) else 0.1, {}, None, False, "none", key)

class Reader(PersonalPairJudge):
    pass

class Single(OwnJudge):
    def questions(self, item):
        return []
"""


def test_a_judge_of_ones_own_ranks_and_is_not_imported_by_a_replay(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    Path("own_ranking.py").write_text(OWN)
    how = ("g.jsonl", *SHORT[:2], *SHORT[4:])
    assert run(*how, "--judge", "pointwise").exit_code == 0
    usual = Path("g.ranks.jsonl").read_bytes()
    result = run(*how, "--judge", "own_ranking:Mine", "-o", "mine.jsonl")
    assert result.exit_code == 0 and "own_ranking:Mine" in result.stdout, result.output
    assert Path("mine.jsonl").read_bytes() == usual
    write_lines("long.jsonl", {"prompt": "p", "responses": ["aa", "a", "aaa"]})
    assert run("long.jsonl", *SHORT[4:], "--judge", "own_ranking:Longer").exit_code == 0
    middle, least, most = read_lines("long.ranks.jsonl")[0]["strengths"]  # type: ignore[misc]
    assert least < middle < most
    Path("own_ranking.py").write_text("raise AssertionError('a journal may be a stranger's')")
    del sys.modules["own_ranking"]
    with pytest.raises(AdjudgeError, match="own_ranking:Mine is a judge of one's own, which a replay does not import"):
        CliRunner().invoke(app, ["replay", "mine.jsonl"], catch_exceptions=False)
    assert "own_ranking" not in sys.modules


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        (
            "own_unfit:Single",
            "Single judges single texts, and pairs are compared here: derive it from Pairwise",
        ),
        ("own_unfit:Reader", "a tournament has no reviews to give to a personal judge: choose another"),
        ("own_unfit:Absent", "own_unfit has no Absent"),
        ("rubric", '--judge is "rubric": choose pairwise, pointwise, or write package.module:name for one of your own'),
    ],
)
def test_a_judge_that_cannot_rank_is_refused_before_the_model_is_loaded(
    run: Run, monkeypatch: pytest.MonkeyPatch, judge: str, message: str
) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_unfit", raising=False)
    Path("own_unfit.py").write_text(OWN)
    with pytest.raises(AdjudgeError, match=message):
        raise run("g.jsonl", "--model", "no such model", "--judge", judge).exception  # type: ignore[misc]


def test_mode_and_seed_of_a_writing_judge_decide_its_keys(run: Run) -> None:
    keys = []
    write_lines("g.jsonl", *GROUPS[1:2])
    for how in ((), ("--mode", "reasoned"), ("--mode", "reasoned", "--seed", "1")):
        result = run("g.jsonl", *SHORT, "--overwrite", *(how and (*how, "--max-tokens", "2", "--attempts", "1")))
        assert result.exit_code == 0, result.output
        outcomes: Any = [outcome for line in read_lines("g.ranks.jsonl") for outcome in line["outcomes"]]  # type: ignore[attr-defined]
        keys.append({outcome["key"] for outcome in outcomes})
        assert {outcome["abstained"] for outcome in outcomes} == ({"unparsable"} if how else {None})
    assert not (keys[0] & keys[1] or keys[0] & keys[2] or keys[1] & keys[2])
    with pytest.raises(AdjudgeError, match="--samples is for judges that write"):
        raise run("g.jsonl", *SHORT, "--samples", "2", "--overwrite").exception  # type: ignore[misc]


def test_an_engine_behind_a_server_ranks_as_the_same_engine_here(run: Run) -> None:
    assert run("g.jsonl", *SHORT).exit_code == 0
    peer = Peer("adjudge", Engine("dummy:tiny-llama", kv_cache_gb=0.2))
    try:
        result = run("g.jsonl", *SHORT[:4], "--url", peer.url, "-o", "far.jsonl")
    finally:
        peer.close()
    assert result.exit_code == 0 and peer.bodies, result.output
    for near, far in zip(read_lines("g.ranks.jsonl"), read_lines("far.jsonl"), strict=True):
        assert near["strengths"] == far["strengths"]
    with pytest.raises(AdjudgeError, match="leave out --replicas, which it decides itself"):
        raise run("g.jsonl", "--url", peer.url, "--replicas", "2").exception  # type: ignore[misc]


def test_a_damaged_journal_costs_no_rankings_that_there_are(run: Run) -> None:
    assert run("g.jsonl", *SHORT).exit_code == 0
    rankings, journal = Path("g.ranks.jsonl").read_bytes(), Path("g.ranks.jsonl.journal")
    with closing(sqlite3.connect(journal)) as db:
        [root] = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'runs'").fetchone()
        [size] = db.execute("PRAGMA page_size").fetchone()
    content = journal.read_bytes()
    journal.write_bytes(content[: (root - 1) * size] + b"\xff" * size + content[root * size :])
    with pytest.raises(AdjudgeError, match="g.ranks.jsonl.journal is damaged"):
        raise run("g.jsonl", *SHORT, "--resume").exception  # type: ignore[misc]
    assert Path("g.ranks.jsonl").read_bytes() == rankings


def test_a_run_without_any_answer_ends_with_an_error(run: Run) -> None:
    peer = Peer("adjudge", Engine("dummy:tiny-llama", kv_cache_gb=0.2))
    peer.script.extend([says(500)] * 99)
    try:
        result = run("g.jsonl", *SHORT[:4], "--url", peer.url, "--retries", "0")
    finally:
        peer.close()
    assert "abstained on 18 of 18" in result.output and "nothing was answered" in str(result.exception)
