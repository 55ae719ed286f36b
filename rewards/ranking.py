"""Strengths from preferences: soft Bradley–Terry, and Borda.

Members of a group are 0 … N − 1. A comparison is a pair (i, j) and p, the probability that i is better than j: anything
from 0 to 1, a tie is 0.5. Members that were compared with nobody have no strength.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from adjudge.engine.errors import AdjudgeError

FloatArray = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Preferences = Mapping[tuple[int, int], float]
"""p for each compared pair (i, j)."""

PRIOR_SD = 30.0
"""Standard deviation of the prior of a strength, in log-odds: a lone preference of 0.9 becomes 0.899, of 1, 0.997."""

STEP = 1e-9
"""A Newton step this small is the last: what it leaves is of the order of its square."""


@dataclass(frozen=True, slots=True)
class BradleyTerry:
    """Strengths θ in log-odds: i is better than j with probability σ(θ_i − θ_j)."""

    theta_N: FloatArray  # 0 for members without a comparison
    covariance_NN: FloatArray  # of theta_N, the prior's own uncertainty of its mean included
    component_N: np.ndarray[tuple[int, ...], np.dtype[np.int32]]  # equal for members joined by comparisons
    compared_N: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

    @property
    def strengths(self) -> tuple[float | None, ...]:
        """θ with mean zero over the compared members; None for the others."""
        return self._of_compared(self.theta_N)

    @property
    def errors(self) -> tuple[float | None, ...]:
        """The standard error of each strength, measured from the compared members' mean; None where it has none.

        About `PRIOR_SD` where comparisons do not join all members: strengths of different parts share no scale.
        """
        centred_NN = np.eye(len(self.theta_N)) - self.compared_N / max(1, self.compared_N.sum())
        variance_N = np.einsum("ij,jk,ik->i", centred_NN, self.covariance_NN, centred_NN)
        return self._of_compared(np.sqrt(variance_N.clip(min=0.0)))

    def preference(self, i: int, j: int) -> float | None:
        """The probability that i is better than j, None where no chain of comparisons joins them."""
        joined = self.component_N[i] == self.component_N[j] and self.compared_N[i] and self.compared_N[j]
        return float(expit(self.theta_N[i] - self.theta_N[j])) if joined else None

    def _of_compared(self, values_N: FloatArray) -> tuple[float | None, ...]:
        return tuple(
            float(value) if compared else None for value, compared in zip(values_N, self.compared_N, strict=True)
        )


def bradley_terry(members: int, preferences: Preferences) -> BradleyTerry:
    """The strengths that are most probable given the preferences and a weak Gaussian prior.

    They minimise Σ [log(1 + e^(θ_i − θ_j)) − p (θ_i − θ_j)] + Σ θ_i² / 2s², with s = `PRIOR_SD`: the cross-entropy of
    soft labels p with σ(θ_i − θ_j) (Bradley & Terry, Biometrika 39, 1952, where p is 0 or 1). The prior makes it
    strictly convex, so that strengths are finite and unique under unanimity and between parts that no comparison joins;
    their mean is 0, over all and over each such part. The covariance is the inverse Hessian there. As the Hessian's
    inverse is non-negative and largest on its diagonal, a higher p never lowers θ_i nor raises θ_j.

    Newton with the step log(1 + r)/r, where r is the largest change of any θ_i − θ_j: every step lowers the objective
    and the last ones converge quadratically (Sun & Tran-Dinh, Mathematical Programming 178, 2019, for ν = 2).
    Raises AdjudgeError for members that are not there and preferences outside [0, 1].
    """
    first_E, second_E, preference_E = _edges(members, preferences)
    difference_EN = np.zeros((len(preference_E), members))
    difference_EN[np.arange(len(preference_E)), first_E] = 1.0
    difference_EN[np.arange(len(preference_E)), second_E] = -1.0
    prior_NN = np.eye(members) / PRIOR_SD**2

    theta_N = np.zeros(members)
    while True:
        expected_E = expit(difference_EN @ theta_N)
        gradient_N = difference_EN.T @ (expected_E - preference_E) + prior_NN @ theta_N
        hessian_NN = (difference_EN.T * (expected_E * (1 - expected_E))) @ difference_EN + prior_NN
        step_N = -np.linalg.solve(hessian_NN, gradient_N)
        change = float(np.abs(difference_EN @ step_N).max(initial=0.0))
        theta_N = theta_N + step_N * (np.log1p(change) / change if change else 1.0)
        if np.abs(step_N).max(initial=0.0) <= STEP:
            break

    graph = coo_array((np.ones(len(first_E)), (first_E, second_E)), shape=(members, members))
    return BradleyTerry(
        theta_N=theta_N,
        covariance_NN=np.linalg.inv(hessian_NN),
        component_N=connected_components(graph, directed=False)[1],
        compared_N=np.bincount(np.concatenate([first_E, second_E]), minlength=members) > 0,
    )


def borda(members: int, preferences: Preferences) -> tuple[float | None, ...]:
    """Each member's mean preference over its opponents, in [0, 1], each opponent counted once; None without one.

    Over all pairs the order is that of Borda's count (1781), a soft win counting p. It assumes no model, and between
    members that met different opponents it compares unlike things. Raises AdjudgeError like `bradley_terry`.
    """
    wins_NN = np.zeros((members, members))
    met_NN = np.zeros((members, members))
    for i, j, p in zip(*_edges(members, preferences), strict=True):
        wins_NN[i, j] += p
        wins_NN[j, i] += 1 - p
        met_NN[i, j] += 1
        met_NN[j, i] += 1
    mean_NN = wins_NN / met_NN.clip(min=1)  # (i, j) and (j, i) may both have been asked
    opponents_N = (met_NN > 0).sum(axis=1)
    return tuple(float(row.sum() / n) if n else None for row, n in zip(mean_NN, opponents_N, strict=True))


def _edges(members: int, preferences: Preferences) -> tuple[np.ndarray, np.ndarray, FloatArray]:
    """First members, second members and preferences of the comparisons, [E] each."""
    for (i, j), p in preferences.items():
        if not (0 <= i < members and 0 <= j < members and i != j):
            raise AdjudgeError(f"the pair ({i}, {j}) is not of two of the {members} members: count them from 0")
        if not 0 <= p <= 1:  # NaN compares False
            raise AdjudgeError(f"the preference of pair ({i}, {j}) is {p}: give a probability, or leave the pair out")
    pairs_E2 = np.array(list(preferences), dtype=np.int64).reshape(-1, 2)
    return pairs_E2[:, 0], pairs_E2[:, 1], np.array(list(preferences.values()), dtype=np.float64)
