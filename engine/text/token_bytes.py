"""What each token id of a tokenizer stands for in a stream, in bytes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from adjudge.engine.errors import ModelUnsupported

if TYPE_CHECKING:
    from adjudge.kernels.byte_table import ByteTable

SILENT = ("bos_token_id", "eos_token_id", "pad_token_id")
"""Tokens that frame a stream and say nothing in it. Any other added token stands for its content."""

BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")


def byte_table(tokenizer: Any, size: int = 0) -> ByteTable:
    """The bytes of every token id of a transformers fast tokenizer, for `answer_spans`.

    Byte-level vocabularies are spelt back with their table of characters, sentencepiece ones with `▁` for a space and
    `<0x0A>` for a byte. Ids without a token, and those up to `size` (the width of a padded head), stand for no bytes.
    Raises ModelUnsupported for another kind of vocabulary.
    """
    from adjudge.kernels.byte_table import ByteTable

    backend = tokenizer.backend_tokenizer
    layout = json.loads(backend.to_str())
    decoder = layout["decoder"] or {"type": "none"}
    kinds = {step["type"] for step in decoder.get("decoders", [decoder])}
    if "ByteLevel" in kinds:
        spell = _byte_level()
    elif kinds & {"ByteFallback", "Metaspace"}:
        spell = _sentencepiece
    else:
        raise ModelUnsupported(
            f"the tokenizer's decoder ({', '.join(sorted(kinds))}) is neither byte-level nor sentencepiece: "
            "scores cannot be found in what this model writes"
        )
    added = {token["id"]: token["content"].encode() for token in layout["added_tokens"]}
    silent = {getattr(tokenizer, name, None) for name in SILENT}
    vocabulary = backend.get_vocab(with_added_tokens=True)
    pieces = [b""] * max(size, 1 + max(vocabulary.values(), default=-1))
    for text, token in vocabulary.items():
        if token not in silent:
            pieces[token] = added[token] if token in added else spell(text)
    return ByteTable.of(pieces)


def byte_characters() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary (printable bytes for themselves)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _byte_level() -> Any:
    """A function from a token's characters to its bytes; a token with any other character is itself, as in decoding."""
    byte_of = {character: byte for byte, character in enumerate(byte_characters())}

    def spell(text: str) -> bytes:
        try:
            return bytes(byte_of[character] for character in text)
        except KeyError:
            return text.encode()

    return spell


def _sentencepiece(text: str) -> bytes:
    if byte := BYTE_TOKEN.fullmatch(text):
        return bytes.fromhex(byte[1])
    return text.replace("▁", " ").encode()
