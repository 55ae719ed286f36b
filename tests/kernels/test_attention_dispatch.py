"""Which back end serves attention, and why another cannot."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType

import pytest
import torch

from adjudge import kernels
from adjudge.kernels import attention, attention_numba, dispatch, vectors_numba
from adjudge.kernels.attention import (
    NUMBA_LANES,
    attention_backend,
    attention_block_size,
    is_batch_invariant,
    numba_problem,
)
from adjudge.kernels.attention_library import AttentionKind
from adjudge.kernels.dispatch import BackendUnavailable
from adjudge.kernels.paged_kv import PagedKV

CPU = torch.device("cpu")
CUDA = torch.device("cuda")
FLOAT32 = AttentionKind(CPU, torch.float32, 64, 64, 16)


class Library:
    """A library that serves blocks of some sizes only."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes

    def problem(self, kind: AttentionKind) -> str | None:
        fits = kind.block_size in self.sizes and kind.device.type == "cuda"
        return None if fits else f"no blocks of {kind.block_size} on {kind.device.type}"

    def __call__(self) -> None: ...


@pytest.fixture(autouse=True)
def unforced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADJUDGE_ATTENTION", raising=False)


@pytest.fixture(autouse=True)
def cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuda is an H100, and cuda:1 an RTX 3090."""
    cards = ((90, 232_448), (86, 101_376))
    monkeypatch.setattr(dispatch, "_card", lambda device: cards[device.index or 0])


def served_by(device: torch.device, block_size: int = 16) -> str:
    return attention_backend(AttentionKind(device, torch.bfloat16, 64, 64, block_size))[0]


def test_on_a_cpu_it_is_torch_whatever_is_installed_but_for_what_our_kernel_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert served_by(CPU) == served_by(CPU, 256) == "torch"
    kind = AttentionKind(CPU, torch.float32, 64, 64, 16, sliding_window=7)
    problem = numba_problem(kind)
    assert attention_backend(kind)[0] == ("numba" if problem is None else "torch") and is_batch_invariant(kind)
    for other in ({"softcap": 3.0}, {"sinks": True}, {"width": 24}, {"value_width": 8}, {"dtype": torch.float16}):
        assert attention_backend(replace(kind, **other))[0] == "torch"
    monkeypatch.setenv("ADJUDGE_ATTENTION", "torch")
    assert attention_backend(kind)[0] == "torch"


@pytest.fixture
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """What serves float32 on a CPU that has AVX2 or more, asked again."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")

    def ask() -> str:
        attention._compiled_problem.cache_clear()
        return attention_backend(FLOAT32)[0]

    yield ask
    monkeypatch.undo()
    attention._compiled_problem.cache_clear()


def test_without_numba_or_the_vectors_it_compiles_it_is_torch_on_a_cpu(
    asked_anew: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(attention_numba.binding, "get_host_cpu_features", dict)
        assert asked_anew() == "torch"
        patch.setattr(attention_numba.binding, "get_host_cpu_features", lambda: {"avx2": True, "fma": True})
        patch.setattr(attention_numba, "_kernel", lambda: [][0])
        assert asked_anew() == "torch"
    monkeypatch.setattr(attention, "find_spec", lambda name: None)
    assert asked_anew() == "torch"
    monkeypatch.setenv("ADJUDGE_ATTENTION", "numba")
    with pytest.raises(BackendUnavailable, match="numba is not installed"):
        asked_anew()


def test_a_numba_that_cannot_be_imported_leaves_the_calls_to_torch(
    asked_anew: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "adjudge.kernels.attention_numba")
    monkeypatch.delattr(kernels, "attention_numba")
    broken = ModuleType("numba")  # without the names that are taken from it
    monkeypatch.setitem(sys.modules, "numba", broken)
    monkeypatch.setattr(attention, "find_spec", lambda name: "found")
    assert asked_anew() == "torch"
    monkeypatch.setenv("ADJUDGE_ATTENTION", "numba")
    with pytest.raises(BackendUnavailable, match="numba is installed, but cannot be imported .cannot import name"):
        asked_anew()


@pytest.mark.parametrize(
    ("dtype", "capability", "answer"), [("bfloat16", "AVX512", "float32, not"), ("float32", "DEFAULT", "with AVX2")]
)
def test_numba_is_not_imported_where_something_else_rules_it_out(dtype: str, capability: str, answer: str) -> None:
    program = (
        "import sys, torch\n"
        "from adjudge.kernels.attention import attention_backend, numba_problem\n"
        "from adjudge.kernels.attention_library import AttentionKind\n"
        f"torch.backends.cpu.get_cpu_capability = lambda: '{capability}'\n"
        f"kind = AttentionKind(torch.device('cpu'), torch.{dtype}, 64, 64, 16)\n"
        f"assert attention_backend(kind)[0] == 'torch' and '{answer}' in numba_problem(kind)\n"
        "assert not {'numba', 'llvmlite'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_our_compiled_kernel_is_asked_for_whole_vectors() -> None:
    assert NUMBA_LANES % vectors_numba.LANES == 0


@pytest.mark.parametrize(
    ("forced", "reason"),
    [
        ("flash", "needs CUDA.*; .*needs CUDA"),
        ("varlen", "needs CUDA"),
        ("triton", "TRITON_INTERPRET=1|not installed"),
        ("numba", "float32, not torch.bfloat16"),
        ("sdpa", "flash, varlen, triton, numba, torch, or leave it unset"),
    ],
)
def test_a_back_end_that_cannot_serve_says_why(forced: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("ADJUDGE_ATTENTION", forced)
    with pytest.raises(BackendUnavailable, match=f"ADJUDGE_ATTENTION is .*({reason})") as refused:
        served_by(CPU)
    assert str(refused.value).endswith("leave it unset")
    monkeypatch.delenv("ADJUDGE_ATTENTION")
    with pytest.raises(BackendUnavailable, match=f'^the back end is "{forced}".*({reason})'):
        attention_backend(AttentionKind(CPU, torch.bfloat16, 64, 64, 16), forced)


def test_cuda_gets_our_kernel_which_is_batch_invariant_and_libraries_where_they_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    monkeypatch.setattr(attention, "LIBRARIES", {"flash": (Library(256),), "varlen": (Library(16),)})
    kind = AttentionKind(CUDA, torch.bfloat16, 64, 64, 16)
    assert served_by(CUDA) == "triton" and is_batch_invariant(kind)
    assert attention_block_size(CUDA, torch.bfloat16, 64) == attention_block_size(CPU, torch.float32, 64) == 16
    monkeypatch.setenv("ADJUDGE_ATTENTION", "flash")
    assert served_by(CUDA, 256) == "flash" and attention_block_size(CUDA, torch.bfloat16, 64) == 256
    with pytest.raises(BackendUnavailable, match="no blocks of 16 on cuda"):
        served_by(CUDA)
    monkeypatch.setenv("ADJUDGE_ATTENTION", "varlen")
    assert served_by(CUDA) == "varlen" and not is_batch_invariant(kind)
    assert attention_block_size(CUDA, torch.bfloat16, 64) == 16


def test_libraries_and_then_torch_serve_where_no_tile_of_ours_can_be_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    wide = AttentionKind(CUDA, torch.bfloat16, 576, 512, 16)
    for flash, varlen, serves in ((16, 16, "flash"), (256, 16, "varlen"), (256, 256, "torch")):
        monkeypatch.setattr(attention, "LIBRARIES", {"flash": (Library(flash),), "varlen": (Library(varlen),)})
        assert attention_backend(wide)[0] == serves and not is_batch_invariant(wide)


def test_torch_serves_heads_whose_tiles_do_not_fit_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    monkeypatch.setattr(attention, "LIBRARIES", {})
    small = torch.device("cuda:1")

    def served(device: torch.device, width: int, group: int, dtype: torch.dtype = torch.bfloat16) -> str:
        return attention_backend(AttentionKind(device, dtype, width, width, 16, group=group))[0]

    assert [served(CUDA, width, group) for width, group in ((512, 64), (256, 128), (512, 128))] == ["triton"] * 3
    assert [served(small, width, group) for width, group in ((512, 64), (256, 128), (512, 128))] == [
        "triton",
        "triton",
        "torch",
    ]
    monkeypatch.setenv("ADJUDGE_ATTENTION", "triton")
    with pytest.raises(BackendUnavailable, match="no tile for heads of 512, 128 on a KV head, that fits on cuda:1"):
        served(small, 512, 128)


def test_how_many_heads_share_a_key_is_read_off_the_call() -> None:
    states = torch.empty(3, 2, 16)
    kind = AttentionKind.of(torch.empty(3, 12, 16), PagedKV.empty(2, 16, states, states))
    assert kind.group == 6
