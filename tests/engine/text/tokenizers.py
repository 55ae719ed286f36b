"""Tokenizers made up for tests."""

from __future__ import annotations

from tokenizers import Tokenizer as BackendTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast


def sentencepiece_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer laid out as Llama 2's: a space before every text, which its decoder takes away again."""
    pieces = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "a",
        "▁Hello",
        "▁there",
        "there",
    ]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    backend = BackendTokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(steps)
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def worded_tokenizer(style: str) -> PreTrainedTokenizerFast:
    """A tokenizer of Mistral's kind that puts a blank before what it is given, in one of the ways that there are.

    "normalizer" is Llama 2's; "first", "always" and "never" are those of the library's Metaspace, and to "blank", which
    is "first" beside it, a line's end is a blank.
    """
    pieces = ["<unk>", "<s>", "</s>", *'▁abcdefghijklmnopqrstuvwxyz,NOPST[]/":.\n<', "on", "▁a", "],"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    backend = BackendTokenizer(models.BPE(vocabulary, [("o", "n"), ("▁", "a"), ("]", ",")], unk_token="<unk>"))
    if style == "normalizer":
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        steps = [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        backend.decoder = decoders.Sequence(steps)
    else:
        scheme = "first" if style == "blank" else style
        backend.normalizer = normalizers.Replace("\n", " ") if style == "blank" else None
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
        backend.decoder = decoders.Metaspace(prepend_scheme=scheme)
    backend.add_special_tokens(["<s>", "</s>", "[INST]", "[/INST]"])
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
