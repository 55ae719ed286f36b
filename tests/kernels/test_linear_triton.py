"""Dense layers for a GPU whose rows do not depend on each other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.kernels.own_process import python

CASES = Path(__file__).with_name("linear_cases.py")


def test_rows_do_not_depend_on_each_other_in_the_interpreter() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    assert "all well" in python(str(CASES), ADJUDGE_KERNELS="triton", TRITON_INTERPRET="1")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_rows_do_not_depend_on_each_other_on_cuda() -> None:
    from tests.kernels.linear_cases import check_linear, check_means

    check_linear("cuda")
    check_means("cuda")
