"""A LoRA adapter merged into the weights of its base model: an engine then runs it as it runs any model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

from adjudge.engine.errors import ModelUnsupported
from adjudge.engine.models.adapters import CONFIG, PREFIX

WEIGHTS, ADAPTER = "model.safetensors", "adapter_model.safetensors"
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"


def merge(base: Path, adapter: Path, folder: Path) -> None:
    """Write the model in the folder `base` to `folder`, each of its weights W that the adapter has a pair A [r, in],
    B [out, r] for as W + (alpha / r) B A, computed in float32; either may differ from layer to layer.

    Raises ModelUnsupported where the adapter is of another base.
    """
    config = json.loads((adapter / CONFIG).read_bytes())
    usual, alphas = config["lora_alpha"], config["alpha_pattern"]  # by the names of layers, as adjudge writes them
    weights, pairs = load_file(base / WEIGHTS), load_file(adapter / ADAPTER)
    for name in sorted(name for name in pairs if name.endswith(_DOWN)):
        layer = name.removeprefix(PREFIX).removesuffix(_DOWN)
        place = f"{layer}.weight"
        down, up = pairs[name].float(), pairs[name.removesuffix(_DOWN) + _UP].float()
        weight = weights.get(place)
        if weight is None or weight.shape != (up.shape[0], down.shape[1]):
            known = config.get("base_model_name_or_path")
            raise ModelUnsupported(f"the adapter in {adapter} is of {known}, and does not fit {base.name} (at {place})")
        scale = alphas.get(layer, usual) / len(down)
        weights[place] = (weight.float() + scale * (up @ down)).to(weight.dtype)
    for file in base.iterdir():
        if file.suffix in (".json", ".jinja", ".txt", ".model") and file.name != "adjudge.json":
            shutil.copyfile(file, folder / file.name)
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / WEIGHTS, {"format": "pt"})
