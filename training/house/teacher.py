"""A teacher for judges that is no person: judges that there are, and what the context gains the bare model.

How much likelier the sentences of a text are where they stand than alone knows something of coherence that a judge of
the same weights does not. In a reward a policy would buy it by saying the same again; on texts where nobody tries, a
judge can be taught it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import fmean, pstdev

import msgspec

from adjudge.rewards.journal import Journal, content_key
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.records.verdict import Item, Verdict
from adjudge.training.bare_model import BareModel
from adjudge.training.house.continuations import Continuation
from adjudge.training.house.rows import BEST
from adjudge.training.house.texts import Scored
from adjudge.training.once import once
from adjudge.training.stages import Passed, Unusable, passed

MIDDLE, DEVIATION = 3.6, 0.75
"""The mean and the standard deviation of a teacher's scores, before the lowest and the highest are held back."""
LOWEST = 1.1


class Marked(msgspec.Struct, frozen=True):
    """A text, the score that each judge gave it, and what its context gains each bare model (`BareModel.gain`)."""

    text: Continuation
    scores: tuple[float, ...] = ()
    gains: tuple[float, ...] = ()


def judged_by(judge: PointwiseJudge, rows: Sequence[Marked]) -> Passed[Marked]:
    """The texts with one judge's score more; a text that the judge abstains on is dropped."""
    items = [Item(row.text.prompt, row.text.text, str(place)) for place, row in enumerate(rows)]
    return passed("judge", rows, _judged(rows, judge.judge_iter(items)))


def gained_by(model: BareModel, rows: Sequence[Marked], *, journal: Journal) -> Passed[Marked]:
    """The texts with what the context gains one bare model more; a text that it cannot read is dropped."""
    return passed("gain", rows, _gained(rows, model, journal))


def taught(marks: Sequence[Marked], weight: float) -> list[Scored]:
    """The teacher's score of each text: the judges' and `weight` times the gain, both means over models.

    What each model says, and each mean, is standardised over all texts first. Without weight no gains are needed.
    """
    judged = _mean([one.scores for one in marks])
    gained = _mean([one.gains for one in marks]) if weight else [0.0] * len(marks)
    found = _standard([judge + weight * gain for judge, gain in zip(judged, gained, strict=True)])
    scores = [round(min(max(MIDDLE + DEVIATION * value, LOWEST), BEST), 2) for value in found]
    return [Scored(one.text.text, score) for one, score in zip(marks, scores, strict=True)]


def _judged(rows: Sequence[Marked], verdicts: Iterator[Verdict]) -> Iterator[tuple[int, Marked | Unusable]]:
    for place, (row, verdict) in enumerate(zip(rows, verdicts, strict=True)):
        if verdict.score is None:
            yield place, Unusable(verdict.abstained or "abstained")
        else:
            yield place, msgspec.structs.replace(row, scores=(*row.scores, verdict.score))


def _gained(rows: Sequence[Marked], model: BareModel, journal: Journal) -> Iterator[tuple[int, Marked | Unusable]]:
    parts = [(one.text.prompt, *one.text.sentences) for one in rows]
    keys = [content_key(gain_share=part, model=model.fingerprint, dtype=str(model.dtype)) for part in parts]

    def ask(new: list[int]) -> Iterator[tuple[int, float | None]]:
        return ((number, model.gain(parts[place])) for number, place in enumerate(new))

    pack, unpack = msgspec.json.encode, partial(msgspec.json.decode, type=float | None)  # JSON has no NaN: null
    for place, gain in once(journal, keys, ask, pack=pack, unpack=unpack, ended=lambda gain: None):
        if gain is None or not math.isfinite(gain):
            yield place, Unusable("no_gain")
        else:
            yield place, msgspec.structs.replace(rows[place], gains=(*rows[place].gains, gain))


def _mean(found: Sequence[Sequence[float]]) -> list[float]:
    """Of what several models say of each text, each standardised; standardised itself."""
    models = [_standard(values) for values in zip(*found, strict=True)]
    return _standard([fmean(values) for values in zip(*models, strict=True)])


def _standard(values: Sequence[float]) -> list[float]:
    """Less their mean, in their standard deviations; zeros where they are all alike."""
    if not values:
        return []
    middle, spread = fmean(values), pstdev(values)
    return [(value - middle) / spread if spread else 0.0 for value in values]
