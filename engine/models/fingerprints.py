"""Which weights these are: content hashes of files and of model folders, each file read once."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec

from adjudge.engine.errors import AdjudgeError, ModelCorrupt
from adjudge.engine.models.cache_folder import cache_root
from adjudge.engine.whole_file import write_whole

WEIGHTS_HEADER = "adjudge-weights"
"""By which our own server tells one set of weights, with its adapter, from another."""
REMEMBERED_BYTES = 1 << 20
"""Files of at least this size have their hash remembered: a smaller one is read again as fast as a note of it."""

IDENTITY_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tekken.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)
"""What makes a folder another model, beside its weights."""


class _Memo(msgspec.Struct, frozen=True):
    """A hash and the state the file was in when it was taken."""

    state: tuple[int, ...]
    sha256: str


def digest(*parts: str) -> str:
    """sha256 (hex) of a sequence of texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """sha256 (hex) of a file; that of a large one is remembered in the cache folder until the file changes."""
    path = path.resolve()
    status = path.stat()
    if status.st_size < REMEMBERED_BYTES:
        return _hashed(path)
    state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    try:
        note = cache_root() / "hashes" / f"{digest(str(path))[:24]}.json"
    except AdjudgeError:  # nobody's home
        return _hashed(path)
    with contextlib.suppress(OSError, msgspec.DecodeError):
        memo = msgspec.json.decode(note.read_bytes(), type=_Memo)
        if memo.state == state:
            return memo.sha256
    sha256 = _hashed(path)
    with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
        note.parent.mkdir(parents=True, exist_ok=True)
        write_whole(note, msgspec.json.encode(_Memo(state, sha256)))
    return sha256


def _hashed(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_fingerprint(folder: Path) -> str:
    """Identity of the configuration, tokenizer and weights in a folder; raises ModelCorrupt without weights."""
    weights = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    if not weights:
        raise ModelCorrupt(
            f"{folder} holds no weights (*.safetensors): save the model there again, or pass another folder"
        )
    files = [folder / name for name in IDENTITY_FILES if os.path.isfile(folder / name)] + weights
    return digest("folder", *(f"{file.name}={file_sha256(file)}" for file in files))


def content_fingerprint(base: Any, tokenizer: Any) -> str:
    """Identity of base weights, configuration and tokenizer by their content, for a model that came from nowhere.

    What adapters have put into `base` is left out.
    """
    import torch

    parts = [base.config.to_json_string(), str(tokenizer.chat_template), str(sorted(tokenizer.get_vocab().items()))]
    for name, tensor in base.named_parameters():
        if "lora_" not in name and "modules_to_save" not in name:
            data = tensor.detach().contiguous().cpu().flatten().view(torch.uint8).numpy()
            own_name = name.replace(".base_layer", "").replace(".original_module", "")
            parts += [own_name, hashlib.sha256(data).hexdigest()]
    return digest("lent", *parts)
