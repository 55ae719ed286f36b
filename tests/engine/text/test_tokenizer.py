from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as BackendTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, LabelError, ModelUnsupported, PromptError
from adjudge.engine.models.dummy import tiny_tokenizer
from adjudge.engine.models.sources import open_source, open_tokenizer, resolve
from adjudge.engine.text import tokenizer as module
from adjudge.engine.text.fitting import fit
from adjudge.engine.text.prompt import Message, Prompt, Segment, checked_messages
from adjudge.engine.text.tokenizer import KEPT, LATER, Tokenizer, well_formed
from tests.engine.text.tokenizers import sentencepiece_tokenizer


@pytest.fixture(scope="module")
def real(smollm2: str) -> Tokenizer:
    return Tokenizer(open_tokenizer(resolve(smollm2)))


@pytest.fixture(scope="module")
def tiny() -> Tokenizer:
    return Tokenizer(open_tokenizer(resolve("dummy:tiny-llama")))


words = st.lists(st.one_of(st.integers(0, 10**6), st.text(max_size=6)), max_size=8)


def with_added_tokens(tokenizer: Tokenizer, pieces: list[int | str]) -> str:
    """A text in which every number stands for one of the added tokens' strings."""
    added = sorted(tokenizer.inner.get_added_vocab())
    return "".join(piece if isinstance(piece, str) else added[piece % len(added)] for piece in pieces)


def test_no_added_token_string_of_the_whole_vocabulary_has_power_in_untrusted_text(
    real: Tokenizer, tiny: Tokenizer
) -> None:
    for tokenizer in (real, tiny):
        added = tokenizer.inner.get_added_vocab()
        assert added
        for text, token in added.items():
            assert tokenizer.encode(text, True) == (token,)
            for hostile in (text, f"a{text}b", text * 3, f" {text}\n{text} "):
                ids = tokenizer.encode(hostile, False)
                assert not set(ids) & set(added.values())
                assert tokenizer.inner.decode(list(ids)) == hostile


@given(words)
def test_untrusted_text_has_the_ids_of_a_tokenizer_that_knows_no_added_tokens(pieces: list[int | str]) -> None:
    tokenizer = Tokenizer(open_tokenizer(resolve("dummy:tiny-llama")))
    text = with_added_tokens(tokenizer, pieces)
    assert tokenizer.encode(text, False) == tuple(well_formed(text).encode())  # its bytes are its ids
    assert set(tokenizer.encode(text, False)).isdisjoint(tokenizer.inner.get_added_vocab().values())


@given(words)
def test_untrusted_text_of_the_real_tokenizer_keeps_its_characters(real: Tokenizer, pieces: list[int | str]) -> None:
    text = with_added_tokens(real, pieces)
    ids = real.encode(text, False)
    assert set(ids).isdisjoint(real.inner.get_added_vocab().values())
    printable = [character for character in text if character.isascii() and character.isprintable()]
    decoded = real.inner.decode(list(ids))  # a few rare bytes are missing from this vocabulary: compare the others
    assert [character for character in decoded if character.isascii() and character.isprintable()] == printable


def test_a_vocabulary_that_holds_its_special_strings_as_words_still_gives_them_no_power() -> None:
    vocabulary = {"[UNK]": 0, "<s>": 1, "a": 2, "<": 3, "s": 4, ">": 5, "<t>": 6, "t": 7}
    backend = BackendTokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_tokens([AddedToken("<t>", special=False)])
    inner = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", unk_token="[UNK]")
    tokenizer = Tokenizer(inner)
    assert tokenizer.encode("a <s> a", True) == (2, 1, 2)
    assert tokenizer.encode("a <s> a", False) == (2, 0, 2)
    assert tokenizer.encode("a <t> a", False) == (2, 0, 2)


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("\ud800", "\ufffd"),
        ("a\udc00b", "a\ufffdb"),
        ("\ud83d\ud83d\ude00\ude00", "\ufffd😀\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("\0", "\0"),
        ("é", "é"),
    ],
)
def test_lone_surrogates_are_replaced_and_pairs_joined(tiny: Tokenizer, text: str, encoded: str) -> None:
    assert well_formed(text) == encoded
    assert tiny.encode(text, False) == tuple(encoded.encode())


def test_segments_are_tokenised_each_by_itself(real: Tokenizer) -> None:
    prompt = Prompt((Segment("The sto", True), Segment("ry"), Segment("!", True)))
    parts = [real.encode("The sto", True), real.encode("ry", False), real.encode("!", True)]
    assert real.prompt(prompt) == parts[0] + parts[1] + parts[2]
    assert real.prompt(prompt) != real.encode("The story!", True)


@pytest.mark.parametrize(
    ("cut", "start", "end"), [("head", False, True), ("tail", True, False), ("middle", True, True)]
)
def test_a_cut_takes_from_the_named_end(tiny: Tokenizer, cut: str, start: bool, end: bool) -> None:
    text = "<" + "x" * 500 + ">"
    ids = tiny.segment(Segment(text, limit=100, cut=cut))  # type: ignore[arg-type]
    assert len(ids) == 100
    assert (ids[0] == ord("<"), ids[-1] == ord(">")) == (start, end)
    assert tiny.segment(Segment(text, limit=0, cut=cut)) == ()  # type: ignore[arg-type]
    assert tiny.segment(Segment(text, trusted=True, limit=100)) == tiny.encode(text, True)


@pytest.mark.parametrize("wrong", [{"limit": -3}, {"limit": 2.5}, {"limit": "9"}, {"cut": "heart"}])
def test_a_segment_is_cut_to_a_number_of_tokens_in_a_known_way(wrong: dict[str, Any]) -> None:
    with pytest.raises(
        AdjudgeError, match="|".join((r"limit is .*: give a number of tokens", 'cut is "heart": choose'))
    ):
        Segment("a", **wrong)


def test_marks_in_trusted_text_are_refused_and_harmless_in_data(tiny: Tokenizer) -> None:
    with pytest.raises(PromptError, match=r"U\+E000"):
        tiny.chat([Message("user", Prompt((Segment("\ue0000\ue001", True),)))])
    prompt = tiny.chat([Message("user", Prompt((Segment("\ue0000\ue001"), Segment("b"))))])
    assert [segment.text for segment in prompt.segments if not segment.trusted] == ["\ue0000\ue001", "b"]


def test_a_turn_may_be_a_string_and_is_data_then(tiny: Tokenizer) -> None:
    said: Any = "<|im_end|>"
    assert Message("user", said) == Message("user", Prompt((Segment(said),)))
    assert [segment.trusted for segment in tiny.chat([Message("user", said)]).segments if segment.text == said] == [
        False
    ]


@pytest.mark.parametrize("given", ["hi", [{"role": "user", "content": "hi"}], Message("user", Prompt(())), [None]])
def test_what_is_no_list_of_messages_is_one_sentence(given: Any) -> None:
    with pytest.raises(PromptError, match=r"is no Message: give a list of Message\(role, text\)"):
        checked_messages(given)


@pytest.mark.parametrize("given", [[{"role": "user", "content": "hi"}], None, ["word"], b"word"])
def test_what_is_no_prompt_is_one_sentence(tiny: Tokenizer, given: Any) -> None:
    with pytest.raises(PromptError, match=r"is no prompt: give a string, a Prompt \(engine.chat makes one"):
        tiny.prompt(given)


def test_templates_name_a_field_that_is_missing_or_unused() -> None:
    prompt = Prompt.template("{{x}} {a}!", a="1")
    assert "".join(segment.text for segment in prompt.segments) == "{x} 1!"
    assert [segment.text for segment in prompt.segments if not segment.trusted] == ["1"]
    with pytest.raises(PromptError, match=r'"\{a\}"'):
        Prompt.template("{a}")
    with pytest.raises(PromptError, match="no place for b"):
        Prompt.template("{a}", a="1", b="2")
    with pytest.raises(PromptError, match="the template cannot be read .*: write a brace as {{ or }}"):
        Prompt.template("Rate {a", a="1")
    with pytest.raises(PromptError, match="a is 5, not a string: give its text"):
        Prompt.template("{a}", a=5)  # type: ignore[arg-type]


def test_a_plain_string_begins_as_the_model_expects_and_is_untrusted(tiny: Tokenizer) -> None:
    assert tiny.prompt("<|im_end|>") == tuple(b"<|im_end|>")
    backend = BackendTokenizer.from_str(tiny.inner.backend_tokenizer.to_str())
    backend.post_processor = TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 256)])
    with_bos = Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<|endoftext|>"))
    assert with_bos.prompt("ab") == (256, 97, 98)
    assert with_bos.prompt(with_bos.chat([Message("user", Prompt.template("ab"))])) == (256, *b"ab\n\n")


def test_runs_of_blanks_are_read_as_the_model_was_trained_and_signs_are_not() -> None:
    inner = tiny_tokenizer()  # with such tokens as those of GPT-NeoX, Pythia and Phi
    inner.backend_tokenizer.add_tokens([AddedToken(" " * n, special=False, normalized=True) for n in (8, 4, 2)])
    tokenizer, text = Tokenizer(inner), "if x:\n        y"
    ids = tokenizer.encode(text, False)
    assert ids == tokenizer.encode(text, True) == tuple(inner.encode(text)) and len(ids) == 8
    assert tokenizer.encode("    <|im_end|>", False)[1:] == tuple(b"<|im_end|>")
    assert tokenizer.fingerprint_of("weights") == f"weights{LATER}"


def test_what_a_tokenizer_puts_behind_a_text_ends_a_plain_string_that_is_asked_to_end() -> None:
    inner = tiny_tokenizer()  # with what Qwen3-Embedding's has
    ends = [("<|im_start|>", 257), ("<|im_end|>", 258)]
    inner.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A <|im_end|>", special_tokens=ends
    )
    tokenizer = Tokenizer(inner)
    assert tokenizer.prompt("ab", ended=True) == tuple(inner.encode("ab")) == (257, 97, 98, 258)
    assert tokenizer.prompt("ab") == (257, 97, 98)
    for whole in ([97, 98], Prompt((Segment("ab"),))):
        assert tokenizer.prompt(whole, ended=True) == (97, 98)


def test_decoding_leaves_a_text_as_it_is_where_a_tokenizer_would_clean_it_up() -> None:
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("▁a", -1.0), ("▁.", -2.0), ("▁b", -1.0)]
    backend = BackendTokenizer(models.Unigram(pieces, unk_id=0))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    how: dict[str, Any] = {"unk_token": "<unk>", "eos_token": "</s>", "clean_up_tokenization_spaces": True}
    tokenizer = Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, **how))
    assert tokenizer.decode(tokenizer.encode("a . b", False)) == "a . b"


def test_a_slow_tokenizer_is_refused() -> None:
    with pytest.raises(ModelUnsupported, match="tokenizer.json"):
        Tokenizer(object())


def test_what_goes_on_from_other_tokens_keeps_the_space_that_sentencepiece_decoders_strip() -> None:
    sentencepiece = Tokenizer(sentencepiece_tokenizer())
    hello, there, rest = (sentencepiece.inner.convert_tokens_to_ids(piece) for piece in ("▁Hello", "▁there", "there"))
    assert sentencepiece.decode([hello, there]) == "Hello there" and sentencepiece.decode([there]) == "there"
    assert sentencepiece.decode_on([there]) == " there" != sentencepiece.decode_on([rest]) == "there"
    assert sentencepiece.decode_on([]) == ""


def test_byte_level_tokenizers_decode_alike_wherever_it_begins(real: Tokenizer) -> None:
    for text in ("a story", " two words", "\n", "é 🙂", ""):
        assert real.decode_on(real.encode(text, False)) == real.decode(real.encode(text, False)) == text


def test_a_token_that_the_model_has_no_embedding_of_is_refused(tmp_path: Path) -> None:
    opened = open_source(resolve("dummy:tiny-llama"), dtype=torch.float32)
    rows = opened.model.get_input_embeddings().num_embeddings
    opened.tokenizer.add_tokens([f"<more {n}>" for n in range(len(opened.tokenizer), rows + 1)])
    opened.model.save_pretrained(tmp_path)
    opened.tokenizer.save_pretrained(tmp_path)
    engine = Engine(str(tmp_path), kv_cache_gb=0.05)
    known, labels = list(range(5)), ["1", "2"]
    [score] = engine.score([known], labels)
    for prompt in ([rows], Prompt.template(f"One <more {rows}> two")):
        with pytest.raises(PromptError, match=f"token id {rows} is outside the vocabulary of {rows}"):
            engine.score([prompt], labels)
    with pytest.raises(LabelError, match=f"label token id {rows} is outside the vocabulary of {rows}"):
        engine.score([known], [f"<more {rows}>", "1"])
    assert engine.generate(["One"], choices=["yes", "no"], seed=1)[0].text in ("yes", "no")
    assert engine.score([known], labels) == [score]


def test_of_long_texts_the_tokens_of_the_last_few_are_kept_and_of_the_longest_none(
    tiny: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tiny._kept.cache_info().currsize
    assert tiny.encode("a" * (KEPT + 1), False) is tiny.encode("a" * (KEPT + 1), False)
    for n in range(9):
        tiny.encode("a" * (KEPT + n), False)
    assert tiny._kept_few.cache_info().currsize == 4
    monkeypatch.setattr(module, "LONG", KEPT + 20)
    longest = "a" * (KEPT + 21)
    assert tiny.encode(longest, False) == tiny.encode(longest, False)
    assert tiny.encode(longest, False) is not tiny.encode(longest, False)
    assert tiny._kept.cache_info().currsize == before + 1  # the one of just that length


def test_of_a_text_that_is_too_long_no_more_is_read_than_shows_it(
    real: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = " ".join(f"word{n}" for n in range(3_000)) + "<|im_end|>\ud800"
    whole = real.encode(words, False)
    monkeypatch.setattr(module, "LONG", 2_000)
    monkeypatch.setattr(module, "PIECE", 700)
    monkeypatch.setattr(module, "NEAR", 50)
    asked: list[int] = []
    encode = real._encode
    monkeypatch.setattr(real, "_encode", lambda text, *how: asked.append(len(text)) or encode(text, *how))
    pieces = real.encode(words, False)
    assert pieces == whole and len(words) // 700 <= len(asked) <= len(words) // 650  # parted at blanks
    assert real.inner.convert_tokens_to_ids("<|im_end|>") not in pieces
    asked.clear()
    some = real.prompt(words, 500)
    assert 500 < len(some) < 900 and some == pieces[: len(some)] and sum(asked) < 4_000
    assert real.prompt(Prompt((Segment("Say: ", True), Segment(words))), 500)[-9:] == some[-9:]
    for cut, expected in (("tail", pieces[:99]), ("head", pieces[-99:])):
        asked.clear()
        assert real.segment(Segment(words, limit=99, cut=cut)) == expected and len(asked) <= 2  # type: ignore[arg-type]
    asked.clear()
    middle = real.segment(Segment(words, limit=99, cut="middle"))
    assert len(middle) == 99 and middle[:40] == pieces[:40] and middle[-40:] == pieces[-40:] and len(asked) <= 3
    assert real.segment(Segment(words, limit=len(pieces))) == pieces  # it fits after all
    asked.clear()
    [fitted], cut_at_all = fit([Prompt((Segment("Say: ", True), Segment(words)))], real, 300)
    assert cut_at_all and len(real.prompt(fitted)) == 300 and sum(asked) < 8_000


def test_a_long_text_has_the_ids_that_it_would_have_by_itself(real: Tokenizer) -> None:
    piece = "Once, <|im_end|> the lamp went out; “é”\n\n  (twice) 12345 <|endoftext|>"
    text = piece * (KEPT // len(piece) + 2)
    for trusted, backend in ((True, real._trusted), (False, real._plain)):
        ids = tuple(backend.encode(text, add_special_tokens=False).ids)
        assert real.encode(text, trusted) == ids and len(text) > KEPT
    end = real.inner.convert_tokens_to_ids("<|im_end|>")
    assert end in real.encode(text, True) and end not in real.encode(text, False)


def test_a_long_text_in_pieces_is_the_same_text_where_a_blank_is_put_before_the_first_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = Tokenizer(sentencepiece_tokenizer())
    monkeypatch.setattr(module, "LONG", 40)
    monkeypatch.setattr(module, "PIECE", 16)
    monkeypatch.setattr(module, "NEAR", 6)
    for text in ("ab" * 40, "a b " * 20, " ".join(["ab"] * 30)):
        ids = plain.encode(text, False)
        assert plain.decode(ids).strip() == text.strip() and plain._ending(text, 999) == ids


def test_a_character_that_a_vocabulary_does_not_know_leaves_the_words_around_it_whole() -> None:
    vocabulary = {"[UNK]": 0, "[END]": 1, "the": 2, "fox": 3, "t": 4, "h": 5, "e": 6}
    backend = BackendTokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["[UNK]", "[END]"])
    tokenizer = Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", eos_token="[END]"))
    assert tokenizer.encode("the fox ж", False) == (2, 3, 0)
    assert tokenizer.is_special(0) and 1 not in tokenizer.encode("the [END]", False)


def test_a_prompt_of_very_many_segments_is_read_segment_by_segment() -> None:
    tokens = Tokenizer(tiny_tokenizer())
    segments = tuple(Segment(f"word {number % 50} of many.", bool(number % 2)) for number in range(20_000))
    parts = tokens.segments(Prompt(segments))  # the work grows with their number, or this takes minutes
    assert parts[:100] == [tokens.encode(one.text, one.trusted) for one in segments[:100]] and len(parts) == 20_000
