"""`CallingFace`: the verbs of an engine that prepares a whole call before it runs it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from adjudge.engine.completion import Completion
from adjudge.engine.embedding import Embedding
from adjudge.engine.face import AnyLabels, AnyPrompt, EngineFace
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Score


class CallingFace(EngineFace):
    """What `score_call`, `generate_call` and `embed_call` of `_preparer` make of a request is run by `_answers`."""

    @property
    def _preparer(self) -> Any:
        """Who prepares the calls."""
        return self

    @abstractmethod
    def _answers(self, call: Any, priority: int, timeout: float | None) -> Iterator[tuple[int, Any]]:
        """Run a call that is prepared, and yield its answers as they come in."""

    def score_iter(
        self,
        prompts: Sequence[AnyPrompt],
        labels: AnyLabels | Sequence[AnyLabels],
        *,
        priority: int = 0,
        timeout: float | None = None,
    ) -> Iterator[tuple[int, Score]]:
        """Like `score`, but yields (index, score) as soon as each prompt is done."""
        yield from self._answers(self._preparer.score_call(prompts, labels), priority, timeout)

    def generate_iter(
        self,
        prompts: Sequence[AnyPrompt],
        sampling: Sampling | None = None,
        *,
        seeds: Sequence[int] | None = None,
        priority: int = 0,
        timeout: float | None = None,
        **options: Any,
    ) -> Iterator[tuple[int, Completion]]:
        """Like `generate`, but yields (place in the list, completion) as soon as each text ends."""
        call = self._preparer.generate_call(prompts, sampling, seeds, **options)
        yield from self._answers(call, priority, timeout)

    def embed_iter(
        self, prompts: Sequence[AnyPrompt], *, priority: int = 0, timeout: float | None = None
    ) -> Iterator[tuple[int, Embedding]]:
        """Like `embed`, but yields (index, embedding) as soon as each prompt is done."""
        yield from self._answers(self._preparer.embed_call(prompts), priority, timeout)
