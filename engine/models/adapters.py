"""LoRA adapters beside the base weights: PEFT folders, attached to a model and taken off again."""

from __future__ import annotations

import copy
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from adjudge.engine.checking import shown
from adjudge.engine.errors import AdjudgeError, ModelCorrupt, ModelNotFound, ModelUnsupported, reason
from adjudge.engine.models.fingerprints import digest, file_sha256
from adjudge.engine.models.quiet import quiet
from adjudge.engine.models.reward_head import NAMES
from adjudge.engine.paths import expanded

if TYPE_CHECKING:
    import torch

_log = logging.getLogger("adjudge")

CONFIG = "adapter_config.json"
BASE = "base.json"
"""Beside an adapter that was trained here: which model it was trained over."""
MERGE = "merge it into its base model and save that as a folder"
PREFIX, WRAPPED = "base_model.model.", ".base_layer"
"""What PEFT puts before every name, and into that of a layer with an adapter."""
CHANGED_AT_START = ("pissa", "olora", "corda", "loftq", "lora_ga", "eva")
"""Ways to begin a LoRA adapter (init_lora_weights) by which PEFT may change the base weights."""


class Adapter(NamedTuple):
    """A LoRA adapter in memory: PEFT's configuration and the tensors, on the host.

    `reward_weight` [1, D] and `reward_bias` [1] are those of the head that a reward model's adapter brings along.
    """

    folder: Path
    fingerprint: str
    config: Any
    weights: dict[str, torch.Tensor]
    reward_weight: torch.Tensor | None = None
    reward_bias: torch.Tensor | None = None


class Base(msgspec.Struct, frozen=True):
    """The model that an adapter was trained over: its name, and the fingerprint of its weights and tokenizer."""

    name: str
    fingerprint: str


def write_base(folder: Path, base: Base) -> None:
    """Say in an adapter's folder what it was trained over: by name in PEFT's own file, and exactly in one of ours."""
    config = json.loads((folder / CONFIG).read_bytes())
    (folder / CONFIG).write_text(json.dumps({**config, "base_model_name_or_path": base.name}, indent=2) + "\n")
    (folder / BASE).write_bytes(msgspec.json.encode(base))


def check_base(folder: str | Path, model: Base) -> None:
    """Raise ModelUnsupported where an adapter says that it was trained over another model; many say nothing.

    One with no more than a name in PEFT's own file, which may be another name of the same model, is warned of. Raises
    ModelCorrupt for a damaged file of ours.
    """
    try:
        base = msgspec.json.decode((expanded(folder) / BASE).read_bytes(), type=Base)
    except OSError:
        return _compare_names(folder, model)
    except msgspec.DecodeError as error:
        raise ModelCorrupt(f"{BASE} of the adapter in {folder} is unreadable ({error}): save it again") from error
    if base.fingerprint == model.fingerprint:
        return
    if base.name == model.name:
        raise ModelUnsupported(
            f"the adapter in {folder} was trained over a {base.name} of other weights or another tokenizer: open it "
            f"over that one, or remove its {BASE} where you know that they are the same"
        )
    raise ModelUnsupported(
        f"the adapter in {folder} was trained over {base.name}, and this is {model.name}: open it over {base.name}"
    )


def _compare_names(folder: str | Path, model: Base) -> None:
    try:
        config = json.loads((expanded(folder) / CONFIG).read_bytes())
        name = str(config.get("base_model_name_or_path") or "")
    except (OSError, ValueError, AttributeError):
        return  # which `read_adapter` tells
    if name and Path(name).name.lower() != Path(model.name).name.lower():
        _log.warning("the adapter in %s says that it was trained over %s, and this is %s", folder, name, model.name)


def read_adapter(folder: str | Path) -> Adapter:
    """The adapter in a PEFT folder; raises ModelNotFound, ModelCorrupt or ModelUnsupported."""
    if not isinstance(folder, str | os.PathLike):
        raise AdjudgeError(f"the adapter is {shown(folder)}: give the path of its folder")
    folder = expanded(folder)
    if not (folder / CONFIG).is_file():
        raise ModelNotFound(f"{folder} holds no adapter ({CONFIG}): pass the folder that PEFT saved it to")
    try:
        from peft import PeftConfig, PeftType, load_peft_weights
    except ImportError as error:
        raise AdjudgeError("adapters need PEFT: pip install 'adjudge[train]'") from error
    try:
        config: Any = PeftConfig.from_pretrained(str(folder))
        weights = load_peft_weights(str(folder), device="cpu")
    except Exception as error:  # readers of damaged files raise whatever they stumble over
        raise ModelCorrupt(f"the adapter in {folder} is unreadable ({reason(error)}): save it again") from error
    if config.peft_type != PeftType.LORA:
        raise ModelUnsupported(f"the adapter in {folder} is of the kind {config.peft_type}, not LORA: {MERGE}")
    head = _take_reward_head(config, weights)
    for name in ("modules_to_save", "trainable_token_indices"):
        if getattr(config, name, None):
            raise ModelUnsupported(f"the adapter in {folder} replaces whole weights ({name}): {MERGE}")
    if getattr(config, "alora_invocation_tokens", None):
        raise ModelUnsupported(
            f"the adapter in {folder} acts on some tokens alone (alora_invocation_tokens), which adjudge does not do:"
            " choose another"
        )
    if changed := _changed(config):
        raise ModelUnsupported(f"the adapter in {folder} changes its base model ({changed}): {MERGE}")
    config.inference_mode = True
    if bad := next((name for name, tensor in {**weights, **head}.items() if not tensor.isfinite().all()), None):
        raise ModelCorrupt(f"the adapter in {folder} has numbers that are not finite (in {bad}): train it again")
    return Adapter(folder, adapter_fingerprint(folder), config, weights, head.get("weight"), head.get("bias"))


def without_base(adapter: Adapter, own: Mapping[str, torch.Tensor]) -> Adapter:
    """The adapter without tensors of the base model, as PEFT saves with those over its embeddings.

    `own` are the model's, by the names of its state_dict. Raises ModelUnsupported where one is another than there: it
    would be written over the model's own.
    """
    weights = {}
    for key, tensor in adapter.weights.items():
        if any(part.startswith("lora_") for part in key.split(".")):
            weights[key] = tensor
        elif not _alike(tensor, own.get(name := key.removeprefix(PREFIX).replace(WRAPPED, ""))):
            raise ModelUnsupported(f"the adapter in {adapter.folder} replaces whole weights ({name}): {MERGE}")
    return adapter._replace(weights=weights)


def _alike(tensor: torch.Tensor, own: torch.Tensor | None) -> bool:
    """Whether a saved tensor is the model's own, but for the dtype that either is rounded to."""
    import torch

    if own is None or tensor.shape != own.shape:
        return False
    tensor = tensor.to(own.device)
    return torch.equal(tensor.to(own.dtype), own) or torch.equal(tensor, own.to(tensor.dtype))


def _changed(config: Any) -> str:
    """What of a configuration would leave its mark on the base weights or layers once it is off; or nothing."""
    if (bias := getattr(config, "bias", "none")) != "none":
        return f"bias {bias}"
    if changes_at_start(config):
        return f"init_lora_weights {config.init_lora_weights}"
    return "layer_replication" if getattr(config, "layer_replication", None) else ""


def changes_at_start(config: Any) -> bool:
    """Whether an adapter of that configuration changes the base weights when it begins."""
    begun = getattr(config, "init_lora_weights", True)
    return isinstance(begun, str) and begun.lower().startswith(CHANGED_AT_START)


def attach(model: Any, adapter: Adapter) -> Any:
    """Put an adapter into the layers of a transformers model, whose own weights stay as they are.

    Returns the PEFT model, whose `unload()` gives the model its own layers back. Raises ModelUnsupported, and leaves
    the model as it was, where the adapter does not fit.
    """
    from peft import PeftModel, set_peft_model_state_dict

    adapter = without_base(adapter, model.state_dict())  # PEFT would write it over the model's own
    folder, head = adapter.folder, model.get_output_embeddings()
    reward, width = adapter.reward_weight, model.config.get_text_config().hidden_size
    if reward is not None and reward.shape != (1, width):
        shape = tuple(reward.shape)
        raise _misfit(adapter, model, f"its head is {shape}, not (1, {width})")
    try:
        with quiet():
            peft = PeftModel(model, copy.deepcopy(adapter.config), autocast_adapter_dtype=False)
    except BaseException as error:
        _take_out(model)
        if isinstance(error, ValueError):
            raise _misfit(adapter, model, reason(error)) from error
        raise
    try:
        with quiet():
            loaded: Any = set_peft_model_state_dict(peft, adapter.weights)
        if strange := [*loaded.unexpected_keys, *(key for key in loaded.missing_keys if "lora_" in key)]:
            raise _misfit(adapter, model, f"at {strange[0]}")
        if model.get_output_embeddings() is not head:
            raise ModelUnsupported(f"the adapter in {folder} changes the language-model head: {MERGE}")
    except RuntimeError as error:
        peft.unload()
        raise _misfit(adapter, model, reason(error)) from error
    except BaseException:
        peft.unload()
        raise
    for name, parameter in peft.named_parameters():
        if "lora_" in name:  # a model's own may have other types: rotary frequencies, biases of routers
            parameter.data = parameter.data.to(model.dtype)
    return peft.eval().requires_grad_(False)


def _take_out(model: Any) -> None:
    """Restore a model's own layers after an adapter failed half-way."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if isinstance(layer, BaseTunerLayer):
                setattr(module, name, layer.get_base_layer())
    vars(model).pop("peft_config", None)


def _misfit(adapter: Adapter, model: Any, why: str) -> ModelUnsupported:
    """That the adapter is one for another model, with the names of both as far as they are known."""
    base, name = adapter.config.base_model_name_or_path, getattr(model.config, "_name_or_path", "")
    trained, this = f", trained over {base}," if base else "", f", {name}" if name else ""
    return ModelUnsupported(
        f"the adapter in {adapter.folder}{trained} does not fit this model{this} ({why}): open it over the one it was"
        " trained over"
    )


def _take_reward_head(config: Any, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Take out of an adapter the reward head saved with it, which stands beside the model; {} where there is none."""
    import torch

    if not set(config.modules_to_save or ()) <= set(NAMES):
        return {}
    saved = {name: f"{PREFIX}{name}.weight" for name in NAMES}
    name = next((name for name in NAMES if weights.get(saved[name], torch.empty(0)).shape[:1] == (1,)), None)
    if name is None:
        return {}
    config.modules_to_save = None
    parts = {part: weights.pop(f"{PREFIX}{name}.{part}", None) for part in ("weight", "bias")}
    return {part: tensor for part, tensor in parts.items() if tensor is not None}


def adapter_fingerprint(folder: Path) -> str:
    """Identity of what an adapter does: its configuration and weights."""
    files = sorted([folder / CONFIG, *folder.glob("adapter_model.*")])
    return digest("adapter", *(f"{file.name}={file_sha256(file)}" for file in files))
