"""Devices and number types by the names users give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adjudge.engine.errors import AdjudgeError

if TYPE_CHECKING:
    import torch


def choose_device(name: str) -> torch.device:
    """The device called auto (CUDA if there is one), cpu, cuda or cuda:N; raises AdjudgeError for others."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise AdjudgeError(f'device is "{name}": choose auto, cpu, cuda or cuda:N')
    if device.type == "cpu":
        return device
    if not torch.cuda.is_available():
        raise AdjudgeError(
            f'device is "{name}" but this torch sees no CUDA device: choose cpu, or install a CUDA build'
        )
    if (device.index or 0) >= (count := torch.cuda.device_count()):
        raise AdjudgeError(f'device is "{name}" but the last that this torch sees is cuda:{count - 1}: choose that one')
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype called auto, float32, bfloat16 or float16; raises AdjudgeError for others.

    "auto" is float32 on CPU, and bfloat16 on a GPU, or float16 where that has no bfloat16 (compute capability below 8).
    """
    import torch

    if name == "auto":
        if device.type == "cpu":
            return torch.float32
        return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16
    if name not in ("float32", "bfloat16", "float16"):
        raise AdjudgeError(f'dtype is "{name}": choose auto, float32, bfloat16 or float16')
    dtype: torch.dtype = getattr(torch, name)
    return dtype
