"""The answers behind a verdict as the journal keeps them: enough to conclude anew without asking anew."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from adjudge.engine.score import Reason, Score
from adjudge.engine.text.labels import Labels
from adjudge.rewards.judges.asking import Answer


class KeptScore(msgspec.Struct, frozen=True, array_like=True):
    """A score without what follows from the rest."""

    full_logprobs: tuple[float, ...] | None
    reason: Reason | None
    prompt_tokens: int

    def score(self, labels: Labels) -> Score:
        """The score it was, over the same labels."""
        if self.reason is not None or self.full_logprobs is None:
            return Score.abstained(labels.labels, self.reason or "non_finite", self.prompt_tokens)
        return Score.of(labels.labels, self.full_logprobs, labels.numbers, self.prompt_tokens)


class KeptAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The scores of one question, the texts they were read from, and how far several analyses lie apart."""

    scores: tuple[KeptScore, ...]
    analyses: tuple[str, ...] | None
    spreads: tuple[float | None, ...] | None

    def answer(self, labels: Labels) -> Answer:
        """The answer it was."""
        return Answer(tuple(score.score(labels) for score in self.scores), self.analyses, self.spreads)


class KeptAnswers(msgspec.Struct, frozen=True, array_like=True):
    """The answers to all questions of a subject by their names, and whether its texts were shortened."""

    by_name: dict[str, KeptAnswer]
    truncated: bool

    @staticmethod
    def of(answers: Mapping[str, Answer], truncated: bool) -> KeptAnswers:
        """What is kept of answers."""
        kept = {}
        for name, answer in answers.items():
            scores = [KeptScore(one.full_logprobs, one.reason, one.prompt_tokens) for one in answer.scores]
            kept[name] = KeptAnswer(tuple(scores), answer.analyses, answer.spreads)
        return KeptAnswers(kept, truncated)

    @property
    def packed(self) -> bytes:
        """As bytes; `unpacked` is the way back."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def unpacked(packed: bytes) -> KeptAnswers:
        """The answers that were packed."""
        return msgspec.msgpack.decode(packed, type=KeptAnswers)
