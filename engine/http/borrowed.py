"""An engine for the time of one request."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from adjudge.engine.around import EngineAround
from adjudge.engine.completion import Completion
from adjudge.engine.embedding import Embedding
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import AnyLabels, AnyPrompt, EngineFace, names_in, sets_of
from adjudge.engine.model_reward import ModelReward
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Score
from adjudge.engine.shared import SharedEngine
from adjudge.engine.text.prompt import Prompt


class BorrowedEngine(EngineAround):
    """`engine` for `timeout` seconds, after which its answers are timeouts, or until `end`, after which it has none.

    A judge works with it in a thread of its own, where nothing else could stop it. Of scores and texts that come
    too late no prompt is read any more. `priority` is that of all calls, beside their own.
    """

    def __init__(self, engine: EngineFace, timeout: float, priority: int = 0) -> None:
        super().__init__(engine.apart() if isinstance(engine, SharedEngine) else engine)
        self._deadline = time.monotonic() + timeout
        self._priority = priority
        self._ended = False

    def end(self) -> None:
        """Cancel the call under way, at its next answer where it runs on replicas, and refuse further ones.

        Any thread may call this.
        """
        self._ended = True
        if isinstance(self._engine, SharedEngine):
            self._engine.end()

    def fit(self, prompts: Sequence[Prompt], reserve: int = 16) -> tuple[list[Prompt], bool]:
        """As the engine does, or the prompts as they are where it is too late to ask about them."""
        return (list(prompts), False) if self._late else super().fit(prompts, reserve)

    def score_iter(
        self,
        prompts: Sequence[AnyPrompt],
        labels: AnyLabels | Sequence[AnyLabels],
        *,
        priority: int = 0,
        timeout: float | None = None,
    ) -> Iterator[tuple[int, Score]]:
        """Like `score`, but yields (index, score) as soon as each prompt is done."""
        if self._late:
            self._check()
            yield from enumerate(Score.abstained(names_in(one), "timeout") for one in sets_of(prompts, labels))
            return
        yield from self._until_end(self._engine.score_iter(prompts, labels, **self._when(priority, timeout)))

    def generate_iter(
        self,
        prompts: Sequence[AnyPrompt],
        sampling: Sampling | None = None,
        *,
        priority: int = 0,
        timeout: float | None = None,
        **options: Any,
    ) -> Iterator[tuple[int, Completion]]:
        """Like `generate`, but yields (place in the list, completion) as soon as each text ends."""
        if self._late:
            self._check()
            n = options.get("n", 1) if sampling is None else sampling.n
            yield from enumerate(Completion(at // n, at % n, "", (), "timeout") for at in range(len(prompts) * n))
            return
        options |= self._when(priority, timeout)
        yield from self._until_end(self._engine.generate_iter(prompts, sampling, **options))

    def embed_iter(
        self, prompts: Sequence[AnyPrompt], *, priority: int = 0, timeout: float | None = None
    ) -> Iterator[tuple[int, Embedding]]:
        """Like `embed`, but yields (index, embedding) as soon as each prompt is done."""
        yield from self._until_end(self._engine.embed_iter(prompts, **self._when(priority, timeout)))

    def reward_iter(
        self, prompts: Sequence[AnyPrompt], *, priority: int = 0, timeout: float | None = None
    ) -> Iterator[tuple[int, ModelReward]]:
        """Like `reward`, but yields (index, reward) as soon as each prompt is done."""
        yield from self._until_end(self._engine.reward_iter(prompts, **self._when(priority, timeout)))

    @property
    def _late(self) -> bool:
        return time.monotonic() >= self._deadline

    def _when(self, priority: int, timeout: float | None) -> dict[str, Any]:
        left = max(0.0, self._deadline - time.monotonic())
        return {"priority": self._priority + priority, "timeout": left if timeout is None else min(left, timeout)}

    def _until_end(self, answers: Iterator[Any]) -> Iterator[Any]:
        with closing(answers) as under_way:  # type: ignore[type-var]
            self._check()
            for answer in under_way:
                self._check()
                yield answer

    def _check(self) -> None:
        if self._ended:
            raise AdjudgeError("the request that this call belongs to has ended")
