"""`BareModel`: how likely a model without adapters or judging prompts finds texts, read by transformers itself."""

from __future__ import annotations

from functools import cached_property
from statistics import fmean
from typing import Any

from adjudge.engine.devices import choose_device, choose_dtype
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.sources import open_source, resolve, tokenizer_named
from adjudge.engine.text.tokenizer import Tokenizer

LONGEST = 4096
"""Tokens of a prompt and its text that are read at most: of longer ones the beginning."""


class BareModel:
    """A model that is opened when first needed.

    Raises AdjudgeError, as it is opened, for a model that does not write.
    """

    def __init__(self, name: str, device: str = "auto", dtype: str = "auto") -> None:
        self.source = resolve(name)
        self.device = choose_device(device)
        self.dtype = choose_dtype(dtype, self.device)
        self.name = name

    @cached_property
    def fingerprint(self) -> str:
        """Of its weights, and of the tokens that it reads, which change if its tokenizer is read otherwise."""
        return Tokenizer(tokenizer_named(self.name)).fingerprint_of(self.source.fingerprint)

    def likelihood(self, prompt: str, text: str) -> float | None:
        """The mean log-probability, in nats, of a text's tokens after its prompt and a blank line; None without any."""
        import torch
        from torch.nn.functional import cross_entropy

        before = self._tokenizer.prompt(f"{prompt}\n\n")
        tokens = self._tokenizer.encode(text, False, after=before)[: max(0, self._longest - len(before))]
        if not tokens:
            return None
        ids_BT = torch.tensor([[*before, *tokens]], device=self.device)
        with torch.inference_mode():
            logits_TV = self._opened[0](input_ids=ids_BT, use_cache=False).logits[0, len(before) - 1 : -1]
            return fmean((-cross_entropy(logits_TV.float(), ids_BT[0, len(before) :], reduction="none")).tolist())

    @property
    def _longest(self) -> int:
        return min(LONGEST, getattr(self._opened[0].config.get_text_config(), "max_position_embeddings", LONGEST))

    @property
    def _tokenizer(self) -> Tokenizer:
        return self._opened[1]

    @cached_property
    def _opened(self) -> tuple[Any, Tokenizer]:
        opened = open_source(self.source, dtype=self.dtype, device=str(self.device))
        if opened.model.get_output_embeddings() is None:
            raise AdjudgeError(
                f"{self.name} does not write, so no text is likely under it: name a model that does (of a benchmark's"
                " --baselines: leave them out)"
            )
        return opened.model, Tokenizer(opened.tokenizer)
