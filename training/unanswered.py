"""An engine that answers nothing in time: what a replay asks beyond its journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from adjudge.engine.absent import AbsentEngine, Card
from adjudge.engine.completion import Completion
from adjudge.engine.embedding import Embedding
from adjudge.engine.face import AnyLabels, AnyPrompt, names_in, sets_of
from adjudge.engine.model_reward import ModelReward
from adjudge.engine.score import Score


class UnansweredEngine(AbsentEngine):
    """Stands for an absent model; `asked` counts the prompts, and on each of them it abstains with "timeout".

    So a verdict that the journal does not hold is the same as one that had no time when the run was under way, for that
    is the one kind which a journal never holds; what rests on the others can be computed all the same.
    """

    def __init__(self, card: Card) -> None:
        super().__init__(card)
        self.asked = 0

    def score_iter(
        self, prompts: Sequence[AnyPrompt], labels: AnyLabels | Sequence[AnyLabels], **_: Any
    ) -> Iterator[tuple[int, Score]]:
        """Abstentions."""
        for place, one in zip(self._places(prompts), sets_of(prompts, labels), strict=True):
            yield place, Score.abstained(names_in(one), "timeout")

    def generate_iter(self, prompts: Sequence[AnyPrompt], *_: Any, **options: Any) -> Iterator[tuple[int, Completion]]:
        """Texts that had no time to be written."""
        for place in self._places(prompts):
            yield place, Completion(place, 0, "", (), "timeout")

    def embed_iter(self, prompts: Sequence[AnyPrompt], **_: Any) -> Iterator[tuple[int, Embedding]]:
        """Abstentions."""
        for place in self._places(prompts):
            yield place, Embedding(None, "timeout")

    def reward_iter(self, prompts: Sequence[AnyPrompt], **_: Any) -> Iterator[tuple[int, ModelReward]]:
        """Abstentions."""
        for place in self._places(prompts):
            yield place, ModelReward(None, "timeout")

    def _places(self, prompts: Sequence[AnyPrompt]) -> range:
        self.asked += len(prompts)
        return range(len(prompts))
