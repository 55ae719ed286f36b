from __future__ import annotations

from adjudge.engine.http.spelling import Offsets, Spelling
from adjudge.engine.text.tokenizer import Tokenizer
from tests.engine.text.test_tokenizer import sentencepiece_tokenizer


def test_tokens_of_a_sentencepiece_vocabulary_are_told_apart_and_add_up() -> None:
    tokenizer = Tokenizer(sentencepiece_tokenizer())
    spelling = Spelling(tokenizer)
    ids = tokenizer.inner.convert_tokens_to_ids(["▁there", "there", "▁Hello", "<0xE2>", "<0x82>", "<0xAC>", "a"])
    names = ["bytes:\\xe2", "bytes:\\x82", "bytes:\\xac"]
    assert [spelling.name(token) for token in ids] == [" there", "there", " Hello", *names, "a"]
    assert b"".join(spelling.raw(token) for token in ids).decode() == " therethere Hello€a" == tokenizer.decode_on(ids)
    offsets = Offsets(spelling)
    assert [offsets.next(token) for token in ids] == [0, 6, 11, 17, 17, 17, 18]
    after_a_mark = Offsets(spelling, before=[2, *ids[:2]], text="therethere")
    assert [after_a_mark.next(token) for token in [2, *ids[:3]]] == [0, 0, 5, 10]
    assert spelling.name(2) == "</s>" and spelling.raw(len(tokenizer.inner) + 5) == b""
