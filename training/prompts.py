"""The prompts of a recipe, as rows of a data set that a trainer reads."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.fingerprints import digest
from adjudge.engine.text.prompt import Message, Prompt, Segment
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.engine.tokens import Tokens
from adjudge.rewards.records.messages import prompt_of, text_of
from adjudge.rewards.records.row_files import read_rows
from adjudge.rewards.records.rows import Row, renamed
from adjudge.training.recipe import Data
from adjudge.training.terminal import counted

RESERVED = (
    *("completion", "completions", "completion_ids", "prompts", "image", "images", "tools", "environment"),
    *("trainer_state", "log_extra", "log_metric"),
)
"""Columns that mean something else to TRL, that it would pass twice, or put something of its own in the place of."""

NEEDED_BY = "a policy"
COLUMNS = "[data] columns"

Taken = TypeVar("Taken")


class Prompts(msgspec.Struct, frozen=True):
    """Rows to train on and rows that are held out; `left_out` says of both sides how many are not, and why."""

    train: tuple[Row, ...]
    held_out: tuple[Row, ...]
    left_out: tuple[str, ...] = ()

    def only(self, kept: Callable[[Row], bool], why: str) -> Prompts:
        """The rows that are kept; `why` is what is said of the others."""
        train, held_out = (tuple(row for row in rows if kept(row)) for rows in (self.train, self.held_out))
        left = len(self.train) - len(train), len(self.held_out) - len(held_out)
        said = f"{why}: {counted(left[0], 'row')} of training, {left[1]} held out"
        return Prompts(train, held_out, (*self.left_out, said) if any(left) else self.left_out)


def read_prompts(data: Data) -> Prompts:
    """The rows that a recipe names; raises AdjudgeError naming the line and the column.

    Rows are on one side with those of their `reviewer`; with those on their stories (`story_a`, `story_b`); else with
    those of their prompt. Held-out rows take theirs with them, or out of training; a pair of which one story is held
    out is on neither side, and counted.
    """
    rows = _rows(data)
    if isinstance(data.held_out, str):
        held_out = _read(Path(data.held_out), data)
    elif data.held_out >= len(rows):
        raise AdjudgeError(f"[data] held_out is {data.held_out} of {len(rows)} rows: leave some to train on")
    else:
        held_out = rows[len(rows) - data.held_out :]
    kept = {one for row in held_out for one in _together(row)}
    train = tuple(row for row in rows if kept.isdisjoint(_together(row)))
    if not train:
        raise AdjudgeError("[data] held_out leaves no prompt to train on: all rows go with those that are held out")
    if not isinstance(data.held_out, str):
        held_out = tuple(row for row in rows if kept.issuperset(_together(row)))
    left = len(rows) - len(train) - (0 if isinstance(data.held_out, str) else len(held_out))
    said = f"left out, as they go with held-out rows: {counted(left, 'row')} of training"
    return Prompts(train, held_out, (said,) * bool(left))


def _together(row: Row) -> set[tuple[str, str]]:
    """What a row has in common with those that must be on its side of a split, however it is spaced."""
    if (reviewer := row.columns.get("reviewer")) not in (None, ""):
        return {("reviewer", str(reviewer))}
    stories = {plain(story) for side in "ab" if isinstance(story := row.columns.get(f"story_{side}"), str)}
    return {("story", story) for story in stories} or {("prompt", plain(text_of(row.columns["prompt"], row.place)))}


def plain(text: str) -> str:
    """A text in which only words count: its blanks are single ones, with none at the ends."""
    return " ".join(text.split())


def fingerprint(prompts: Prompts) -> str:
    """Changes with every row, and with nothing else."""
    return fingerprint_of("prompts", prompts.train, prompts.held_out)


def fingerprint_of(what: str, *parts: Sequence[Row]) -> str:
    """Changes with every row, with the part that it is in, and with nothing else."""
    return digest(what, json.dumps([[row.columns for row in rows] for rows in parts]))


def within(prompts: Prompts, data: Data, words: Tokenizer, *, thinks: bool = False) -> Prompts:
    """The same without those that are longer than the recipe allows, counted; the policy may be to think first.

    Raises AdjudgeError if none is left, and for a prompt that the policy's chat template does not take.
    """
    limit = data.max_prompt_tokens
    if data.chat and not words.inner.chat_template:
        raise AdjudgeError("the policy's tokenizer has no chat template: set chat = false in [data]")
    _check_turns((*prompts.train, *prompts.held_out), data, words, thinks=thinks)
    if limit is None:
        return prompts
    kept = prompts.only(
        lambda row: len(read_by_policy(asked(row, data), words, thinks=thinks)) <= limit,
        "left out for the length of their prompts",
    )
    if not kept.train:
        raise AdjudgeError(f"no prompt has {limit} tokens or fewer: raise [data] max_prompt_tokens")
    return kept


def shuffled(rows: Sequence[Taken], count: int, seed: int) -> list[Taken]:
    """`count` rows: all of them in a random order, then all in another one, as often as it takes.

    The trainer's own shuffling begins anew when it resumes; what is written out here does not.
    """
    order: list[Taken] = []
    generator = random.Random(seed)
    while len(order) < count:
        order += generator.sample(rows, len(rows))
    return order[:count]


def dataset(rows: Sequence[Row], data: Data) -> Any:
    """The rows as a data set of TRL's: `prompt` as it takes them, further columns as they are, None where absent."""
    from datasets import Dataset

    names = dict.fromkeys(name for row in rows for name in row.columns)
    columns = {name: [row.columns.get(name) for row in rows] for name in names}
    columns["prompt"] = [asked(row, data) for row in rows]
    return Dataset.from_dict(columns, on_mixed_types="use_json")


def _rows(data: Data) -> tuple[Row, ...]:
    if data.train is None:
        return tuple(Row(f"prompt {number}", {"prompt": text}) for number, text in enumerate(data.prompts, 1))
    return _read(Path(data.train), data)


def _read(path: Path, data: Data) -> tuple[Row, ...]:
    return tuple(_checked(row, data) for row in renamed(read_rows(path), data.columns, COLUMNS))


def _checked(row: Row, data: Data) -> Row:
    """A row that can be a prompt, its turns as a trainer takes them; raises AdjudgeError for one that cannot."""
    if isinstance(row.columns.get("prompt"), list):
        turns = messages(row)
        if not data.chat:
            raise AdjudgeError(
                f'{row.place}: "prompt" is a conversation, and [data] chat is false: make it a text, or leave chat out'
            )
        row = Row(row.place, {**row.columns, "prompt": turns})
    else:
        row.text("prompt", NEEDED_BY)
    for name in RESERVED:
        if name in row.columns:
            raise AdjudgeError(f'{row.place}: "{name}" is a word of the trainer\'s own: rename it in [data] columns')
    return row


def messages(row: Row) -> list[dict[str, str]]:
    """The turns of a prompt that is a conversation; raises AdjudgeError for one that a user does not end."""
    place = f'{row.place}: "prompt"'
    _, turns = prompt_of(row.columns["prompt"], place)
    roles = [role for role, _ in turns]
    said = roles[roles[:1] == ["system"] :]
    if not set(said) <= {"user", "assistant"} or said[-1:] != ["user"]:
        raise AdjudgeError(
            f"{place} has the turns {', '.join(roles) or 'of nobody'}: give those of user and assistant, after one of"
            " system if there is one, and a user's last"
        )
    return [{"role": role, "content": text} for role, text in turns]


def asked(row: Row, data: Data) -> str | list[dict[str, str]]:
    """A prompt as the trainer takes it; the recipe's `system` comes before a row's own, and an empty one is none."""
    prompt = row.columns.get("prompt")
    if not data.chat:
        return row.text("prompt", NEEDED_BY)
    turns = prompt if isinstance(prompt, list) else [{"role": "user", "content": row.text("prompt", NEEDED_BY)}]
    own, turns = (turns[0]["content"], turns[1:]) if turns[0]["role"] == "system" else (None, turns)
    said = next((one for one in (data.system, own) if one is not None), row.optional_text("system", NEEDED_BY))
    system = [{"role": "system", "content": said}] if said else []
    return [*system, *turns]


def read_by_policy(prompt: str | Sequence[dict[str, str]], words: Tokenizer, *, thinks: bool = False) -> Tokens:
    """A prompt as the policy reads it, token for token what an engine asks; the policy may be to think first.

    A prompt is data: in none does the name of a special token become one.
    """
    if isinstance(prompt, str):
        return words.prompt(prompt) if prompt else ()
    return words.prompt(words.chat(conversation(prompt), thinks=thinks))


def conversation(turns: Sequence[dict[str, str]]) -> list[Message]:
    """Turns as engines take them."""
    return [Message(one["role"], Prompt((Segment(one["content"]),))) for one in turns]  # type: ignore[arg-type]


def _check_turns(rows: Sequence[Row], data: Data, words: Tokenizer, *, thinks: bool) -> None:
    """Raise AdjudgeError naming a row with turns that the chat template does not take."""
    kinds: dict[tuple[str, ...], tuple[Row, str | list[dict[str, str]]]] = {}
    for row in rows:
        prompt = asked(row, data)
        kind = () if isinstance(prompt, str) else tuple(turn["role"] for turn in prompt)
        kinds.setdefault(kind, (row, prompt))
    for row, prompt in kinds.values():
        try:
            read_by_policy(prompt, words, thinks=thinks)
        except AdjudgeError as error:
            raise AdjudgeError(f"{row.place}: {error}") from error
