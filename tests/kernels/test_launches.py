"""Triton kernels are launched on the device where their tensors are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch

from adjudge.kernels import dispatch
from adjudge.kernels.paged_kv import PagedBatch, PagedKV, PagedSequence
from adjudge.kernels.restricted_head_arguments import HeadWeights, LabelRows

pytest.importorskip("triton", reason="triton is not installed")


def tensors(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def attention() -> None:
    from adjudge.kernels.attention_triton import triton_attention
    from adjudge.kernels.kv_write_triton import triton_write_kv

    states, places = tensors(4, 1, 16), tensors(4, dtype=torch.int64)
    cache = PagedKV(tensors(9, 16, 1, 16), tensors(9, 16, 1, 16), tensors(9 * 16, dtype=torch.bool))
    batch = PagedBatch((PagedSequence(0, 4, 100, range(1, 8)),), 16, 4, places, places)
    triton_write_kv(states, states, cache, batch)
    triton_attention(tensors(4, 2, 16), cache, batch, split_keys=64)


def layers() -> None:
    from adjudge.kernels.linear_triton import triton_linear
    from adjudge.kernels.row_means_triton import row_means

    triton_linear(tensors(3, 16), tensors(5, 16))
    row_means(tensors(3, 16))


def head() -> None:
    from adjudge.kernels.restricted_head_triton import triton_scores

    ids, offsets = tensors(3, dtype=torch.int64), tensors(2, dtype=torch.int64)
    labels = LabelRows(True, ids, offsets, None, offsets, 3, None, None)
    head = HeadWeights(tensors(50, 16), tensors(16), 1e-6, None, None, 1.0)
    triton_scores(tensors(4, 16), None, 4, head, labels, "both")


@pytest.mark.parametrize(
    ("call", "kernels"),
    [
        (attention, ["write_kernel", "attend_kernel", "merge_kernel"]),
        (layers, ["linear_kernel", "mean_kernel"]),
        (head, ["final_row_kernel", "set_tile_kernel", "vocabulary_kernel", "full_scores_kernel"]),
    ],
)
def test_kernels_are_launched_on_the_device_of_their_tensors_and_not_on_the_current_one(
    call: Callable[[], None], kernels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from adjudge.kernels import (
        attention_triton,
        kv_write_triton,
        linear_triton,
        restricted_head_triton,
        row_means_triton,
    )

    places: list[str] = ["elsewhere"]
    found: list[tuple[str, str]] = []

    @contextmanager
    def there(device: torch.device) -> Iterator[None]:
        places.append(device.type)
        yield
        places.pop()

    class Kernel:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getitem__(self, grid: object) -> Callable[..., None]:
            return lambda *args, **named: found.append((self.name, places[-1]))

    for module in (attention_triton, kv_write_triton, linear_triton, restricted_head_triton, row_means_triton):
        for name in [name for name in vars(module) if name.endswith("_kernel")]:
            monkeypatch.setattr(module, name, Kernel(name))
    monkeypatch.setattr(dispatch, "launching_on", there)
    call()
    assert found == [(name, "meta") for name in kernels]


def test_on_cuda_the_device_of_the_tensors_is_made_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext(device))
    with dispatch.launching_on(torch.device("cuda:1")) as current:
        assert current == torch.device("cuda:1")
    with dispatch.launching_on(torch.device("cpu")) as current:
        assert current is None
