"""Strengths from preferences: soft Bradley–Terry, and Borda.

Members of a group are 0 … N − 1. A comparison is a pair (i, j) and p, the probability that i is better than j: anything
from 0 to 1, a tie is 0.5. Strengths of parts that no comparison joins share no scale: the largest part is ranked (of
equal ones that with the first member), and the others have no strength, nor have members compared with nobody.
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
IntArray = np.ndarray[tuple[int, ...], np.dtype[np.int32]]
BoolArray = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
Preferences = Mapping[tuple[int, int], float]
"""p for each compared pair (i, j)."""

PRIOR_SD = 30.0
"""Standard deviation of the prior of a strength, in log-odds: a lone preference of 0.9 becomes 0.899, of 1, 0.997."""

STEP = 1e-9
"""A Newton step this small is the last: what it leaves is of the order of its square."""


@dataclass(frozen=True, slots=True)
class BradleyTerry:
    """Strengths θ in log-odds: i is better than j with probability σ(θ_i − θ_j)."""

    theta_N: FloatArray  # 0 for members without a comparison, and on the mean of each part
    covariance_NN: FloatArray  # of theta_N, the prior's own uncertainty of its mean included
    part_N: IntArray  # equal for members joined by comparisons

    @property
    def strengths(self) -> tuple[float | None, ...]:
        """θ with mean zero over the ranked members; None for the others."""
        return _of(self.theta_N, _ranked(self.part_N))

    @property
    def errors(self) -> tuple[float | None, ...]:
        """The standard error of each strength, measured from the ranked members' mean; None where it has none."""
        ranked_N = _ranked(self.part_N)
        centred_NN = np.eye(len(self.theta_N)) - ranked_N / max(1, ranked_N.sum())
        variance_N = np.einsum("ij,jk,ik->i", centred_NN, self.covariance_NN, centred_NN)
        return _of(np.sqrt(variance_N.clip(min=0.0)), ranked_N)

    def preference(self, i: int, j: int) -> float | None:
        """The probability that i is better than j, None where no chain of comparisons joins them."""
        same_N = self.part_N == self.part_N[i]
        return float(expit(self.theta_N[i] - self.theta_N[j])) if same_N[j] and same_N.sum() > 1 else None


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
    theta_N = np.zeros(members)
    while True:
        expected_E = expit(theta_N[first_E] - theta_N[second_E])
        excess_E = expected_E - preference_E
        pull_N = np.bincount(first_E, excess_E, members) - np.bincount(second_E, excess_E, members)
        gradient_N = pull_N + theta_N / PRIOR_SD**2
        weight_E = expected_E * (1 - expected_E)
        weight_NN = coo_array((weight_E, (first_E, second_E)), shape=(members, members)).toarray()
        weight_NN += weight_NN.T
        hessian_NN = np.diag(weight_NN.sum(axis=1) + 1 / PRIOR_SD**2) - weight_NN
        step_N = -np.linalg.solve(hessian_NN, gradient_N)
        change = float(np.abs(step_N[first_E] - step_N[second_E]).max(initial=0.0))
        theta_N = theta_N + step_N * (np.log1p(change) / change if change else 1.0)
        if np.abs(step_N).max(initial=0.0) <= STEP:
            break

    return BradleyTerry(theta_N, np.linalg.inv(hessian_NN), _parts(members, first_E, second_E))


def borda(members: int, preferences: Preferences) -> tuple[float | None, ...]:
    """Each ranked member's mean preference over its opponents, in [0, 1], each opponent counted once.

    Over all pairs the order is that of Borda's count (1781), a soft win counting p. It assumes no model, and between
    members that met different opponents it compares unlike things. Raises AdjudgeError like `bradley_terry`.
    """
    wins_NN = np.zeros((members, members))
    met_NN = np.zeros((members, members))
    first_E, second_E, preference_E = _edges(members, preferences)
    for i, j, p in zip(first_E, second_E, preference_E, strict=True):
        wins_NN[i, j] += p
        wins_NN[j, i] += 1 - p
        met_NN[i, j] += 1
        met_NN[j, i] += 1
    mean_NN = wins_NN / met_NN.clip(min=1)  # (i, j) and (j, i) may both have been asked
    opponents_N = (met_NN > 0).sum(axis=1)
    return _of(mean_NN.sum(axis=1) / opponents_N.clip(min=1), _ranked(_parts(members, first_E, second_E)))


def _parts(members: int, first_E: np.ndarray, second_E: np.ndarray) -> IntArray:
    """The number of each member's part, which those have in common that comparisons join."""
    graph = coo_array((np.ones(len(first_E)), (first_E, second_E)), shape=(members, members))
    part_N: IntArray = connected_components(graph, directed=False)[1]
    return part_N


def _ranked(part_N: IntArray) -> BoolArray:
    """Which members are of the largest part, of equal ones of that with the first member; nobody where all are alone.

    Choosing among equal parts by the members' order, which has nothing to do with who is better, favours nobody, and
    gives up fewer of the comparisons that were made than to rank neither.
    """
    sizes_N = np.bincount(part_N)[part_N]
    ranked_N: BoolArray = (sizes_N > 1) & (part_N == part_N[sizes_N.argmax()])
    return ranked_N


def _of(values_N: FloatArray, there_N: BoolArray) -> tuple[float | None, ...]:
    return tuple(float(value) if there else None for value, there in zip(values_N, there_N, strict=True))


def _edges(members: int, preferences: Preferences) -> tuple[np.ndarray, np.ndarray, FloatArray]:
    """First members, second members and preferences of the comparisons, [E] each."""
    for (i, j), p in preferences.items():
        if not (0 <= i < members and 0 <= j < members and i != j):
            raise AdjudgeError(f"the pair ({i}, {j}) is not of two of the {members} members: count them from 0")
        if not 0 <= p <= 1:  # NaN compares False
            raise AdjudgeError(f"the preference of pair ({i}, {j}) is {p}: give a probability, or leave the pair out")
    pairs_E2 = np.array(list(preferences), dtype=np.int64).reshape(-1, 2)
    return pairs_E2[:, 0], pairs_E2[:, 1], np.array(list(preferences.values()), dtype=np.float64)
