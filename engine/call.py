"""One call of `score` or `generate`: what it waits for, and the answers that have come in."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from adjudge.engine.step import Request


@dataclass(eq=False)
class Call:
    """Answers (place in the call's list, score or completion) come in any order; `open` are still to come."""

    open: int = 0
    requests: list[Request] = field(default_factory=list)
    answers: deque[tuple[int, Any]] = field(default_factory=deque)

    def answer(self, place: int, answer: Any) -> None:
        """Note an answer that was waited for."""
        self.open -= 1
        self.answers.append((place, answer))
