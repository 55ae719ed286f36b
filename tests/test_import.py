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


@pytest.mark.parametrize(
    "command", ["judge", "rank", "score", "replay", "prompts", "readers", "rubrics", "serve", "recipe_fields", "models"]
)
def test_what_a_command_checks_before_it_opens_a_model_loads_no_torch(command: str) -> None:
    assert "torch" not in loaded_after(f"import adjudge.commands.{command}")


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
