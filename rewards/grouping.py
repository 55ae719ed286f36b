"""From a trainer's flat lists to groups: prompts and completions, plain or conversational, with their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.group import Group

Text = str | Sequence[Mapping[str, Any]]
"""A text, or the messages of a conversation, each with its `role` and `content`."""

NOT_COLUMNS = ("completion_ids", "trainer_state", "log_extra", "log_metric")
"""What trainers pass besides the columns of their data."""


def grouped(prompts: Sequence[Text], completions: Sequence[Text], columns: Mapping[str, Any]) -> list[Group]:
    """The groups of a call: runs of completions whose prompt and columns are equal, in order.

    Each column has a value for each completion, of any kind (`same` compares them); the column `reference` becomes the
    group's. Equal rows of a data set that follow each other are one run: give them a column `id` that tells them apart.
    Raises AdjudgeError naming the column, or the place of a prompt or completion that is no text.
    """
    columns = {name: column for name, column in columns.items() if name not in NOT_COLUMNS}
    for name, column in (("prompts", prompts), *columns.items()):
        if not isinstance(column, Sequence) or isinstance(column, str) or len(column) != len(completions):
            size = f"has {len(column)} values" if isinstance(column, Sequence) else f"is {type(column).__name__}"
            raise AdjudgeError(f'"{name}" {size} for {len(completions)} completions: give a list with one for each')
    rows = [{name: column[place] for name, column in columns.items()} for place in range(len(completions))]
    responses = [text_of(completion, f"completions[{place}]") for place, completion in enumerate(completions)]
    starts = [
        place
        for place in range(len(completions))
        if place == 0 or not same((prompts[place], rows[place]), (prompts[place - 1], rows[place - 1]))
    ]
    return [
        _group(prompts[start], responses[start:end], rows[start], start)
        for start, end in pairwise([*starts, len(completions)])
    ]


def turns_of(text: Text, place: str) -> tuple[tuple[str, str], ...]:
    """The turns of a conversation, each (role, text); () for a text. Raises AdjudgeError as `text_of` does."""
    if isinstance(text, str):
        return ()
    text_of(text, place)
    return tuple((str(message.get("role")), _content(message, place)) for message in text)


def text_of(text: Text, place: str) -> str:
    """A text as it is; of a conversation the text of its messages, each after its role where there are several.

    Raises AdjudgeError naming `place` for what is neither.
    """
    if isinstance(text, str):
        return text
    if not isinstance(text, Sequence) or not all(isinstance(message, Mapping) for message in text):
        raise AdjudgeError(f'{place} is {_described(text)}: give a string, or messages {{"role": …, "content": …}}')
    messages: list[Mapping[str, Any]] = list(text)  # type: ignore[arg-type]
    if len(messages) == 1:
        return _content(messages[0], place)
    return "\n\n".join(f"{message.get('role')}: {_content(message, place)}" for message in messages)


def same(a: Any, b: Any) -> bool:
    """Whether two values of a column are equal: arrays and tensors by shape and entries, NaN equal to NaN.

    Also within lists and dictionaries. Values that cannot be compared are different.
    """
    if a is b:
        return True
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    try:
        if getattr(a, "shape", ()) != getattr(b, "shape", ()):
            return False
        equal = (a == b) | ((a != a) & (b != b))  # an array's are arrays
        return bool(equal.all() if hasattr(equal, "all") else equal)
    except Exception:
        return False


def place_of(group: Group, number: int) -> str:
    """How errors call the group with that number, counted from 1."""
    name = f'group "{group.id}"' if group.id else f"group {number}"
    words = " ".join(well_formed(group.prompt[:300]).split())
    return f'{name}, prompt "{words if len(words) <= 60 else words[:60] + "…"}"'


def _group(prompt: Text, responses: Sequence[str], row: Mapping[str, Any], start: int) -> Group:
    place = f"prompts[{start}]"
    reference = row.get("reference")
    if reference is not None and not isinstance(reference, str):
        raise AdjudgeError(f'"reference"[{start}] is {_described(reference)}: give a string')
    columns = {name: value for name, value in row.items() if name not in ("reference", "id")}
    name = "" if row.get("id") is None else str(row["id"])
    return Group(text_of(prompt, place), tuple(responses), reference or None, name, columns, turns_of(prompt, place))


def _content(message: Mapping[str, Any], place: str) -> str:
    """The text of a message: "" where it has none (a call of a tool), its texts joined where it has several parts."""
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, Sequence) and all(isinstance(part, Mapping) for part in content):
        return "".join(part["text"] for part in content if isinstance(part.get("text"), str))
    raise AdjudgeError(f"{place} has a message whose content is {_described(content)}: give a string")


def _described(value: Any) -> str:
    return "None" if value is None else type(value).__name__
