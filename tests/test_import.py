from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import adjudge

HEAVY = ("torch", "transformers", "numpy", "numba", "scipy", "triton")


def loaded_after(code: str) -> set[str]:
    """Which heavy packages a fresh interpreter has loaded after running `code`."""
    command = f"import sys\n{code}\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    result = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


@pytest.mark.parametrize("code", ["import adjudge", "import adjudge.cli", "from adjudge import AdjudgeError, Journal"])
def test_importing_the_face_loads_nothing_heavy(code: str) -> None:
    assert loaded_after(code) == set()


COMMANDS = sorted(path.stem for path in Path(adjudge.__file__).parent.glob("commands/[a-z]*.py"))


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_checks_before_it_opens_a_model_loads_no_torch(command: str) -> None:
    assert "torch" not in loaded_after(f"import adjudge.commands.{command}")


CALL = """
from typer.testing import CliRunner
from adjudge.cli import app
assert CliRunner().invoke(app, {words}, prog_name="adjudge").exit_code == 0
"""


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("bench", "--help"), ("train", "--help")], ids=" ".join)
def test_lists_of_commands_load_nothing_heavy_and_none_of_the_commands(words: tuple[str, ...]) -> None:
    none = "assert not {'adjudge.rewards', 'adjudge.training', 'adjudge.commands.judge'} & sys.modules.keys()"
    assert loaded_after(CALL.format(words=words) + none) == set()


@pytest.mark.parametrize("words", [("judge", "--help"), ("bench", "agreement", "--help")], ids=" ".join)
def test_the_help_of_a_command_loads_no_torch(words: tuple[str, ...]) -> None:
    assert not {"torch", "transformers"} & loaded_after(CALL.format(words=words))


def test_the_engine_loads_torch_when_it_is_named() -> None:
    assert "torch" in loaded_after("from adjudge import Engine")


def test_every_public_name_is_there() -> None:
    for name in adjudge.__all__:
        assert getattr(adjudge, name) is not None
    assert set(adjudge.__all__) <= set(dir(adjudge))
    with pytest.raises(AttributeError, match="no attribute 'Judge'"):
        _ = adjudge.Judge  # type: ignore[attr-defined]


def test_type_checkers_see_the_names_that_are_there() -> None:
    imports = [
        node for node in ast.walk(ast.parse(Path(adjudge.__file__).read_text())) if isinstance(node, ast.ImportFrom)
    ]
    seen = {name.asname: node.module for node in imports for name in node.names if name.asname}
    assert seen == adjudge._HOME_OF
