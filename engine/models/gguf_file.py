"""GGUF files, converted once into a folder that transformers opens in a moment."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adjudge.engine.errors import AdjudgeError, ModelCorrupt, ModelNotFound, ModelUnsupported, reason
from adjudge.engine.models.cache_folder import Manifest, Status, build
from adjudge.engine.models.fingerprints import digest
from adjudge.engine.models.loading import require_all_weights
from adjudge.engine.models.quiet import quiet
from adjudge.engine.whole_file import no_room

if TYPE_CHECKING:
    from gguf import GGUFReader

CONVERTER = 2
"""Raise this when the same file begins to convert to other weights or another tokenizer."""


PASS = "pass the folder that it was made of"


def entry_key(sha256: str) -> str:
    """Name of the cache entry of the file with this hash."""
    return f"gguf-{sha256[:24]}-c{CONVERTER}"


def fingerprint(sha256: str) -> str:
    """Identity of the weights and tokenizer converted from the file with this hash."""
    return digest("gguf", sha256, str(CONVERTER))


def check(path: Path) -> None:
    """Raise where a file cannot be a whole model: absent, not GGUF, or one part of several."""
    if not path.is_file():
        raise ModelNotFound(f"there is no file {path}: check the path")
    if re.search(r"-\d{5}-of-\d{5}\.gguf$", path.name):
        raise ModelUnsupported(f"{path} is one part of a split model: join the parts first (llama-gguf-split --merge)")
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelCorrupt(f"{path} is not a GGUF file: download it again, or pass another file")


def converted(path: Path, sha256: str, status: Status) -> Path:
    """The folder with the converted model of a GGUF file of the user's, from the cache or made now."""

    def make(folder: Path) -> Manifest:
        status(f"converting {path.name} once")
        return convert(path, folder, path.stem, sha256)

    return build(entry_key(sha256), make, status)


def convert(path: Path, folder: Path, name: str, sha256: str, licence: str | None = None) -> Manifest:
    """Write the dequantised float32 weights, configuration, tokenizer and chat template of a GGUF file to `folder`.

    float32, because the products of the quantised formats' scales and integers have no exact half-precision form.
    Raises ModelUnsupported where transformers cannot read the file, ModelCorrupt where it lacks weights.
    """
    check(path)
    try:
        with quiet(), contextlib.redirect_stderr(io.StringIO()):  # one of the bars has no switch
            _convert(path, folder)
    except AdjudgeError:
        raise
    except Exception as error:  # readers of damaged files raise whatever they stumble over
        if no_room(error):
            raise
        raise ModelUnsupported(
            f"transformers cannot read {path} ({reason(error)}): it is damaged or of an unknown kind; pass another file"
        ) from error
    return Manifest(name, path.name, sha256, licence)


def _convert(path: Path, folder: Path) -> None:
    import torch
    from gguf import GGUFReader
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig

    where: dict[str, Any] = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    config = AutoConfig.from_pretrained(**where)  # given to the next call, which would read the file's header twice
    file = GGUFReader(path)
    _scale_rope(path, file, config)
    options: dict[str, Any] = {"quantization_config": GgufConfig(dequantize=True), "output_loading_info": True}
    loaded: Any = AutoModelForCausalLM.from_pretrained(**where, config=config, dtype=torch.float32, **options)
    model, info = loaded
    require_all_weights(str(path), info)
    tokenizer = AutoTokenizer.from_pretrained(**where)
    _name_signs(file, tokenizer)
    # What was loaded is an ordinary dense model; without this it is saved as a quantised one, or not at all.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _name_signs(file: GGUFReader, tokenizer: Any) -> None:
    """Have the tokenizer begin, end and pad texts as the file says: transformers 5.17 takes one for the other."""
    for name, key in (("bos_token", "bos"), ("eos_token", "eos"), ("pad_token", "padding")):
        field = file.fields.get(f"tokenizer.ggml.{key}_token_id")
        setattr(tokenizer, name, None if field is None else tokenizer.convert_ids_to_tokens(field.contents()))


def _scale_rope(path: Path, file: GGUFReader, config: Any) -> None:
    """Have the configuration scale the rotary embedding as the file does, which transformers reads of few models.

    Raises ModelUnsupported for a way that is not known here.
    """
    arch = file.fields["general.architecture"].contents()

    def said(name: str) -> Any:
        field = file.fields.get(f"{arch}.rope.scaling.{name}")
        return None if field is None else field.contents()

    kind, factors = said("type"), {tensor.name: tensor.data for tensor in file.tensors if "rope_f" in tensor.name}
    more = said("yarn_log_multiplier"), said("attn_factor") not in (None, 1.0)
    rope = config.rope_parameters if hasattr(config, "rope_parameters") else None
    whole = (rope or {}).get("full_attention", rope)  # layers with a window are not scaled
    if (kind in (None, "none") and not factors) or (whole or {}).get("rope_type", "default") != "default":
        return
    if whole is not None and set(factors) == {"rope_freqs.weight"}:
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        whole.update(_llama3(path, factors["rope_freqs.weight"], whole["rope_theta"], head))
    elif whole is not None and not factors and kind in ("linear", "yarn") and said("factor") and not any(more):
        whole.update(rope_type=kind, factor=float(said("factor")))
        if (length := said("original_context_length")) is not None:
            whole.update(original_max_position_embeddings=int(length))
    else:
        raise ModelUnsupported(
            f"{path} scales its rotary embedding in a way adjudge does not read ({kind or 'by factors'}): {PASS}"
        )


def _llama3(path: Path, factors: Any, theta: float, width: int) -> dict[str, Any]:
    """Llama 3's scaling, recovered from the factors, one for each frequency, that llama.cpp stores."""
    found: dict[str, Any] = {"rope_type": "llama3", "factor": round(float(factors.max()), 3)}
    found |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    waves = 2 * np.pi * theta ** (np.arange(0, width, 2) / width)
    smooth = np.clip((8192 / waves - 1.0) / (4.0 - 1.0), 0.0, 1.0)
    expected = 1 / ((1 - smooth) / float(factors.max()) + smooth)
    if factors.shape != expected.shape or not np.allclose(factors, expected, rtol=1e-4):
        raise ModelUnsupported(f"{path} scales its rotary embedding by factors that are not Llama 3's: {PASS}")
    return found
