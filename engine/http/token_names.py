"""Tokens as OpenAI's clients read them: a text where it is one, its bytes where it is part of a character."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache

from adjudge.engine.errors import ModelUnsupported
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.kernels.byte_table import ByteTable

LEAST = -9999.0
"""Stands for a log-probability of minus infinity, which JSON does not have."""


class TokenNames:
    """What the tokens of one tokenizer stand for: `text`, and `raw`, the bytes, part of a character or not.

    `byte_table` makes its table, once it is needed. That takes a second: `make_ready` is for a thread that has it.
    """

    def __init__(self, tokenizer: Tokenizer, byte_table: Callable[[], ByteTable]) -> None:
        self._byte_table = byte_table
        self.text = lru_cache(maxsize=1 << 16)(lambda token: tokenizer.decode_on([token]))
        self.raw = lru_cache(maxsize=1 << 16)(lambda token: self._spelled(token) or self.text(token).encode())

    def make_ready(self) -> None:
        """Have the table there."""
        _ = self._table

    def name(self, token: int) -> str:
        """The text of a token, or `bytes:` and what they are: the name of a token among others."""
        text = self.text(token)
        raw = self._spelled(token) if "\ufffd" in text else b""
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw) if raw else text

    def _spelled(self, token: int) -> bytes:
        if self._table is None or token + 1 >= len(self._table.starts):  # a padded head is wider than the vocabulary
            return b""
        start, end = self._table.starts[token : token + 2].tolist()
        return self._table.data[start:end].numpy().tobytes()

    @cached_property
    def _table(self) -> ByteTable | None:
        try:
            return self._byte_table()
        except ModelUnsupported:
            return None


class Offsets:
    """Where in a text each of its tokens begins, in characters, as the tokens come.

    What its first tokens, those of a `text`, spell `before` it (a mark of its beginning) is none of it.
    """

    def __init__(self, token_names: TokenNames, before: Sequence[int] = (), text: str = "") -> None:
        self._token_names = token_names
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        spelt = b"".join(map(token_names.raw, before)).decode("utf-8", "replace")
        self._place = len(text) - len(spelt)

    def next(self, token: int) -> int:
        """The place of the next token."""
        raw = self._token_names.raw(token)
        if raw and raw[0] & 0xC0 != 0x80:  # no further byte of a character: one that is open stays broken
            self._place += len(self._decoder.decode(b"", True))
        place = self._place
        self._place += len(self._decoder.decode(raw))
        return max(0, place)
