"""Devices and dtypes by name, on a machine whose GPUs are made up."""

from __future__ import annotations

import pytest
import torch

from adjudge.engine.devices import choose_device, choose_dtype
from adjudge.engine.errors import AdjudgeError


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has bfloat16, and one that has not."""
    capabilities = [(8, 0), (7, 5)]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capabilities[device.index or 0])


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_beyond_the_last_is_refused_by_name() -> None:
    assert [choose_device(name) for name in ("auto", "cuda", "cuda:1")] == [
        *map(torch.device, ("cuda", "cuda", "cuda:1"))
    ]
    for name in ("cuda:2", "cuda:7"):
        with pytest.raises(AdjudgeError, match=f'device is "{name}" but the last that this torch sees is cuda:1'):
            choose_device(name)


@pytest.mark.usefixtures("two_gpus")
def test_the_dtype_called_auto_is_one_that_the_device_has() -> None:
    dtypes = {name: choose_dtype("auto", torch.device(name)) for name in ("cpu", "cuda", "cuda:1")}
    assert dtypes == {"cpu": torch.float32, "cuda": torch.bfloat16, "cuda:1": torch.float16}
    assert choose_dtype("bfloat16", torch.device("cuda:1")) == torch.bfloat16
