"""How likely a bare model finds each text after its prompt: what a judge of the same weights must beat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec

from adjudge.bench.agreement.comparison import Scores
from adjudge.bench.agreement.dataset import OVERALL, DataSet
from adjudge.bench.agreement.preferring import Choice, Choices
from adjudge.engine.devices import choose_device, choose_dtype
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sources import open_source, resolve
from adjudge.engine.tokenizer import Tokenizer
from adjudge.rewards.journal import Journal, content_key

LIKELIHOOD = "likelihood (bare model)"

LONGEST = 4096
"""Tokens of a prompt and its text that are read at most: of longer ones the beginning."""


class BareModel:
    """A model without adapters or judging prompts, read by transformers itself; opened when first needed.

    Raises AdjudgeError, as it is opened, for a model that does not write.
    """

    def __init__(self, name: str, device: str = "auto", dtype: str = "auto") -> None:
        self.source = resolve(name)
        self.device = choose_device(device)
        self.dtype = choose_dtype(dtype, self.device)
        self.name = name

    def likelihood(self, prompt: str, text: str) -> float | None:
        """The mean log-probability, in nats, of a text's tokens after its prompt and a blank line; None without any."""
        import torch
        from torch.nn.functional import cross_entropy

        model, tokenizer = self._opened
        before = tokenizer.prompt(f"{prompt}\n\n")
        tokens = (before + tokenizer.encode(text, False))[
            : min(LONGEST, getattr(model.config, "max_position_embeddings", LONGEST))
        ]
        if len(tokens) <= len(before):
            return None
        ids = torch.tensor([tokens], device=self.device)
        with torch.inference_mode():
            logits_TV = model(input_ids=ids, use_cache=False).logits[0, len(before) - 1 : -1]
            return -float(cross_entropy(logits_TV.float(), ids[0, len(before) :]))

    @cached_property
    def _opened(self) -> tuple[Any, Tokenizer]:
        opened = open_source(self.source, dtype=self.dtype, device=str(self.device))
        if opened.model.get_output_embeddings() is None:
            raise AdjudgeError(f"{self.name} does not write, so no text is likely under it: leave out --baselines")
        return opened.model, Tokenizer(opened.tokenizer)


def likelihood_scores(dataset: DataSet, targets: Sequence[str], model: BareModel, journal: Journal) -> Scores:
    """The mean log-probability of a text's tokens, the same for every target: minus the logarithm of its perplexity."""
    texts = [(row.item.prompt, row.item.response) for row in dataset.rows]
    column = list(likelihoods(texts, model, journal))
    return Scores(LIKELIHOOD, dict.fromkeys((*targets, OVERALL), column))


def likelihood_choices(dataset: DataSet, model: BareModel, journal: Journal) -> Choices:
    """The likelier text of each pair, token by token."""
    texts = [
        (prompt, text)
        for row in dataset.rows
        for prompt, text in zip(row.pair.prompts, (row.pair.a, row.pair.b), strict=True)
    ]
    found = list(likelihoods(texts, model, journal))
    return Choices(LIKELIHOOD, [_choice(a, b) for a, b in zip(found[::2], found[1::2], strict=True)])


def likelihoods(texts: Sequence[tuple[str, str]], model: BareModel, journal: Journal) -> Iterator[float | None]:
    """The likelihood of each text after its prompt; each is computed once, the journal keeps it."""
    for prompt, text in texts:
        key = content_key(likelihood=(prompt, text), model=model.source.fingerprint, dtype=str(model.dtype))
        kept = journal.get([key]).get(key)
        if kept is None:
            kept = msgspec.json.encode(model.likelihood(prompt, text))
            journal.put(key, kept)
        yield msgspec.json.decode(kept, type=float | None)


def _choice(a: float | None, b: float | None) -> Choice:
    if a is None or b is None:
        return Choice(None)
    return Choice(0.5 if a == b else float(a > b), sure=False)
