"""Batches of sequences in a paged cache, for every back end of attention, and the dense float64 oracle."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from adjudge.kernels.paged_kv import PagedBatch, PagedKV, PagedSequence, write_kv
from tests.kernels.interpreter import only_programs

BLOCKS = 200
MANY = [(0, 64)] * 30 + [(40, 28)] * 2 + [(0, 64)] * 33 + [(20 + 7 * s, 1) for s in range(8)]
"""Where the rows of each sequence begin, and how many there are, in a step of 4,096 rows: prefill, chunks, decode."""


def oracle(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    start: int,
    window: int | None,
    softcap: float | None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Dense causal attention of queries at start .. start + T over keys 0 .. start + T, in the inputs' dtype."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("thd,lhd->htl", q, k) * q.shape[-1] ** -0.5
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    query, key = torch.arange(start, start + q.shape[0])[:, None], torch.arange(k.shape[0])
    hidden = key > query
    if window is not None:
        hidden |= key <= query - window
    scores = scores.masked_fill(hidden, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(scores)[:, None, None].expand(-1, len(q), 1)], -1)
    return torch.einsum("htl,lhd->thd", scores.softmax(-1)[..., : len(k)], v)


class Case:
    """Sequences with random states, laid out in shuffled blocks of a pool that is poisoned wherever nobody has
    written (`run`: with what is `unwritten`).

    The first `shared` positions of all sequences hold the same states; `run` may keep them in the same blocks.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        heads: int,
        kv_heads: int,
        width: int,
        value_width: int,
        dtype: torch.dtype,
        seed: int = 0,
        shared: int = 0,
        device: str = "cpu",
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.shared, self.device = shared, device

        def states(length: int, heads: int, width: int) -> torch.Tensor:
            return torch.randn(length, heads, width, generator=generator).to(dtype)

        self.q = [states(n, heads, width) for n in lengths]
        self.k = [states(n, kv_heads, width) for n in lengths]
        self.v = [states(n, kv_heads, value_width) for n in lengths]
        for states_of in (self.q, self.k, self.v):
            for sequence in states_of[1:]:
                sequence[:shared] = states_of[0][:shared]

    def run(
        self,
        attend: Callable[..., torch.Tensor],
        chunks: Sequence[Sequence[tuple[int, int, int]]],
        block_size: int,
        layout: int = 0,
        siblings: bool = False,
        unwritten: float = torch.nan,
        **how: Any,
    ) -> list[torch.Tensor]:
        """Outputs by sequence, computed in steps of (sequence, start, length) chunks.

        Siblings keep the whole blocks of what they share in the first sequence's blocks, and start after them.
        """
        pool = max(BLOCKS, 1 + sum(-(-q.shape[0] // block_size) for q in self.q))
        free = list(range(1, pool))
        random.Random(layout).shuffle(free)
        blocks = [[free.pop() for _ in range(-(-q.shape[0] // block_size))] for q in self.q]
        if siblings:
            common = self.shared // block_size
            blocks = [blocks[0][:common] + own[common:] for own in blocks]
        cache = PagedKV.empty(pool, block_size, self.k[0].to(self.device), self.v[0].to(self.device))
        cache.key[1:], cache.value[1:] = unwritten, unwritten
        output = [
            torch.full((*q.shape[:2], v.shape[2]), torch.nan, dtype=q.dtype)
            for q, v in zip(self.q, self.v, strict=True)
        ]
        for step in chunks:
            rows = sum(length for _, _, length in step) + 5  # padding
            packed = [
                torch.cat([torch.cat([states[s][a : a + n] for s, a, n in step]), states[0][:1].expand(5, -1, -1)])
                for states in (self.q, self.k, self.v)
            ]
            sequences, slots, row = [], [], 0
            for s, start, length in step:
                sequences.append(PagedSequence(row, length, start, blocks[s]))
                slots += [
                    blocks[s][p // block_size] * block_size + p % block_size for p in range(start, start + length)
                ]
                row += length
            write_rows, write_slots = torch.arange(row).to(self.device), torch.tensor(slots).to(self.device)
            batch = PagedBatch(tuple(sequences), block_size, rows, write_rows, write_slots)
            query, key, value = (states.to(self.device) for states in packed)
            write_kv(key, value, cache, batch)
            query = query.transpose(0, 1).contiguous().transpose(0, 1)  # rows are not contiguous
            result = attend(query, cache, batch, **how).cpu()
            assert torch.equal(result[row:], torch.zeros_like(result[row:]))
            for (s, start, length), sequence in zip(step, sequences, strict=True):
                output[s][start : start + length] = result[sequence.row : sequence.row + length]
        return output

    def assert_invariant_among_4096_rows(self, attend: Callable[..., torch.Tensor], **how: Any) -> None:
        """Rows of one step of `MANY` are the same bits there, in another order and other blocks, and by themselves."""
        before = [[(s, 0, start) for s, (start, _) in enumerate(MANY) if start]]
        step = [(s, start, length) for s, (start, length) in enumerate(MANY)]
        assert sum(length for _, _, length in step) == 4096
        expected = self.run(attend, [*before, step], 16, **how)
        shuffled = random.Random(1).sample(step, len(step))
        assert all(map(torch.equal, self.run(attend, [*before, shuffled], 32, 1, **how), expected))
        for s in (0, 31, len(MANY) - 2, len(MANY) - 1):  # whole prefill, a later chunk, decode
            middle = MANY[s][0] + MANY[s][1] // 2
            alone = self.run(attend, [[(s, 0, middle)], [(s, middle, 1)]], 16, 2, **how)[s]
            assert torch.equal(alone[middle], expected[s][middle])

    def assert_near_the_oracle(
        self,
        outputs: Sequence[torch.Tensor],
        sliding_window: int | None = None,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        """Errors may be twice those of dense torch, which sums in float32, and a rounding; the largest four times."""
        how = 0, sliding_window, softcap, None if sinks is None else sinks.cpu()
        errors, usual = [], []
        for q, k, v, output in zip(self.q, self.k, self.v, outputs, strict=True):
            exact = oracle(q.double(), k.double(), v.double(), *how)
            dense = oracle(q.float(), k.float(), v.float(), *how).to(q.dtype)
            errors.append((output.double() - exact).flatten())
            usual.append((dense.double() - exact).flatten())
        error, own = torch.cat(errors), torch.cat(usual)
        eps = torch.finfo(self.q[0].dtype).eps
        assert error.norm() <= 2 * own.norm() + eps * len(error) ** 0.5, (error.norm(), own.norm())
        assert error.abs().max() <= 4 * own.abs().max() + 4 * eps, (error.abs().max(), own.abs().max())


def check_writes_of_4096_rows(write: Callable[..., None], device: str = "cpu") -> None:
    """What a row leaves in its slot is the same alone, among 4,096, and there in another order."""
    generator = torch.Generator().manual_seed(0)
    rows = [0, 1, 2049, 4095]
    key, value = (torch.randn(4096, 2, width, generator=generator).to(device) for width in (8, 4))
    key[1, 1, 3], value[4095, 0, 0] = torch.nan, torch.inf

    def written(write_rows: torch.Tensor) -> PagedKV:
        """Row r in slot 16 + r."""
        cache = PagedKV.empty(260, 16, key, value)
        cache.key[1:], cache.value[1:] = 7, 7
        places = [place for place, row in enumerate(write_rows.tolist()) if row in rows]
        with only_programs({4096: places}):
            write(key, value, cache, PagedBatch((), 16, 4096, write_rows.to(device), write_rows.to(device) + 16))
        return cache

    together, shuffled = (written(order) for order in (torch.arange(4096), torch.randperm(4096, generator=generator)))
    for row in rows:
        alone = written(torch.tensor([row]))
        for name in ("key", "value", "bad"):
            one, *others = (getattr(cache, name).view(260 * 16, -1)[16 + row] for cache in (alone, together, shuffled))
            assert not (one == 7).any() and all(torch.equal(one, other) for other in others), name
    assert [bool(together.bad[16 + row]) for row in rows] == [False, True, False, True]
