"""Which pairs of a group are compared. Members are places on a circle, 0 … N − 1; no pair is asked twice.

On the circle a pair (i, j) leads the shorter way round from i to j, so that each member is shown first about as often
as second, and every pairing asks a pair the same way round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from typing import Literal

import msgspec
import numpy as np
from scipy.special import expit

from adjudge.engine.checking import at_least
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import content_key
from adjudge.rewards.judges.ranking import BradleyTerry

Kind = Literal["all", "circular", "uncertain"]
Members = tuple[int, int]


class Pairing(msgspec.Struct, frozen=True):
    """How many pairs of a group are compared, and which.

    "all" compares every pair. "circular" lets each member meet `k` others (see `circular`). "uncertain" begins with a
    circle through all members, then asks what tells most (see `most_informative`), in rounds of one question for every
    two members, until `budget` pairs of the group are asked: by default as many as "circular" asks.
    Raises AdjudgeError for an unknown kind, `k` below 2, and a budget where it has no meaning.
    """

    kind: Kind = "all"
    k: int = 4
    budget: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("all", "circular", "uncertain"):
            raise AdjudgeError(f'pairing is "{self.kind}": choose all, circular or uncertain')
        at_least(2, k=self.k)  # with fewer opponents each, members cannot be ranked together
        if self.budget is not None:
            at_least(1, budget=self.budget)
        if self.budget is not None and self.kind != "uncertain":
            raise AdjudgeError(f'budget goes with pairing "uncertain", not with "{self.kind}": leave it out')

    def size(self, members: int) -> int:
        """How many pairs will be asked. Raises AdjudgeError where the budget cannot join all members."""
        if self.budget is not None and self.budget < members - 1:
            raise AdjudgeError(f"budget is {self.budget}: give at least {members - 1} pairs for {members} texts")
        if self.kind == "all":
            return members * (members - 1) // 2
        asked = (members * min(self.k, members - 1) + 1) // 2 if self.budget is None else self.budget
        return min(asked, members * (members - 1) // 2)

    def opening(self, members: int) -> list[Members]:
        """The first round: everything that does not wait for an answer."""
        if self.kind == "circular":
            return circular(members, self.k)
        size, pairs = self.size(members), every_pair(members)
        return pairs if size == len(pairs) else pairs[: min(size, members)]  # the neighbours: once round the circle

    def following(self, fit: BradleyTerry, asked: Collection[Members]) -> list[Members]:
        """The next round given what the answers so far say; empty when the pairs are spent."""
        members = len(fit.theta_N)
        return most_informative(fit, asked, min(max(1, members // 2), self.size(members) - len(asked)))


def seeded_order(texts: Iterable[str], seed: int) -> list[str]:
    """The distinct texts, in an order that depends on the seed and on nothing but the texts themselves."""
    return sorted(set(texts), key=lambda text: content_key(seed=seed, text=text))


def every_pair(members: int) -> list[Members]:
    """All pairs, those of neighbours on the circle first."""
    return _apart(members, range(1, (members + 1) // 2)) + ([] if members % 2 else _opposite(members))


def circular(members: int, k: int) -> list[Members]:
    """Each member meets k others, at the same distances on the circle for all; neighbours come first.

    A `k` beyond the other members is all of them. For odd k each meets the member opposite; where the number of members
    is odd too, no such graph exists, and one member meets k + 1. The distances are those of `distances`.
    """
    k = min(k, members - 1)
    return _apart(members, distances(members, k)) + (_opposite(members) if k % 2 else [])


@cache
def distances(members: int, k: int) -> tuple[int, ...]:
    """The k // 2 distances on the circle, short of the member opposite, that lay members close together.

    1, and then each time the one that raises the graph's number of spanning trees most, that is the product of its
    Laplacian's eigenvalues Σ_d 2 − 2 cos(2πfd/N) over f = 1 … N − 1: for a circulant graph and equal members, the
    D-optimal choice. (Meeting the k nearest makes a long thin ring, whose opposite sides know little of each other.)
    """
    distance_D = np.arange(1, (members - 1 - k % 2) // 2 + 1)
    eigenvalue_FD = 2 - 2 * np.cos(2 * np.pi * np.outer(np.arange(1, members), distance_D) / members)
    chosen = [0][: k // 2]
    while len(chosen) < k // 2:
        trees_D = np.log(eigenvalue_FD[:, chosen].sum(axis=1, keepdims=True) + eigenvalue_FD).sum(axis=0)
        trees_D[chosen] = -np.inf
        chosen.append(int(trees_D.round(9).argmax()))  # of equal ones the shortest, whatever the last bits say
    return tuple(int(distance_D[place]) for place in chosen)


def _apart(members: int, apart: Iterable[int]) -> list[Members]:
    return [(i, (i + distance) % members) for distance in apart for i in range(members)]


def _opposite(members: int) -> list[Members]:
    """Each member with the one opposite; where their number is odd, one member is opposite two others."""
    return [(i, i + members // 2) for i in range((members + 1) // 2)]


def most_informative(fit: BradleyTerry, asked: Collection[Members], count: int) -> list[Members]:
    """The `count` pairs, of those not asked yet, that are expected to tell most about the strengths.

    Asking (i, j) adds w = p(1 − p), p = σ(θ_i − θ_j), to the information along θ_i − θ_j, and so lowers the posterior's
    entropy by log(1 + w v)/2, where v is the variance of θ_i − θ_j (D-optimal design: Chaloner & Verdinelli,
    Statistical Science 10, 1995). The pairs are taken one after another, each lowering the covariance for the next, so
    that a round does not ask one thing in several ways. Equal pairs are taken in the order of the circle.
    """
    members = len(fit.theta_N)
    covariance_NN = fit.covariance_NN.copy()
    p_NN = expit(fit.theta_N[:, None] - fit.theta_N)
    weight_NN = p_NN * (1 - p_NN)
    taken = set(asked)
    left = [pair for pair in every_pair(members) if pair not in taken]
    first_P, second_P = np.array(left, dtype=np.int64).reshape(-1, 2).T
    free_P = np.ones(len(left), dtype=bool)
    chosen: list[Members] = []
    for _ in range(min(count, len(left))):
        variance_N = covariance_NN.diagonal()
        variance_P = variance_N[first_P] + variance_N[second_P] - 2 * covariance_NN[first_P, second_P]
        told_P = weight_NN[first_P, second_P] * variance_P
        best = int(np.where(free_P, told_P, -1.0).argmax())
        i, j = left[best]
        along_N = covariance_NN[:, i] - covariance_NN[:, j]
        covariance_NN -= np.outer(along_N, along_N) * (weight_NN[i, j] / (1 + told_P[best]))
        free_P[best] = False
        chosen.append((i, j))
    return chosen
