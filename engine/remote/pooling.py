"""One number, or one hidden state, after each prompt: rewards and embeddings as each kind of server gives them.

vLLM gives rewards at /classify (its classification API; `use_activation` false gives the logit itself), SGLang at its
own /classify (native API, "reward model"), both only when they were started for nothing else. Embeddings are OpenAI's.
"""

from __future__ import annotations

import base64
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt

from adjudge.engine.embedding import Embedding
from adjudge.engine.errors import RemoteError
from adjudge.engine.model_reward import ModelReward
from adjudge.engine.remote.card import Kind
from adjudge.engine.remote.protocols import UsageReply
from adjudge.engine.remote.transport import BadReply
from adjudge.engine.score import Reason
from adjudge.engine.tokens import Tokens


class EmbeddingDataReply(msgspec.Struct):
    """One embedding, as numbers or as base64 of float32; none with our own server's `reason`."""

    embedding: list[float | None] | str | None
    index: int = 0
    reason: Reason | None = None


class Embeddings(msgspec.Struct):
    """A reply of /v1/embeddings."""

    data: list[EmbeddingDataReply]
    usage: UsageReply | None = None


class ClassifiedReply(msgspec.Struct):
    """What a classifier makes of one prompt: a number for each of its labels."""

    probs: list[float | None]
    index: int = 0
    reason: Reason | None = None


class Classes(msgspec.Struct):
    """A reply of vLLM's /classify, or ours."""

    data: list[ClassifiedReply]
    usage: UsageReply | None = None


class Meta(msgspec.Struct):
    """What SGLang says of a prompt."""

    prompt_tokens: int = 0
    cached_tokens: int = 0


class Output(msgspec.Struct):
    """What SGLang's /classify gives for one prompt."""

    embedding: list[float | None]
    meta_info: Meta = msgspec.field(default_factory=Meta)


class Pooling(ABC):
    """How one kind of server, whose model is `model`, is asked at `path`: for `at_once` prompts in a request.

    `fields` are sent besides them, and a priority where it `hurries`, as servers do that schedule by it. A reply has
    the form `reply`, of which each answer comes to one of `kind`.
    """

    path: ClassVar[str]
    reply: ClassVar[type[Embeddings] | type[Classes]]
    kind: ClassVar[type[Embedding] | type[ModelReward]]

    def __init__(self, model: str, at_once: int = 1, hurries: bool = True, **fields: Any) -> None:
        self.model, self.at_once, self.hurries = model, at_once, hurries
        self._fields = fields

    def body(self, prompts: Sequence[Tokens]) -> dict[str, Any]:
        """The request for some prompts."""
        return {"model": self.model, "input": prompts, **self._fields}

    def answers(self, raw: bytes, prompts: Sequence[Tokens]) -> tuple[list[Embedding | ModelReward], int]:
        """The answers in a reply, and how many tokens were computed; raises BadReply and RemoteError."""
        reply = msgspec.json.decode(raw, type=self.reply)
        pairs = zip(_in_order(reply.data, len(prompts)), prompts, strict=True)
        answers = [
            self.answer(one, len(tokens)) if one.reason is None else self.abstained(one.reason, tokens)
            for one, tokens in pairs
        ]
        return answers, reply.usage.computed if reply.usage else 0

    @abstractmethod
    def answer(self, one: Any, length: int) -> Embedding | ModelReward:
        """One answer of a reply, for a prompt of so many tokens."""

    def abstained(self, reason: Reason, tokens: Tokens) -> Embedding | ModelReward:
        """An answer without a value."""
        return self.kind(None, reason, len(tokens))


class EmbeddingPooling(Pooling):
    """Any server with OpenAI's /v1/embeddings that takes token ids. Many scale embeddings to length 1."""

    path, reply, kind = "/v1/embeddings", Embeddings, Embedding
    _width: int | None = None

    def answer(self, one: EmbeddingDataReply, length: int) -> Embedding:
        """An embedding, all of one length as long as the engine is open."""
        values_D = _numbers(one.embedding)
        if self._width is None:
            self._width = len(values_D)
        if len(values_D) != self._width:
            raise BadReply(f"an embedding of {len(values_D)} numbers after one of {self._width}")
        return Embedding.of(values_D, length)


class RewardPooling(Pooling):
    """vLLM's /classify, and ours; a server that takes no token ids there, or is no classifier, refuses the request."""

    path, reply, kind = "/classify", Classes, ModelReward

    def answer(self, one: ClassifiedReply, length: int) -> ModelReward:
        """The one number of a prompt."""
        return _reward(one.probs, length)


class SglangRewards(RewardPooling):
    """SGLang, which knows neither the model's name nor a priority here."""

    def body(self, prompts: Sequence[Tokens]) -> dict[str, Any]:
        """Its native fields."""
        return {"input_ids": prompts}

    def answers(self, raw: bytes, prompts: Sequence[Tokens]) -> tuple[list[Embedding | ModelReward], int]:
        """The logit stands where embedding models have their embedding."""
        reply = msgspec.json.decode(raw, type=list[Output] | Output)
        outputs = reply if isinstance(reply, list) else [reply]
        if len(outputs) != len(prompts):
            raise BadReply(f"{len(outputs)} answers for {len(prompts)} prompts")
        pairs = zip(outputs, prompts, strict=True)
        counts = [output.meta_info for output in outputs]
        computed = sum(max(0, count.prompt_tokens - count.cached_tokens) for count in counts)
        return [_reward(output.embedding, len(tokens)) for output, tokens in pairs], computed


OURS: dict[str, Any] = {"at_once": 64, "abstain": True}
"""Our own server takes many prompts in a request, of which one that abstains takes no neighbour with it."""
AS_THEY_ARE: dict[str, Any] = {"use_activation": False}
"""For vLLM: a reward is the logit, not its sigmoid, and embeddings are not scaled, though an older one does that."""

EMBEDDINGS: dict[Kind, Callable[[str], Pooling]] = {
    "adjudge": partial(EmbeddingPooling, encoding_format="base64", **OURS),
    "vllm": partial(EmbeddingPooling, encoding_format="base64", **AS_THEY_ARE),
    "sglang": partial(EmbeddingPooling, encoding_format="float", hurries=False),
    "openai": partial(EmbeddingPooling, encoding_format="float", hurries=False),
}
REWARDS: dict[Kind, Callable[[str], Pooling]] = {
    "adjudge": partial(RewardPooling, **AS_THEY_ARE, **OURS),
    "vllm": partial(RewardPooling, **AS_THEY_ARE),
    "sglang": partial(SglangRewards, hurries=False),
}
"""Other servers have no common form for a reward."""


def _in_order(data: Sequence[Any], count: int) -> list[Any]:
    """A reply's answers in the order of its prompts; raises BadReply unless there is one for each."""
    ordered = sorted(data, key=lambda one: one.index)
    if [one.index for one in ordered] != list(range(count)):
        raise BadReply(f"{len(ordered)} answers for {count} prompts, or with wrong numbers")
    return ordered


def _numbers(written: list[float | None] | str | None) -> npt.NDArray[np.float32]:
    """An embedding's numbers; null stands for one that is not finite. Raises BadReply for what is none."""
    if not written:
        raise BadReply("an embedding without numbers")
    if isinstance(written, list):
        with np.errstate(over="ignore"):
            return np.array(written, dtype=np.float64).astype(np.float32)
    try:
        return np.frombuffer(base64.b64decode(written, validate=True), dtype="<f4").astype(np.float32)
    except ValueError as error:
        raise BadReply("an embedding that is no base64 of float32") from error


def _reward(numbers: Sequence[float | None], length: int) -> ModelReward:
    """The one number of a reward model; raises RemoteError where the server's model has several."""
    if len(numbers) > 1:
        raise RemoteError(
            f"the server's model gives {len(numbers)} numbers for a text: it is a classifier, or gives embeddings, and"
            " no reward model; pass the address of one's server"
        )
    if not numbers:
        raise BadReply("a prompt without a reward")
    [value] = numbers
    if value is None or not math.isfinite(value):
        return ModelReward(None, "non_finite", length)
    return ModelReward(value, None, length)
