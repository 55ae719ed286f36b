"""Attention compiled for this CPU: its numbers, its bits, and where it cannot be compiled or kept.

Run as a script, with how many lanes its vectors are to have, this file checks it with those instead of this CPU's own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numba  # noqa: F401  # which finds out about this CPU
import pytest
import torch
from llvmlite import binding

if __name__ == "__main__":  # what chooses the lanes sees another CPU, and numba this one
    with patch.object(binding, "get_host_cpu_features", lambda: {"avx512f": sys.argv[1] == "16"}):
        from adjudge.kernels import vectors_numba
    assert str(vectors_numba.LANES) == sys.argv[1]

from adjudge.kernels import attention_numba
from adjudge.kernels.attention import numba_problem, paged_attention
from adjudge.kernels.attention_library import AttentionKind
from adjudge.kernels.paged_kv import PagedBatch, PagedKV
from adjudge.kernels.vectors_numba import LANES
from tests.kernels.own_process import python
from tests.kernels.paged_cases import MANY, Case

KIND = AttentionKind(torch.device("cpu"), torch.float32, 64, 64, 16)
PROBLEM = numba_problem(KIND)
pytestmark = [pytest.mark.skipif(PROBLEM is not None, reason=str(PROBLEM)), pytest.mark.usefixtures("on_numba")]

SHAPES = [(4, 2, 16, 16), (9, 3, 64, 64), (4, 4, 32, 16), (3, 1, 80, 112), (14, 2, 128, 128), (260, 1, 16, 16)]
LENGTHS = (1, 5, 64, 65, 200)
WHOLE = [[(s, 0, n) for s, n in enumerate(LENGTHS)]]
WINDOWS: list[dict[str, Any]] = [{}, {"sliding_window": 1}, {"sliding_window": 7}, {"sliding_window": 70}]


@pytest.fixture
def on_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADJUDGE_ATTENTION", "numba")


def case_of(*lengths: int, shape: tuple[int, int, int, int] = (9, 3, 64, 64), seed: int = 0, shared: int = 0) -> Case:
    return Case(lengths, *shape, torch.float32, seed, shared)


@pytest.mark.parametrize("how", WINDOWS)
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_is_as_near_the_float64_oracle_as_dense_torch(
    shape: tuple[int, int, int, int], how: dict[str, Any]
) -> None:
    for seed in (0, 1):
        case = case_of(*LENGTHS, shape=shape, seed=seed)
        case.assert_near_the_oracle(case.run(paged_attention, WHOLE, 16, **how), **how)


@pytest.mark.parametrize("size", [1e-3, 8.0, 60.0])
def test_small_and_large_scores_are_as_near_as_dense_torch(size: float) -> None:
    case = case_of(300, 130)
    case.q, case.k = ([size * states for states in kind] for kind in (case.q, case.k))
    case.assert_near_the_oracle(case.run(paged_attention, [[(0, 0, 300), (1, 0, 130)]], 16))


@pytest.mark.parametrize("how", WINDOWS)
@pytest.mark.parametrize("shape", SHAPES[:-1])
def test_a_row_is_bit_equal_whatever_the_chunks_blocks_neighbours_and_threads(
    shape: tuple[int, int, int, int], how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = case_of(*LENGTHS, shape=shape)
    expected = case.run(paged_attention, WHOLE, 16, **how)
    chunked = [
        [(s, start, min(13, n - start)) for s, n in enumerate(LENGTHS) if start < n] for start in range(0, 200, 13)
    ]
    alone = [[(s, 0, n)] for s, n in reversed(list(enumerate(LENGTHS)))]
    by_token = [[(s, start, 1) for s, n in enumerate(LENGTHS) if start < n] for start in range(200)]
    threads = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            for chunks, size, layout in ((chunked, 16, 1), (alone, 16, 2), (WHOLE, 4, 3), (by_token, 32, 4)):
                assert all(map(torch.equal, case.run(paged_attention, chunks, size, layout, **how), expected))
            monkeypatch.setattr(attention_numba, "CHUNK", 24)  # more items, each with other tiles
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("how", [{}, {"sliding_window": 30}])
def test_a_row_is_bit_equal_alone_and_among_4096(how: dict[str, Any]) -> None:
    case_of(*(sum(rows) for rows in MANY), shape=(4, 2, 16, 16)).assert_invariant_among_4096_rows(
        paged_attention, **how
    )


def test_siblings_that_share_blocks_have_the_bits_of_strangers() -> None:
    case = case_of(290, 280, 160, shared=144)
    chunks = [[(0, 0, 280)], [(1, 144, 130), (2, 144, 10)], [(0, 280, 9), (1, 274, 5), (2, 154, 5)]]
    chunks += [[(0, 289, 1), (1, 279, 1), (2, 159, 1)]]
    together = case.run(paged_attention, chunks, 16, siblings=True)
    alone = case.run(paged_attention, [[(0, 0, 290), (1, 0, 280), (2, 0, 160)]], 16)
    for s, (ours, other) in enumerate(zip(together, alone, strict=True)):
        assert torch.equal(ours[144 if s else 0 :], other[144 if s else 0 :])


def test_what_is_not_finite_reaches_the_rows_that_see_it_and_no_others() -> None:
    case = case_of(40, 40, shape=(4, 2, 16, 16))
    expected = case.run(paged_attention, [[(0, 0, 40), (1, 0, 40)]], 16)
    case.k[0][20, 1, 3] = torch.nan
    case.v[0][30, 0, 0] = torch.inf
    case.q[1][10, 2, 5] = torch.nan
    case.q[1][12, 3, :] = torch.inf
    for chunks in ([[(0, 0, 40), (1, 0, 40)]], [[(0, 0, 33), (1, 0, 10)], [(0, 33, 7), (1, 10, 30)]]):
        first, second = case.run(paged_attention, chunks, 16)
        assert torch.equal(first[:20], expected[0][:20]) and first[20:].isnan().all()
        spoilt = second.isnan().all(-1)
        assert spoilt.nonzero().tolist() == [[10, 2], [12, 3]]
        assert torch.equal(second[~spoilt], expected[1][~spoilt])
    windowed = case.run(paged_attention, [[(0, 0, 40)]], 16, sliding_window=4)[0]
    seen = [20, 21, 22, 23, 30, 31, 32, 33]
    assert windowed.flatten(1).isnan().all(1).nonzero().flatten().tolist() == seen
    assert windowed.flatten(1).isnan().any(1).nonzero().flatten().tolist() == seen


def test_vectors_of_other_cpus_are_as_near_the_oracle_and_as_bit_equal() -> None:
    assert python(__file__, "8" if LANES == 16 else "16") == "all well\n"


def test_a_batch_without_sequences_is_padding_alone() -> None:
    like, none = torch.zeros(1, 2, 16), torch.empty(0, dtype=torch.long)
    batch = PagedBatch((), 16, 3, none, none)
    assert not paged_attention(torch.ones(3, 4, 16), PagedKV.empty(2, 16, like, like), batch).any()


def test_where_a_disk_cannot_keep_what_was_compiled_it_serves_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    program = (
        "import torch; from adjudge.kernels.attention_numba import _kernel, numba_attention;"
        "from numba.core.caching import FunctionCache\n"
        "def full(*_): raise OSError(28, 'No space left on device')\n"
        "FunctionCache.save_overload = full; FunctionCache.load_overload = lambda *_: None\n"
        "print(hex(_kernel().address))"
    )
    for folder in ("", str(tmp_path / "file")):  # as usual, and where no folder can be made
        monkeypatch.setenv("NUMBA_CACHE_DIR", folder)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert int(done.stdout, 16)


if __name__ == "__main__":
    for widths in SHAPES[1:4]:
        for how in WINDOWS[::3]:
            case = case_of(*LENGTHS, shape=widths)
            outputs = case.run(paged_attention, WHOLE, 16, **how)
            case.assert_near_the_oracle(outputs, **how)
            cut = [[(s, a, min(13, n - a)) for s, n in enumerate(LENGTHS) if a < n] for a in range(0, 200, 13)]
            assert all(map(torch.equal, case.run(paged_attention, cut, 16, 1, **how), outputs))
    print("all well")
