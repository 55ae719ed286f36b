"""How the batch is handed to the attention libraries: FAKES of them read what they are given, and on a GPU they do.

A fake is a dense float32 reference with the library's parameters and its rules (causal from the end of the keys, window
counted to the left of the query). These tests prove the arguments, and nothing about the libraries' own kernels.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from adjudge.kernels import attention_library
from adjudge.kernels.attention_library import (
    AttentionKind,
    FlashAttention2,
    FlashAttention3,
    LibraryAttention,
    TorchVarlen,
)
from adjudge.kernels.dispatch import BackendUnavailable
from adjudge.kernels.paged_kv import PagedKV
from tests.kernels.paged_cases import Case

CUDA = torch.device("cuda")
LIBRARIES: list[LibraryAttention] = [FlashAttention2(), FlashAttention3(), TorchVarlen()]


def dense(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    query_offsets: torch.Tensor,
    lengths: torch.Tensor,
    table: torch.Tensor,
    scale: float | None,
    window: tuple[int, int],
    softcap: float,
) -> torch.Tensor:
    """What the libraries' documentation says they compute, one sequence at a time; rows beyond the last are garbage."""
    assert query_offsets.dtype == lengths.dtype == table.dtype == torch.int32
    assert window[1] == 0, "causal"
    output = torch.full((*q.shape[:2], value_cache.shape[3]), torch.nan, dtype=q.dtype)
    group = q.shape[1] // key_cache.shape[2]
    for index, length in enumerate(lengths.tolist()):
        rows = slice(int(query_offsets[index]), int(query_offsets[index + 1]))
        keys, values = (
            cache[table[index].long()].flatten(0, 1)[:length].repeat_interleave(group, 1).float()
            for cache in (key_cache, value_cache)
        )
        scores = torch.einsum("thd,lhd->htl", q[rows].float(), keys) * (q.shape[2] ** -0.5 if scale is None else scale)
        if softcap > 0:
            scores = torch.tanh(scores / softcap) * softcap
        count = rows.stop - rows.start
        place = torch.arange(count)[:, None] + length - count
        hidden = torch.arange(length) > place
        if window[0] >= 0:
            hidden |= torch.arange(length) < place - window[0]
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        output[rows] = torch.einsum("htl,lhd->thd", weights, values).to(q.dtype)
    return output


def fake_flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    block_table: torch.Tensor | None = None,
) -> torch.Tensor:
    assert causal and block_table is not None and dropout_p == 0
    lengths = cu_seqlens_k.diff()
    assert max_seqlen_q == cu_seqlens_q.diff().max() and max_seqlen_k == lengths.max()
    return dense(q, k, v, cu_seqlens_q, lengths, block_table, softmax_scale, window_size, softcap)


def fake_flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    cache_seqlens: torch.Tensor,
    page_table: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    max_seqlen_q: int,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    num_splits: int = 0,
) -> torch.Tensor:
    assert causal and num_splits == 1 and max_seqlen_q == cu_seqlens_q.diff().max()
    return dense(q, k_cache, v_cache, cu_seqlens_q, cache_seqlens, page_table, softmax_scale, window_size, softcap)


def fake_varlen_attn(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    *,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    num_splits: int | None = None,
) -> torch.Tensor:
    assert cu_seq_k is None and enable_gqa and num_splits == 1 and seqused_k is not None and block_table is not None
    assert max_q == cu_seq_q.diff().max() and max_k == seqused_k.max()
    return dense(query, key, value, cu_seq_q, seqused_k, block_table, scale, window_size, 0.0)


def fake_module(monkeypatch: pytest.MonkeyPatch, name: str, **functions: Any) -> None:
    module = ModuleType(name)
    vars(module).update(functions)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fakes in the libraries' places, on a make-believe H100."""
    monkeypatch.setattr(attention_library, "_lacks", attention_library._lacks.__wrapped__)  # what it found before
    fake_module(monkeypatch, "flash_attn", flash_attn_varlen_func=fake_flash_attn_varlen_func)
    fake_module(monkeypatch, "flash_attn_interface", flash_attn_with_kvcache=fake_flash_attn_with_kvcache)
    fake_module(monkeypatch, "torch.nn.attention.varlen", varlen_attn=fake_varlen_attn)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.nn.attention, "current_flash_attention_impl", lambda: "FA3")


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: type(library).__name__)
@pytest.mark.parametrize("how", [{}, {"sliding_window": 7}, {"softcap": 5.0}])
def test_the_arguments_given_to_a_fake_library_say_what_the_batch_says(
    library: LibraryAttention, how: dict[str, Any], fakes: None
) -> None:
    window, softcap = how.get("sliding_window"), how.get("softcap")
    reason = library.problem(AttentionKind(CUDA, torch.bfloat16, 16, 16, 256, window, softcap))
    if isinstance(library, TorchVarlen) and softcap is not None:
        assert reason == "torch's varlen attention has no softcap"
        return
    assert reason is None
    case = Case((1, 33, 60), 6, 2, 16, 16, torch.bfloat16)
    chunks = [[(0, 0, 1), (1, 0, 20), (2, 0, 59)], [(1, 20, 13), (2, 59, 1)]]
    case.assert_near_the_oracle(case.run(library, chunks, 16, **how), window, softcap)


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: type(library).__name__)
def test_rows_that_see_what_is_not_finite_come_back_as_nan(library: LibraryAttention, fakes: None) -> None:
    check_not_finite(library, "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: type(library).__name__)
@pytest.mark.parametrize("block_size", [16, 256])
@pytest.mark.parametrize("how", [{}, {"sliding_window": 7}, {"softcap": 5.0}])
def test_a_library_that_is_here_gives_what_the_oracle_does(
    library: LibraryAttention, block_size: int, how: dict[str, Any]
) -> None:
    """In chunks and single tokens, in a pool that holds something wherever nobody has written."""
    window, softcap = how.get("sliding_window"), how.get("softcap")
    for heads, kv_heads, width in ((9, 3, 64), (7, 1, 128), (2, 2, 64)):
        group = heads // kv_heads
        asked = AttentionKind(CUDA, torch.bfloat16, width, width, block_size, window, softcap, group=group)
        if (problem := library.problem(asked)) is not None:
            pytest.skip(problem)
        case = Case((1, 33, 60, 600), heads, kv_heads, width, width, torch.bfloat16, device="cuda")
        chunks = [[(0, 0, 1), (1, 0, 20), (2, 0, 59), (3, 0, 599)], [(1, 20, 13), (2, 59, 1), (3, 599, 1)]]
        try:
            outputs = case.run(library, chunks, block_size, unwritten=1e4, **how)
        except BackendUnavailable as lacking:  # as builds without soft caps say only when they are called
            pytest.skip(str(lacking))
        case.assert_near_the_oracle(outputs, window, softcap)
    check_not_finite(library, "cuda", block_size)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_new_cache_on_a_gpu_holds_zeros_whatever_the_memory_held() -> None:
    like = torch.full((4 * 16, 2, 64), torch.nan, dtype=torch.bfloat16, device="cuda")
    before = [like.clone() for _ in range(4)]
    del before  # which the allocator hands out again
    cache = PagedKV.empty(4, 16, like, like)
    assert not cache.key.any() and not cache.value.any()


def check_not_finite(library: LibraryAttention, device: str, block_size: int = 16) -> None:
    case, how = Case((50, 50), 4, 2, 16, 16, torch.bfloat16, device=device), {"unwritten": 1e4}
    expected = case.run(library, [[(0, 0, 50), (1, 0, 50)]], block_size, **how)
    case.k[0][20, 1, 3] = torch.nan
    case.v[0][40, 0, 0] = torch.inf
    first, second = case.run(library, [[(0, 0, 33), (1, 0, 10)], [(0, 33, 17), (1, 10, 40)]], block_size, **how)
    assert torch.equal(first[:20], expected[0][:20]) and first[20:].isnan().all()
    assert torch.equal(second, expected[1])
    windowed = case.run(library, [[(0, 0, 50)]], block_size, sliding_window=4, **how)[0]
    assert [i for i, row in enumerate(windowed) if row.isnan().any()] == [20, 21, 22, 23, 40, 41, 42, 43]


def test_what_a_build_lacks_is_said_with_its_mend(fakes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: Any, page_table: Any, cu_seqlens_q: Any, cache_seqlens: Any, num_splits: int, **_how: Any) -> None:
        raise RuntimeError("This build does not support tanh softcapping.")

    fake_module(monkeypatch, "flash_attn_interface", flash_attn_with_kvcache=lacking)
    with pytest.raises(
        BackendUnavailable, match="cannot serve here .*softcapping.*: name another in ADJUDGE_ATTENTION"
    ):
        Case((5,), 2, 2, 16, 16, torch.bfloat16).run(FlashAttention3(), [[(0, 0, 5)]], 16, softcap=3.0)


def test_each_library_says_why_it_cannot_serve(fakes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fa2, fa3, varlen = LIBRARIES
    half = torch.bfloat16
    for library in LIBRARIES:
        for arguments, reason in (
            ((torch.device("cpu"), half, 64, 64, 256), "needs CUDA"),
            ((CUDA, torch.float32, 64, 64, 256), "float16 or bfloat16"),
            ((CUDA, half, 64, 32, 256), "keys of 64 and values of 32"),
            ((CUDA, half, 20, 20, 256), "head width 20"),
        ):
            assert reason in (library.problem(AttentionKind(*arguments)) or "")
    asked = AttentionKind(CUDA, half, 64, 64, 16)
    assert "multiple of 256, not 16" in (fa2.problem(asked) or "")
    assert fa3.problem(asked) is None and varlen.problem(asked) is None
    monkeypatch.setattr(torch.nn.attention, "current_flash_attention_impl", lambda: None)
    assert "through FA3 here, and none is active" in (varlen.problem(asked) or "")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert "9.0" in (fa3.problem(asked) or "") and "9.0" in (varlen.problem(asked) or "")


def test_a_version_without_a_block_table_is_told_by_its_signature(fakes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def older(query: Any, key: Any, value: Any, cu_seq_q: Any, cu_seq_k: Any, max_q: int, max_k: int) -> None: ...

    fake_module(monkeypatch, "torch.nn.attention.varlen", varlen_attn=older)
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    asked = AttentionKind(CUDA, torch.float16, 64, 64, 256)
    assert "lacks block_table, seqused_k" in (TorchVarlen().problem(asked) or "")
    assert "cannot be imported" in (FlashAttention2().problem(asked) or "")


def test_the_installed_torch_has_the_arguments_that_are_used() -> None:
    needed = ["block_table", "seqused_k", "num_splits", "enable_gqa", "window_size"]
    assert attention_library._lacks("torch.nn.attention.varlen", "varlen_attn", *needed) is None
