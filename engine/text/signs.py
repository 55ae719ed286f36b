"""The signs of a tokenizer: those of its added tokens that are no pieces of text, and a tokenizer that reads none."""

from __future__ import annotations

import secrets
from itertools import chain
from typing import Any

import msgspec

BLANKS = " \t\r\n\u2581"
"""Runs of these are added tokens of some vocabularies; they mean nothing but themselves."""

SIGN = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
"""How tokenizers write a special token down."""


def is_sign(content: str, special: bool) -> bool:
    """Whether an added token is no piece of text but a sign of the model's own."""
    return special or bool(content.strip(BLANKS))


def ids_of(tokenizer: Any) -> int:
    """How far its tokens' ids go, the last one's and one more: some tokenizers leave ids out, and have fewer tokens."""
    return 1 + int(max(tokenizer.get_vocab().values()))


def without_signs(tokenizer: Any) -> str:
    """A fast tokenizer in JSON, its signs special and called what no text can hold.

    Untrusted text is read by it; and llguidance reads what a form prescribes as trusted text, where data in a choice or
    a schema would become special tokens. Those of which ordinary tokens are made stay what they are, as what is made of
    them would go with them.
    """
    layout = msgspec.json.decode(tokenizer.backend_tokenizer.to_str())
    layout.update(truncation=None, padding=None)
    model, unguessed = layout["model"], secrets.token_hex(16)
    merges = model.get("merges") or ()
    signs = [token for token in layout["added_tokens"] if is_sign(token["content"], token["special"])]
    contents = {sign["content"] for sign in signs}
    pieces = contents.intersection(chain(chain.from_iterable(merges), map("".join, merges)))
    names = {sign["content"]: f"{unguessed}-{sign['id']}" for sign in signs if sign["content"] not in pieces}
    for sign in signs:
        if sign["content"] in names:
            sign.update(content=names[sign["content"]], special=True)
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(piece, piece): token for piece, token in vocabulary.items()}
        known = tokenizer.get_vocab().values()
        for token in {*range(1 + max(known))}.difference(known):
            model["vocab"][f"{unguessed}-{token}"] = token  # llguidance counts tokens to know how far ids go
            layout["added_tokens"].append({**SIGN, "id": token, "content": f"{unguessed}-{token}"})
    else:  # a piece's place is its token
        model["vocab"] = [[names.get(piece, piece), weight] for piece, weight in vocabulary]
    if "unk_token" in model:
        model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
    return msgspec.json.encode(layout).decode()
