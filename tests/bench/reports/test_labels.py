from __future__ import annotations

from adjudge.bench.reports.labels import label_lines
from adjudge.rewards.records.verdict import Verdict


def verdicts(*scores: float | None) -> list[Verdict]:
    return [Verdict("", s, {}, "low_mass" if s is None else None, False, "m", "k") for s in scores]


SCORED = verdicts(0.9, 0.8, 0.7, 0.51, 0.5, 0.2, None, None, 0.6)
LABELS = [True, True, False, True, True, False, True, False, None]


def test_lines_say_what_was_compared() -> None:
    assert label_lines(SCORED, LABELS) == [
        "excellence rate 71.4%",
        "6 labels compared, 2 abstained: accuracy 66.7%, precision 75.0%, recall 75.0%, F1 75.0%",
    ]
    assert label_lines(verdicts(0.9, None), [None, None]) == ["excellence rate 100.0%"]
