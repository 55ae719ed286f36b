"""Which replica computes a prompt: the one that has its beginning cached, unless too much waits there."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from adjudge.engine import trie
from adjudge.engine.tokens import Tokens

BLOCK = 16
"""Tokens of a prefix that are remembered as one."""
EXPECTED = 4
"""Prompts that are thought to share what one that comes alone has to compute."""


@dataclass(eq=False)
class Lane:
    """One life of replica number `replica`: the tokens that wait there, and which prefixes it should have cached.

    Of the prefixes it was given, the `capacity` tokens used last are remembered. `load` are the tokens to compute for
    what was sent there and is not answered, `given` all that were ever sent.
    """

    replica: int
    capacity: int
    load: int = 0
    given: int = 0
    _blocks: OrderedDict[int, None] = field(default_factory=OrderedDict)  # used last comes last

    @property
    def held(self) -> int:
        """Tokens remembered."""
        return len(self._blocks) * BLOCK

    def missing(self, blocks: set[int]) -> int:
        """How many tokens of these blocks are not remembered."""
        return BLOCK * sum(block not in self._blocks for block in blocks)

    def take(self, blocks: Sequence[int]) -> None:
        """Remember a prompt's blocks; its last ones are forgotten first."""
        for block in reversed(blocks):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while self.held > self.capacity:
            self._blocks.popitem(last=False)  # the first of a dict is sought among all that have left it

    def forget(self) -> None:
        """Remember nothing; for when the replica's cache was emptied."""
        self._blocks.clear()


@dataclass(eq=False)
class Route:
    """Where a prompt goes, and the tokens of load it adds there until it is answered."""

    lane: Lane
    cost: int

    def leave(self) -> None:
        """Take the load away, once."""
        self.lane.load -= self.cost
        self.cost = 0


class Router:
    """Sends prompts that begin alike the same way, and as much one way as the other.

    All is weighed in tokens. A replica costs what it would have to compute, what it would have to forget to make room,
    and what waits there; the cheapest is chosen. A prompt that comes alone may be followed by others that begin alike,
    so what there is to compute counts EXPECTED times. The prompts of a call show what they share: they are cut along
    their trie, and what they compute counts once.
    """

    def __init__(self) -> None:
        self.lanes: list[Lane] = []

    def route(self, prompts: Sequence[Tokens], extra: int = 0) -> list[Route]:
        """A route for each prompt of a call, of which `extra` tokens besides its own are to be computed.

        There must be a lane.
        """
        places: dict[Tokens, list[int]] = {}
        for place, prompt in enumerate(prompts):
            places.setdefault(prompt, []).append(place)
        distinct = list(places)
        parts = cut(distinct, 2 * len(self.lanes), extra)
        routes: dict[int, Route] = {}
        for part in parts:
            blocks = [_blocks(distinct[item]) for item in part]
            lane = self._cheapest(set(chain.from_iterable(blocks)), EXPECTED if len(parts) == 1 else 1)
            for item, prompt_blocks in zip(part, blocks, strict=True):
                for place in places[distinct[item]]:
                    missing = lane.missing(set(prompt_blocks)) + len(distinct[item]) % BLOCK
                    routes[place] = Route(lane, missing + extra)
                    lane.load += missing + extra
                    lane.given += missing + extra
                    lane.take(prompt_blocks)
        return [routes[place] for place in range(len(prompts))]

    def _cheapest(self, blocks: set[int], weight: int) -> Lane:
        def cost(lane: Lane) -> tuple[int, int]:
            missing = lane.missing(blocks)
            forgotten = max(0, lane.held + missing - lane.capacity)
            return weight * missing + forgotten + lane.load, lane.given

        return min(self.lanes, key=cost)


def cut(prompts: Sequence[Tokens], shares: int, extra: int) -> list[list[int]]:
    """The trie of some prompts in subtrees of about a `shares`-th of its tokens, as the places of the prompts in them.

    Each prompt counts `extra` tokens besides its own. A subtree stays whole where its stem, which every part would have
    to repeat, is as long as all its branches. Prompts must be distinct.
    """
    limit = (trie.size(prompts) + extra * len(prompts)) // shares
    parts: list[list[int]] = []
    stack = [(list(range(len(prompts))), 0)] if prompts else []
    while stack:
        group, depth = stack.pop()
        common, branches = trie.branches(prompts, group, depth)
        tokens = trie.size([prompts[index] for index in group]) - depth + extra * len(group)
        if len(group) == 1 or tokens <= limit or common - depth >= tokens - (common - depth):
            parts.append(group)
            continue
        stack += [(branch, common) for branch in reversed(branches.values())]
    return parts


def _blocks(tokens: Tokens) -> list[int]:
    """The whole blocks of a prompt, each as a number that stands for it and all before it."""
    blocks: list[int] = []
    before = 0
    for end in range(BLOCK, len(tokens) + 1, BLOCK):
        before = hash((before, tokens[end - BLOCK : end]))
        blocks.append(before)
    return blocks
