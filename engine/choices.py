"""What a field takes that takes one of a few words, for the mistakes that msgspec finds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

_INVALID = re.compile(r"Invalid enum value .*?(?: - at `\$(?P<place>.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[[^\]]*\]")


def choices_of(error: msgspec.ValidationError, kind: Any) -> str:
    """Which words there are, as ": choose a, b, c", where the mistake in a `kind` is another one; else ""."""
    found = _INVALID.fullmatch(str(error))
    if found is None:
        return ""
    hints = [kind]
    for step in _STEP.finditer(found["place"] or ""):
        hints = [inner for hint in hints for one in _parts(hint) for inner in _inside(one, step[1])]
    words = [word for hint in hints for part in _parts(hint) for word in _words(part)]
    return f": choose {', '.join(dict.fromkeys(words))}" if words else ""


def _parts(hint: Any) -> Iterator[Any]:
    """A type, or those of a union, without their constraints."""
    origin = get_origin(hint)
    inner = get_args(hint)[:1] if origin is Annotated else get_args(hint) if origin in (Union, UnionType) else None
    if inner is None:
        yield hint
    for part in inner or ():
        yield from _parts(part)


def _inside(hint: Any, name: str | None) -> list[Any]:
    """What a struct has under a name, or what a list or a dict holds."""
    if name is None:
        return [part for part in get_args(hint) if part is not Ellipsis][-1:]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        hints = get_type_hints(hint, include_extras=True)
        return [hints[field.name] for field in msgspec.structs.fields(hint) if field.encode_name == name]
    return []


def _words(hint: Any) -> list[str]:
    if hint is bool:
        return ["true", "false"]
    return [str(word) for word in get_args(hint)] if get_origin(hint) is Literal else []
