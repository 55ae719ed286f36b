"""Which implementation of the restricted head should run, as a benchmark's results propose it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from adjudge.bench.kernels.limits import MATMUL, OURS, UNCHECKED
from adjudge.bench.kernels.measurement import Measurement

NOT_PEERS = (UNCHECKED, MATMUL)  # another face of ours, and half of the work


@dataclass(frozen=True)
class Proposal:
    """What to run for one device, dtype, normalizer, D, V and K, whatever N is."""

    device: str
    dtype: str
    normalizer: str
    d: int
    v: int
    k: int
    choice: str
    why: str

    def __str__(self) -> str:
        """One line."""
        where = f"{self.device}, {self.dtype}, {self.normalizer}, D={self.d} V={self.v} K={self.k}"
        return f"{where}: {self.choice} ({self.why})"


def propose(measurements: Sequence[Measurement]) -> list[Proposal]:
    """Ours, unless one other variant is faster at every N that both were timed at, by more than the spread.

    A choice that followed N would break the promise that a row's bits do not depend on the others; a peer keeps that
    promise only as far as its library does, so a proposal for one is a question to look into.
    """

    def kind(m: Measurement) -> tuple[str, str, str, int, int, int]:
        sizes = m.sizes
        return m.device, m.dtype, m.case, sizes["D"], sizes["V"], sizes["K"]

    timed = [m for m in measurements if m.kernel == "restricted head" and m.median_us is not None]
    return [Proposal(*key, *_choose(group)) for key, group in groupby(sorted(timed, key=kind), kind)]


def _choose(timed: Iterable[Measurement]) -> tuple[str, str]:
    """The choice, and why."""
    medians: dict[str, dict[int, float]] = {}
    least: dict[int, float] = {}  # of all of our rounds, by N
    for m in timed:
        medians.setdefault(m.variant, {})[m.sizes["N"]] = m.median_us or 0.0
        if m.variant == OURS:
            least[m.sizes["N"]] = m.min_us or 0.0
    ours = medians.pop(OURS, {})
    if not ours:
        return OURS, "not timed here"
    winners, losses = [], []
    for name, peer in medians.items():
        ratios = {n: ours[n] / peer[n] for n in sorted(ours.keys() & peer.keys())}
        lost = [n for n, ratio in ratios.items() if ratio > 1]
        if name in NOT_PEERS or not lost:
            continue
        if len(lost) == len(ours) and all(peer[n] < least[n] for n in lost):
            span = f"{min(ratios.values()):.2f} to {max(ratios.values()):.2f} x"
            why = f"faster at every N of {lost[0]} to {lost[-1]}, {span}"
            winners.append((fmean(map(math.log, ratios.values())), name, why))
        else:
            worst = max(ratios.values())
            losses.append(f"{name} is faster at N = {', '.join(map(str, lost))}, {worst:.2f} x at most")
    if winners:
        _, choice, why = max(winners)
        return choice, why
    return OURS, "; ".join(losses) or "never slower"
