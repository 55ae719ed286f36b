"""What the other commands print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from adjudge.cli import app
from tests.cli.driving import SHORT, TINY, Run, write_pairs
from tests.jsonl import write_lines


def test_the_models_are_told(run: Run) -> None:
    assert "smollm2-135m" in run("models").stdout


def commands(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """The words of a command and what it is said to do, and of all under it."""
    yield path, command.help or ""
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, *path, name)


COMMANDS = dict(commands(typer.main.get_command(app)))


def test_commands_are_found_and_those_under_them() -> None:
    assert {(), ("judge",), ("bench", "policy"), ("prompts", "show"), ("train", "house")} <= {*COMMANDS}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_page_says_how_a_command_is_called_and_what_it_does(command: tuple[str, ...]) -> None:
    page = told(*command)
    assert page.startswith(" ".join(("Usage: adjudge", *command, "[OPTIONS]")))
    assert COMMANDS[command] and " ".join(COMMANDS[command].split()[:3]) in page


def test_the_name_of_a_file_does_not_act_on_the_terminal(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "\x1b[2Jp.jsonl"
    write_lines(path, *2 * [{"id": "one", "prompt": "P", "story_a": "", "story_b": "B"}])
    path.write_bytes(path.read_bytes().replace(b"B", b"\xff"))
    judged = run("judge", path.name, "--report", "\x1br.html", *SHORT)
    assert judged.returncode == 0 and "\x1b" not in judged.stdout + judged.stderr
    assert judged.stdout.count("⟨U+001B⟩") == 2 and judged.stderr.count("⟨U+001B⟩") == 4


def told(*command: str) -> str:
    """A help page in one line, without its lines and frames."""
    how: dict[str, Any] = {"env": {"COLUMNS": "100"}, "prog_name": "adjudge", "catch_exceptions": False}
    result = CliRunner().invoke(app, [*command, "--help"], **how)
    assert result.exit_code == 0
    return " ".join(result.stdout.replace("│", " ").split())


def test_help_says_what_holds_where_an_option_is_left_out() -> None:
    replay, show = told("replay"), told("prompts", "show")
    assert replay.count("default: the run's)") == 5 and "(0.01)" not in replay and "generated:" not in replay
    assert "Where no --judge is named" not in replay + show and "either asks for pairwise" in told("judge")
    assert "(default: hanna; of personal perse)" in show
    for command in (("readers", "group"), ("readers", "instruct"), ("bench", "personal-studies")):
        assert "(default: perse)" in told(*command)
    assert "(not ensemble)" in told("judge") and "(not ensemble)" not in told("rank")


def test_it_says_its_version_and_its_help_by_a_letter() -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["--version"]).stdout == f"adjudge {version('adjudge')}\n"
    assert "LLM judges as rewards" in runner.invoke(app, ["-h"]).stdout
    assert "--resume" in runner.invoke(app, ["judge", "-h"]).stdout


def test_what_an_encoding_has_not_is_a_question_mark(tmp_path: Path) -> None:
    """→ in prompts show."""
    command = [sys.executable, "-m", "adjudge", "prompts", "show", "pairwise"]
    found = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=False)
    assert found.returncode == 0 and found.stdout.decode("ascii")


def test_score_reads_free_prompts_and_labels(run: Run, tmp_path: Path) -> None:
    rows = '{"prompt": "Score: ", "n": 1}\n{"prompt": "Yes? ", "labels": ["Y", "N"], "best": "Y"}\n'
    (tmp_path / "p.jsonl").write_text(rows)
    result = run("score", "p.jsonl", "--labels", "1,2,10", *TINY)
    assert result.returncode == 0, result.stderr
    first, second = map(json.loads, result.stdout.splitlines())
    assert list(first["logprobs"]) == ["1", "2", "10"] and first["n"] == 1
    assert 1 < first["expected"] < 10 and 0 < first["mass"] < 1 and first["best"] in first["logprobs"]
    assert list(second["logprobs"]) == ["Y", "N"] and second["expected"] is None and second["input_best"] == "Y"
    alone = run("score", "--prompt", "Score: ", "--labels", "1,2,10", *TINY)
    assert json.loads(alone.stdout)["logprobs"] == first["logprobs"]
    chat = run("score", "--prompt", "Score: ", "--labels", "1,2,10", "--chat", *TINY)
    assert json.loads(chat.stdout)["logprobs"] != first["logprobs"]


@pytest.mark.parametrize(
    ("labels", "warning"), [("Yes, No", "begin with a blank"), ("Yes", "one label alone"), ("Yes,No", "less than 0.01")]
)
def test_score_warns_once_of_labels_that_are_not_meant(run: Run, tmp_path: Path, labels: str, warning: str) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "Score: "}\n' * 2)
    result = run("score", "p.jsonl", "--labels", labels, *TINY)
    assert result.returncode == 0 and len(result.stdout.splitlines()) == 2
    assert result.stderr.count(warning) == 1


def test_bench_judge_prints_every_variant_with_the_same_scores(run: Run, tmp_path: Path) -> None:
    write_pairs(tmp_path / "pairs.jsonl", 1)
    result = run("bench", "judge", "pairs.jsonl", "--limit", "1", "--repeats", "1", "-o", "b.csv", *TINY)
    assert result.returncode == 0, result.stderr
    assert "scores differ by more than 0.001: nowhere" in result.stdout
    absent = [line for line in result.stdout.splitlines() if ": not installed" in line]
    assert all("(pip install " in line for line in absent), absent
    rows = (tmp_path / "b.csv").read_text().splitlines()
    assert [row.split(",")[0].strip('"') for row in rows[1:]] == ["adjudge", *["transformers"] * 3]
