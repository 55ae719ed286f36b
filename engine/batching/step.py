"""One step's work: the packed tokens, where their keys and values go, and which rows answer which request."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field

import torch

from adjudge.engine.kv_cache.radix import Node, RadixCache
from adjudge.engine.tokens import Tokens
from adjudge.kernels.paged_kv import PagedBatch, PagedSequence, to_device


@dataclass(eq=False)
class Request:
    """A token sequence; `keep` of its tokens stay in the cache. The hidden states after its last `wanted` are wanted.

    While it is admitted, `leaf` is where its tokens end in the cache, and `own` the node of those it has added since.
    When it was first admitted, `missed` of its tokens were not in the cache; `overtaken` counts those that came later
    and were taken before it. A request that is not `done` once answered goes on, with `next_token` added; the higher
    `advanced`, the later it did so last. Lower `priority` comes first, then a lower `turn`, and what is not answered by
    its `deadline` (seconds of the scheduler's clock) is given up.
    """

    tokens: Tokens
    keep: int
    wanted: int = 1
    leaf: Node | None = None
    own: Node | None = None
    done: bool = True
    missed: int = -1
    overtaken: int = 0
    next_token: int = -1
    priority: int = 0
    deadline: float = math.inf
    turn: int = 0
    arrival: int = -1
    advanced: int = -1

    @property
    def missed_of_prompt(self) -> int:
        """How many tokens of a prompt it has to compute: all of them until it is admitted.

        What it is answered at is computed for it even if it stands in the cache.
        """
        return self.length if self.missed < 0 else max(self.missed, self.wanted)

    @property
    def stem(self) -> int:
        """How many of its first tokens other requests of the same call count as hits, where they are."""
        return 0

    @property
    def length(self) -> int:
        """How many tokens it had when it was last queued."""
        return len(self.tokens)

    @property
    def most(self) -> int:
        """How many tokens it may come to have."""
        return self.length

    @property
    def whole(self) -> Tokens:
        """Its tokens, with those it has added since it was admitted."""
        return self.tokens + self.own.tokens if self.own else self.tokens

    @property
    def end(self) -> Node:
        """The node that holds the last token of an admitted request."""
        node = self.own or self.leaf
        assert node is not None
        return node

    def give_up(self) -> None:
        """Answer that the deadline has passed, where anybody waits for this request by itself."""
        return


@dataclass
class Step:
    """What the runner computes at once. Rows are packed tokens; no two rows write to the same slot."""

    cache: RadixCache
    token_ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    sequences: list[PagedSequence] = field(default_factory=list)
    write_rows: list[int] = field(default_factory=list)
    write_slots: list[int] = field(default_factory=list)  # which of them goes where
    copies: list[tuple[int, int]] = field(default_factory=list)  # (slot computed earlier, slot)
    finished: list[tuple[Request, int]] = field(default_factory=list)  # (request, row of a token wanted), in order
    expired: list[Request] = field(default_factory=list)  # given up before this step
    _written: dict[int, list[tuple[int, int, int]]] = field(
        default_factory=dict
    )  # by block: slots from, to, row - slot
    _origin: dict[int, int] = field(default_factory=dict)  # a copied slot's source

    @property
    def size(self) -> int:
        """Tokens computed in this step."""
        return len(self.token_ids)

    def compute(self, node: Node, count: int) -> None:
        """Add the next `count` missing tokens of `node`, whose parents are computed, earlier or in this step."""
        table = self.cache.table(node)
        if not node.head_ready:
            self._copy_head(node, table)
        start = node.start + node.computed
        row = self.size
        self._append(node.tokens[node.computed : node.computed + count], start, table)
        size, end = self.cache.pool.block_size, start + count
        while start < end:
            some = min(size - start % size, end - start)
            self._write(row, self._slot(table, start), some)
            row, start = row + some, start + some
        node.computed += count

    def finish(self, request: Request, room: int) -> None:
        """Note the rows of the tokens wanted; those of earlier steps are computed again, if there is `room`."""
        table, end = self.cache.table(request.end), request.end.end
        start = end - request.wanted
        rows = [self._row(self._slot(table, position)) for position in range(start, end)]
        again = next((place for place in range(len(rows), 0, -1) if rows[place - 1] is None), 0)
        if again > room:
            return
        if again:
            rows[:again] = range(self.size, self.size + again)
            self._append(request.whole[start : start + again], start, table)
        self.finished += [(request, row) for row in rows if row is not None]

    def batch(self, rows: int, device: torch.device) -> PagedBatch:
        """The attention kernel's view, padded to `rows`."""
        writes = torch.tensor([self.write_rows, self.write_slots], dtype=torch.long)
        writes = to_device(writes, device)
        return PagedBatch(tuple(self.sequences), self.cache.pool.block_size, rows, writes[0], writes[1])

    def _append(self, tokens: Tokens, start: int, table: array[int]) -> None:
        self.sequences.append(PagedSequence(self.size, len(tokens), start, table))
        self.token_ids += tokens
        self.positions += range(start, start + len(tokens))

    def _write(self, row: int, slot: int, count: int = 1) -> None:
        """Rows from `row` on go to slots of one block from `slot` on."""
        self.write_rows += range(row, row + count)
        self.write_slots += range(slot, slot + count)
        self._written.setdefault(slot // self.cache.pool.block_size, []).append((slot, slot + count, row - slot))

    def _row(self, slot: int) -> int | None:
        """The row of this step that is written to a slot, if one is."""
        spans = self._written.get(slot // self.cache.pool.block_size, ())
        return next((shift + slot for first, end, shift in spans if first <= slot < end), None)

    def _copy_head(self, node: Node, table: array[int]) -> None:
        """Fill the node's first block up to where it starts: from this step's rows, or from slots written earlier."""
        assert node.parent is not None
        parent_table = self.cache.table(node.parent)
        size = self.cache.pool.block_size
        for position in range(node.start // size * size, node.start):
            source, slot = self._slot(parent_table, position), self._slot(table, position)
            if (row := self._row(source)) is not None:
                self._write(row, slot)
            else:
                self._origin[slot] = self._origin.get(source, source)
                self.copies.append((self._origin[slot], slot))
        node.head_ready = True

    def _slot(self, table: array[int], position: int) -> int:
        size = self.cache.pool.block_size
        return table[position // size] * size + position % size
