"""One call of `score`, `generate` or `embed`: what it waits for, and the answers that have come in."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from adjudge.engine.batching.step import Request
from adjudge.engine.tokens import Tokens
from adjudge.engine.waiting import Terms, terms


@dataclass(eq=False)
class Call:
    """Answers (place in the call's list, what was asked for) come in any order; `open` are still to come.

    `prompts` and `prompt_tokens` count what it has computed, `label_tokens` what is read behind prompts. `begun` is
    when it was made, in seconds of its engine's clock: its timeout counts from then, so that what it takes to prepare
    it is part of it (`Terms.deadline`). `terms` are those of whoever makes it.
    """

    begun: float = field(default_factory=time.monotonic)
    terms: Terms = field(default_factory=terms)
    open: int = 0
    prompts: int = 0
    prompt_tokens: int = 0
    label_tokens: int = 0
    requests: list[Request] = field(default_factory=list)
    answers: deque[tuple[int, Any]] = field(default_factory=deque)

    @property
    def cached_tokens(self) -> int:
        """How many of `prompt_tokens` stood in the cache, or were promised to another request, when they were due.

        The last one of a prompt is computed all the same. None of a request that was given up before it was due.
        """
        return max(0, self.prompt_tokens - sum(one.missed_of_prompt for one in self.requests))

    def asks(self, tokens: Tokens, label_tokens: int = 0) -> None:
        """Count a prompt that is to be computed."""
        self.prompts += 1
        self.prompt_tokens += len(tokens)
        self.label_tokens += label_tokens

    def answer(self, place: int, answer: Any) -> None:
        """Note an answer that was waited for."""
        self.answers.append((place, answer))
        self.open -= 1  # a thread that sees none open has all answers there
