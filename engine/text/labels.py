"""The label compiler: strings a judge may answer, as token ids in the context in which they would be written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import msgspec
import numpy as np

from adjudge.engine import trie
from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import LabelError
from adjudge.engine.score import Score
from adjudge.engine.text.tokenizer import Tokenizer, well_formed
from adjudge.engine.tokens import Tokens

Encode = Callable[..., Tokens]
"""A text's tokens: by itself, or as it continues others."""

CONTEXT_CHARACTERS = 64
"""How much of the text before the answer slot decides the labels' tokens."""
MOST_TOKENS = 4096
"""Tokens that all labels of a set may come to: after each of them a distribution is read."""
MOST_TOKENS_EACH = 64
MOST_CHARACTERS_EACH = 1024
"""Of a label; one of more characters is refused before its tokens are counted."""
MOST_VALUE = 1e100
"""Of a label, up or down: the squares that a variance is made of are finite numbers then."""


class Labels(msgspec.Struct, frozen=True):
    """Labels as their author gives them.

    `values` are their numbers (by default the labels themselves, where all are numbers). `terminator` is what the
    template writes after an answer: it scores a label that is the beginning of another ("1" and "10"). With
    `variants`, a label written after a space counts as the same label, for all labels of a set where one of them is a
    single token with its space.
    """

    labels: tuple[str, ...]
    values: tuple[float, ...] | None = None
    terminator: str | None = None
    variants: bool = True

    def __post_init__(self) -> None:
        for name in ("labels", "values"):
            if isinstance(value := getattr(self, name), list | np.ndarray):  # where a user does not look at types
                msgspec.structs.force_setattr(self, name, tuple(value))

    @staticmethod
    def of(labels: Labels | Sequence[str]) -> Labels:
        """Labels from a plain sequence of strings; raises LabelError for what would lose something on the way."""
        if isinstance(labels, Labels):
            return labels
        if isinstance(labels, Mapping):
            raise LabelError("labels are a mapping: give Labels(tuple(labels), values=tuple(labels.values()))")
        if isinstance(labels, str):
            raise LabelError(f'labels must be a list of strings, not the one string "{labels}"')
        return Labels(tuple(labels))

    @property
    def numbers(self) -> tuple[float, ...] | None:
        """The labels' values, or None where they have none."""
        if self.values is not None:
            return tuple(map(float, self.values))
        try:
            numbers = tuple(float(label) for label in self.labels)
        except ValueError:
            return None
        return numbers if all(abs(number) <= MOST_VALUE for number in numbers) else None


class Read(msgspec.Struct, frozen=True):
    """One distribution to read: after the prompt and `path`, the probabilities of `token_ids`."""

    path: Tokens
    token_ids: Tokens


class Spelling(msgspec.Struct, frozen=True):
    """One way to write a label: the product of `steps` (read, place in it), times the chance to end at `stop`."""

    label: int
    steps: tuple[tuple[int, int], ...]
    stop: int | None = None


class LabelSet(msgspec.Struct, frozen=True):
    """Compiled labels: what to read, and how the readings make up each label. `reads[0]` is at the prompt's own end."""

    labels: tuple[str, ...]
    values: tuple[float, ...] | None
    reads: tuple[Read, ...]
    spellings: tuple[Spelling, ...]

    @staticmethod
    def of_ids(token_ids: Sequence[int]) -> LabelSet:
        """Labels that are one given token each, called by its number."""
        names = tuple(map(str, token_ids))
        check_labels(Labels(names))
        if len(set(token_ids)) != len(token_ids):
            raise LabelError("a token id is given twice: give each label a token of its own")
        _check_size(Labels(names), len(names))
        spellings = tuple(Spelling(place, ((0, place),)) for place in range(len(names)))
        return LabelSet(names, None, (Read((), tuple(token_ids)),), spellings)

    @property
    def depth(self) -> int:
        """Tokens that the longest read adds to the prompt."""
        return max(len(read.path) for read in self.reads)

    @property
    def tokens(self) -> int:
        """Tokens that have to be read behind the prompt: those that several reads begin with once."""
        return trie.size([read.path for read in self.reads])

    def score(self, readings: Sequence[Sequence[float]], prompt_tokens: int) -> Score:
        """The score from the full log-probabilities of every read's token ids, in float64."""
        sums: list[list[float]] = [[] for _ in self.labels]
        for spelling in self.spellings:
            total = sum(readings[read][place] for read, place in spelling.steps)
            if spelling.stop is not None:
                further = sum(math.exp(value) for value in readings[spelling.stop])
                total += math.log1p(-further) if further < 1.0 else -math.inf
            sums[spelling.label].append(total)
        return Score.of(self.labels, [_log_sum_exp(parts) for parts in sums], self.values, prompt_tokens)


def compile_labels(labels: Labels, suffix: str, trusted: bool, tokenizer: Tokenizer) -> LabelSet:
    """Labels as they continue `suffix`, the text before the answer slot (its last characters decide).

    Raises LabelError for no labels, an empty or doubled label, one value too many or too few, two labels that share a
    spelling, one of more than `MOST_TOKENS_EACH` tokens, and more than `MOST_TOKENS` in all.
    """
    check_labels(labels)
    _check_size(labels, len(labels.labels))
    suffix = suffix[-CONTEXT_CHARACTERS:]

    def encode(text: str, after: Tokens = ()) -> Tokens:
        return tokenizer.encode(text, trusted, after=after)

    base = encode(suffix)

    def continued(text: str) -> Tokens:
        """Tokens of `text` after `suffix`, or the text's own where they would merge with the suffix, which is fixed."""
        ids = encode(suffix + text)
        return ids[len(base) :] if len(ids) > len(base) and ids[: len(base)] == base else encode(text, base)

    spellings: dict[Tokens, tuple[int, str]] = {}
    spaces = _spaces(labels, suffix, continued)
    for index, label in enumerate(labels.labels):
        for before in spaces[:1] if label[0].isspace() else spaces:
            ids = continued(before + label)
            if not ids:
                raise LabelError(f'label "{label}" has no tokens in this vocabulary: choose another spelling')
            if (other := spellings.setdefault(ids, (index, before + label))[0]) != index:
                raise LabelError(f'labels "{labels.labels[other]}" and "{label}" are the same tokens here: rename one')
            if len(ids) > MOST_TOKENS_EACH:
                raise LabelError(f'label "{label[:40]}" has {len(ids)} tokens: at most {MOST_TOKENS_EACH}')
    _check_size(labels, sum(map(len, spellings)))
    return _label_set(labels, _terminated(labels, spellings, base, encode, continued))


def _check_size(labels: Labels, tokens: int) -> None:
    """Refuse at once what would take time and memory; `tokens` is what the labels come to at least."""
    for label in labels.labels:
        if len(label) > MOST_CHARACTERS_EACH:
            raise LabelError(f'label "{label[:40]}" has {len(label)} characters: at most {MOST_CHARACTERS_EACH}')
    if tokens > MOST_TOKENS:
        raise LabelError(
            f"{len(labels.labels)} labels come to {tokens} tokens or more: at most {MOST_TOKENS}, give fewer"
        )


def check_labels(labels: Labels) -> None:
    """What can be said of labels without a tokenizer; raises LabelError."""
    if not labels.labels:
        raise LabelError("no labels given: a label set needs at least one")
    seen: set[str] = set()
    for label in labels.labels:
        if not isinstance(label, str) or not label:
            raise LabelError(f"label {label!r} is not a string of at least one character")
        if well_formed(label).count("\ufffd") > label.count("\ufffd"):
            raise LabelError(f"label {label!r} has a lone surrogate, which no text has: leave it out")
        if label in seen:
            raise LabelError(f'label "{label}" is given twice')
        seen.add(label)
    if labels.values is not None and len(labels.values) != len(labels.labels):
        raise LabelError(f"{len(labels.values)} values for {len(labels.labels)} labels: give one value for each label")
    check_values(labels.values)


def check_values(values: Sequence[Any] | None) -> None:
    """What would fail in a step, with the calls of others; raises LabelError."""
    for value in values or ():
        if not is_number(value, Real) or abs(value) > MOST_VALUE:
            raise LabelError(f"the value {shown(value)} of a label is no number of at most {MOST_VALUE:g}: give one")


def _spaces(labels: Labels, suffix: str, continued: Encode) -> tuple[str, ...]:
    """What may stand before a label: nothing, and a space where the model may write one with the label in one token."""
    if not labels.variants or not suffix or suffix[-1].isspace():
        return ("",)
    bare = (label for label in labels.labels if not label[0].isspace())
    one = any(len(continued(f" {label}")) == 1 for label in bare)
    return ("", " ") if one else ("",)


def _children(paths: Iterable[Tokens]) -> dict[Tokens, dict[int, int]]:
    """Of each beginning that paths share the tokens that follow it, with their places; none of what nothing follows."""
    children: dict[Tokens, dict[int, int]] = {}
    for ids in paths:
        for depth, token in enumerate(ids):
            following = children.setdefault(ids[:depth], {})
            following.setdefault(token, len(following))
    return children


def _terminated(
    labels: Labels, spellings: dict[Tokens, tuple[int, str]], base: Tokens, encode: Encode, continued: Encode
) -> dict[Tokens, int]:
    """Every spelling's full path: with the terminator, if there is one, where another goes on from it."""
    children = _children(spellings)
    ends: dict[Tokens, int] = {}
    for ids, (index, text) in spellings.items():
        if labels.terminator and ids in children:
            whole = continued(text + labels.terminator)
            goes_on = whole[: len(ids)] == ids and len(whole) > len(ids)
            ids = whole if goes_on else ids + encode(labels.terminator, base + ids)
        if ids in ends:
            raise LabelError(
                f'labels "{labels.labels[ends[ids]]}" and "{labels.labels[index]}" are the same tokens once'
                f' "{labels.terminator}" ends them: rename one, or give another terminator'
            )
        ends[ids] = index
    return ends


def _label_set(labels: Labels, ends: dict[Tokens, int]) -> LabelSet:
    """What is read once for all labels that begin alike, and how each label is made of it.

    One through which another path goes, be it that of a terminator, must stop where it ends.
    """
    children = _children(ends)
    places = {path: place for place, path in enumerate(children)}
    spellings = tuple(
        Spelling(
            label,
            tuple((places[ids[:depth]], children[ids[:depth]][token]) for depth, token in enumerate(ids)),
            places.get(ids),
        )
        for ids, label in ends.items()
    )
    reads = tuple(Read(path, tuple(following)) for path, following in children.items())
    return LabelSet(labels.labels, labels.numbers, reads, spellings)


def _log_sum_exp(values: Sequence[float]) -> float:
    top = max(values)
    if not math.isfinite(top):
        return top
    return top + math.log(sum(math.exp(value - top) for value in values))
