"""Which implementation of the restricted head runs, and the Triton one in the interpreter and on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from adjudge.kernels.dispatch import BackendUnavailable, kernel_backend
from adjudge.kernels.restricted_head_arguments import HeadWeights, LabelRows
from tests.kernels.own_process import python
from tests.kernels.restricted_cases import check_implementation

WEIGHT_AND_IDS = (((1000, 576), torch.bfloat16), ((5,), torch.int64))


def test_the_environment_chooses_the_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.delenv("ADJUDGE_KERNELS", raising=False)
    assert kernel_backend(cpu) == "torch"
    monkeypatch.setenv("ADJUDGE_KERNELS", "triton")
    with pytest.raises(BackendUnavailable, match="TRITON_INTERPRET=1|not installed"):
        kernel_backend(cpu)
    monkeypatch.setenv("ADJUDGE_KERNELS", "cuda")
    with pytest.raises(BackendUnavailable, match='"torch" or "triton"'):
        kernel_backend(cpu)


def test_needs_neither_triton_nor_numba() -> None:
    python("-c", "import sys; sys.modules['triton'] = sys.modules['numba'] = None; import adjudge.kernels")


def test_triton_is_as_exact_as_plain_torch_in_the_interpreter() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    cases = Path(__file__).with_name("restricted_cases.py")
    assert "all well" in python(str(cases), ADJUDGE_KERNELS="triton", TRITON_INTERPRET="1")


def test_rows_of_any_strides_meet_the_same_kernels() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    from adjudge.bench.kernels.ahead_of_time import record
    from adjudge.kernels import restricted_head_triton

    def of(hidden_ND: torch.Tensor) -> list[dict[str, str]]:
        weight_VD, ids = (torch.empty(shape, dtype=kind, device="meta") for shape, kind in WEIGHT_AND_IDS)
        labels = LabelRows(True, ids, ids[:2], None, ids[:2], len(ids), None, None)
        head = HeadWeights(weight_VD, None, 1e-6, None, None, 1.0)
        run = partial(restricted_head_triton.triton_scores, hidden_ND, None, len(hidden_ND), head, labels, "both")
        return [launch.specialisation() for launch in record(run, 90, restricted_head_triton)]

    rows, transposed = (torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in ((64, 576), (576, 63)))
    assert len(of(rows)) > 1 and of(transposed.T) == of(rows) == of(rows[::2])


@pytest.fixture
def poisoned_memory() -> Iterator[None]:
    """Uninitialised tensors are filled with NaN and the largest integers."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_is_as_exact_as_plain_torch_on_cuda(poisoned_memory: None) -> None:
    check_implementation("cuda")
