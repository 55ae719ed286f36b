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


EACH = f"""
import importlib
for command in {COMMANDS!r}:
    for name in [name for name in sys.modules if name.startswith("adjudge")]:
        del sys.modules[name]  # each is the first that is imported
    importlib.import_module(f"adjudge.commands.{{command}}")
    assert "torch" not in sys.modules, command
"""


def test_what_commands_check_before_they_open_a_model_loads_no_torch() -> None:
    assert len(COMMANDS) > 20 and "torch" not in loaded_after(EACH)


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


def test_what_is_loaded_is_seen() -> None:
    assert loaded_after("import numpy") == {"numpy"}


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
