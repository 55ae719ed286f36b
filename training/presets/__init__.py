"""Recipes of the papers, to lay one's own over: what a paper does not give is ours, and marked so in the file."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

from adjudge.engine.errors import AdjudgeError


def preset_names() -> list[str]:
    """The presets there are."""
    return sorted(file.name.removesuffix(".toml") for file in files(__name__).iterdir() if file.name.endswith(".toml"))


def preset_text(name: str) -> str:
    """The file of a preset, comments and all; raises AdjudgeError for a name that is none."""
    if name not in (names := preset_names()):
        raise AdjudgeError(f'there is no preset "{name}": choose {", ".join(names)}')
    return (files(__name__) / f"{name}.toml").read_text("utf-8")


def preset_record(name: Any) -> dict[str, Any]:
    """What a preset says."""
    return tomllib.loads(preset_text(str(name)))


def preset_about(name: str) -> str:
    """What a preset is for: the first line of its file."""
    return preset_text(name).splitlines()[0].lstrip("# ")
