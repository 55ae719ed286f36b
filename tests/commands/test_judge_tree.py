"""`adjudge judge --judge tree` as a user meets it, in this process, with a tiny model of random weights."""

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
from adjudge.rewards.judges.kinds import prepare
from adjudge.rewards.judges.tree import TreeJudge
from adjudge.rewards.judges.tree_nodes import CONTENT, TREE
from tests.jsonl import read_lines, write_lines

Run = Callable[..., Result]

ROWS: list[dict[str, Any]] = [
    {"id": "full", "prompt": "Write it.", "response": "# A\n\n- b", "reference": "A lamp.", "genre": "speech"},
    {"prompt": "Write it.", "response": "It rained.", "task": "completion", "system": "gpt"},
    {"prompt": "Write it.", "response": "It rained.", "reference": "", "genre": "诗歌", "task": "open"},
]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    write_rows(ROWS)
    arguments = ["--judge", "tree", "--model", "dummy:tiny-llama", "--min-mass", "0"]
    return lambda *more: CliRunner().invoke(app, ["judge", "t.jsonl", *arguments, *more])


def write_rows(rows: list[dict[str, Any]]) -> None:
    write_lines("t.jsonl", *rows)


def lines() -> list[dict[str, Any]]:
    return read_lines("t.verdicts.jsonl")


def test_each_row_gets_the_leaves_of_its_task_and_genre(run: Run) -> None:
    result = run()
    assert result.exit_code == 0, result.output
    full, completion, poem = lines()
    assert list(full["breakdown"]) == ["content", *TREE["content"], "format", *TREE["format"], "impression"]
    assert full["breakdown"]["format/formatting"]["score"] == 10.0 and full["genre"] == "speech"
    assert not any(name.startswith("format") for name in completion["breakdown"])
    assert (completion["system"], completion["task"], completion["id"]) == ("gpt", "completion", "2")
    assert "format/formatting" not in poem["breakdown"] and "reference" not in poem
    assert all(isinstance(line["score"], float) and line["abstained"] is None for line in lines())
    assert "3 items" in result.stdout and "abstained on 0 of 3" in result.stdout


def test_form_language_and_what_is_left_out_are_the_users(run: Run) -> None:
    result = run("--form", "parity", "--without", "content, formatting", "--language", "zh", "--layout", "paper")
    assert result.exit_code == 0, result.output
    full, completion, poem = lines()
    assert list(full["breakdown"]) == ["format", "format/plots & structure", "format/paragraphing", "impression"]
    parts = full["breakdown"]
    assert full["score"] == pytest.approx((3 * parts["format"]["score"] + parts["impression"]["score"]) / 4)
    assert list(completion["breakdown"]) == ["impression"] and len(poem["breakdown"]) == 4


def test_a_resumed_run_judges_nothing_twice(run: Run) -> None:
    assert run("--without", "content").exit_code == 0
    first = lines()
    assert run("--without", "content").exception is not None  # it would overwrite
    result = run("--without", "content", "--resume")
    assert "3 items remembered" in result.stdout and lines() == first


def test_a_tree_with_nothing_to_ask_ends_with_an_error_that_promises_nothing_of_a_server(run: Run) -> None:
    write_rows(ROWS[1:2])
    result = run("--without", "content,impression")
    assert "1 unsupported" in result.output and isinstance(result.exception, AdjudgeError)
    assert "there was nothing to ask" in str(result.exception) and "once the server" not in str(result.exception)


@pytest.mark.parametrize(
    ("more", "row", "reason"),
    [
        ((), {"task": "essay"}, 'line 4 of t.jsonl: "task" is "essay": write completion or guide or open'),
        ((), {"genre": 7}, 'line 4 of t.jsonl: "genre" is 7, not a string'),
        (("--without", "plot"), {}, 'no "plot" to leave out'),
        (("--language", "xx"), {}, "choose from en, zh"),
    ],
)
def test_mistakes_are_one_sentence(run: Run, more: tuple[str, ...], row: dict[str, Any], reason: str) -> None:
    write_rows([*ROWS, ROWS[0] | row])
    result = run(*more)
    assert isinstance(result.exception, AdjudgeError) and reason in str(result.exception)


def test_other_judges_do_not_mind_a_task_of_their_own(run: Run) -> None:
    write_rows([ROWS[0] | {"task": "summarise", "genre": 7}])
    arguments = ["--judge", "pointwise", "--aspects", "empathy", "--model", "dummy:tiny-llama"]
    result = CliRunner().invoke(app, ["judge", "t.jsonl", *arguments])
    assert result.exit_code == 0, result.output


def test_weights_are_named_as_words_or_numbers(tmp_path: Path) -> None:
    engine = Engine("dummy:tiny-llama", kv_cache_gb=0.05)
    numbers = ",".join(f"{name}=2" for name in CONTENT)
    with Journal(tmp_path / "j") as journal:
        judge = prepare("tree", {"weights": numbers})(engine, journal)
        assert isinstance(judge, TreeJudge) and judge.weights == dict.fromkeys(TREE["content"], 2.0)
        judge = prepare("tree", {"weights": "generated", "seed": 3, "attempts": 7})(engine, journal)
        assert isinstance(judge, TreeJudge) and (judge.weighing.seed, judge.weighing.attempts) == (3, 7)
        both = {"weights": "generated", "mode": "reasoned", "max_tokens": 9, "samples": 2, "seed": 3}
        judge = prepare("tree", both)(engine, journal)
        assert isinstance(judge, TreeJudge) and judge.asking.content is not None and judge.asking.content["seed"] == 3
    with pytest.raises(AdjudgeError, match="--seed is for judges that write"):
        prepare("tree", {"seed": 3})
    with pytest.raises(AdjudgeError, match="weights hold"):
        prepare("tree", {"weights": "some"})
