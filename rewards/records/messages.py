"""Prompts and completions, plain or conversational, and their columns: what they say, and when they say the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adjudge.engine.errors import AdjudgeError

Text = str | Sequence[Mapping[str, Any]]
"""A text, or the messages of a conversation, each with its `role` and `content`."""


def is_column(value: Any) -> bool:
    """Whether it has values in an order: a list, a tuple, an array, a data set's column; no text and no mapping."""
    ordered = hasattr(value, "__len__") and hasattr(value, "__getitem__") and getattr(value, "shape", None) != ()
    return ordered and not isinstance(value, str | bytes | Mapping)


def listed(name: str, column: Any, count: int | None = None) -> list[Any]:
    """The values of a column, of an array as Python has them; raises AdjudgeError unless it is one, with `count`."""
    if not is_column(column) or count not in (None, len(column)):
        size = f"has {len(column)} values" if is_column(column) else f"is {_described(column)}"
        mend = "give a list of them" if count is None else "give a list with one for each"
        raise AdjudgeError(f'"{name}" {size}{"" if count is None else f" for {count} completions"}: {mend}')
    whole = next((getattr(column, each) for each in ("tolist", "to_pylist") if hasattr(column, each)), None)
    return [_plain(value) for value in (column if whole is None else whole())]


def columns_of(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """The columns that rows share, with the value of all, and those in which they differ, with the value of each.

    A column that only some have is None for the others.
    """
    columns = {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}
    shared = {name: values[0] for name, values in columns.items() if all(same(one, values[0]) for one in values[1:])}
    return shared, {name: values for name, values in columns.items() if name not in shared}


def prompt_of(prompt: Text, place: str, system: str | None = None) -> tuple[str, tuple[tuple[str, str], ...]]:
    """What a prompt says, and the turns of a conversation, each (role, text); () for a text.

    A conversation says what its messages do, each after its role where there are several, without a first one of the
    system that says `system`. Raises AdjudgeError naming `place` for what is neither.
    """
    if isinstance(prompt, str):
        return exact(prompt), ()
    if not isinstance(prompt, Sequence) or not all(isinstance(message, Mapping) for message in prompt):
        raise AdjudgeError(f'{place} is {_described(prompt)}: give a string, or messages {{"role": …, "content": …}}')
    messages: list[Mapping[str, Any]] = list(prompt)  # type: ignore[arg-type]
    turns = tuple((str(message.get("role")), _content(message, place)) for message in messages)
    said = turns[1:] if turns[1:] and turns[0] == ("system", system) else turns
    return said[0][1] if len(said) == 1 else "\n\n".join(f"{role}: {text}" for role, text in said), turns


def text_of(text: Text, place: str) -> str:
    """What a text or a conversation says; raises AdjudgeError as `prompt_of` does."""
    return prompt_of(text, place)[0]


def exact(text: str) -> str:
    """The text as Python's own type: what a subclass (numpy's, an enumeration's) says of itself is not asked."""
    return str.__str__(text)


def same(a: Any, b: Any) -> bool:
    """Whether two values of a column are equal: arrays and tensors by shape and entries, NaN equal to NaN.

    Also within lists and dictionaries. Values that cannot be compared, as those nested too deep, are different.
    """
    if a is b:
        return True
    try:
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
        if isinstance(a, list | tuple) and isinstance(b, list | tuple):
            return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
        if getattr(a, "shape", ()) != getattr(b, "shape", ()):
            return False
        equal = (a == b) | ((a != a) & (b != b))  # an array's are arrays
        return bool(equal.all() if hasattr(equal, "all") else equal)
    except Exception:
        return False


def _content(message: Mapping[str, Any], place: str) -> str:
    """The text of a message: "" where it has none (a call of a tool), its texts joined where it has several parts."""
    content = message.get("content")
    if content is None or isinstance(content, str):
        return exact(content or "")
    if isinstance(content, Sequence) and all(isinstance(part, Mapping) for part in content):
        return "".join(part["text"] for part in content if isinstance(part.get("text"), str))
    raise AdjudgeError(f"{place} has a message whose content is {_described(content)}: give a string")


def _plain(value: Any) -> Any:
    """A value as Python has it: what Arrow holds, a number or text of numpy's or torch's, an array of objects."""
    if hasattr(value, "as_py"):
        return value.as_py()
    if getattr(value, "dtype", None) == "object" and hasattr(value, "tolist"):
        return value.tolist()
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def _described(value: Any) -> str:
    return "None" if value is None else type(value).__name__
