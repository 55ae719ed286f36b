"""The label compiler: strings a judge may answer, as token ids in the context in which they would be written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from adjudge.engine.errors import LabelError
from adjudge.engine.score import Score
from adjudge.engine.tokenizer import Tokenizer, Tokens

Encode = Callable[[str], Tokens]

CONTEXT_CHARACTERS = 64
"""How much of the text before the answer slot decides the labels' tokens."""


class Labels(msgspec.Struct, frozen=True):
    """Labels as their author gives them.

    `values` are their numbers (by default the labels themselves, where all are numbers). `terminator` is what the
    template writes after an answer: it scores a label that is the beginning of another ("1" and "10"). With
    `variants`, a label written as one token after a space counts as the same label.
    """

    labels: tuple[str, ...]
    values: tuple[float, ...] | None = None
    terminator: str | None = None
    variants: bool = True

    @staticmethod
    def of(labels: Labels | Sequence[str]) -> Labels:
        """Labels from a plain sequence of strings."""
        if isinstance(labels, Labels):
            return labels
        if isinstance(labels, str):
            raise LabelError(f'labels must be a list of strings, not the one string "{labels}"')
        return Labels(tuple(labels))

    @property
    def numbers(self) -> tuple[float, ...] | None:
        """The labels' values, or None where they have none."""
        if self.values is not None:
            return self.values
        try:
            numbers = tuple(float(label) for label in self.labels)
        except ValueError:
            return None
        return numbers if all(map(math.isfinite, numbers)) else None


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
    def of_ids(token_ids: Sequence[int], labels: Sequence[str] | None = None) -> LabelSet:
        """Labels that are one given token each, by default called by its number."""
        names = tuple(map(str, token_ids) if labels is None else labels)
        check_labels(Labels(names))
        spellings = tuple(Spelling(place, ((0, place),)) for place in range(len(names)))
        return LabelSet(names, None, (Read((), tuple(token_ids)),), spellings)

    @property
    def depth(self) -> int:
        """Tokens that the longest read adds to the prompt."""
        return max(len(read.path) for read in self.reads)

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

    Raises LabelError for no labels, an empty or doubled label, one value too many or too few, and two labels that
    share a spelling.
    """
    check_labels(labels)
    suffix = suffix[-CONTEXT_CHARACTERS:]

    def encode(text: str) -> Tokens:
        return tokenizer.encode(text, trusted)

    base = encode(suffix)
    spellings: dict[Tokens, int] = {}
    for index, label in enumerate(labels.labels):
        for ids in _variants(label, suffix, base, encode, labels.variants):
            if (other := spellings.setdefault(ids, index)) != index:
                raise LabelError(f'labels "{labels.labels[other]}" and "{label}" are the same tokens here: rename one')
    ends = _terminated(labels, spellings, suffix, base, encode)
    return _trie(labels, ends)


def check_labels(labels: Labels) -> None:
    """What can be said of labels without a tokenizer; raises LabelError."""
    if not labels.labels:
        raise LabelError("no labels given: a label set needs at least one")
    seen: set[str] = set()
    for label in labels.labels:
        if not isinstance(label, str) or not label:
            raise LabelError(f"label {label!r} is not a string of at least one character")
        if label in seen:
            raise LabelError(f'label "{label}" is given twice')
        seen.add(label)
    if labels.values is not None and len(labels.values) != len(labels.labels):
        raise LabelError(f"{len(labels.values)} values for {len(labels.labels)} labels: give one value for each label")


def _continuation(text: str, suffix: str, base: Tokens, encode: Encode) -> Tokens:
    """Tokens of `text` after `suffix`, or the text's own where they would merge with the suffix, which is fixed."""
    ids = encode(suffix + text)
    return ids[len(base) :] if len(ids) > len(base) and ids[: len(base)] == base else encode(text)


def _variants(label: str, suffix: str, base: Tokens, encode: Encode, variants: bool) -> list[Tokens]:
    found = [_continuation(label, suffix, base, encode)]
    if variants and suffix and not suffix[-1].isspace() and not label[0].isspace():
        spaced = _continuation(" " + label, suffix, base, encode)
        if len(spaced) == 1 and spaced not in found:
            found.append(spaced)
    if not all(found):
        raise LabelError(f'label "{label}" has no tokens in this vocabulary')
    return found


def _terminated(
    labels: Labels, spellings: dict[Tokens, int], suffix: str, base: Tokens, encode: Encode
) -> dict[Tokens, tuple[int, bool]]:
    """Every spelling's full path, and whether it must stop there because another goes on from it."""
    ends: dict[Tokens, tuple[int, bool]] = {}
    for ids, index in spellings.items():
        goes_on = any(len(other) > len(ids) and other[: len(ids)] == ids for other in spellings)
        if goes_on and labels.terminator:
            label = labels.labels[index]
            whole = _continuation(label + labels.terminator, suffix, base, encode)
            ids = whole if whole[: len(ids)] == ids and len(whole) > len(ids) else ids + encode(labels.terminator)
            goes_on = any(other[: len(ids)] == ids for other in spellings)
        ends[ids] = (index, goes_on)
    return ends


def _trie(labels: Labels, ends: dict[Tokens, tuple[int, bool]]) -> LabelSet:
    children: dict[Tokens, list[int]] = {(): []}
    for ids in ends:
        for depth, token in enumerate(ids):
            following = children.setdefault(ids[:depth], [])
            if token not in following:
                following.append(token)
    paths = {path: index for index, path in enumerate(children)}
    spellings = tuple(
        Spelling(
            label,
            tuple((paths[ids[:depth]], children[ids[:depth]].index(token)) for depth, token in enumerate(ids)),
            paths[ids] if stops else None,
        )
        for ids, (label, stops) in ends.items()
    )
    reads = tuple(Read(path, tuple(tokens)) for path, tokens in children.items())
    return LabelSet(labels.labels, labels.numbers, reads, spellings)


def _log_sum_exp(values: Sequence[float]) -> float:
    top = max(values)
    if not math.isfinite(top):
        return top
    return top + math.log(sum(math.exp(value - top) for value in values))
