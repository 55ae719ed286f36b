"""Preferences between two texts beside people's: accuracy with and without ties, position, calibration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from adjudge.bench.agreement import statistics
from adjudge.bench.agreement.comparison import Line, Scores, lines_of
from adjudge.bench.agreement.dataset import OVERALL, DataSet
from adjudge.bench.agreement.resampling import USUAL, Bootstrap, Estimate
from adjudge.bench.reports.pair_summary import by_order
from adjudge.rewards.judges.preference import sigmoid
from adjudge.rewards.records.verdict import PairVerdict

MOST_GROUPS = 60
"""More groups than that are not told one by one."""


class Choice(msgspec.Struct, frozen=True):
    """What a judge says of a pair: the probability that a is better (None where it abstained).

    `orders` are those with a shown first and with b shown first, where it saw both; `bias` its liking for the first
    place, in log-odds. `sure` says whether the preference is a probability, and not only a side.
    """

    preference: float | None
    orders: tuple[float, float] | None = None
    bias: float | None = None
    sure: bool = True

    @property
    def called(self) -> float:
        """1 for a, 0 for b, 0.5 for a tie: what both orders say, or a tie where they differ."""
        if self.orders is None:
            return side(self.preference or 0.0)
        first, second = map(side, self.orders)
        return first if first == second else 0.5


class Choices(msgspec.Struct, frozen=True):
    """The choices of one judge on every pair of a set; `aspects` are those on each aspect by itself."""

    name: str
    overall: list[Choice]
    aspects: dict[str, list[Choice]] = {}


Rater = Scores | Choices
"""What one rater gave every text of a set, or chose of every pair."""


def rater_lines(dataset: DataSet, rater: Rater, targets: Sequence[str], how: Bootstrap = USUAL) -> Iterator[Line]:
    """All lines of a rater, of texts by the aspects that are its `targets`."""
    return (
        lines_of(dataset, rater, targets, how) if isinstance(rater, Scores) else preference_lines(dataset, rater, how)
    )


def choices_of(name: str, dataset: DataSet, verdicts: Sequence[PairVerdict]) -> Choices:
    """A judge's verdicts; of a pair about which people were asked on one aspect, that aspect's counts."""
    names = dict.fromkeys(aspect for verdict in verdicts for aspect in verdict.aspects)
    aspects = {aspect: [_of_aspect(verdict, aspect) for verdict in verdicts] for aspect in names}
    overall = [
        _of_aspect(verdict, row.aspect)
        if row.aspect in verdict.aspects
        else Choice(verdict.preference, by_order(verdict.preference, verdict.bias), verdict.bias)
        for row, verdict in zip(dataset.rows, verdicts, strict=True)
    ]
    asked = any(row.aspect for row in dataset.rows)
    return Choices(name, overall, aspects if len(aspects) > 1 and not asked else {})


def choices_between(name: str, scores: Sequence[float | None], *, logits: bool = False) -> Choices:
    """Both texts of each pair scored by themselves, a's first; the preference is σ of the difference of `logits`, else
    a side."""
    chosen = []
    for a, b in zip(scores[::2], scores[1::2], strict=True):
        if a is None or b is None:
            chosen.append(Choice(None))
        elif logits:
            chosen.append(Choice(sigmoid(a - b)))
        else:
            chosen.append(Choice((1 + (a > b) - (a < b)) / 2, sure=False))
    return Choices(name, chosen)


def preference_lines(dataset: DataSet, choices: Choices, how: Bootstrap = USUAL) -> Iterator[Line]:
    """A line over all pairs, for each group of them, and for each aspect of the judge over all pairs."""
    everything = range(len(dataset.rows))
    yield preference_line(OVERALL, choices.name, choices.overall, dataset, everything, how)
    groups: dict[str, list[int]] = {}
    for place, row in enumerate(dataset.rows):
        if row.group is not None:
            groups.setdefault(row.group, []).append(place)
    for name in sorted(groups) if 1 < len(groups) <= MOST_GROUPS else ():
        line = preference_line(name, choices.name, choices.overall, dataset, groups[name], how)
        yield msgspec.structs.replace(line, of_group=True)
    for name, chosen in choices.aspects.items():
        yield preference_line(f"by {name}", choices.name, chosen, dataset, everything, how)


def preference_line(
    target: str, name: str, choices: Sequence[Choice], dataset: DataSet, places: Sequence[int], how: Bootstrap = USUAL
) -> Line:
    """All figures of the pairs at `places`; those the judge abstained from are left out."""
    kept = [(choices[place], dataset.rows[place]) for place in places if choices[place].preference is not None]
    human, clusters = [row.preferred for _, row in kept], [row.cluster for _, row in kept]
    preference = [choice.preference or 0.0 for choice, _ in kept]
    figures: dict[str, Estimate] = {
        "accuracy": statistics.accuracy(preference, human, clusters, how),
        "accuracy_with_ties": statistics.accuracy_with_ties([one.called for one, _ in kept], human, clusters, how),
    }
    ordered = [(choice, row.cluster) for choice, row in kept if choice.orders is not None]
    if ordered:
        prompts = [cluster for _, cluster in ordered]
        figures["consistency"] = statistics.share([_consistent(choice) for choice, _ in ordered], prompts, how)
        figures["bias"] = statistics.mean([choice.bias or 0.0 for choice, _ in ordered], prompts, how)
    if kept and all(choice.sure for choice, _ in kept):
        confidence, correct = sureness([choice for choice, _ in kept], human)
        figures["ece"] = statistics.calibration_error(confidence, correct, clusters)
    return Line(target, name, len(kept), figures)


def sureness(choices: Sequence[Choice], human: Sequence[float]) -> tuple[list[float], list[float]]:
    """How sure each choice is, and whether people chose the same; a tie, of theirs or of its own, is half of that."""
    preference = [choice.preference or 0.0 for choice in choices]
    confidence = [max(p, 1 - p) for p in preference]
    agreed = (0.5 if p == 0.5 else said if p > 0.5 else 1 - said for p, said in zip(preference, human, strict=True))
    return confidence, list(agreed)


def _of_aspect(verdict: PairVerdict, aspect: str | None) -> Choice:
    found = verdict.aspects[aspect or ""]
    return Choice(found.preference, by_order(found.preference, found.bias), found.bias)


def _consistent(choice: Choice) -> float:
    first, second = choice.orders or (0.5, 0.5)
    return float(side(first) == side(second))


def side(preference: float) -> float:
    """1 for a, 0 for b, 0.5 for a tie."""
    return 0.5 if preference == 0.5 else float(preference > 0.5)
