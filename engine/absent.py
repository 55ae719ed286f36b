"""An engine whose model is not here: it words prompts, and says which model would answer them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import AnyLabels, AnyPrompt, EngineFace, Stats, names_in, sets_of
from adjudge.engine.model_reward import ModelReward
from adjudge.engine.text.prompt import Message, Prompt, mark_data, place_data
from adjudge.engine.text.tokenizer import Tokenizer


class Card(msgspec.Struct, frozen=True):
    """What decides an engine's answers: see the fields of the same names of `EngineFace`."""

    name: str = "no model"
    fingerprint: str = ""
    adapter: str | None = None
    dtype: str = ""
    max_prompt_tokens: int = 1 << 30

    @staticmethod
    def of(engine: EngineFace) -> Card:
        """The card of an engine that is open."""
        return Card(engine.name, *engine.identity)


class ModelNeeded(AdjudgeError):
    """What was asked of an absent model: these prompts, and to each in words what the answer would be."""

    def __init__(self, name: str, prompts: Sequence[AnyPrompt], answers: Sequence[str]) -> None:
        super().__init__(f"this needs an answer of {name}, and no model is loaded here: run the judge itself")
        self.prompts, self.answers = tuple(prompts), tuple(answers)


class AbsentEngine(EngineFace):
    """Stands where a judge wants an engine and its model need not be there; the `card` says which it would be.

    With a model's `tokenizer` prompts stand in its chat template and are shortened to fit; without one each turn stands
    under the name of its role, whole. Whatever is asked of it raises ModelNeeded.
    """

    def __init__(self, card: Card | None = None, tokenizer: Tokenizer | None = None) -> None:
        card = card or Card()
        self.name, self.fingerprint, self.adapter, self.dtype = card.name, card.fingerprint, card.adapter, card.dtype
        self.card = card
        self.stats = Stats()
        self.has_tokenizer = tokenizer is not None
        if tokenizer is not None:
            super().__init__(tokenizer)

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that would fit."""
        return self.card.max_prompt_tokens

    def chat(self, messages: Sequence[Message], answer: str = "", *, thinks: bool = False) -> Prompt:
        """The model's chat template around messages, or the names of their roles above them."""
        if self.has_tokenizer:
            return super().chat(messages, answer, thinks=thinks)
        return _turns(messages, f"[assistant]\n{answer}")

    def transcript(self, messages: Sequence[Message]) -> Prompt:
        """The model's chat template around messages that are all written, or the names of their roles above them."""
        return super().transcript(messages) if self.has_tokenizer else _turns(messages)

    def require_rewards(self) -> None:
        """Nothing: which model it is, is known where it ran."""

    def fit(self, prompts: Sequence[Prompt], reserve: int = 16) -> tuple[list[Prompt], bool]:
        """The prompts, shortened where their length is known."""
        return super().fit(prompts, reserve) if self.has_tokenizer else (list(prompts), False)

    def score_call(self, prompts: Sequence[AnyPrompt], labels: AnyLabels | Sequence[AnyLabels]) -> None:
        """Raises ModelNeeded, unless nothing is asked."""
        self._refuse(prompts, *(" ".join(names_in(one)) for one in sets_of(prompts, labels)))

    def generate_call(self, prompts: Sequence[AnyPrompt], *_: Any, **options: Any) -> None:
        """Raises ModelNeeded, unless nothing is asked."""
        self._refuse(prompts, *["a text"] * len(prompts))

    def embed_call(self, prompts: Sequence[AnyPrompt]) -> None:
        """Raises ModelNeeded, unless nothing is asked."""
        self._refuse(prompts, *["an embedding"] * len(prompts))

    def reward_iter(self, prompts: Sequence[AnyPrompt], **_: Any) -> Iterator[tuple[int, ModelReward]]:
        """Raises ModelNeeded, unless nothing is asked."""
        self._refuse(prompts, *["a reward"] * len(prompts))
        return iter(())

    def _answers(self, *_: object) -> Iterator[Any]:
        return iter(())

    def _refuse(self, prompts: Sequence[AnyPrompt], *answers: str) -> None:
        if prompts:
            raise ModelNeeded(self.name, prompts, answers)


def _turns(messages: Sequence[Message], end: str = "") -> Prompt:
    """Messages under the names of their roles, and an end."""
    texts, data = mark_data([message.content for message in messages])
    turns = [f"[{message.role}]\n{text}\n\n" for message, text in zip(messages, texts, strict=True)]
    return place_data("".join(turns) + end, data)
