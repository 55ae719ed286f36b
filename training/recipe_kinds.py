"""The kinds of recipes, each by the command of `adjudge train` that reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import msgspec

from adjudge.engine.errors import AdjudgeError

if TYPE_CHECKING:
    from adjudge.training.recipe import Recipe

KINDS = {
    "grpo": "adjudge.training.grpo.recipe:GrpoRecipe",
    "sft": "adjudge.training.sft_recipe:SftRecipe",
    "direct": "adjudge.training.evaluator.recipe:DirectRecipe",
    "reward": "adjudge.training.evaluator.recipe:PreferenceRecipe",
    "house": "adjudge.training.house.recipe:HouseRecipe",
}
"""Where each stands; one alone is imported, as that of grpo brings torch with it."""


def recipe_kind(command: str) -> type[Recipe]:
    """The recipes that a command reads."""
    kind: type[Recipe] = resolve_name(KINDS[command])
    return kind


def command_for(kind: type[Any]) -> str | None:
    """The command that reads these recipes; None where there is none."""
    own = f"{kind.__module__}:{kind.__qualname__}"
    return next((command for command, place in KINDS.items() if place == own), None)


def command_taking(record: Mapping[str, Any]) -> str | None:
    """The command whose recipes have all fields of a record, and lack none but for where rows and output are.

    Where there are several, that which takes what the fields say; None where it is not one.
    """
    names = [command for command in KINDS if _has_fields(recipe_kind(command), record)]
    if len(names) > 1:
        names = [command for command in names if _takes(recipe_kind(command), record)]
    return names[0] if len(names) == 1 else None


def _has_fields(kind: type[Recipe], record: Mapping[str, Any]) -> bool:
    fields = msgspec.structs.fields(kind)
    needed = {field.name for field in fields if field.required} - {"output", "data"}
    return needed <= record.keys() <= {field.name for field in fields}


def _takes(kind: type[Recipe], record: Mapping[str, Any]) -> bool:
    try:
        msgspec.convert({"output": "", **record}, kind)
    except (msgspec.ValidationError, AdjudgeError):
        return False
    return True
