"""A LoRA adapter merged into the weights of its base model: an engine then runs it as it runs any model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from adjudge.engine.errors import ModelUnsupported
from adjudge.engine.models.adapters import CONFIG, PREFIX, read_adapter

WEIGHTS, ADAPTER = "model.safetensors", "adapter_model.safetensors"
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"


def merge(base: Path, adapter: Path, folder: Path) -> None:
    """Write the model in the folder `base` to `folder`, each of its weights W that the adapter has a pair A [r, in],
    B [out, r] for as W + (alpha / r) B A, computed in float32.

    Raises ModelUnsupported where the adapter is of another base.
    """
    config = json.loads((adapter / CONFIG).read_bytes())
    scale = config["lora_alpha"] / config["r"]
    weights, pairs = load_file(base / WEIGHTS), load_file(adapter / ADAPTER)
    for name in sorted(name for name in pairs if name.endswith(_DOWN)):
        place = name.removeprefix(PREFIX).removesuffix(_DOWN) + ".weight"
        down, up = pairs[name].float(), pairs[name.removesuffix(_DOWN) + _UP].float()
        weight = weights.get(place)
        if weight is None or weight.shape != (up.shape[0], down.shape[1]):
            known = config.get("base_model_name_or_path")
            raise ModelUnsupported(f"the adapter in {adapter} is of {known}, and does not fit {base.name} (at {place})")
        weights[place] = (weight.float() + scale * (up @ down)).to(weight.dtype)
    for file in base.iterdir():
        if file.suffix in (".json", ".jinja", ".txt", ".model") and file.name != "adjudge.json":
            shutil.copyfile(file, folder / file.name)
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / WEIGHTS, {"format": "pt"})


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
