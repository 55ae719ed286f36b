"""What a field takes that takes one of a few words, and which field is meant, for the mistakes that msgspec finds."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

_INVALID = re.compile(r"Invalid (?:enum )?value .*?(?: - at `\$(?P<place>.*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*?)`(?: - at `\$(?P<place>.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[[^\]]*\]")


def choices_of(error: msgspec.ValidationError, kind: Any) -> str:
    """Which words there are, as ": choose a, b, c", where the mistake in a `kind` is another one; else ""."""
    found = _INVALID.fullmatch(str(error))
    if found is None:
        return ""
    words = [word for part in _hinted(kind, found["place"]) for word in _words(part)]
    return f": choose {', '.join(dict.fromkeys(words))}" if words else ""


def field_meant(error: msgspec.ValidationError, kind: Any) -> str | None:
    """The field of a `kind` that has nearly the name of one that it has not; None where there is none.

    Of several it is the nearest that begins alike. One that may only be null is not meant.
    """
    found = _UNKNOWN.fullmatch(str(error))
    if found is None:
        return None
    structs = [part for part in _hinted(kind, found["place"]) if _is_struct(part)]
    fields = [field for struct in structs for field in msgspec.structs.fields(struct)]
    near = difflib.get_close_matches(found["name"], [one.encode_name for one in fields if one.type is not NoneType])
    return max(near, key=lambda name: name[:3] == found["name"][:3], default=None)


def _hinted(kind: Any, place: str | None) -> list[Any]:
    """The types of what stands at a place in a `kind`."""
    hints = [kind]
    for step in _STEP.finditer(place or ""):
        hints = [inner for hint in hints for one in _parts(hint) for inner in _inside(one, step[1])]
    return [part for hint in hints for part in _parts(hint)]


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
    if _is_struct(hint):
        if name == hint.__struct_config__.tag_field:
            return [Literal[hint.__struct_config__.tag]]
        hints = get_type_hints(hint, include_extras=True)
        return [hints[field.name] for field in msgspec.structs.fields(hint) if field.encode_name == name]
    return []


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _words(hint: Any) -> list[str]:
    if hint is bool:
        return ["true", "false"]
    return [str(word) for word in get_args(hint)] if get_origin(hint) is Literal else []
