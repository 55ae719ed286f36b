"""How often verdicts of 0 or 1 are those of people, in words."""

from __future__ import annotations

from collections.abc import Sequence

from adjudge.rewards.records.verdict import Verdict
from adjudge.training.curate.label_agreement import compare_labels
from adjudge.training.terminal import counted


def label_lines(verdicts: Sequence[Verdict], labels: Sequence[bool | None]) -> list[str]:
    """The same in plain sentences; without labels the excellence rate alone."""
    agreement = compare_labels(verdicts, labels)
    lines = [f"excellence rate {_percent(agreement.excellence)}"]
    if agreement.judged + agreement.abstained:
        lines.append(
            f"{counted(agreement.judged, 'label')} compared, {agreement.abstained} abstained:"
            f" accuracy {_percent(agreement.accuracy)}, precision {_percent(agreement.precision)},"
            f" recall {_percent(agreement.recall)}, F1 {_percent(agreement.f1)}"
        )
    return lines


def _percent(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.1%}"
