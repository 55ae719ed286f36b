from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from adjudge.kernels import attention_torch
from adjudge.kernels.attention import paged_attention
from adjudge.kernels.paged_kv import PagedBatch, PagedKV, PagedSequence, torch_write_kv, write_kv
from tests.kernels.paged_cases import MANY, Case, check_writes_of_4096_rows

pytestmark = pytest.mark.usefixtures("on_torch")
SHAPES = [(4, 2, 16, 16), (9, 3, 64, 64), (3, 1, 20, 20), (4, 4, 24, 16), (2, 2, 8, 8)]
LENGTHS = (1, 5, 16, 47, 200)
WHOLE = [[(s, 0, n) for s, n in enumerate(LENGTHS)]]
WAYS: list[tuple[dict[str, float], int]] = [({}, 3), ({}, 4), ({"sliding_window": 30}, 1), ({"softcap": 2.0}, 1)]


@pytest.fixture
def on_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADJUDGE_ATTENTION", "torch")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"sliding_window": 7},
        {"softcap": 5.0},
        {"sliding_window": 30, "softcap": 2.0},
        {"sinks": True},
        {"sinks": True, "sliding_window": 7, "softcap": 5.0},
    ],
)
def test_attention_is_as_near_the_float64_oracle_as_dense_torch(
    shape: tuple[int, int, int, int], how: dict[str, Any]
) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        case = Case(LENGTHS, *shape, dtype)
        given = how | ({"sinks": torch.linspace(-2, 9, shape[0]).to(dtype)} if "sinks" in how else {})
        case.assert_near_the_oracle(case.run(paged_attention, WHOLE, 16, **given), **given)


def test_large_scores_under_a_soft_cap_keep_their_precision_in_bfloat16() -> None:
    case = Case((200,), 4, 2, 64, 64, torch.bfloat16)
    case.q, case.k = ([4 * states for states in kind] for kind in (case.q, case.k))
    case.assert_near_the_oracle(case.run(paged_attention, [[(0, 0, 200)]], 16, softcap=50.0), softcap=50.0)


@pytest.mark.parametrize("how", [{}, {"sliding_window": 30}, {"softcap": 2.0}, {"sinks": torch.arange(9.0)}])
def test_a_row_is_bit_equal_whatever_the_chunks_blocks_neighbours_and_threads(how: dict[str, Any]) -> None:
    case = Case(LENGTHS, 9, 3, 64, 64, torch.float32)
    expected = case.run(paged_attention, WHOLE, 16, **how)
    chunked = [
        [(s, start, min(23, n - start)) for s, n in enumerate(LENGTHS) if start < n] for start in range(0, 200, 23)
    ]
    alone = [[(s, 0, n)] for s, n in reversed(list(enumerate(LENGTHS)))]
    for chunks, block_size, layout in ((chunked, 16, 1), (alone, 16, 2), (WHOLE, 4, 3), (chunked, 32, 4)):
        assert all(map(torch.equal, case.run(paged_attention, chunks, block_size, layout, **how), expected))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(2, threads))
        assert all(map(torch.equal, case.run(paged_attention, chunked, 16, **how), expected))
    finally:
        torch.set_num_threads(threads)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """The sizes of the tiles that attention has used, and the threads as before."""
    found: set[int] = set()
    planned, threads = attention_torch._planned, torch.get_num_threads()

    def noted(batch: PagedBatch, sizes: tuple[int, ...]) -> Any:
        plan = planned(batch, sizes)
        found.update(tiles.size for tiles in plan.tiles)
        return plan

    monkeypatch.setattr(attention_torch, "_planned", noted)
    yield found
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("shape", "how", "threads"),
    [
        *((shape, {}, 1) for shape in [*SHAPES, (3, 1, 72, 72)]),
        *(((9, 3, 64, 64), how, threads) for how, threads in WAYS),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tokens_read_one_by_one_have_the_bits_of_a_whole_prompt(
    shape: tuple[int, int, int, int],
    dtype: torch.dtype,
    how: dict[str, float],
    threads: int,
    sizes: set[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.set_num_threads(threads)
    lengths = (30, 131, 270)
    case = Case(lengths, *shape, dtype)
    expected = case.run(paged_attention, [[(s, 0, n) for s, n in enumerate(lengths)]], 16, **how)
    starts = [n - 5 for n in lengths]
    steps = [[(s, 0, n) for s, n in enumerate(starts)]]
    steps += [[(s, n + step, 1) for s, n in enumerate(starts)] for step in range(5)]
    alone = [[part] for step in steps for part in step]
    agreeing = attention_torch.agreeing_sizes
    for chosen in (agreeing, lambda *shape: agreeing(*shape)[:2], lambda *shape: ()):
        monkeypatch.setattr(attention_torch, "agreeing_sizes", chosen)
        sizes.clear()
        assert all(map(torch.equal, case.run(paged_attention, steps, 16, **how), expected))
        assert all(map(torch.equal, case.run(paged_attention, alone, 16, **how), expected))
        assert sizes <= {*attention_torch.SIZES, attention_torch.TILE_ROWS}
    assert sizes == {attention_torch.TILE_ROWS}


def test_a_tile_is_as_large_as_what_is_asked_of_it(sizes: set[int]) -> None:
    torch.set_num_threads(1)
    if attention_torch.agreeing_sizes(2, 2, 16, torch.float32, 1) != attention_torch.SIZES:
        pytest.skip("on this machine some tiles have other bits, so they are not used")
    case = Case((230, 40, 40), 4, 2, 16, 16, torch.float32)
    case.run(paged_attention, [[(0, 0, 229), (1, 0, 30), (2, 0, 36)], [(0, 229, 1), (1, 30, 10), (2, 36, 4)]], 16)
    assert sizes == {1, 4, 16, 32, 64}


@pytest.mark.parametrize("sizes", [(), (1, 4), (16, 64), (1, 4, 16, 32, 64)])
def test_each_position_is_asked_for_in_one_tile_of_its_band(sizes: tuple[int, ...]) -> None:
    for start, length in [(0, 1), (0, 300), (5, 20), (120, 9), (127, 2), (130, 125), (255, 400), (3, 4)]:
        asked: list[int] = []
        for size, keys, firsts, begin, end in attention_torch._runs(PagedSequence(0, length, start, []), sizes):
            tiles = [position for first in firsts for position in range(first, first + size)]
            assert len(set(tiles)) == len(tiles) and set(range(begin, end)) <= set(tiles)
            assert keys - attention_torch.BAND <= begin < end <= keys
            assert size in sizes or (size == attention_torch.TILE_ROWS and not firsts[0] % size)
            assert all(first < end and first + size > begin for first in firsts)
            asked += range(begin, end)
        assert asked == list(range(start, start + length))


@pytest.mark.parametrize("width", [16, 20])
def test_what_siblings_share_is_gathered_once_and_changes_no_bit(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read, gathered = attention_torch._read, []

    def noted(cached: torch.Tensor, place: torch.Tensor, band: Any) -> torch.Tensor:
        gathered.append(band.slots.shape[0] - band.kept)
        return read(cached, place, band)

    monkeypatch.setattr(attention_torch, "_read", noted)
    case = Case((290, 280, 160), 4, 2, width, width, torch.float32, shared=144)
    chunks = [[(0, 0, 280)], [(1, 144, 130), (2, 144, 10)], [(0, 280, 9), (1, 274, 5), (2, 154, 5)]]
    chunks += [[(0, 289, 1), (1, 279, 1), (2, 159, 1)]]
    once = case.run(paged_attention, chunks, 16, siblings=True)
    assert sorted(gathered[-6:]) == [112, 112, 240, 240, 384, 384]  # 144 of each but the first are there already
    monkeypatch.setattr(attention_torch, "_common", lambda *bands: 0)
    again = case.run(paged_attention, chunks, 16, siblings=True)
    assert sorted(gathered[-6:]) == [256, 256, 384, 384, 384, 384]
    for s, (ours, plain, alone) in enumerate(
        zip(
            once,
            again,
            case.run(paged_attention, [[(s, 0, n) for s, n in enumerate((290, 280, 160))]], 16),
            strict=True,
        )
    ):
        own = slice(144 if s else 0, None)
        assert torch.equal(ours[own], plain[own]) and torch.equal(ours[own], alone[own])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("turned", ["keys", "widths"])
@pytest.mark.parametrize("size", sorted({*attention_torch.SIZES} - {attention_torch.TILE_ROWS}))
def test_tiles_that_add_up_in_another_order_are_not_used(
    size: int, turned: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact, agreeing = attention_torch._attend, attention_torch.agreeing_sizes.__wrapped__
    shape = 2, 3, 16, dtype, 1
    expected = [other for other in agreeing(*shape) if other != size]

    def careless(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, *rest: Any) -> torch.Tensor:
        if query.shape[2] == 3 * size and turned == "keys":
            key, value, mask = key.flip(-2), value.flip(-2), mask.flip(-1)
        elif query.shape[2] == 3 * size:
            query, key = query.flip(-1), key.flip(-1)
        return exact(query, key, value, mask, *rest)

    monkeypatch.setattr(attention_torch, "_attend", careless)
    assert list(agreeing(*shape)) == expected


@pytest.mark.parametrize("how", [{}, {"sliding_window": 30, "softcap": 2.0}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_is_bit_equal_alone_and_among_4096(how: dict[str, float], dtype: torch.dtype) -> None:
    case = Case([sum(rows) for rows in MANY], 4, 2, 16, 16, dtype)
    case.assert_invariant_among_4096_rows(paged_attention, **how)


def test_a_written_row_is_bit_equal_alone_and_among_4096() -> None:
    check_writes_of_4096_rows(torch_write_kv)


def test_what_is_not_finite_reaches_the_rows_that_see_it_and_no_others() -> None:
    case = Case((40, 40), 4, 2, 16, 16, torch.float32)
    expected = case.run(paged_attention, [[(0, 0, 40), (1, 0, 40)]], 16)
    case.k[0][20, 1, 3] = torch.nan
    case.v[0][30, 0, 0] = torch.inf
    for chunks in ([[(0, 0, 40), (1, 0, 40)]], [[(0, 0, 33), (1, 0, 10)], [(0, 33, 7), (1, 10, 30)]]):
        first, second = case.run(paged_attention, chunks, 16)
        assert torch.equal(first[:20], expected[0][:20])
        assert first[20:].isnan().all()
        assert torch.equal(second, expected[1])
    windowed = case.run(paged_attention, [[(0, 0, 40)]], 16, sliding_window=4)[0]
    assert [bool(row.isnan().all()) for row in windowed[18:36]] == [False] * 2 + [True] * 4 + [False] * 6 + [
        True
    ] * 4 + [False] * 2


def test_numbers_whose_sum_is_too_large_are_finite_all_the_same() -> None:
    like = torch.zeros(1, 2, 4)
    cache = PagedKV.empty(2, 4, like, like)
    batch = PagedBatch((PagedSequence(0, 2, 0, [1]),), 4, 2, torch.tensor([0, 1]), torch.tensor([4, 5]))
    key, value = torch.full((2, 2, 4), 3e38), torch.ones(2, 2, 4)
    cache.bad[4:] = True  # of who had the block before
    for value[0, 0, 0] in (torch.tensor(1.0), torch.tensor(torch.nan), torch.tensor(1.0)):
        torch_write_kv(key, value, cache, batch)
        assert cache.bad[4:6].tolist() == [bool(value[0, 0, 0].isnan()), False]
        assert torch.equal(cache.key[1, 1], key[1]) and torch.equal(cache.value[1, 1], value[1])


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
