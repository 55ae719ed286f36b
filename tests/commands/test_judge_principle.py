"""`adjudge judge --judge principle` as a user meets it, in this process, with a tiny model of random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.errors import AdjudgeError
from tests.jsonl import read_lines, write_lines

Run = Callable[..., Result]

TINY = ("--model", "dummy:tiny-mistral", "--min-mass", "0")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": "贺词", "response": f"新年好 {n}", "label": n % 2, "id": f"g{n}"} for n in range(3)]
    write_lines("g.jsonl", *rows)
    return lambda *arguments: CliRunner().invoke(app, ["judge", "g.jsonl", "--judge", "principle", *arguments])


def lines(path: str = "g.verdicts.jsonl") -> list[dict[str, object]]:
    return read_lines(path)


def test_each_text_gets_the_probability_that_it_is_good(run: Run) -> None:
    result = run("--language", "zh", *TINY)
    assert result.exit_code == 0, result.output
    verdicts = lines()
    assert [verdict["id"] for verdict in verdicts] == ["g0", "g1", "g2"]
    assert [verdict["label"] for verdict in verdicts] == [0, 1, 0]
    for verdict in verdicts:
        part = verdict["breakdown"]["judge"]  # type: ignore[index]
        assert verdict["score"] == pytest.approx(part["distribution"][1]) and verdict["mass"] == part["mass"]
    assert "3 items" in result.stdout and "abstained on 0 of 3" in result.stdout


def test_principles_are_the_users(run: Run) -> None:
    Path("p.txt").write_text("Be kind.\n")
    assert run("--principles", "p.txt", "-o", "a.jsonl", *TINY).exit_code == 0
    assert run("-o", "b.jsonl", *TINY).exit_code == 0
    assert {line["key"] for line in lines("a.jsonl")}.isdisjoint(line["key"] for line in lines("b.jsonl"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--principles", "none.toml"), r"cannot read none\.toml"),
        (("--principles", "empty.txt"), r"empty\.txt: no principles"),
    ],
)
def test_mistakes_are_found_before_a_model_is_looked_for(run: Run, options: tuple[str, ...], reason: str) -> None:
    Path("empty.txt").write_text("")
    result = run(*options, "--model", "no/such-model")
    assert isinstance(result.exception, AdjudgeError)
    with pytest.raises(AdjudgeError, match=reason):
        raise result.exception
