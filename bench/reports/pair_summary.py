"""What a judged file of pairs adds up to, in numbers and in words: agreement, position bias, abstentions, work."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

import msgspec

from adjudge.bench.agreement.resampling import wilson
from adjudge.bench.reports.length import LengthEffect, length_of_pairs
from adjudge.bench.reports.run_cost import RunCost
from adjudge.bench.words import percent, signed, span
from adjudge.engine.score import Reason
from adjudge.rewards.judges.preference import sigmoid
from adjudge.rewards.records.verdict import Pair, PairVerdict
from adjudge.training.terminal import counted

CERTAIN = math.ulp(0.5)
"""How far from 0 and 1 a preference is taken to be, whose log-odds are wanted."""
CHANCE = {"better": "better than chance", "worse": "worse than chance", "unclear": "cannot be told from chance"}


class PairRow(msgspec.Struct, frozen=True):
    """A pair, what the judge said of it, and what its author meant: `expected` is the story written to be better."""

    pair: Pair
    verdict: PairVerdict
    expected: Literal["a", "b", "tie"] | None = None
    note: str | None = None

    @property
    def preferred(self) -> Literal["a", "b"] | None:
        """The story the judge prefers; None when it abstained or its preference is exactly even."""
        preference = self.verdict.preference
        return None if preference is None or preference == 0.5 else "a" if preference > 0.5 else "b"

    @property
    def agrees(self) -> bool | None:
        """Whether the preferred story is the intended one; None without both."""
        if self.expected in (None, "tie") or self.preferred is None:
            return None
        return self.preferred == self.expected

    @property
    def by_order(self) -> tuple[float, float] | None:
        """The preference with a shown first and with b shown first."""
        return by_order(self.verdict.preference, self.verdict.bias)


class RunSummary(msgspec.Struct, frozen=True):
    """Counts over the pairs of one run.

    `a` and `b` count the pairs in which that story is preferred; `preference` is the mean preference for a. `agreed`,
    `disagreed` and `undecided` (even or abstained) count the pairs meant to have a better story. `bias` is the mean
    position bias in log-odds for the first place; `both_orders` counts the decided pairs that have one, and `turned`
    those whose winner depends on the order. `length` is how the preference goes with the stories' lengths.
    """

    cost: RunCost
    aspects: tuple[str, ...]
    pairs: int
    abstained: dict[Reason, int]
    truncated: int
    a: int
    b: int
    preference: float | None
    agreed: int
    disagreed: int
    undecided: int
    bias: float | None
    both_orders: int
    turned: int
    length: LengthEffect

    @property
    def decided(self) -> int:
        """The pairs on which judge and author can be compared."""
        return self.agreed + self.disagreed

    @property
    def agreement(self) -> float | None:
        """The share of the decided pairs on which the judge prefers the intended story."""
        return self.agreed / self.decided if self.decided else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % Wilson interval of the agreement."""
        return wilson(self.agreed, self.decided) if self.decided else None

    @property
    def against_chance(self) -> Literal["better", "worse", "unclear"] | None:
        """Whether the interval lies above one half, below it, or holds it."""
        if self.interval is None:
            return None
        low, high = self.interval
        return "better" if low > 0.5 else "worse" if high < 0.5 else "unclear"

    @property
    def shift(self) -> float | None:
        """The mean bias as probability: how far it moves an even pair towards the story shown first."""
        return None if self.bias is None else sigmoid(self.bias) - 0.5


def summarise(rows: Sequence[PairRow], cost: RunCost) -> RunSummary:
    """The summary of `rows`."""
    meant = [row for row in rows if row.expected in ("a", "b")]
    preferences = [row.verdict.preference for row in rows if row.verdict.preference is not None]
    biases = [row.verdict.bias for row in rows if row.verdict.bias is not None]
    orders = [row.by_order for row in rows if row.by_order is not None]
    return RunSummary(
        cost=cost,
        aspects=tuple(dict.fromkeys(name for row in rows for name in row.verdict.aspects)),
        pairs=len(rows),
        abstained=dict(Counter(row.verdict.abstained for row in rows if row.verdict.abstained)),
        truncated=sum(row.verdict.truncated for row in rows),
        a=sum(row.preferred == "a" for row in rows),
        b=sum(row.preferred == "b" for row in rows),
        preference=fmean(preferences) if preferences else None,
        agreed=sum(row.agrees is True for row in meant),
        disagreed=sum(row.agrees is False for row in meant),
        undecided=sum(row.agrees is None for row in meant),
        bias=fmean(biases) if biases else None,
        both_orders=len(orders),
        turned=sum((a_first > 0.5) != (b_first > 0.5) for a_first, b_first in orders),
        length=length_of_pairs([(row.pair.a, row.pair.b, row.verdict.preference) for row in rows]),
    )


def by_order(preference: float | None, bias: float | None) -> tuple[float, float] | None:
    """The probability that a is better with a shown first, and with b shown first; None if it is not known."""
    if preference is None or bias is None:
        return None
    p = min(max(preference, CERTAIN), 1 - CERTAIN)
    log_odds = math.log(p) - math.log1p(-p)
    return sigmoid(log_odds + bias), sigmoid(log_odds - bias)


# In words


def agreement(summary: RunSummary) -> str:
    """How often the judge prefers the intended story, and whether that can be told from chance.

    Where no pair has one, how often it prefers a.
    """
    meant = summary.decided + summary.undecided
    if not meant:
        return f"{_preferred(summary)}; no pair has an intended order: agreement cannot be measured"
    if summary.agreement is None or summary.interval is None or summary.against_chance is None:
        return f"decided none of the {counted(meant, 'pair')} with an intended order"
    undecided = f" ({summary.undecided} even or abstained, not counted)" if summary.undecided else ""
    return (
        f"agrees with the intended order on {summary.agreed} of {summary.decided} ({percent(summary.agreement)},"
        f" 95 % interval {span(summary.interval)}): {CHANCE[summary.against_chance]}{undecided}"
    )


def _preferred(summary: RunSummary) -> str:
    decided = summary.a + summary.b
    if summary.preference is None or not decided:
        return "prefers neither story of any pair"
    told = f"{percent(summary.a / decided)}, 95 % interval {span(wilson(summary.a, decided))}"
    return f"prefers a in {summary.a} of {decided} ({told}), with a mean preference of {summary.preference:.3f}"


def worth(summary: RunSummary) -> tuple[str, str]:
    """What the judge is worth on these pairs: a headline, and what follows from it."""
    if sum(summary.abstained.values()) == summary.pairs:
        return "gives no verdict", "Each pair below says why." if summary.pairs else "There are none."
    match summary.against_chance:
        case "better":
            return (
                "finds the intended story more often than chance",
                "What it is worth on other stories, these pairs cannot say.",
            )
        case "unclear":
            return "cannot be told from chance", "On this evidence its preferences should not be used as rewards."
        case "worse":
            return (
                "finds the intended story less often than chance",
                "Its preferences would reward the wrong stories here.",
            )
        case None if summary.undecided:
            return "decided none of the pairs that have an intended order", "What it is worth is unknown."
    return (
        "has preferences; whether they are right is unknown",
        "Pairs with an intended order (a column “expected”) would tell.",
    )


def position_bias(summary: RunSummary) -> str:
    """The mean position bias, and how many winners depend on the order."""
    if summary.bias is None or summary.shift is None:
        return "position bias unknown: no pair was shown in both orders"
    return (
        f"position bias {signed(summary.bias)} log-odds for the story shown first"
        f" ({signed(100 * summary.shift, 0)} points on an even pair);"
        f" the winner depends on the order in {summary.turned} of {summary.both_orders}"
    )
