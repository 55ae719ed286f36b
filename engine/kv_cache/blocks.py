"""The pool of KV blocks: which are free, and how many nodes hold each of the others."""

from __future__ import annotations

from array import array
from collections.abc import Iterable


class OutOfBlocks(Exception):
    """The pool has fewer free blocks than were asked for."""


class BlockPool:
    """Reference counts of `count` blocks of `block_size` token slots; block 0, the padding, is never given out."""

    def __init__(self, count: int, block_size: int) -> None:
        self.count = count
        self.block_size = block_size
        self._holders = array("i", bytes(array("i").itemsize * count))
        self._given_back: list[int] = []
        self._untouched = 1  # from here on blocks have never been given out: a list of all would take its time to make

    @property
    def free(self) -> int:
        """Blocks nobody holds."""
        return len(self._given_back) + self.count - self._untouched

    @property
    def usable(self) -> int:
        """Blocks there are to give out, free or held."""
        return self.count - 1

    def take(self, count: int) -> array[int]:
        """Hand out `count` blocks, each held once; raises OutOfBlocks and hands out none when too few are free.

        As an array: step by step tables are made of them, and a copy of integers in a list costs 20 ns each.
        """
        if count > self.free:
            raise OutOfBlocks(f"{count} KV blocks asked for, {self.free} of {self.usable} free")
        taken = array("i", [self._given_back.pop() for _ in range(min(count, len(self._given_back)))])
        beyond = self._untouched + count - len(taken)
        taken.extend(range(self._untouched, beyond))
        self._untouched = beyond
        for block in taken:
            self._holders[block] = 1
        return taken

    def share(self, block: int) -> None:
        """Hold a block once more."""
        self._holders[block] += 1

    def give_back(self, blocks: Iterable[int]) -> None:
        """Let go of each block once; those nobody holds any more become free."""
        for block in blocks:
            self._holders[block] -= 1
            if self._holders[block] == 0:
                self._given_back.append(block)
