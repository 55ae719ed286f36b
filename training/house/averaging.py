"""What becomes of a trained adapter before it is kept: averaged with an earlier one, and in half precision."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from adjudge.engine.errors import ModelUnsupported
from adjudge.engine.models.adapters import read_adapter
from adjudge.engine.models.merging import ADAPTER


def average(adapter: Path, other: Path, share: float) -> None:
    """Leave a share of another adapter's tensors in those of an adapter, both trained on from the same one.

    Weights half-way to what they were trained to often keep more of what they knew (arXiv 2109.01903).
    """
    tensors, before = load_file(adapter / ADAPTER), read_adapter(other).weights
    mixed = {
        name: (share * before[name].float() + (1 - share) * tensor.float()).to(tensor.dtype)
        for name, tensor in tensors.items()
    }
    save_file(mixed, adapter / ADAPTER)


def check_alike(adapter: Path, other: Path) -> None:
    """Raise ModelUnsupported where two adapters cannot be averaged, and ModelNotFound where one is not there."""
    first, second = _form(adapter), _form(other)
    if first != second:
        differs = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
        raise ModelUnsupported(
            f"the adapters in {adapter} and {other} differ in form (at {differs[0]}): average one with what it was"
            " trained on from, or what was trained on from the same one"
        )


def _form(adapter: Path) -> dict[str, object]:
    """What two adapters must have in common: how they are scaled, and each tensor's shape."""
    read = read_adapter(adapter)
    shapes = {name: tuple(tensor.shape) for name, tensor in read.weights.items()}
    scales = ("r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern")
    return {name: getattr(read.config, name) for name in scales} | shapes


def half_precision(adapter: Path) -> None:
    """Store an adapter's tensors in bfloat16, in half the room."""
    tensors = load_file(adapter / ADAPTER)
    save_file({name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}, adapter / ADAPTER)
