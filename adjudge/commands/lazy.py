"""Commands that are imported when they are called, so that a page of help which lists them imports none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand

from adjudge.commands.options.groups import with_groups

Function = TypeVar("Function", bound=Callable[..., Any])


class Commands(typer.Typer):
    """Commands under one name, whose parameters may be a `Group` of options."""

    def __init__(self, **how: Any) -> None:
        super().__init__(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown", **how)

    def command(self, name: str | None = None, **how: Any) -> Callable[[Function], Function]:
        """Add a function, which itself stays as it is."""

        def add(function: Function) -> Function:
            super(Commands, self).command(name, **how)(with_groups(function))
            return function

        return add

    def add_lazily(self, commands: Mapping[str, tuple[str, str]]) -> None:
        """Add commands by name: where each is ("module:attribute", below this package), and its help's first line."""
        for name, (place, summary) in commands.items():
            self.command(name, cls=_lazy(place), help=summary)(_nothing)


def load(name: str, place: str) -> Any:
    """The command, or the group of commands, at a place, as click has it."""
    module, _, attribute = place.partition(":")
    found = getattr(import_module(f"adjudge.commands.{module}"), attribute)
    root = Commands()
    if isinstance(found, typer.Typer):
        root.add_typer(found, name=name)
    else:
        root.command(name)(found)
    return typer.main.get_group(root).commands[name]


def _lazy(place: str) -> type[TyperCommand]:
    class Lazy(TyperCommand):
        """Stands in a list of commands for the one at `place`, which is what it makes a context of."""

        def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
            return load(self.name or "", place).make_context(info_name, args, parent, **extra)

    return Lazy


def _nothing() -> None: ...
