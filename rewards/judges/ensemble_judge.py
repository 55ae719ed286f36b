"""`EnsembleJudge`: single texts scored by a pairwise judge, each beside others of the same file (EvolvR, C.1.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import ClassVar

import msgspec

from adjudge.engine.score import UNKEPT, Reason
from adjudge.rewards.journal import content_key
from adjudge.rewards.judges.ensemble import checked_pairwise, judged_beside, shown_beside
from adjudge.rewards.judges.judge import Judge
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.records.verdict import AspectVerdict, Item, PairVerdict, Part, Verdict, abstention, weighted_mean


class EnsembleJudge(Judge[Item, Verdict]):
    """Scores a text by the mean of its scores beside each of its partners, in both orders: 2N an aspect.

    A text without partners, any `Item`, is shown beside itself. Pairs on which `judge` abstains are left out of a mean;
    an aspect of nothing else abstains. `judge` must show one order (`orders="ab"`), for both are pairs of their own
    here, and its journal holds them, so that no pair is judged twice. Raises AdjudgeError for a judge of both orders or
    of another kind.
    """

    kind: ClassVar[str] = "ensemble"
    range = (1.0, 5.0)
    verdict_type = Verdict

    def __init__(self, judge: PairwiseJudge) -> None:
        super().__init__(checked_pairwise(judge).journal)
        self.pairwise = judge
        self.engine = judge.engine

    def key(self, subject: Item) -> str:
        """The journal's key: those of its pairs."""
        shown = [(self.pairwise.key(pair), first) for pair, first in shown_beside(subject)]
        return content_key(judge="ensemble", pairs=shown)

    def _judge(self, subjects: Mapping[str, Item]) -> Iterator[Verdict]:
        for key, verdicts in judged_beside(self.pairwise, subjects):
            yield self._verdict(verdicts, key)

    def _verdict(self, judged: Sequence[tuple[PairVerdict, bool]], key: str) -> Verdict:
        parts: dict[str, Part] = {}
        analysis: dict[str, tuple[str, ...]] = {}
        for aspect in self.pairwise.aspects:
            verdicts = [(verdict.aspects[aspect.name], first) for verdict, first in judged]
            parts[aspect.name] = _part(verdicts, aspect.weight)
            if texts := tuple(text for verdict, _ in verdicts for text in verdict.analyses or ()):
                analysis[aspect.name] = texts
        abstained = abstention(parts)
        return Verdict(
            id="",
            score=None if abstained else weighted_mean(parts),
            breakdown=parts,
            abstained=abstained,
            truncated=any(verdict.truncated for verdict, _ in judged),
            model=self.engine.name,
            key=key,
            analysis=analysis or None,
        )


def _part(verdicts: Sequence[tuple[AspectVerdict, bool]], weight: float) -> Part:
    """The mean of one aspect's scores; what another run may answer makes it abstain, so that one asks again."""
    mass = min((verdict.mass for verdict, _ in verdicts if verdict.mass is not None), default=None)
    reasons: list[Reason] = [verdict.abstained for verdict, _ in verdicts if verdict.abstained]
    passing = next((reason for reason in reasons if reason in UNKEPT), None)
    if passing or len(reasons) == len(verdicts):
        return Part(None, weight, mass=mass, abstained=passing or reasons[0])
    read = [(verdict, first) for verdict, first in verdicts if not verdict.abstained]
    scores = [(verdict.score_a if first else verdict.score_b) or 0.0 for verdict, first in read]
    columns = [(verdict.distribution_a if first else verdict.distribution_b) or () for verdict, first in read]
    spread = stdev(scores) if len(scores) > 1 else msgspec.UNSET
    return Part(fmean(scores), weight, tuple(map(fmean, zip(*columns, strict=True))), mass, spread=spread)
