from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch

from adjudge.kernels.attention import paged_attention
from adjudge.kernels.paged_kv import PagedBatch, PagedKV, PagedSequence, write_kv

BLOCKS = 200


def oracle(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: int, window: int | None, softcap: float | None
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
    return torch.einsum("htl,lhd->thd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)


class Case:
    """Sequences with random states, laid out in shuffled blocks of a pool that is poisoned wherever nobody has
    written."""

    def __init__(
        self,
        lengths: Sequence[int],
        heads: int,
        kv_heads: int,
        width: int,
        value_width: int,
        dtype: torch.dtype,
        seed: int = 0,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)

        def states(length: int, heads: int, width: int) -> torch.Tensor:
            return torch.randn(length, heads, width, generator=generator).to(dtype)

        self.q = [states(n, heads, width) for n in lengths]
        self.k = [states(n, kv_heads, width) for n in lengths]
        self.v = [states(n, kv_heads, value_width) for n in lengths]

    def run(
        self,
        chunks: Sequence[Sequence[tuple[int, int, int]]],
        block_size: int,
        layout: int = 0,
        **how: float | int | None,
    ) -> list[torch.Tensor]:
        """Outputs by sequence, computed in steps of (sequence, start, length) chunks."""
        free = list(range(1, BLOCKS))
        random.Random(layout).shuffle(free)
        blocks = [[free.pop() for _ in range(-(-q.shape[0] // block_size))] for q in self.q]
        cache = PagedKV.empty(BLOCKS, block_size, self.k[0], self.v[0])
        cache.key[1:], cache.value[1:] = torch.nan, torch.nan
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
            batch = PagedBatch(tuple(sequences), block_size, rows, torch.arange(row), torch.tensor(slots))
            write_kv(packed[1], packed[2], cache, batch)
            query = packed[0].transpose(0, 1).contiguous().transpose(0, 1)  # rows are not contiguous
            result = paged_attention(query, cache, batch, **how)  # type: ignore[arg-type]
            assert torch.equal(result[row:], torch.zeros_like(result[row:]))
            for (s, start, length), sequence in zip(step, sequences, strict=True):
                output[s][start : start + length] = result[sequence.row : sequence.row + length]
        return output


SHAPES = [(4, 2, 16, 16), (9, 3, 64, 64), (3, 1, 20, 20), (4, 4, 24, 16), (2, 2, 8, 8)]
LENGTHS = (1, 5, 16, 47, 200)
WHOLE = [[(s, 0, n) for s, n in enumerate(LENGTHS)]]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("how", [{}, {"sliding_window": 7}, {"softcap": 5.0}, {"sliding_window": 30, "softcap": 2.0}])
def test_attention_is_as_near_the_float64_oracle_as_dense_torch(
    shape: tuple[int, int, int, int], how: dict[str, float]
) -> None:
    window, softcap = how.get("sliding_window"), how.get("softcap")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        case = Case(LENGTHS, *shape, dtype)
        outputs = case.run(WHOLE, 16, **how)
        for q, k, v, output in zip(case.q, case.k, case.v, outputs, strict=True):
            exact = oracle(q.double(), k.double(), v.double(), 0, window, softcap)  # type: ignore[arg-type]
            dense = oracle(q, k, v, 0, window, softcap)  # type: ignore[arg-type]
            error, usual = ((x.double() - exact).abs().max() for x in (output, dense))
            assert error <= 2 * usual + 4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("how", [{}, {"sliding_window": 30}, {"softcap": 2.0}])
def test_a_row_is_bit_equal_whatever_the_chunks_blocks_neighbours_and_threads(how: dict[str, float]) -> None:
    case = Case(LENGTHS, 9, 3, 64, 64, torch.float32)
    expected = case.run(WHOLE, 16, **how)
    chunked = [
        [(s, start, min(13, n - start)) for s, n in enumerate(LENGTHS) if start < n] for start in range(0, 200, 13)
    ]
    alone = [[(s, 0, n)] for s, n in reversed(list(enumerate(LENGTHS)))]
    for chunks, block_size, layout in ((chunked, 16, 1), (alone, 16, 2), (WHOLE, 4, 3), (chunked, 32, 4)):
        assert all(map(torch.equal, case.run(chunks, block_size, layout, **how), expected))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(2, threads))
        assert all(map(torch.equal, case.run(chunked, 16, **how), expected))
    finally:
        torch.set_num_threads(threads)


def test_what_is_not_finite_reaches_the_rows_that_see_it_and_no_others() -> None:
    case = Case((40, 40), 4, 2, 16, 16, torch.float32)
    expected = case.run([[(0, 0, 40), (1, 0, 40)]], 16)
    case.k[0][20, 1, 3] = torch.nan
    case.v[0][30, 0, 0] = torch.inf
    for chunks in ([[(0, 0, 40), (1, 0, 40)]], [[(0, 0, 33), (1, 0, 10)], [(0, 33, 7), (1, 10, 30)]]):
        first, second = case.run(chunks, 16)
        assert torch.equal(first[:20], expected[0][:20])
        assert first[20:].isnan().all()
        assert torch.equal(second, expected[1])
    windowed = case.run([[(0, 0, 40)]], 16, sliding_window=4)[0]
    assert [bool(row.isnan().all()) for row in windowed[18:36]] == [False] * 2 + [True] * 4 + [False] * 6 + [
        True
    ] * 4 + [False] * 2


def test_copied_slots_carry_their_state() -> None:
    like = torch.zeros(1, 2, 4)
    cache = PagedKV.empty(4, 4, like, like)
    batch = PagedBatch((PagedSequence(0, 2, 0, [1]),), 4, 2, torch.tensor([0, 1]), torch.tensor([4, 5]))
    key = torch.randn(2, 2, 4)
    key[1] = torch.nan
    write_kv(key, torch.ones(2, 2, 4), cache, batch)
    cache.copy(torch.tensor([4, 5]), torch.tensor([8, 9]))
    assert torch.equal(cache.key.flatten(0, 1)[[8, 9]], torch.stack([key[0], torch.zeros(2, 4)]))
    assert cache.bad.nonzero().flatten().tolist() == [5, 9]
