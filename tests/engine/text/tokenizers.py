"""Tokenizers made up for tests."""

from __future__ import annotations

from tokenizers import Tokenizer as BackendTokenizer
from tokenizers import decoders, models, normalizers
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
