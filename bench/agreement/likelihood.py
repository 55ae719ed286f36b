"""How likely a bare model finds each text after its prompt: what a judge of the same weights must beat."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from statistics import fmean
from typing import Any

import msgspec

from adjudge.bench.agreement.baselines import by_number
from adjudge.bench.agreement.dataset import DataSet
from adjudge.bench.agreement.preferring import Rater
from adjudge.engine.devices import choose_device, choose_dtype
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.sources import open_source, resolve, tokenizer_named
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.rewards.journal import Journal, content_key

LIKELIHOOD = "likelihood (bare model)"

LONGEST = 4096
"""Tokens of a prompt and its text that are read at most: of longer ones the beginning."""


def by_likelihood(dataset: DataSet, targets: Sequence[str], model: BareModel, journal: Journal) -> Rater:
    """The mean log-probability of a text's tokens, the same for every target: minus the logarithm of its perplexity."""
    return by_number(LIKELIHOOD, dataset, targets, partial(likelihood_of, model, journal))


def likelihood_of(model: BareModel, journal: Journal, prompt: str, text: str) -> float | None:
    """The likelihood of a text after its prompt; each is computed once, the journal keeps it."""
    key = content_key(likelihood=(prompt, text), model=model.fingerprint, dtype=str(model.dtype))
    kept = journal.get([key]).get(key)
    if kept is None:
        kept = msgspec.json.encode(model.likelihood(prompt, text))
        journal.put(key, kept)
    found: float | None = journal.decoded(kept, float | None)
    return found


class BareModel:
    """A model without adapters or judging prompts, read by transformers itself, and opened when first needed.

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
