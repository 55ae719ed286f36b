"""`BareModel`: how likely a model without adapters or judging prompts finds texts, read by transformers itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain, islice
from math import fsum
from statistics import fmean
from typing import Any

from adjudge.engine.devices import choose_device, choose_dtype
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.sources import open_source, resolve, tokenizer_named
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.engine.tokens import Tokens

LONGEST = 4096
"""Tokens of a prompt and its text that are read at most: of longer ones the beginning."""
BLANK_LINE = "\n\n"
ALONE = 16
"""Sentences that are read at once by themselves."""
BEGINNING = 2
"""Tokens at the beginning of each part that no gain counts: after a blank line they are unlikely whatever comes."""


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
        before = self._tokenizer.prompt(f"{prompt}{BLANK_LINE}")
        tokens = self._tokenizer.encode(text, False, after=before)[: max(0, self._longest - len(before))]
        if not tokens:
            return None
        return fmean(self._log_probabilities(before, [tokens])[0])

    def gain(self, parts: Sequence[str]) -> float | None:
        """The share of the surprise (nats) of a text's parts after its first that what stands before them takes away.

        Their surprise is that of each part alone, after a blank line; the first two tokens of each are left out. At
        most 1, below 0 where the parts are likelier alone, None where nothing is left or fits into the model.
        """
        start = self._tokenizer.prompt(BLANK_LINE)
        room = self._longest - len(start)
        pieces: list[Tokens] = []
        for place, part in enumerate(parts):
            piece = self._tokenizer.encode(f" {part}" if place else part, False, after=start)
            room -= len(piece)
            if room < 0:
                break
            if piece:
                pieces.append(piece)
        first, *others = pieces or [()]
        if max(map(len, others), default=0) <= BEGINNING:
            return None
        together = iter(self._log_probabilities((*start, *first), [tuple(chain(*others))])[0])
        here = [list(islice(together, len(other))) for other in others]
        batches = (others[place : place + ALONE] for place in range(0, len(others), ALONE))
        alone = list(chain.from_iterable(self._log_probabilities(start, batch) for batch in batches))
        left, whole = (-fsum(chain.from_iterable(one[BEGINNING:] for one in texts)) for texts in (here, alone))
        return 1 - left / whole if whole else None

    def _log_probabilities(self, before: Tokens, texts: Sequence[Tokens]) -> list[list[float]]:
        """The log-probability, in nats, of each token of each text after the same tokens."""
        import torch
        from torch.nn.functional import cross_entropy

        longest = max(map(len, texts))
        rows = [(*before, *text, *(before[:1] * (longest - len(text)))) for text in texts]  # no token sees later ones
        ids_BT = torch.tensor(rows, device=self.device)
        with torch.inference_mode():
            logits_BTV = self._opened[0](input_ids=ids_BT, use_cache=False).logits[:, len(before) - 1 : -1]
            return [
                (-cross_entropy(logits_TV[: len(text)].float(), ids_T[: len(text)], reduction="none")).tolist()
                for logits_TV, ids_T, text in zip(logits_BTV, ids_BT[:, len(before) :], texts, strict=True)
            ]

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
