"""The prefix tree of a batch of sequences: in what order to compute them, and what sharing saves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from adjudge.engine.tokens import Tokens


class Place(NamedTuple):
    """A sequence's place in the batch, and how many of its tokens some other sequence of the batch begins with."""

    item: int
    shared: int


def order(sequences: Sequence[Tokens]) -> list[Place]:
    """Depth-first order of the batch's trie: sequences that share a prefix are neighbours.

    Subtrees stand in the order in which their first sequence was given, so results come roughly in the order asked for.
    Sequences must be distinct.
    """
    places: list[Place] = []
    stack = [(list(range(len(sequences))), 0)] if sequences else []
    while stack:
        group, depth = stack.pop()
        if len(group) == 1:
            places.append(Place(group[0], depth))
            continue
        common, parts = branches(sequences, group, depth)
        places += [Place(index, common) for index in parts.pop(None, ())]
        stack += [(part, common) for part in reversed(parts.values())]
    return places


def branches(sequences: Sequence[Tokens], group: Sequence[int], depth: int) -> tuple[int, dict[int | None, list[int]]]:
    """How many tokens all of a group begin with, at least `depth`, and its sequences by the token after those.

    Those that end there stand under None; of each token they are in the group's order.
    """
    common = common_prefix([sequences[index] for index in group], depth)
    parts: dict[int | None, list[int]] = {}
    for index in group:
        tokens = sequences[index]
        parts.setdefault(tokens[common] if len(tokens) > common else None, []).append(index)
    return common, parts


def size(sequences: Sequence[Tokens]) -> int:
    """Tokens of the batch's trie: what is left to compute when every shared prefix is computed once."""
    total = 0
    previous: Tokens = ()
    for tokens in sorted(sequences):
        total += len(tokens) - common_prefix([previous, tokens], 0)
        previous = tokens
    return total


def common_prefix(sequences: Sequence[Tokens], start: int) -> int:
    """Length of the longest common prefix, which is known to be at least `start`."""
    low, high = start, min(map(len, sequences))
    first, middle = sequences[0], high  # most often all of it
    while low < high:
        part = first[low:middle]
        if all(tokens[low:middle] == part for tokens in sequences):
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low
