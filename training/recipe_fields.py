"""What a recipe can say, read off its structs: every table with its docstring, every field with its type and default.

As TOML: what is uncommented is what holds where a recipe says nothing.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from textwrap import fill
from typing import Any

import msgspec
from msgspec import NODEFAULT
from msgspec.inspect import (
    AnyType,
    BoolType,
    DictType,
    Field,
    FloatType,
    IntType,
    LiteralType,
    NoneType,
    StrType,
    StructType,
    TupleType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

from adjudge.rewards.engines.engine_choice import EngineChoice
from adjudge.rewards.engines.specification import EngineSpec

ACROSS = 100
"""Columns of a docstring's lines."""
ASIDE = 32
"""Columns that a field has, to the left of what may stand in it."""
ONE = "NAME"
"""The name of a table of which there may be any number."""
RAISES = re.compile(r"Raises\s[^.]*\.")
"""What a docstring says to who calls from a program."""
ELSEWHERE: Mapping[type, type] = {EngineChoice: EngineSpec}
"""Structs whose fields another one's docstring explains."""


def field_lines(kind: type[msgspec.Struct]) -> Iterator[str]:
    """The lines of a recipe's fields, in TOML.

    What has no default, and tables that are not there by themselves, are commented out with # alone, text with "# ".
    """
    info = type_info(kind)
    assert isinstance(info, StructType)
    yield from _Listing().table(info, "", None, there=True)


class _Listing:
    """What is printed once is not printed again: the docstring of a base, and a table of the same fields."""

    def __init__(self) -> None:
        self._told: set[type] = set()
        self._places: dict[str, str] = {}

    def table(
        self, info: StructType, place: str, value: Any, *, there: bool, head: str = "[{}]", about: str = ""
    ) -> Iterator[str]:
        """A table and those in it; `value` is its default, and it is `there` unless it must be written to be."""
        off = "" if there else "#"
        if place:
            alike = f"{info.cls} {value}"
            known = self._places.get(alike)
            about = about if known is None else f"the fields of [{known}]"
            yield from ("", off + head.format(place) + f"  # {about}" * bool(about))
            if known is not None:
                return
            self._places[alike] = place
        yield from self._docs(info.cls)
        if info.tag is not None:
            yield f"#{info.tag_field} = {_toml(info.tag)}"
        for field in info.fields:
            if not _tables(field.type):
                yield off + _line(field, _default(field, value), there=there)
        for field in sorted(info.fields, key=lambda field: isinstance(field.type, DictType)):
            if _tables(field.type):
                yield from self._within(field, f"{place}.{field.name}".strip("."), _default(field, value), there=there)

    def _within(self, field: Field, place: str, value: Any, *, there: bool) -> Iterator[str]:
        """The tables that a field may hold: one, any number in a row, or any number by name."""
        kind, there = _plain(field.type), there and isinstance(value, msgspec.Struct)
        about = "must be given" if field.required else ""
        if isinstance(kind, DictType):
            place = f"{place}.{ONE}"
            if (first := self._places.setdefault(repr(kind), place)) != place:
                yield from ("", f"#[{place}]  # of the kinds of [{first}]")
                return
            about = "each by a name of its own, of one of these kinds"
        head = "[[{}]]" if isinstance(kind, VarTupleType) else "[{}]"
        for one in _tables(kind):
            yield from self.table(one, place, value if there else None, there=there, head=head, about=about)
            about = ""

    def _docs(self, cls: type) -> Iterator[str]:
        """The docstrings of a struct and of its bases, from the first of these on."""
        for base in reversed(cls.__mro__):
            own = issubclass(base, msgspec.Struct) and base is not msgspec.Struct and "__doc__" in vars(base)
            if own and base not in self._told:
                self._told.add(base)
                yield from _wrapped(ELSEWHERE.get(base, base))


def _line(field: Field, value: Any, *, there: bool) -> str:
    """A field with its default, or commented out without one, and what it may be."""
    said = "..." if value is None or value is NODEFAULT else _toml(value)
    off = "#" if there and said == "..." else ""
    needed = "; must be given" if field.required or value == "" else ""
    return f"{off}{field.name} = {said}".ljust(ASIDE) + f"  # {_words(field.type)}{needed}"


def _wrapped(cls: type) -> Iterator[str]:
    text = RAISES.sub("", inspect.cleandoc(cls.__doc__ or ""))
    for paragraph in re.split(r"\n\s*\n|\n(?=- )", text):
        yield fill(" ".join(paragraph.split()), ACROSS, initial_indent="# ", subsequent_indent="# ")


def _plain(kind: Type) -> Type:
    """A type without None."""
    if not isinstance(kind, UnionType):
        return kind
    types = tuple(one for one in kind.types if not isinstance(one, NoneType))
    return types[0] if len(types) == 1 else UnionType(types)


def _tables(kind: Type) -> list[StructType]:
    """The tables that a field may hold, one or many; none for a field that is a value."""
    kind = _plain(kind)
    if isinstance(kind, StructType):
        return [kind]
    if isinstance(kind, UnionType):
        return [table for one in kind.types for table in _tables(one)]
    if isinstance(kind, VarTupleType):
        return _tables(kind.item_type)
    return _tables(kind.value_type) if isinstance(kind, DictType) else []


def _default(field: Field, holder: Any) -> Any:
    """What a field is where nothing is said, in the default of its table, if there is one."""
    if holder is not None:
        return getattr(holder, field.name)
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).replace("e-0", "e-")
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name} = {_toml(one)}' for name, one in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)


def _words(kind: Type) -> str:
    """What a value may be."""
    kind = _plain(kind)
    if isinstance(kind, UnionType):
        return " or ".join(map(_words, kind.types))
    if isinstance(kind, LiteralType):
        return " or ".join(map(_toml, kind.values))
    if isinstance(kind, BoolType):
        return "true or false"
    if isinstance(kind, IntType | FloatType):
        return ("whole number" if isinstance(kind, IntType) else "number") + _bounds(kind)
    if isinstance(kind, VarTupleType):
        return f"list of {_words(kind.item_type)}" + (f" ({kind.min_length} or more)" if kind.min_length else "")
    if isinstance(kind, TupleType):
        return f"list of {len(kind.item_types)}: {', '.join(map(_words, kind.item_types))}"
    if isinstance(kind, DictType):
        return "table" if isinstance(kind.value_type, AnyType) else f"table of {_words(kind.value_type)}"
    return "text" if isinstance(kind, StrType) else "anything"


def _bounds(kind: IntType | FloatType) -> str:
    highest = kind.le if kind.le is not None and kind.le < sys.float_info.max else None
    if kind.ge is not None and highest is not None:
        return f", {kind.ge:,} to {highest:,}"
    told = {"at least": kind.ge, "above": kind.gt, "at most": highest, "below": kind.lt}
    return "".join(f", {words} {bound:,}" for words, bound in told.items() if bound is not None)
