from __future__ import annotations

import threading
from typing import Any

import pytest

from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.http.token_names import Offsets, TokenNames
from adjudge.engine.text.token_bytes import byte_table
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.kernels.byte_table import ByteTable
from tests.engine.http.serving import served
from tests.engine.text.tokenizers import sentencepiece_tokenizer


def test_tokens_of_a_sentencepiece_vocabulary_are_told_apart_and_add_up() -> None:
    tokenizer = Tokenizer(sentencepiece_tokenizer())
    token_names = TokenNames(tokenizer, lambda: byte_table(tokenizer.inner, tokenizer.vocab_size))
    ids = tokenizer.inner.convert_tokens_to_ids(["▁there", "there", "▁Hello", "<0xE2>", "<0x82>", "<0xAC>", "a"])
    names = ["bytes:\\xe2", "bytes:\\x82", "bytes:\\xac"]
    assert [token_names.name(token) for token in ids] == [" there", "there", " Hello", *names, "a"]
    assert (
        b"".join(token_names.raw(token) for token in ids).decode() == " therethere Hello€a" == tokenizer.decode_on(ids)
    )
    offsets = Offsets(token_names)
    assert [offsets.next(token) for token in ids] == [0, 6, 11, 17, 17, 17, 18]
    after_a_mark = Offsets(token_names, before=[2, *ids[:2]], text="therethere")
    assert [after_a_mark.next(token) for token in [2, *ids[:3]]] == [0, 0, 5, 10]
    assert token_names.name(2) == "</s>" and token_names.raw(len(tokenizer.inner) + 5) == b""


def test_a_token_after_a_broken_character_begins_behind_it(engine: AsyncEngine) -> None:
    tokenizer = engine.face.tokenizer  # a token is a byte
    offsets = Offsets(TokenNames(tokenizer, engine.face.byte_table))
    ids = [*b"a\xe2\x82a\xe2\xe2\x82\xaca"]
    assert tokenizer.decode(ids) == "a\ufffda\ufffd€a"
    assert [offsets.next(token) for token in ids] == [0, 1, 1, 2, 3, 4, 4, 4, 5]


CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "once"}], "logprobs": True}


@pytest.mark.parametrize(
    ("path", "asked"), [("/v1/completions", {"prompt": "once", "logprobs": 0}), ("/v1/chat/completions", CHAT)]
)
def test_the_table_of_a_stream_is_the_engines_and_made_beside_the_event_loop(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch, path: str, asked: dict[str, Any]
) -> None:
    made, table = [], engine.face.byte_table

    def byte_table() -> ByteTable:
        made.append(threading.current_thread().name)
        return table()

    monkeypatch.setattr(engine.face, "byte_table", byte_table)
    with served(engine) as site:
        for _ in range(2):
            assert "data: [DONE]" in site.post(path, {**asked, "stream": True, "max_tokens": 3}).text
    assert len(made) == 1 and made[0].startswith("adjudge-http")
