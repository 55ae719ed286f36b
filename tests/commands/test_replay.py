"""`adjudge replay` as a user meets it, in this process: verdicts from a journal, with no model in reach."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.commands.replay import replay
from adjudge.engine import engine as engine_module
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.tree_nodes import CONTENT, FORMAT
from tests.jsonl import read_lines, write_lines

Run = Callable[..., Result]

TINY = ("--model", "dummy:tiny-llama")
PAIRS = [
    {"id": f"p{n}", "prompt": "Tell one.", "story_a": f"Story {n}. " * (n + 1), "story_b": "Another.", "genre": "tale"}
    for n in range(4)
] + [{"prompt": "\ud800", "story_a": "", "story_b": "<|im_end|>\x00", "note": "hostile", "expected": "a"}]
ITEMS = [{"prompt": "Tell one.", "response": f"Story {n}.", "reference": "A.", "n": n} for n in range(3)]
GROUPS = [{"id": "sea", "prompt": "Tell one.", "responses": [f"Story {n}." for n in range(4)], "reference": "A lamp."}]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: Engine) -> Run:
    monkeypatch.chdir(tmp_path)
    for name, rows in (("pairs", PAIRS), ("items", ITEMS), ("groups", GROUPS)):
        write_lines(f"{name}.jsonl", *rows)

    def run(*arguments: str) -> Result:
        with monkeypatch.context() as patch:
            patch.setattr(engine_module, "Engine", no_model if arguments[0] == "replay" else lambda *_, **__: tiny)
            return CliRunner().invoke(app, arguments)

    return run


def no_model(*_: object, **__: object) -> None:
    raise AssertionError("a replay loads no model")


def done(result: Result) -> Result:
    assert result.exit_code == 0, result.output
    return result


def mistake(result: Result) -> str:
    assert isinstance(result.exception, AdjudgeError), result.output
    return str(result.exception)


WRITTEN = ("--mode", "reasoned", "--max-tokens", "2", "--attempts", "1")
RUNS = {
    "pairs": ("judge", "pairs.jsonl", "--aspects", "coherence,ending"),
    "items": ("judge", "items.jsonl", "--judge", "pointwise", "--aspects", "coherence"),
    "texts": ("judge", "items.jsonl", "--judge", "pointwise", "--mode", "reasoned", "--max-tokens", "4"),
    "rubric": ("judge", "items.jsonl", "--judge", "rubric", "--rubric", "six"),
    "reader": ("judge", "pairs.jsonl", "--judge", "personal", "--k", "0", "--aspects", "ending"),
    "groups": ("rank", "groups.jsonl", "--aspects", "coherence", "--pairing", "uncertain", "--k", "3"),
    "written groups": ("rank", "groups.jsonl", "--aspects", "coherence", "--orders", "ab", *WRITTEN, "--seed", "3"),
}


@pytest.mark.parametrize("kind", RUNS)
def test_a_replay_gives_the_same_lines_byte_for_byte(run: Run, kind: str) -> None:
    done(run(*RUNS[kind], "-o", "v.jsonl", *TINY))
    before = Path("v.jsonl").read_bytes()
    assert done(run("replay", "v.jsonl")).stdout_bytes == before
    assert done(run("replay", "v.jsonl.journal")).stdout_bytes == before
    shown = done(run("replay", "v.jsonl", "-o", "again.jsonl", "--report", "r.html")).stdout
    assert Path("again.jsonl").read_bytes() == before
    assert "nothing was asked anew" in shown and "length: " in shown and "<html" in Path("r.html").read_text()


def test_a_judge_of_ones_own_is_replayed_and_not_imported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    text = "from adjudge import PointwiseJudge\n\nclass Mine(PointwiseJudge):\n    pass\n"
    Path("own_replayed.py").write_text(text)
    done(run("judge", "items.jsonl", "-o", "v.jsonl", "--judge", "own_replayed:Mine", *TINY))
    Path("own_replayed.py").write_text("raise AssertionError('a journal may be a stranger's')")
    del sys.modules["own_replayed"]
    before = Path("v.jsonl").read_bytes()
    assert done(run("replay", "v.jsonl")).stdout_bytes == before
    assert "nothing was asked anew" in done(run("replay", "v.jsonl", "-o", "again.jsonl")).stdout
    told = mistake(run("replay", "v.jsonl", "--min-mass", "0"))
    assert "own_replayed:Mine is a judge of one's own, which a replay does not import: judge again" in told


def test_new_weights_and_one_order_give_what_a_new_run_gives(run: Run) -> None:
    done(run(*RUNS["pairs"], "-o", "v.jsonl", *TINY))
    how = ("--aspects", "ending*3,coherence*0.5", "--orders", "ab", "--min-mass", "0")
    rescored = done(run("replay", "v.jsonl", *how)).stdout_bytes
    done(run("judge", "pairs.jsonl", "-o", "fresh.jsonl", *how, *TINY))
    assert rescored == Path("fresh.jsonl").read_bytes() != Path("v.jsonl").read_bytes()
    assert "never asked in these words" in mistake(run("replay", "v.jsonl", "--aspects", "style"))
    assert "--scheme does not go with this run, of pairwise" in mistake(run("replay", "v.jsonl", "--scheme", "free"))


def test_a_runs_own_aspects_go_by_their_names(run: Run) -> None:
    own = "coherence,Wit*7=Is it funny, or at least light?"
    done(run("judge", "pairs.jsonl", "--aspects", own, "-o", "v.jsonl", *TINY))
    rescored = done(run("replay", "v.jsonl", "--aspects", "coherence*3,wit")).stdout_bytes
    how = ("--aspects", "coherence*3,Wit=Is it funny, or at least light?")
    done(run("judge", "pairs.jsonl", "-o", "fresh.jsonl", *how, *TINY))
    assert rescored == Path("fresh.jsonl").read_bytes() != Path("v.jsonl").read_bytes()


def test_a_rubric_with_new_weights_counts_old_grades_anew_and_the_old_file_need_not_be_there(run: Run) -> None:
    grade = ("--judge", "rubric", "--scheme", "free")
    for name, weight in (("old", 1), ("new", 5)):
        criteria = [("plot", "Does anything happen?", weight), ("words", "Is it well worded?", 2)]
        entries = [{"name": name, "text": text, "points": 4, "weight": weight} for name, text, weight in criteria]
        Path(f"{name}.json").write_text(json.dumps({"criteria": entries}))
        done(run("judge", "items.jsonl", "-o", f"{name}.jsonl", *grade, "--rubric", f"{name}.json", *TINY))
    Path("old.json").unlink()
    rescored = done(run("replay", "old.jsonl", "--rubric", "new.json")).stdout_bytes
    assert rescored == Path("new.jsonl").read_bytes() != Path("old.jsonl").read_bytes()
    assert done(run("replay", "old.jsonl")).stdout_bytes == Path("old.jsonl").read_bytes()


def test_a_tree_with_other_weights_counts_old_answers_anew(run: Run) -> None:
    weights = ",".join(f"{leaf}={number}" for number, leaf in enumerate((*CONTENT, *FORMAT), 1))
    tree = ("judge", "items.jsonl", "--judge", "tree", *TINY)
    done(run(*tree, "-o", "v.jsonl"))
    done(run(*tree, "-o", "fresh.jsonl", "--weights", weights))
    rescored = done(run("replay", "v.jsonl", "--weights", weights)).stdout_bytes
    assert rescored == Path("fresh.jsonl").read_bytes() != Path("v.jsonl").read_bytes()


def test_rankings_are_made_anew_from_the_pairs(run: Run) -> None:
    rank = ("rank", "groups.jsonl", "--aspects", "coherence,ending", *TINY)
    done(run(*rank, "-o", "v.jsonl"))
    done(run(*rank, "-o", "fresh.jsonl", "--ranking", "borda", "--aspects", "ending*2,coherence"))
    rescored = done(run("replay", "v.jsonl", "--ranking", "borda", "--aspects", "ending*2,coherence"))
    assert rescored.stdout_bytes == Path("fresh.jsonl").read_bytes()


def test_pairs_that_were_never_asked_are_not_put_down_to_a_stopped_run(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    done(run("rank", "groups.jsonl", "--aspects", "coherence", "--pairing", "circular", "--k", "2", *TINY))
    journal = Path("groups.ranks.jsonl.journal")
    for changes in ({"pairing": "all"}, {"k": 4}):
        with pytest.raises(SystemExit):
            replay(journal, changes=changes)
        told = capsys.readouterr().err
        assert "it holds none on pairs that these groups and this pairing ask" in told and "stopped" not in told


def test_old_texts_are_judged_again_by_another_judge_in_one_command(run: Run) -> None:
    done(run(*RUNS["items"], "-o", "v.jsonl", *TINY))
    Path("items.jsonl").unlink()
    again = ("judge", "v.jsonl.journal", "--judge", "pointwise", "--aspects", "wit=Is it witty?", *TINY)
    done(run(*again))
    verdicts = read_lines("v.jsonl.verdicts.jsonl")
    assert [(verdict["id"], verdict["n"], [*verdict["breakdown"]]) for verdict in verdicts] == [
        (str(n + 1), n, ["wit"]) for n in range(3)
    ]
    assert "both the items and the journal" in mistake(run(*again, "--journal", "v.jsonl.journal"))


def test_of_several_runs_the_latest_counts_unless_another_is_named(run: Run) -> None:
    for aspects in ("coherence", "ending"):
        done(run(*RUNS["items"][:-1], aspects, "-o", "v.jsonl", "--resume", *TINY))
    listed = done(run("replay", "v.jsonl", "--list")).stdout
    assert "aspects=coherence" in listed and "aspects=ending" in listed and "items.jsonl" in listed
    for options, aspect in (((), "ending"), (("--run", "1"), "coherence"), (("--run", "2"), "ending")):
        first = json.loads(done(run("replay", "v.jsonl", *options)).stdout.splitlines()[0])
        assert list(first["breakdown"]) == [aspect]
    assert "has no run 3, of 2" in mistake(run("replay", "v.jsonl", "--run", "3"))


def test_runs_are_listed_without_their_rows_being_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    done(run(*RUNS["items"], "-o", "v.jsonl", *TINY))
    read: list[str] = []
    content = Journal.content

    def counted(self: Journal, name: str) -> bytes:
        read.append(name)
        return content(self, name)

    monkeypatch.setattr(Journal, "content", counted)
    assert " 3 " in done(run("replay", "v.jsonl", "--list")).stdout and len(read) == 1


def test_a_run_that_was_stopped_gives_what_it_has_and_says_what_it_has_not(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, left = Journal.put, iter(range(3))

    def stop_after_three(self: Journal, *what: Any) -> bytes:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return put(self, *what)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "put", stop_after_three)
        assert run(*RUNS["pairs"], "-o", "v.jsonl", *TINY).exit_code == 130
    part = run("replay", "v.jsonl")
    assert part.exit_code == 1 and "2 of 5 rows have no verdict in the journal" in part.stderr
    assert "an answer of dummy:tiny-llama" not in part.stderr and len(part.stdout.splitlines()) == 3
    assert "3 pairs remembered" in run("replay", "v.jsonl", "-o", "part.jsonl").stdout
    done(run(*RUNS["pairs"], "-o", "v.jsonl", "--resume", *TINY))
    assert done(run("replay", "v.jsonl")).stdout.splitlines()[:3] == part.stdout.splitlines()


def test_a_field_that_the_verdict_type_does_not_know_is_never_left_out_in_silence(run: Run) -> None:
    done(run(*RUNS["items"], "-o", "v.jsonl", *TINY))
    with sqlite3.connect("v.jsonl.journal") as db:
        db.execute('UPDATE verdicts SET verdict = replace(verdict, \'{"id"\', \'{"vetoed":[],"id"\')')
    assert "verdicts with vetoed, which only the judge itself can read" in mistake(run("replay", "v.jsonl"))


def test_a_damaged_verdict_is_one_sentence(run: Run) -> None:
    done(run(*RUNS["items"], "-o", "v.jsonl", *TINY))
    with sqlite3.connect("v.jsonl.journal") as db:
        db.execute("UPDATE verdicts SET verdict = CAST('{' AS BLOB)")
    again = mistake(run("replay", "v.jsonl", "-o", "again.jsonl"))
    assert again.startswith("v.jsonl.journal is damaged") and again.endswith("): name another file")
    with sqlite3.connect("v.jsonl.journal") as db:
        db.execute("UPDATE runs SET run = CAST('{' AS BLOB)")
    for command in (("replay", "v.jsonl", "--list"), ("judge", "v.jsonl.journal", "-o", "w.jsonl", *TINY)):
        assert mistake(run(*command)).endswith("): name another file")


def test_what_cannot_be_replayed_is_one_sentence(run: Run) -> None:
    assert "pairs.jsonl is no journal, and there is none beside it" in mistake(run("replay", "pairs.jsonl"))
    with sqlite3.connect("old.journal") as db:
        db.execute("CREATE TABLE verdicts (key TEXT PRIMARY KEY, verdict BLOB NOT NULL, written REAL NOT NULL)")
    assert "no record of a run" in mistake(run("replay", "old.journal"))
    done(run(*RUNS["items"], "-o", "v.jsonl", *TINY))
    assert "leave out all options but" in mistake(run("replay", ".", "--run", "1"))
    assert "v.jsonl is both the run and the output" in mistake(run("replay", "v.jsonl", "-o", "v.jsonl"))
    assert "is both the output and the report" in mistake(run("replay", "v.jsonl", "-o", "x", "--report", "x"))
    rubric = ("replay", "v.jsonl", "--rubric", "r.toml")
    assert "r.toml is what is read" in mistake(run(*rubric, "--report", "r.toml", "--overwrite"))
    assert "is what is read" in mistake(run("replay", "v.jsonl", "-o", "v.jsonl.journal"))
