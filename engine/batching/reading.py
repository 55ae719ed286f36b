"""Requests that end in a reading after a token sequence: of label distributions, or of the hidden state itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from adjudge.engine.batching.call import Call
from adjudge.engine.batching.step import Request
from adjudge.engine.embedding import Embedding
from adjudge.engine.models.reward_head import RewardHead
from adjudge.engine.score import Score
from adjudge.engine.text.labels import LabelSet
from adjudge.engine.tokens import Tokens


@dataclass(eq=False)
class ScoreJob:
    """One prompt under way: its place in its call, its labels, and the readings that have come in."""

    call: Call
    place: int
    labels: LabelSet
    prompt_tokens: int
    readings: dict[int, Any] = field(default_factory=dict)
    answered: bool = False

    def read(self, place: int, reading: Any) -> None:
        """Note a reading, and answer once all are there."""
        self.readings[place] = reading
        if len(self.readings) == len(self.labels.reads):
            self.answer(self.score([self.readings[place] for place in range(len(self.readings))]))

    def score(self, readings: Sequence[Any]) -> Score:
        """What the readings come to: log-probabilities of each one's tokens."""
        return self.labels.score(readings, self.prompt_tokens)

    def answer(self, score: Score) -> None:
        """Hand out the score, once."""
        if not self.answered:
            self.answered = True
            self.call.answer(self.place, score)


@dataclass(eq=False)
class Reader(Request):
    """A prompt, the `path` of a label's tokens behind it, and which readings (job, place in its label set) follow.

    The two are joined only where that is asked for: labels have thousands of paths, and a prompt thousands of tokens.
    """

    path: Tokens = ()
    reads: list[tuple[ScoreJob, int]] = field(default_factory=list)

    @property
    def length(self) -> int:
        """That of both."""
        return len(self.tokens) + len(self.path)

    @property
    def whole(self) -> Tokens:
        """Both, joined."""
        return self.tokens + self.path

    @property
    def missed_of_prompt(self) -> int:
        """The tokens of a label that stand behind the prompt are none of it."""
        return max(0, super().missed_of_prompt - len(self.path))

    def give_up(self) -> None:
        """Answer that the deadline has passed."""
        for job, _ in self.reads:
            job.answer(Score.abstained(job.labels.labels, "timeout", job.prompt_tokens))


@dataclass(eq=False, kw_only=True)
class HiddenReader(Request):
    """A token sequence whose last hidden state answers the prompts at `places` of a call."""

    call: Call
    places: list[int] = field(default_factory=list)

    def read(self, values_D: npt.NDArray[np.float32], head: RewardHead | None) -> None:
        """Answer with a hidden state, float32, and what the model's reward head reads off it."""
        self._answer(Embedding.of(values_D, len(self.tokens), head))

    def give_up(self) -> None:
        """Answer that the deadline has passed."""
        self._answer(Embedding(None, "timeout", len(self.tokens)))

    def _answer(self, embedding: Embedding) -> None:
        for place in self.places:
            self.call.answer(place, embedding)
