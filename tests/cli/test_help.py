"""What the command line says of itself: its help pages, its version, its models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from adjudge.cli import app
from tests.cli.driving import Run, loaded


def told(*command: str) -> str:
    """A help page in one line, without its lines and frames."""
    how: dict[str, Any] = {"env": {"COLUMNS": "100"}, "prog_name": "adjudge", "catch_exceptions": False}
    result = CliRunner().invoke(app, [*command, "--help"], **how)
    assert result.exit_code == 0
    return " ".join(result.stdout.replace("│", " ").split())


def commands(listed: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command by its words, and all under it."""
    command = loaded(listed)
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        SUMMARIES[*path, name] = below.help
        yield from commands(below, *path, name)


SUMMARIES: dict[tuple[str, ...], str] = {}
"""What lists of commands say of each."""
COMMANDS = dict(commands(typer.main.get_command(app)))


def test_commands_are_found_and_those_under_them() -> None:
    assert {(), ("judge",), ("bench", "policy"), ("prompts", "show"), ("train", "house")} <= {*COMMANDS}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_page_says_how_a_command_is_called_and_what_it_does(command: tuple[str, ...]) -> None:
    page = told(*command)
    assert page.startswith(" ".join(("Usage: adjudge", *command, "[OPTIONS]")))
    help = COMMANDS[command].help
    assert help and " ".join(help.split()[:3]) in page


def test_no_placeholder_is_its_options_own_name_which_typer_0_27_takes_for_the_way_the_option_is_written() -> None:
    for command in COMMANDS.values():
        for option in command.params:
            assert option.param_type_name == "argument" or (option.metavar or "").lower() != option.name, option.name


def test_a_list_of_commands_says_of_each_what_its_own_page_begins_with() -> None:
    assert SUMMARIES.keys() == COMMANDS.keys() - {()}
    for path, summary in SUMMARIES.items():
        assert summary.split("\n\n")[0] == " ".join(COMMANDS[path].help.split("\n\n")[0].split()), path


def test_help_says_that_a_training_run_that_is_overwritten_takes_its_policy_along() -> None:
    for command in ("grpo", "sft", "direct", "reward", "house"):
        assert "its checkpoints and the trained policy" in told("train", command), command


def test_help_says_what_holds_where_an_option_is_left_out() -> None:
    replay, show = told("replay"), told("prompts", "show")
    assert replay.count("default: the run's)") == 5 and "(0.01)" not in replay and "generated:" not in replay
    assert "Where no --judge is named" not in replay + show and "either asks for pairwise" in told("judge")
    assert "(default: hanna; of personal perse)" in show
    for command in (("readers", "group"), ("readers", "instruct"), ("bench", "personal-studies")):
        assert "(default: perse)" in told(*command)
    assert "(not ensemble)" in told("judge") and "(not ensemble)" not in told("rank")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_help_of_an_option_names_no_option_that_its_command_has_not(command: tuple[str, ...]) -> None:
    parameters = COMMANDS[command].params
    own = {option for one in parameters for option in (*one.opts, *one.secondary_opts)}
    for one in parameters:
        said = re.sub(r"adjudge [^`.,;)]*", "", getattr(one, "help", None) or "")  # an option of another command
        assert set(re.findall(r"--[a-z][a-z-]+", said)) <= own, one.name


def test_it_says_its_version_and_its_help_by_a_letter() -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["--version"]).stdout == f"adjudge {version('adjudge')}\n"
    assert "LLM judges as rewards" in runner.invoke(app, ["-h"]).stdout
    assert "--resume" in runner.invoke(app, ["judge", "-h"]).stdout


def test_the_models_are_told(run: Run) -> None:
    assert "smollm2-135m" in run("models").stdout


@pytest.mark.parametrize("command", [("models",), ("prompts",), ("train", "presets")], ids=" ".join)
def test_a_table_in_a_pipe_is_not_cut_to_a_terminals_width(
    run: Run, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(*command).stdout
    monkeypatch.setenv("COLUMNS", "30")
    assert run(*command).stdout == whole and "…" not in whole
