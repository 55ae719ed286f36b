"""The Triton attention and key/value write, in Triton's interpreter and on a GPU.

Run as a script, this file does the parts that its arguments name: Triton decides once, when it is imported,
whether it interprets, so they run in processes of their own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from adjudge.kernels.held_batch import HeldBatch, Room
from adjudge.kernels.paged_kv import PagedBatch, PagedKV, torch_write_kv
from tests.kernels.interpreter import hasten
from tests.kernels.own_process import python
from tests.kernels.paged_cases import MANY, Case, check_writes_of_4096_rows

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SHAPES = [(4, 2, 16, 16), (9, 3, 64, 64), (3, 1, 20, 20), (4, 4, 24, 16), (2, 2, 8, 8), (71, 1, 16, 16)]
HOW: list[dict[str, Any]] = [{}, {"sliding_window": 7}, {"softcap": 5.0}, {"sliding_window": 30, "softcap": 2.0}]
LENGTHS = (1, 33, 66)
CHUNKED = [[(s, start, min(19, n - start)) for s, n in enumerate(LENGTHS) if start < n] for start in range(0, 66, 19)]
SPLIT = 32  # many splits in short sequences, each a part of a tile's usual keys


def whole(*lengths: int) -> list[list[tuple[int, int, int]]]:
    return [[(s, 0, n) for s, n in enumerate(lengths)]]


def test_triton_attention_in_the_interpreter() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    assert python(__file__, *PARTS, TRITON_INTERPRET="1").split() == list(PARTS)


def test_tiles_are_smaller_where_a_card_has_less_shared_memory_and_none_where_none_fits() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    from adjudge.kernels.attention_triton import Tile
    from adjudge.kernels.dispatch import assuming

    def keys(capability: int, width: int, group: int, dtype: torch.dtype = torch.bfloat16) -> int | None:
        with assuming(capability):
            tile = Tile.of(width, group, dtype, torch.device("cpu"))
        return tile and tile.keys

    for capability in (80, 90, 100):  # what they serve as it was first measured stays as it is
        for group in (1, 8, 64):
            assert [keys(capability, width, group) for width in (64, 128, 192, 256, 512)] == [64, 64, 32, 32, 32]
        assert [keys(capability, width, 8, torch.float32) for width in (64, 128, 256, 512)] == [32, 16, 16, 16]
    for capability in (86, 89, 120):
        assert [keys(capability, width, 8) for width in (128, 256, 320, 512)] == [64, 32, 16, 16]
        assert [keys(capability, width, 128) for width in (128, 256, 512)] == [64, 16, None]
    assert [keys(capability, 512, 128) for capability in (80, 90, 100)] == [None, 16, 16]
    assert [keys(75, width, 8, torch.float16) for width in (64, 128, 256, 512)] == [64, 32, None, None]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(
    "part", ["oracle", "company", "many", "splits", "cascade", "rounds", "held", "bad", "write", "dispatch"]
)
def test_triton_attention_on_cuda(part: str) -> None:
    PARTS[part]("cuda")


# ---- the parts


def check_oracle(device: str) -> None:
    """As near the float64 oracle as dense torch: every way in one dtype or another, and odd shapes and block sizes."""
    from adjudge.kernels.attention_triton import triton_attention

    for index, how in enumerate(HOW):
        for dtype in DTYPES if device != "cpu" else (DTYPES[index % 3],):
            case = Case((3, 70), 3, 1, 16, 16, dtype, device=device)
            outputs = case.run(triton_attention, whole(3, 70), 16, split_keys=64, **how)
            case.assert_near_the_oracle(outputs, **how)
    sinks = torch.tensor([-3.0, 1.0, 12.0], device=device)  # in one split, and where several are merged
    for split_keys, window in ((64, None), (SPLIT, None), (SPLIT, 7)):
        case, how = (
            Case((3, 70), 3, 1, 16, 16, torch.float32, device=device),
            {"sinks": sinks, "sliding_window": window},
        )
        case.assert_near_the_oracle(case.run(triton_attention, whole(3, 70), 16, split_keys=split_keys, **how), **how)
    for index, shape in enumerate(SHAPES):
        case = Case((5, 40), *shape, DTYPES[index % 3], device=device)
        case.assert_near_the_oracle(case.run(triton_attention, whole(5, 40), 16 * (1 + index % 3), split_keys=SPLIT))


def check_company(device: str) -> None:
    """A row is the same bits in chunks, alone, in other blocks, in another order and with tiles shared or not."""
    from adjudge.kernels.attention_triton import triton_attention

    alone = [[(s, 0, n)] for s, n in reversed(list(enumerate(LENGTHS)))]
    single = [[(s, LENGTHS[s] - 1, 1) for s in (2, 1)]]  # decode: one token each, after their chunks
    for dtype, how in ((torch.bfloat16, {}), (torch.float32, {"sliding_window": 30, "softcap": 2.0})):
        case = Case(LENGTHS, 3, 1, 16, 16, dtype, device=device)

        def run(
            chunks: Any, block_size: int = 16, layout: int = 0, case: Case = case, **how: Any
        ) -> list[torch.Tensor]:
            return case.run(triton_attention, chunks, block_size, layout, split_keys=SPLIT, **how)

        expected = run(whole(*LENGTHS), **how)
        for chunks, block_size, layout in ((CHUNKED, 16, 1), (alone, 32, 2), (whole(*LENGTHS) + single, 48, 3)):
            assert all(map(torch.equal, run(chunks, block_size, layout, **how), expected))


def check_many(device: str) -> None:
    """A row is the same bits alone and among 4,096 of prefill, chunks and decode, shuffled and in other blocks."""
    from adjudge.kernels.attention_triton import triton_attention

    case = Case([sum(rows) for rows in MANY], 1, 1, 16, 16, torch.bfloat16, device=device)
    case.assert_invariant_among_4096_rows(triton_attention, split_keys=64)


def check_splits(device: str) -> None:
    """Contexts that end just before, at and after a split, and windows that reach just into one."""
    from adjudge.kernels.attention_triton import triton_attention

    lengths = (31, 32, 33, 65)
    case = Case(lengths, 4, 1, 16, 16, torch.float32, device=device)
    outputs = case.run(triton_attention, whole(*lengths), 16, split_keys=SPLIT)
    case.assert_near_the_oracle(outputs)
    one_split = case.run(triton_attention, whole(*lengths), 16)  # rows inside the first split know nothing of splits
    assert all(torch.equal(ours[:SPLIT], theirs[:SPLIT]) for ours, theirs in zip(outputs, one_split, strict=True))
    windowed = Case((32, 65), 4, 1, 16, 16, torch.float32, device=device)
    for window in (1, 2, 32, 33, 34):
        outputs = windowed.run(triton_attention, whole(32, 65), 16, split_keys=SPLIT, sliding_window=window)
        windowed.assert_near_the_oracle(outputs, window)
    tail = case.run(triton_attention, [[(3, 0, 64)], [(3, 64, 1)]], 16, split_keys=SPLIT)
    assert torch.equal(tail[3], case.run(triton_attention, [[(3, 0, 65)]], 16, split_keys=SPLIT)[3])


def check_cascade(device: str) -> None:
    """Siblings that share tiles for their common splits get the bits they get alone; fewer tiles do the work."""
    from adjudge.kernels.attention_triton import triton_attention

    tiles = []

    def counted(query: torch.Tensor, cache: PagedKV, batch: PagedBatch, **how: Any) -> torch.Tensor:
        result = triton_attention(query, cache, batch, **how)
        tiles.append(sum(len(work.items) for works in batch.plans.values() for work in works))
        return result

    lengths = (33, 49, 34, 38)
    case = Case(lengths, 3, 1, 16, 16, torch.bfloat16, shared=33, device=device)
    chunk = [[(0, 0, 33)], [(1, 32, 17), (2, 32, 2), (3, 32, 6)]]
    decode = [[(0, 0, 33)], [(1, 32, 16), (2, 32, 1), (3, 32, 5)], [(1, 48, 1), (2, 33, 1), (3, 37, 1)]]
    for chunks, window in ((chunk, 20), (decode, None)):
        results = []
        for cascade in (True, False):
            tiles.clear()
            how: dict[str, Any] = {"split_keys": SPLIT // 2, "sliding_window": window, "cascade": cascade}
            results.append(case.run(counted, chunks, 16, siblings=True, **how))
            if chunks is decode:
                assert tiles[-1] == (6 if cascade else 10)  # two splits of each are common, and four are not
        whole_sequences = case.run(triton_attention, whole(*lengths), 16, split_keys=SPLIT // 2, sliding_window=window)
        for shared, plain, alone in zip(*results, whole_sequences, strict=True):
            own = slice(0 if shared.isfinite().all() else 32, None)  # what the siblings did not compute is left NaN
            assert torch.equal(shared[own], plain[own]) and torch.equal(shared[own], alone[own])


def check_rounds(device: str) -> None:
    """A batch whose partial results are kept a few at a time gives the same bits."""
    from adjudge.kernels import attention_plan
    from adjudge.kernels.attention_triton import triton_attention

    lengths = (70, 50)
    case = Case(lengths, 2, 2, 16, 16, torch.float32, device=device)
    expected = case.run(triton_attention, whole(*lengths), 16, split_keys=SPLIT)
    usual = attention_plan.MAX_PARTS
    try:
        attention_plan.MAX_PARTS = 25
        few = case.run(triton_attention, whole(*lengths), 16, split_keys=SPLIT)
    finally:
        attention_plan.MAX_PARTS = usual
    assert all(map(torch.equal, few, expected))


def check_held(device: str) -> None:
    """One held batch gives the bits of each decode step that it takes in: more rows, fewer, longer and shorter ones."""
    from adjudge.kernels.attention_triton import triton_attention

    kept: dict[Room, HeldBatch] = {}
    met = []

    def held(query: torch.Tensor, cache: PagedKV, batch: PagedBatch, **how: Any) -> torch.Tensor:
        room = Room.of(batch)
        met.append(room)
        if room is None:
            return torch.zeros_like(query)  # of what comes before the steps, only keys and values are read
        expected = triton_attention(query, cache, batch, **how)
        if room in kept:
            kept[room].take(batch)
        else:
            kept[room] = HeldBatch.like(batch, room)
        rest = query.new_full((room.rows - batch.filled, *query.shape[1:]), torch.nan)
        result = triton_attention(torch.cat([query[: batch.filled], rest]), cache, kept[room], **how)
        assert torch.equal(result[: batch.filled], expected[: batch.filled])
        assert not result[batch.filled :].any()
        return expected

    lengths = (45, 62, 55, 30)
    before = [(s, 0, n - 3) for s, n in enumerate(lengths)]
    done = [0] * len(lengths)
    steps = []
    for which in ((2, 0, 1), (1, 0), (3, 1, 2, 0)):
        steps.append([(s, lengths[s] - 3 + done[s], 1) for s in which])
        for s in which:
            done[s] += 1
    with patch("adjudge.kernels.held_batch.SPLIT_KEYS", SPLIT):
        for dtype, how in ((torch.float32, {}), (torch.bfloat16, {"sliding_window": 30})):
            kept.clear()
            case = Case(lengths, 3, 1, 16, 16, dtype, shared=25, device=device)
            case.run(held, [before, *steps], 16, split_keys=SPLIT, **how)
            assert met[-4:] == [None, *[Room(32, 2)] * 3] and len(kept) == 1


def check_bad(device: str) -> None:
    """What is not finite reaches the rows that see it and no others."""
    from adjudge.kernels.attention_triton import triton_attention

    case = Case((50, 50), 4, 2, 16, 16, torch.float32, device=device)
    expected = case.run(triton_attention, whole(50, 50), 16, split_keys=SPLIT)
    case.k[0][20, 1, 3] = torch.nan
    case.v[0][40, 0, 0] = torch.inf
    for chunks in (whole(50, 50), [[(0, 0, 33), (1, 0, 10)], [(0, 33, 17), (1, 10, 40)]]):
        first, second = case.run(triton_attention, chunks, 16, split_keys=SPLIT)
        assert torch.equal(first[:20], expected[0][:20]) and first[20:].isnan().all()
        assert torch.equal(second, expected[1])
    windowed = case.run(triton_attention, [[(0, 0, 50)]], 16, sliding_window=4, split_keys=SPLIT)[0]
    assert [i for i, row in enumerate(windowed) if row.isnan().all()] == [20, 21, 22, 23, 40, 41, 42, 43]
    assert windowed.isnan().sum() == 8 * 4 * 16
    case.v[1][49, 1, 5] = -torch.inf  # the last of all keys, and alone in its split
    second = case.run(triton_attention, [[(1, 0, 50)]], 16, split_keys=SPLIT)[1]
    assert torch.equal(second[:49], expected[1][:49]) and second[49].isnan().all()


def check_write(device: str) -> None:
    """The write is torch's, for any strides, several slots of one row, and what is not finite."""
    from adjudge.kernels.kv_write_triton import triton_write_kv

    generator = torch.Generator().manual_seed(0)
    for dtype in DTYPES:
        for heads, width, value_width in ((2, 16, 16), (3, 20, 8), (40, 64, 64)):
            key = torch.randn(heads, 6, width, generator=generator).to(dtype).to(device).transpose(0, 1)
            value = torch.randn(6, heads, 2 * value_width, generator=generator).to(dtype).to(device)[:, :, ::2]
            key[1, -1, 3], value[2, 0, 1], key[3, 0, 0] = torch.nan, torch.inf, -torch.inf
            rows = torch.tensor([0, 1, 2, 3, 3, 4, 0], device=device)
            slots = torch.tensor([17, 16, 40, 31, 33, 60, 47], device=device)
            batch = PagedBatch((), 16, 6, *torch.stack([rows, slots], 1).unbind(1))
            caches = [PagedKV.empty(4, 16, key, value) for _ in range(2)]
            for cache, write in zip(caches, (triton_write_kv, torch_write_kv), strict=True):
                cache.key[1:], cache.value[1:], cache.bad[16:] = 7, 7, True
                write(key, value, cache, batch)
            for name in ("key", "value", "bad"):
                assert torch.equal(*(getattr(cache, name) for cache in caches)), name
            assert caches[0].bad[slots].tolist() == [False, True, True, True, True, False, False]
    triton_write_kv(key, value, caches[0], PagedBatch((), 16, 6, rows[:0], slots[:0]))
    check_writes_of_4096_rows(triton_write_kv, device)


def check_dispatch(device: str) -> None:
    """Through the one call, the back end that is named gives what it gives by itself, near what the other gives."""
    from adjudge.kernels.attention import paged_attention
    from adjudge.kernels.attention_triton import triton_attention

    case = Case(LENGTHS, 3, 1, 16, 16, torch.float32, device=device)
    outputs = {}
    for name in ("torch", "triton"):
        with patch.dict(os.environ, {"ADJUDGE_ATTENTION": name}):
            outputs[name] = case.run(paged_attention, whole(*LENGTHS), 16)
    assert all(map(torch.equal, outputs["triton"], case.run(triton_attention, whole(*LENGTHS), 16)))
    assert not all(map(torch.equal, outputs["triton"], outputs["torch"]))  # two implementations, not one
    for ours, other in zip(outputs["triton"], outputs["torch"], strict=True):
        assert torch.allclose(ours, other, rtol=1e-5, atol=1e-6)


PARTS: dict[str, Callable[[str], None]] = {
    "oracle": check_oracle,
    "company": check_company,
    "many": check_many,
    "splits": check_splits,
    "cascade": check_cascade,
    "rounds": check_rounds,
    "held": check_held,
    "bad": check_bad,
    "write": check_write,
    "dispatch": check_dispatch,
}


def product(a: Any, b: Any, dtype: Any) -> Any:
    """The interpreter's matrix product, for every row in the same order: not all BLAS kernels have one (Haswell's)."""
    return np.einsum("mk,kn->mn", a, b, dtype=dtype, casting="unsafe")


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True, warn_only=True)  # memory that nobody wrote is NaN
    hasten()
    np.matmul = product  # type: ignore[assignment]
    for name in sys.argv[1:]:
        PARTS[name]("cpu")
        print(name, flush=True)
