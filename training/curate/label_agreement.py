"""How often verdicts of 0 or 1 are those of people: the measures of Igniting's Tables 1 to 4 (arXiv 2508.21476)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from adjudge.rewards.records.verdict import Verdict


class LabelAgreement(msgspec.Struct, frozen=True):
    """Verdicts against labels, good (1) or not (0): the four counts of those that both have.

    `abstained` counts labelled texts without a score. `excellence` is the share of good among all verdicts with a
    score, labelled or not. A ratio of nothing is None.
    """

    true_good: int
    false_good: int
    true_bad: int
    false_bad: int
    abstained: int
    excellence: float | None

    @property
    def judged(self) -> int:
        """Labelled texts with a score."""
        return self.true_good + self.false_good + self.true_bad + self.false_bad

    @property
    def accuracy(self) -> float | None:
        """The share of labels that the verdicts hit."""
        return _ratio(self.true_good + self.true_bad, self.judged)

    @property
    def precision(self) -> float | None:
        """The share of those called good that are."""
        return _ratio(self.true_good, self.true_good + self.false_good)

    @property
    def recall(self) -> float | None:
        """The share of good ones that are called so."""
        return _ratio(self.true_good, self.true_good + self.false_bad)

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall."""
        return _ratio(2 * self.true_good, 2 * self.true_good + self.false_good + self.false_bad)


def compare_labels(verdicts: Sequence[Verdict], labels: Sequence[bool | None]) -> LabelAgreement:
    """The agreement of verdicts with labels (None: unlabelled); a score above 0.5 calls a text good."""
    called = [None if verdict.score is None else verdict.score > 0.5 for verdict in verdicts]
    pairs = list(zip(called, labels, strict=True))
    scored = [call for call in called if call is not None]
    return LabelAgreement(
        true_good=pairs.count((True, True)),
        false_good=pairs.count((True, False)),
        true_bad=pairs.count((False, False)),
        false_bad=pairs.count((False, True)),
        abstained=pairs.count((None, True)) + pairs.count((None, False)),
        excellence=_ratio(sum(scored), len(scored)),
    )


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
