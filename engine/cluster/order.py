"""One call to a cluster: its prompts on their way to replicas, and what has been handed out of its answers."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from adjudge.engine.cluster.routing import Route
from adjudge.engine.completion import Completion
from adjudge.engine.embedding import Embedding
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Score
from adjudge.engine.text.labels import LabelSet
from adjudge.engine.threads.worker import Deliver, Piece
from adjudge.engine.tokens import Tokens
from adjudge.engine.waiting import Terms, terms

Lengths = tuple[int, int]
"""Of a text so far: characters, tokens."""


@dataclass(eq=False)
class Query:
    """Prompt `number` of an order: `labels` for a score, `seed` for texts.

    `open` are its samples that are not answered (0 stands for a score or embedding), `losses` counts the replicas lost
    with it.
    """

    number: int
    tokens: Tokens
    labels: LabelSet | None
    open: set[int]
    seed: int = 0
    route: Route | None = None
    losses: int = 0


@dataclass(eq=False)
class Order:
    """A call under way: with `sampling` it wants texts, else scores, or embeddings where its queries have no labels.

    Every answer is handed to `deliver` once, then None. Instead of the rest an exception may come. `failed` is how the
    engine of a replica has failed at it. `begun` and `deadline` are in seconds of `time.monotonic`, the clock of event
    loops; `terms` are those of whoever makes it.
    """

    queries: list[Query] = field(default_factory=list)
    sampling: Sampling | None = None
    priority: int = 0
    deadline: float | None = None
    pieces: bool = False
    deliver: Deliver = lambda event: None
    failed: type[BaseException] | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    begun: float = field(default_factory=time.monotonic)
    terms: Terms = field(default_factory=terms)
    _sent: dict[int, Lengths] = field(default_factory=dict)  # by place, in pieces

    def begin(self, priority: int, timeout: float | None, pieces: bool = False) -> None:
        """Say how it is asked; raises PromptError for a priority or a timeout that is no number."""
        ends = self.terms.deadline(timeout, self.begun)
        self.priority, self.pieces = self.terms.urgency(priority), pieces
        self.deadline = ends if ends < math.inf else None

    @property
    def samples(self) -> int:
        """Answers to each prompt."""
        return self.sampling.n if self.sampling else 1

    @property
    def extra(self) -> int:
        """Tokens to compute for a prompt beside its own, at most."""
        return self.sampling.n * self.sampling.max_tokens if self.sampling else 0

    def answer(self, query: Query, sample: int, answer: Score | Completion | Embedding) -> bool:
        """Hand out an answer, unless it has been; whether it was new."""
        if sample not in query.open:
            return False
        query.open.remove(sample)
        place = query.number * self.samples + sample
        if isinstance(answer, Completion):
            self.deliver((place, msgspec.structs.replace(answer, prompt=query.number)))
        else:
            self.deliver((place, answer))
        return True

    def give_up(self, queries: Sequence[Query], reason: Literal["timeout", "cancelled"]) -> None:
        """Answer what is open of some queries without a value."""
        for query in queries:
            length = len(query.tokens)
            for sample in sorted(query.open):
                self.prompt_tokens += length  # nobody has read it for this, so none of it was cached
                if self.sampling is not None:
                    self.answer(query, sample, Completion(query.number, sample, "", (), reason, (), length))
                elif query.labels is not None:
                    self.answer(query, sample, Score.abstained(query.labels.labels, reason, length))
                else:
                    self.answer(query, sample, Embedding(None, reason, length))

    def grow(self, query: Query, sample: int, piece: Piece, start: Lengths) -> Lengths:
        """Hand out what is new in a piece of a text that begins at `start`; returns where it ends.

        A text that is written again, after its first replica was lost, is the same text: what was sent stays sent.
        """
        place = query.number * self.samples + sample
        sent = self._sent.get(place, (0, 0))
        end = start[0] + len(piece.text), start[1] + len(piece.tokens)
        text, tokens = piece.text[max(0, sent[0] - start[0]) :], piece.tokens[max(0, sent[1] - start[1]) :]
        if text or tokens:
            self._sent[place] = max(sent[0], end[0]), max(sent[1], end[1])
            self.deliver(Piece(place, text, tokens))
        return end
