"""GGUF files, converted once into a folder that transformers opens in a moment."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
from pathlib import Path
from typing import Any

from adjudge.engine.errors import AdjudgeError, ModelCorrupt, ModelNotFound, ModelUnsupported, reason
from adjudge.engine.fingerprints import digest
from adjudge.engine.model_cache import Manifest, Status, build
from adjudge.engine.quiet import quiet

CONVERTER = 1
"""Raise this when the same file begins to convert to other weights or another tokenizer."""


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
        if "No space left on device" in str(error):  # the writer of safetensors has an error type of its own
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise ModelUnsupported(
            f"transformers cannot read {path} ({reason(error)}): it is damaged or of an unknown kind; pass another file"
        ) from error
    return Manifest(name, path.name, sha256, fingerprint(sha256), CONVERTER, licence)


def _convert(path: Path, folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig

    where: dict[str, Any] = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    config = AutoConfig.from_pretrained(**where)  # given to the next call, which would read the file's header twice
    options: dict[str, Any] = {"quantization_config": GgufConfig(dequantize=True), "output_loading_info": True}
    loaded: Any = AutoModelForCausalLM.from_pretrained(**where, config=config, dtype=torch.float32, **options)
    model, info = loaded
    require_all_weights(str(path), info)
    tokenizer = AutoTokenizer.from_pretrained(**where)
    # What was loaded is an ordinary dense model; without this it is saved as a quantised one, or not at all.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def require_all_weights(name: str, info: dict[str, Any]) -> None:
    """Raise ModelCorrupt where transformers filled absent weights with random numbers."""
    if missing := sorted(info["missing_keys"]):
        rest = f" and {len(missing) - 1} more" if missing[1:] else ""
        raise ModelCorrupt(f"{name} has no weights for {missing[0]}{rest}: it is incomplete; download or save it again")
