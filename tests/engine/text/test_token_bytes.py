from __future__ import annotations

from itertools import accumulate, pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as BackendTokenizer

from adjudge.engine.errors import ModelUnsupported
from adjudge.engine.models.sources import open_tokenizer, resolve
from adjudge.engine.text.token_bytes import byte_table
from adjudge.engine.text.tokenizer import Tokenizer, well_formed
from adjudge.kernels import ByteTable, SpanReason, answer_spans

TEN = [str(number).encode() for number in range(1, 11)]


@pytest.fixture(scope="module")
def real(smollm2: str) -> Tokenizer:
    return Tokenizer(open_tokenizer(resolve(smollm2)))


@pytest.fixture(scope="module")
def table(real: Tokenizer) -> ByteTable:
    return byte_table(real.inner)


@pytest.fixture(scope="module")
def of_token(table: ByteTable) -> list[bytes]:
    return pieces(table)


def pieces(table: ByteTable) -> list[bytes]:
    """The table as a list again."""
    data, starts = bytes(table.data.tolist()), table.starts.tolist()
    return [data[first:last] for first, last in pairwise(starts)]


def sentencepiece(decoder: Any) -> Any:
    """A tokenizer of the sentencepiece kind, as far as `byte_table` looks at it."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2, "<0x0A>": 3, "<0xFF>": 4, "▁": 5, "▁4": 6, "é": 7, "[[": 8}
    backend = BackendTokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    backend.decoder = decoder
    backend.add_special_tokens([AddedToken(text, special=True) for text in ("<unk>", "<s>", "</s>", "<▁>")])
    return SimpleNamespace(backend_tokenizer=backend, bos_token_id=1, eos_token_id=2, pad_token_id=None)


def test_the_bytes_of_the_real_vocabulary_are_those_it_decodes_to(real: Tokenizer, table: ByteTable) -> None:
    assert len(table) == real.vocab_size
    silent = {real.inner.bos_token_id, real.inner.eos_token_id, real.inner.pad_token_id}
    for token, piece in enumerate(pieces(table)):
        assert piece.decode(errors="replace") == ("" if token in silent else real.inner.decode([token]))


@given(st.text(max_size=40))
def test_the_bytes_of_a_text_are_those_of_its_tokens(real: Tokenizer, of_token: list[bytes], text: str) -> None:
    ids = real.encode(text, False)
    joined = b"".join(of_token[token] for token in ids)
    assert joined.decode(errors="replace") == real.inner.decode(list(ids))


def test_ids_without_a_token_have_no_bytes(real: Tokenizer, table: ByteTable) -> None:
    padded = byte_table(real.inner, size=50_000)
    assert len(padded) == 50_000
    assert pieces(padded)[: len(table)] == pieces(table)
    assert not any(pieces(padded)[len(table) :])


def test_added_tokens_are_their_content_and_those_that_frame_a_stream_are_nothing() -> None:
    tiny = open_tokenizer(resolve("dummy:tiny-llama"))
    assert pieces(byte_table(tiny)) == [bytes([byte]) for byte in range(256)] + [
        *(b"", b"<|im_start|>", b"", b"<think>", b"</think>")
    ]


def test_a_byte_level_token_with_a_character_that_stands_for_no_byte_is_itself() -> None:
    backend = BackendTokenizer(models.BPE(vocab={"ĠA": 0, "Ġ☃": 1}, merges=[]))
    backend.decoder = decoders.ByteLevel()
    assert pieces(byte_table(SimpleNamespace(backend_tokenizer=backend))) == [b" A", "Ġ☃".encode()]
    assert [backend.decode([token]) for token in (0, 1)] == [" A", "Ġ☃"]


def test_sentencepiece_vocabularies_have_spaces_and_bytes() -> None:
    fallback = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    for decoder in (fallback, decoders.Metaspace()):
        expected = [b"<unk>", b"", b"", b"\n", b"\xff", b" ", b" 4", "é".encode(), b"[[", "<▁>".encode()]
        assert pieces(byte_table(sentencepiece(decoder))) == expected


@pytest.mark.parametrize("decoder", [decoders.WordPiece(), None])
def test_another_kind_of_vocabulary_is_refused(decoder: Any) -> None:
    backend = BackendTokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    if decoder is not None:
        backend.decoder = decoder
    with pytest.raises(ModelUnsupported, match="neither byte-level nor sentencepiece"):
        byte_table(SimpleNamespace(backend_tokenizer=backend))


def test_scores_in_what_the_real_tokenizer_writes_are_found(
    real: Tokenizer, table: ByteTable, of_token: list[bytes]
) -> None:
    texts = {
        "Good.\n<ANSWER> 4 </ANSWER>": (b"4", SpanReason.OK),
        "Good.\n<ANSWER>10</ANSWER>": (b"10", SpanReason.OK),
        "Good: [[7]].": (b"7", SpanReason.OK),
        "Good: [[ **9** ]].": (b"9", SpanReason.OK),
        "Good: [[47]].": (None, SpanReason.NO_LABEL),
        "Good: [[4.5]].": (None, SpanReason.NO_LABEL),
        "Good: [[4": (b"4", SpanReason.UNCLOSED),
        "Good: [[": (None, SpanReason.ENDED),
    }
    rows = [real.encode(text, False) for text in texts]
    ids = torch.tensor([token for row in rows for token in row])
    offsets = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
    spans = answer_spans(ids, offsets, table, openings=[b"<ANSWER>", b"[["], labels=TEN, closings=[b"</ANSWER>", b"]]"])
    assert spans.offsets.diff().tolist() == [1] * len(texts)
    for place, (text, (label, reason)) in enumerate(texts.items()):
        assert spans.reason[place] == reason, text
        if label is None:
            continue
        start, first = int(spans.start[place]), int(spans.token[place])
        ends = list(accumulate(len(of_token[token]) for token in rows[place]))
        assert (ends[first - 1] if first else 0) <= start < ends[first], text
        assert text.encode()[start : int(spans.end[place])] == label


@given(st.text(max_size=20), st.integers(0, 11), st.sampled_from(["", " ", "\n", " **"]), st.text(max_size=5))
def test_a_score_after_any_text_is_found_or_given_a_reason(
    real: Tokenizer, table: ByteTable, of_token: list[bytes], before: str, score: int, gap: str, after: str
) -> None:
    text = well_formed(f"{before}<ANSWER>{gap}{score}</ANSWER>{after}")
    ids = real.encode(text, False)
    spans = answer_spans(
        torch.tensor(ids),
        torch.tensor([0, len(ids)]),
        table,
        openings=[b"<ANSWER>"],
        labels=TEN,
        closings=[b"</ANSWER>"],
    )
    assert spans.reason.tolist() == [SpanReason.OK if 1 <= score <= 10 else SpanReason.NO_LABEL]
    if spans.usable:
        assert TEN[int(spans.label)] == str(score).encode()
        before_score = b"".join(of_token[token] for token in ids[: int(spans.token)])
        first = of_token[ids[int(spans.token)]]
        assert (before_score + first[: int(spans.start) - len(before_score)]).endswith(f"<ANSWER>{gap}".encode())
