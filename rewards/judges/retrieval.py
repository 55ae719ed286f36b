"""`Index`: the examples whose prompts are nearest in meaning to a prompt, by the cosine of embeddings."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from adjudge.engine.embedding import Embedding
from adjudge.engine.errors import AdjudgeError, EngineFailed
from adjudge.engine.face import EngineFace, checked_engine
from adjudge.engine.score import PASSING, Reason
from adjudge.engine.text.tokenizer import well_formed
from adjudge.engine.waiting import unhurried
from adjudge.rewards.journal import content_key
from adjudge.rewards.judges import template
from adjudge.rewards.records.verdict import Example, each_of

Vectors = npt.NDArray[np.float32]

Embed = Callable[[Sequence[str]], Any]
"""Texts to [N, D] numbers, one row a text (a sentence-transformers model's `encode` is one), or to N `Embedding`s.

A row with a number that is not finite stands for a text without an embedding. An attribute `content`, where there is
one, says what decides the numbers; otherwise the examples' own numbers stand for it in journals.
"""


class Retrieved(msgspec.Struct, frozen=True):
    """The examples nearest to a prompt, nearest first; with a `reason`, why there are none."""

    examples: tuple[Example, ...] = ()
    reason: Reason | None = None


class EngineEmbedder:
    """Embeds texts by an engine's own hidden states: the last one before the model would say the text in one word.

    A text too long for the model is shortened in the middle. Raises AdjudgeError for an engine that hands out no hidden
    states, such as most servers that write.
    """

    def __init__(self, engine: EngineFace, language: str = "en") -> None:
        self.engine = checked_engine(engine)
        engine.require_embeddings()
        self.template = template.load("retrieval", language)

    @property
    def content(self) -> str:
        """What decides the numbers: it changes with the engine's weights."""
        return content_key(
            **self.engine.content,
            template=self.template.hash,
            limit=self.engine.max_prompt_tokens,
        )

    def __call__(self, texts: Sequence[str]) -> list[Embedding]:
        """An embedding for each text, in order."""
        prompts = []
        for text in texts:  # each is fitted by itself: its embedding is its own
            fitted, _ = self.engine.fit([self.engine.chat(*self.template.render(data={"text": text}))])
            prompts += fitted
        return self.engine.embed(prompts)


class Index:
    """Good texts, to be found by the meaning of the prompts they answer.

    Embeddings are computed on first use, and again when the embedder's `content` has changed. Examples whose prompt has
    none are left out, and counted in `left_out`. Raises AdjudgeError for no examples, and on first use where not one
    could be embedded, or `embed` does not give one row of numbers for each text; EngineFailed where what is missing
    lies in the moment, so that no examples are lost by it.
    """

    def __init__(self, examples: Sequence[Example], embed: Embed) -> None:
        if not examples:
            raise AdjudgeError("no examples to retrieve from: give at least one, or leave retrieval out")
        given = each_of(examples, Example)
        self.examples = tuple(Example(well_formed(one.prompt), well_formed(one.response)) for one in given)
        self.embed = embed
        self._texts = content_key(examples=self.examples)
        self._made: tuple[str | None, _Table] | None = None

    @property
    def content(self) -> str:
        """What decides the examples found, for journals."""
        return content_key(examples=self._texts, embed=getattr(self.embed, "content", None) or self._table.digest)

    @property
    def left_out(self) -> int:
        """How many examples have no embedding."""
        return len(self.examples) - sum(map(len, self._table.examples))

    def nearest(self, prompts: Sequence[str], responses: Sequence[str], k: int) -> list[Retrieved]:
        """For each prompt the `k` examples with the nearest prompts, but for those equal to its own response.

        The nearness is the exact cosine; equally near examples come in their own order. What is found for a prompt
        depends on the others no more than the embedder's rows do on each other.
        """
        table = self._table
        unique = list(dict.fromkeys(well_formed(prompt) for prompt in prompts))
        embedded = dict(zip(unique, self._embed(unique), strict=True))
        found = []
        for prompt, response in zip(prompts, responses, strict=True):
            embedding = embedded[well_formed(prompt)]
            direction = _direction(embedding.values)
            if direction is None:
                found.append(Retrieved(reason=embedding.reason or "non_finite"))
            else:
                found.append(Retrieved(table.nearest(direction, well_formed(response).strip(), k)))
        return found

    @property
    def _table(self) -> _Table:
        made_by = getattr(self.embed, "content", None)
        if self._made is None or self._made[0] != made_by:
            self._made = (made_by, self._make_table())
        return self._made[1]

    @unhurried()
    def _make_table(self) -> _Table:
        by_prompt: dict[str, list[Example]] = {}  # equal prompts have one row, so that their examples tie exactly
        for example in self.examples:
            by_prompt.setdefault(example.prompt, []).append(example)
        embedded = self._embed(list(by_prompt))
        if passing := [embedding.reason for embedding in embedded if embedding.reason in PASSING]:
            raise EngineFailed(
                f"{len(passing)} of the {len(embedded)} prompts of examples could not be embedded ({passing[0]}): try"
                " again once the server answers"
            )
        directions = [_direction(embedding.values) for embedding in embedded]
        known = [pair for pair in zip(directions, by_prompt.values(), strict=True) if pair[0] is not None]
        if not known:
            reason = embedded[0].reason or "non_finite"
            raise AdjudgeError(
                f"not one of the {len(self.examples)} examples could be embedded ({reason}): give the index an embedder"
                " of its own, or leave retrieval out"
            )
        return _Table(np.stack([one for one, _ in known if one is not None]), [examples for _, examples in known])

    def _embed(self, texts: Sequence[str]) -> list[Embedding]:
        """An embedding for each text, whichever way the embedder gives them; raises AdjudgeError for another shape."""
        rows = self.embed(texts)
        if isinstance(rows, list) and all(isinstance(row, Embedding) for row in rows):
            embedded = cast("list[Embedding]", rows)
        else:
            try:
                values_ND = np.array(rows, dtype=np.float32)
            except (TypeError, ValueError) as error:
                raise AdjudgeError("the embedder gives rows of several lengths, or no numbers: give [N, D]") from error
            if values_ND.ndim != 2:
                raise AdjudgeError(f"the embedder gives an array of shape {values_ND.shape}: give one row a text")
            embedded = [Embedding.of(values_D, 0) for values_D in values_ND]
        if len(embedded) != len(texts):
            raise AdjudgeError(f"the embedder gives {len(embedded)} rows for {len(texts)} texts: give one for each")
        return embedded


class _Table:
    """Different prompts as directions [N, D] of length 1, and the examples of each."""

    def __init__(self, directions_ND: Vectors, examples: list[list[Example]]) -> None:
        self.directions_ND = directions_ND
        self.examples = examples

    @cached_property
    def digest(self) -> str:
        """The directions in short."""
        return hashlib.sha256(self.directions_ND.tobytes()).hexdigest()

    def nearest(self, direction_D: Vectors, own: str, k: int) -> tuple[Example, ...]:
        """The nearest examples whose response is not one's own; equally near ones in order."""
        # Row by row, unlike a matrix product, whose sums may fall otherwise from one row to the next.
        cosines_N = np.einsum("nd,d->n", self.directions_ND, direction_D)
        places_N = np.argsort(-cosines_N, kind="stable")
        found = (one for place in places_N for one in self.examples[place] if one.response.strip() != own)
        return tuple(islice(found, k))


def _direction(values_D: Vectors | None) -> Vectors | None:
    """The vector of length 1; None where there is none, or it is zero."""
    if values_D is None:
        return None
    length = np.linalg.norm(values_D.astype(np.float64))
    return (values_D / length).astype(np.float32) if length > 0 and np.isfinite(length) else None
