"""Prompts that begin alike, packed into one row of a batch: what they share goes through the model once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from adjudge.engine.tokenizer import Tokens


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
        seen_LL = np.eye(len(self.tokens), dtype=bool)
        for place, parent in enumerate(self.parents):
            if parent >= 0:
                seen_LL[place] |= seen_LL[parent]
        return seen_LL


def packed(prompts: Sequence[Tokens]) -> Pack:
    """The trie of prompts, each of at least one token."""
    places: dict[tuple[int, int], int] = {}
    tokens: list[int] = []
    parents: list[int] = []
    depths: list[int] = []
    ends = []
    for prompt in prompts:
        place = -1
        for depth, token in enumerate(prompt):
            parent = place
            place = places.setdefault((parent, token), len(tokens))
            if place == len(tokens):
                tokens.append(token)
                parents.append(parent)
                depths.append(depth)
        ends.append(place)
    return Pack(tuple(tokens), tuple(parents), tuple(depths), tuple(ends))


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
