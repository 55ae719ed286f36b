from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from transformers.convert_slow_tokenizer import bytes_to_unicode

from adjudge.engine.models.sources import open_tokenizer, resolve
from adjudge.engine.text.growing_text import BROKEN, UNFINISHED, GrowingText
from adjudge.engine.text.tokenizer import Tokenizer
from tests.engine.text.tokenizers import sentencepiece_tokenizer


@pytest.fixture(scope="module")
def real(smollm2: str) -> Tokenizer:
    return Tokenizer(open_tokenizer(resolve(smollm2)))


def grown(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, str]:
    """What a text of these tokens comes to, settled and whole; what has settled must stay."""
    text = GrowingText(tokenizer.decode_on, tokenizer.bytewise)
    before = ""
    for token in ids:
        text.add(token)
        assert text.settled.startswith(before) and text.whole().startswith(text.settled)
        before = text.settled
    return text.settled, text.whole()


@pytest.mark.parametrize("cut", range(1, 11))
def test_a_character_cut_short_takes_none_of_those_before_it(cut: int) -> None:
    """Sentencepiece's decoder itself spoils a whole run of byte tokens where its end is no character."""
    tokenizer = Tokenizer(sentencepiece_tokenizer())
    written = "€€🤗".encode()[:cut]
    ids = tokenizer.inner.convert_tokens_to_ids(["a", *(f"<0x{byte:02X}>" for byte in written)])
    whole = "a" + written.decode(errors="ignore")
    settled, text = grown(tokenizer, ids)
    assert settled == whole and text.rstrip("\ufffd") == whole
    assert len(text) - len(settled) == len(written) - len(whole[1:].encode())


def test_sentencepiece_words_keep_the_spaces_before_them() -> None:
    tokenizer = Tokenizer(sentencepiece_tokenizer())
    ids = tokenizer.inner.convert_tokens_to_ids(["▁Hello", "▁there", "there", "▁", "a"])
    assert grown(tokenizer, ids)[1] == tokenizer.decode_on(ids) == " Hello therethere a"


@pytest.mark.parametrize("seed", range(5))
def test_any_tokens_of_a_byte_level_vocabulary_are_what_their_whole_decodes_to(real: Tokenizer, seed: int) -> None:
    source = random.Random(seed)
    some = real.encode("é🙂€ a story <|im_end|>", True)
    ids = [source.choice([*some, source.randrange(real.vocab_size)]) for _ in range(200)]
    assert grown(real, ids)[1] == real.decode(ids)


def test_bytes_that_never_come_to_a_character_are_settled_all_the_same(real: Tokenizer) -> None:
    source = random.Random(0)
    single = [real.inner.convert_tokens_to_ids(bytes_to_unicode()[byte]) for byte in range(0x80, 0xC0)]
    lead = [real.inner.convert_tokens_to_ids(bytes_to_unicode()[byte]) for byte in (0x41, 0xC3, 0xE2, 0xF0)]
    for ids in (source.choices(single + 4 * lead, k=300), source.choices(single, k=200), single[:1] * 200):
        settled, whole = grown(real, ids)
        assert whole == real.decode(ids) and len(whole) - len(settled) <= 2 * UNFINISHED
    [broken] = real.encode(BROKEN, False)
    text = GrowingText(real.decode_on, real.bytewise)
    for _ in range(50):
        text.add(broken)
    assert text.first([BROKEN * 3]) == 0 and text.whole() == BROKEN * 50


def test_sentencepiece_bytes_that_never_come_to_a_character_are_what_their_whole_decodes_to() -> None:
    tokenizer = Tokenizer(sentencepiece_tokenizer())
    ids = tokenizer.inner.convert_tokens_to_ids([f"<0x{byte:02X}>" for byte in b"\xff" * 5 + "é€".encode()])
    assert grown(tokenizer, ids)[1] == tokenizer.decode_on(ids)


@pytest.mark.parametrize("seed", range(20))
def test_stop_strings_are_found_where_the_whole_text_has_them(seed: int) -> None:
    source = random.Random(seed)
    strings = ["".join(source.choices("ab", k=source.randint(1, 6))) for _ in range(3)]
    text, whole = GrowingText(lambda codes: "".join(map(chr, codes))), ""
    while len(whole) < 100:
        whole += source.choice("ab")
        text.add(ord(whole[-1]))
        sizes = [size for string in strings for size in range(len(string)) if whole.endswith(string[:size])]
        assert text.begun(strings) == max(sizes, default=0)
        found = text.first(strings)
        assert found == min((whole.find(string) for string in strings if string in whole), default=None)
        if found is not None:
            return


def test_a_stop_string_before_half_a_character_is_found_at_the_end() -> None:
    tokens = {1: b"a", 2: b" \xe2"}
    text = GrowingText(lambda ids: b"".join(tokens[one] for one in ids).decode("utf-8", "replace"), bytewise=True)
    for token in tokens:
        text.add(token)
    assert text.first([" "]) is None and text.ended([" "]) == ("a", True) and text.ended(["b"]) == ("a \ufffd", False)
