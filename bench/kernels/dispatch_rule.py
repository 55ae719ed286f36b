"""Which implementation of the restricted head should run, as a benchmark's results propose it."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    return [_choose(*key, list(group)) for key, group in groupby(sorted(timed, key=kind), kind)]


def _choose(device: str, dtype: str, normalizer: str, d: int, v: int, k: int, timed: list[Measurement]) -> Proposal:
    by_variant: dict[str, dict[int, Measurement]] = {}
    for m in timed:
        by_variant.setdefault(m.variant, {})[m.sizes["N"]] = m
    ours = by_variant.get(OURS, {})
    winners, losses = [], []
    for name, peer in by_variant.items():
        rows = sorted(ours.keys() & peer.keys())
        if name == OURS or name in NOT_PEERS or not rows:
            continue
        ratios = {n: _ratio(ours[n], peer[n]) for n in rows}
        lost = [n for n in rows if ratios[n] > 1]
        if lost and len(lost) == len(rows) == len(ours) and all(_clear(ours[n], peer[n]) for n in rows):
            speed = math.exp(fmean(math.log(ratio) for ratio in ratios.values()))
            why = f"faster at every N of {rows[0]} to {rows[-1]}, {min(ratios.values()):.2f} to"
            winners.append((speed, name, f"{why} {max(ratios.values()):.2f} x"))
        elif lost:
            worst = max(lost, key=ratios.__getitem__)
            losses.append(f"{name} is faster at N = {', '.join(map(str, lost))}, {ratios[worst]:.2f} x at most")
    if winners:
        _, choice, why = max(winners)
        return Proposal(device, dtype, normalizer, d, v, k, choice, why)
    if not ours:
        return Proposal(device, dtype, normalizer, d, v, k, OURS, "not timed here")
    why = "; ".join(losses) or "never slower"
    return Proposal(device, dtype, normalizer, d, v, k, OURS, why)


def _ratio(ours: Measurement, peer: Measurement) -> float:
    assert ours.median_us is not None and peer.median_us is not None  # only timed ones come here
    return ours.median_us / peer.median_us


def _clear(ours: Measurement, peer: Measurement) -> bool:
    """Whether the peer's median lies below all of our rounds."""
    return peer.median_us is not None and ours.min_us is not None and peer.median_us < ours.min_us
