"""Prompts that begin alike, packed into one row of a batch: what they share goes through the model once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from adjudge.engine.tokens import Tokens


class Pack(msgspec.Struct, frozen=True):
    """A trie of prompts, parents before their children: each token's parent (-1: none) and its depth.

    `ends` are the places of the prompts' last tokens, in order. A token sees those on the way to it, and no sibling.
    """

    tokens: Tokens
    parents: tuple[int, ...]
    depths: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def branches(self) -> bool:
        """Whether it is more than one text."""
        return self.depths[-1] != len(self.depths) - 1

    def way(self, end: int) -> list[int]:
        """The places of a prompt's tokens, from its first to the one at `end`."""
        places = []
        while end >= 0:
            places.append(end)
            end = self.parents[end]
        return places[::-1]

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Which tokens each one sees, [L, L]."""
        size = len(self.tokens)
        seen_LL, parents_L = np.zeros((size, size), dtype=bool), np.array(self.parents)
        starts = np.flatnonzero(
            parents_L != np.arange(-1, size - 1)
        ).tolist()  # of what goes on from no token before it
        for start, stop in itertools.pairwise([0, *starts, size]):
            if (parent := parents_L[start] if start < stop else -1) >= 0:
                seen_LL[start:stop] = seen_LL[parent]
            seen_LL[start:stop, start:stop] = np.tri(stop - start, dtype=bool)
        return seen_LL


def packed(prompts: Sequence[Tokens]) -> Pack:
    """The trie of prompts, each of at least one token."""
    known: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    """Of each prompt so far its tokens and their places."""
    tokens: list[int] = []
    parents: list[int] = []
    depths: list[int] = []
    for prompt in prompts:
        own = np.array(prompt)
        shared, like = max(((_alike(own, other), n) for n, (other, _) in enumerate(known)), default=(0, 0))
        way = known[like][1][:shared] if shared else np.empty(0, dtype=np.int64)
        places = np.arange(len(tokens), len(tokens) + len(own) - shared)
        known.append((own, np.concatenate([way, places])))
        if len(places):
            parents += [int(way[-1]) if shared else -1, *places[:-1].tolist()]
        depths += range(shared, len(own))
        tokens += prompt[shared:]
    return Pack(tuple(tokens), tuple(parents), tuple(depths), tuple(int(places[-1]) for _, places in known))


def stacked(packs: Sequence[Pack]) -> tuple[list[Pack], list[tuple[int, int]]]:
    """Packs put side by side in fewer rows, none longer than the longest of them, and each one's row and first place.

    Where nobody looks at another pack, padding is all that this takes away.
    """
    longest = max(len(pack.tokens) for pack in packs)
    rows: list[list[int]] = []
    sizes: list[int] = []
    places: dict[int, tuple[int, int]] = {}
    for number in sorted(range(len(packs)), key=lambda n: -len(packs[n].tokens)):
        size = len(packs[number].tokens)
        row = next((row for row, taken in enumerate(sizes) if taken + size <= longest), len(rows))
        if row == len(rows):
            rows.append([])
            sizes.append(0)
        places[number] = row, sizes[row]
        rows[row].append(number)
        sizes[row] += size
    return [_joined([packs[n] for n in row]) for row in rows], [places[n] for n in range(len(packs))]


def _joined(packs: Sequence[Pack]) -> Pack:
    """Packs one after the other in one, as tries that share nothing."""
    if len(packs) == 1:
        return packs[0]
    starts = list(itertools.accumulate((len(pack.tokens) for pack in packs), initial=0))
    return Pack(
        tuple(token for pack in packs for token in pack.tokens),
        tuple(
            parent + start if parent >= 0 else -1
            for pack, start in zip(packs, starts, strict=False)
            for parent in pack.parents
        ),
        tuple(depth for pack in packs for depth in pack.depths),
        tuple(end + start for pack, start in zip(packs, starts, strict=False) for end in pack.ends),
    )


def _alike(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """How many tokens two prompts have in common from the first on."""
    size = min(len(one), len(other))
    apart = one[:size] != other[:size]
    return int(apart.argmax()) if apart.any() else size


def shares(model: Any) -> bool:
    """Whether a model's attention takes a mask that says who sees whom, in all of its layers alike."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    windowed = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    return bool(config._attn_implementation == "sdpa" and not windowed and kinds <= {"full_attention"})


def padded(packs: Sequence[Pack], pad: int) -> dict[str, torch.Tensor]:
    """The model's inputs: `input_ids` [B, L], padded on the right, where nobody looks.

    Where a row is more than one text, with `position_ids` [B, L] and `attention_mask` [B, 1, L, L] (True: sees).
    """
    length = max(len(pack.tokens) for pack in packs)
    inputs = {"input_ids": torch.full((len(packs), length), pad)}
    for row, pack in enumerate(packs):
        inputs["input_ids"][row, : len(pack.tokens)] = torch.tensor(pack.tokens)
    if not any(pack.branches for pack in packs):
        return inputs
    inputs["position_ids"] = torch.zeros(len(packs), length, dtype=torch.int64)
    inputs["attention_mask"] = torch.eye(length, dtype=torch.bool).repeat(len(packs), 1, 1, 1)
    for row, pack in enumerate(packs):
        size = len(pack.tokens)
        inputs["position_ids"][row, :size] = torch.tensor(pack.depths)
        inputs["attention_mask"][row, 0, :size, :size] = torch.from_numpy(pack.seen)
    return inputs
