"""LoRA adapters beside the base weights: PEFT folders, attached to a model and taken off again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from adjudge.engine.errors import AdjudgeError, ModelCorrupt, ModelNotFound, ModelUnsupported, reason
from adjudge.engine.fingerprints import digest, file_sha256
from adjudge.engine.quiet import quiet

CONFIG = "adapter_config.json"
MERGE = "merge it into its base model and save that as a folder"


class Adapter(NamedTuple):
    """An adapter in place: `detach()` gives the model its own layers back, unchanged."""

    folder: Path
    fingerprint: str
    peft: Any

    def detach(self) -> None:
        """Take the adapter off."""
        self.peft.unload()


def attach(model: Any, folder: str | Path) -> Adapter:
    """Put the LoRA adapter in `folder` into the layers of a transformers model, whose own weights stay as they are.

    Raises ModelNotFound, ModelCorrupt or ModelUnsupported, and leaves the model as it was.
    """
    folder = Path(folder).expanduser()
    if not (folder / CONFIG).is_file():
        raise ModelNotFound(f"{folder} holds no adapter ({CONFIG}): pass the folder that PEFT saved it to")
    try:
        from peft import PeftConfig, PeftModel, PeftType, load_peft_weights, set_peft_model_state_dict
    except ImportError as error:
        raise AdjudgeError("adapters need PEFT: pip install 'adjudge[train]'") from error
    try:
        config: Any = PeftConfig.from_pretrained(str(folder))
        weights = load_peft_weights(str(folder), device="cpu")
    except Exception as error:  # readers of damaged files raise whatever they stumble over
        raise ModelCorrupt(f"the adapter in {folder} is unreadable ({reason(error)}): save it again") from error
    if config.peft_type != PeftType.LORA:
        raise ModelUnsupported(f"the adapter in {folder} is of the kind {config.peft_type}, not LORA: {MERGE}")
    for name in ("modules_to_save", "trainable_token_indices"):
        if getattr(config, name, None):
            raise ModelUnsupported(f"the adapter in {folder} replaces whole weights ({name}): {MERGE}")
    config.inference_mode = True
    head = model.get_output_embeddings()
    try:
        with quiet():
            peft = PeftModel(model, config, autocast_adapter_dtype=False)
    except ValueError as error:
        raise ModelUnsupported(f"the adapter in {folder} does not fit this model ({reason(error)})") from error
    try:
        with quiet():
            loaded: Any = set_peft_model_state_dict(peft, weights)
        if strange := [*loaded.unexpected_keys, *(key for key in loaded.missing_keys if "lora_" in key)]:
            raise ModelUnsupported(f"the adapter in {folder} does not fit this model (at {strange[0]})")
        if model.get_output_embeddings() is not head:
            raise ModelUnsupported(f"the adapter in {folder} changes the language-model head: {MERGE}")
    except RuntimeError as error:
        peft.unload()
        raise ModelUnsupported(f"the adapter in {folder} does not fit this model ({reason(error)})") from error
    except BaseException:
        peft.unload()
        raise
    peft.to(model.dtype).eval().requires_grad_(False)
    return Adapter(folder, _fingerprint(folder), peft)


def _fingerprint(folder: Path) -> str:
    """Identity of what an adapter does: its configuration and weights."""
    files = sorted([folder / CONFIG, *folder.glob("adapter_model.*")])
    return digest("adapter", *(f"{file.name}={file_sha256(file)}" for file in files))
