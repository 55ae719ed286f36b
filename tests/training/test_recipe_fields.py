from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.inspect import StructType, type_info
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.errors import AdjudgeError
from adjudge.training.recipe import laid_over
from adjudge.training.recipe_fields import field_lines
from adjudge.training.recipe_kinds import KINDS, recipe_kind

WITHOUT_DEFAULT: dict[str, dict[str, Any]] = {
    "grpo": {"data": {"prompts": ["p"]}, "reward": {"parts": {"end": {"kind": "check"}}}},
    "sft": {"data": {"train": "rows.jsonl"}},
    "direct": {"scores": {"column": "ratings"}},
    "reward": {},
    "house": {"sources": [{"path": "p", "licence": "MIT", "attribution": "a"}]},
}
"""What no recipe of a kind can do without, besides its output."""


def structs(value: Any) -> Iterator[StructType]:
    """All structs that a type leads to, itself among them."""
    if isinstance(value, StructType):
        yield value
    if isinstance(value, tuple | list):
        for one in value:
            yield from structs(one)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from structs(getattr(value, name))


def printed(command: str) -> str:
    return "\n".join(field_lines(recipe_kind(command)))


@pytest.mark.parametrize("command", KINDS)
def test_every_field_and_docstring_of_every_struct_is_printed(command: str) -> None:
    text = printed(command)
    words = " ".join(text.replace("\n# ", " ").split())
    found = list(structs(type_info(recipe_kind(command))))
    assert len(found) > 5
    for info in found:
        said = " ".join((info.cls.__doc__ or "").split()).removesuffix(".")
        assert said in words, info.cls
        for field in info.fields:
            name = re.escape(field.name)
            assert re.search(rf"^#?(?:{name} = |\[+(?:[\w.]+\.)?{name}(?:\.NAME)?\])", text, re.MULTILINE), field
        if info.tag is not None:
            assert f'#kind = "{info.tag}"' in text


@pytest.mark.parametrize("command", KINDS)
def test_what_is_not_commented_out_is_what_holds_where_nothing_is_said(command: str) -> None:
    told = tomllib.loads(printed(command))
    assert told["optimiser"]["warmup"] == 0 and told["seed"] == 0
    needed = {"output": "out", **WITHOUT_DEFAULT[command]}
    kind = recipe_kind(command)
    assert msgspec.convert(laid_over(told, needed), kind) == msgspec.convert(needed, kind)


def test_types_bounds_and_choices_are_told() -> None:
    lines = printed("grpo").splitlines()
    told = {line.split(" = ")[0]: line.partition("  # ")[2] for line in lines if " = " in line}
    assert told["lr"] == "number, above 0" and told["group"] == "whole number, 2 to 65,536"
    assert told["schedule"] == '"constant" or "cosine" or "linear"' and told["stop_on"].startswith(
        'list of "canary" or'
    )
    assert told["#output"] == "text; must be given" and told["liger"] == 'true or false or "auto"'
    assert "lr = 1e-6 " in printed("grpo") and max(map(len, lines)) < 150
    assert "#[reward.gates.NAME]  # of the kinds of [reward.parts.NAME]" in lines


def test_the_fields_of_judges_are_told_without_torch() -> None:
    told = "import sys; from adjudge.commands.train_recipes import train_fields; train_fields('direct')"
    code = f"{told}; sys.exit(bool({{'torch', 'transformers', 'trl', 'scipy'}} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_the_command_prints_them_plainly_in_a_pipe_and_names_the_kinds_there_are() -> None:
    result = CliRunner().invoke(app, ["train", "fields", "sft"], catch_exceptions=False)
    assert result.exit_code == 0 and result.output == printed("sft") + "\n"
    with pytest.raises(
        AdjudgeError, match='no recipes of adjudge train "curves": choose grpo, sft, direct, reward, house'
    ):
        CliRunner().invoke(app, ["train", "fields", "curves"], catch_exceptions=False)
