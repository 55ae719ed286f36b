"""Options that several commands take together, and how a command takes them: as one parameter."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Group:
    """Options that are typed one by one, and reach a command as what `make` makes of them."""

    make: Callable[..., Any]


def with_groups(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command, or what makes a group, as typer reads it: parameters of a `Group` give way to the options of that."""
    parameters: list[inspect.Parameter] = []
    options: dict[str, tuple[Group, list[str]]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        marks = getattr(parameter.annotation, "__metadata__", ())
        group = next((mark for mark in marks if isinstance(mark, Group)), None)
        if group is None:
            parameters.append(parameter)
        else:
            own = inspect.signature(group.make, eval_str=True).parameters
            parameters += [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in own.values()]
            options[parameter.name] = (group, list(own))

    @functools.wraps(command)
    def typed(**given: Any) -> Any:
        made = {name: group.make(**{one: given.pop(one) for one in own}) for name, (group, own) in options.items()}
        return command(**given, **made)

    typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    typed.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return typed
