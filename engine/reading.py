"""Requests that end in a score: label distributions read after a token sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from adjudge.engine.call import Call
from adjudge.engine.labels import LabelSet
from adjudge.engine.score import Score
from adjudge.engine.step import Request


@dataclass(eq=False)
class ScoreJob:
    """One prompt under way: its place in its call, its labels, and the readings that have come in."""

    call: Call
    place: int
    labels: LabelSet
    prompt_tokens: int
    readings: dict[int, Sequence[float]] = field(default_factory=dict)
    answered: bool = False

    def read(self, place: int, reading: Sequence[float]) -> None:
        """Note a reading, and answer once all are there."""
        self.readings[place] = reading
        if len(self.readings) == len(self.labels.reads):
            readings = [self.readings[place] for place in range(len(self.readings))]
            self.answer(self.labels.score(readings, self.prompt_tokens))

    def answer(self, score: Score) -> None:
        """Hand out the score, once."""
        if not self.answered:
            self.answered = True
            self.call.answer(self.place, score)


@dataclass(eq=False)
class Reader(Request):
    """A token sequence, and which readings (job, place in its label set) are taken after it."""

    reads: list[tuple[ScoreJob, int]] = field(default_factory=list)

    def give_up(self) -> None:
        """Answer that the deadline has passed."""
        for job, _ in self.reads:
            job.answer(Score.abstained(job.labels.labels, "timeout", job.prompt_tokens))
