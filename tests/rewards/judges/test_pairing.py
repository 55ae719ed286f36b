from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import kendalltau

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.pairing import (
    Kind,
    Members,
    Pairing,
    circular,
    distances,
    every_pair,
    most_informative,
    seeded_order,
)
from adjudge.rewards.judges.ranking import BradleyTerry, Preferences, bradley_terry


def laplacian(members: int, pairs: list[Members]) -> np.ndarray:
    incidence = np.array([np.eye(members)[i] - np.eye(members)[j] for i, j in pairs])
    return incidence.T @ incidence


def spanning_trees(members: int, pairs: list[Members]) -> float:
    return float(np.linalg.det(laplacian(members, pairs)[1:, 1:]))


@pytest.mark.parametrize("members", range(1, 14))
def test_every_pair_is_asked_once_and_each_member_shown_first_as_often_as_second(members: int) -> None:
    pairs = every_pair(members)
    assert sorted(map(sorted, pairs)) == [list(pair) for pair in combinations(range(members), 2)]
    first = Counter(i for i, _ in pairs)
    assert all(abs(2 * first[member] - (members - 1)) <= 1 for member in range(members))


@pytest.mark.parametrize(
    ("members", "k"), [(members, k) for members in range(1, 14) for k in range(2, max(members, 2) + 1)]
)
def test_on_the_circle_each_member_meets_k_others(members: int, k: int) -> None:
    pairs = circular(members, k)
    assert len(pairs) == len({frozenset(pair) for pair in pairs}) == Pairing("circular", k).size(members)
    assert set(pairs) <= set(every_pair(members))  # asked the same way round by every pairing
    met = sorted(Counter(member for pair in pairs for member in pair).values())
    expected = min(k, members - 1)
    if members > 1:
        assert met[:-1] == [expected] * (members - 1)
        assert met[-1] == expected + (expected % 2 and members % 2)  # k·N ends are odd: one member meets one more
        assert spanning_trees(members, pairs) > 0.5


@pytest.mark.parametrize(("members", "k"), [(9, 4), (16, 4), (16, 6), (15, 5)])
def test_distances_are_those_with_the_most_spanning_trees(members: int, k: int) -> None:
    chosen = distances(members, k)
    assert chosen[0] == 1 and len(chosen) == k // 2
    for place in range(1, len(chosen)):
        further = [d for d in range(1, (members - 1 - k % 2) // 2 + 1) if d not in chosen[:place]]

        def trees(distance: int, place: int = place) -> float:
            apart = [*chosen[:place], distance]
            return spanning_trees(members, [(i, (i + d) % members) for d in apart for i in range(members)])

        assert trees(chosen[place]) == pytest.approx(max(map(trees, further)))
        assert trees(chosen[place]) > 1.1 * min(map(trees, further))


def test_the_next_pairs_are_those_that_add_most_to_the_determinant_of_the_information() -> None:
    rng = np.random.default_rng(0)
    preferences = {pair: float(rng.random()) for pair in circular(7, 2)}
    fit = bradley_terry(7, preferences)
    chosen = most_informative(fit, preferences, 5)
    information = np.linalg.inv(fit.covariance_NN)
    asked = set(preferences)
    for pair in chosen:
        gains = {}
        for i, j in set(every_pair(7)) - asked:
            along, p = np.eye(7)[i] - np.eye(7)[j], expit(fit.theta_N[i] - fit.theta_N[j])
            gains[i, j] = p * (1 - p) * np.outer(along, along)
        logdet = {key: np.linalg.slogdet(information + gain)[1] for key, gain in gains.items()}
        assert logdet[pair] == pytest.approx(max(logdet.values()), abs=1e-9)
        information = information + gains[pair]
        asked.add(pair)


def test_parts_that_nothing_joins_are_joined_first() -> None:
    halves = {(0, 1): 0.5, (2, 3): 0.5}
    (i, j), *_ = most_informative(bradley_terry(4, halves), halves, 1)
    assert len({i, j} & {0, 1}) == 1


def rounds(pairing: Pairing, members: int, preferences: Preferences) -> list[list[Members]]:
    """The pairs that are asked, round by round, when the answers are `preferences`."""
    asked: dict[Members, float] = {}
    todo, played = pairing.opening(members), []
    while todo:
        played.append(todo)
        asked |= {pair: preferences[pair] for pair in todo}
        todo = pairing.following(bradley_terry(members, asked), asked) if len(asked) < pairing.size(members) else []
    return played


@pytest.mark.parametrize("members", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("budget", [None, 7, 13, 1000])
def test_uncertain_goes_once_round_then_spends_its_budget_and_asks_nothing_twice(
    members: int, budget: int | None
) -> None:
    rng = np.random.default_rng(1)
    preferences = {pair: float(rng.random()) for pair in every_pair(members)}
    pairing = Pairing("uncertain", budget=budget)
    played = rounds(pairing, members, preferences)
    asked = [pair for pairs in played for pair in pairs]
    everything = members * (members - 1) // 2
    assert len(set(asked)) == len(asked) == pairing.size(members) == min(everything, budget or 2 * members)
    assert set(asked) <= set(preferences)
    if members > 2:
        assert played[0][: members - 1] == [(i, i + 1) for i in range(members - 1)]
    assert all(len(pairs) == members // 2 for pairs in played[1:-1])
    assert len(played) <= 1 or len(asked) < everything  # what is asked anyway is asked at once
    assert rounds(pairing, members, preferences) == played


def test_the_order_on_the_circle_follows_from_texts_and_seed_alone() -> None:
    texts = [f"text {n}" for n in range(9)]
    order = seeded_order(texts, 0)
    assert seeded_order([*texts[::-1], texts[3]], 0) == order
    assert sorted(order) == texts and order != texts and seeded_order(texts, 1) != order


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "swiss"}, 'pairing is "swiss": choose all, circular or uncertain'),
        ({"kind": "circular", "k": 1}, "k is 1: give at least 2"),
        ({"kind": "circular", "k": 2.5}, "k is 2.5: give a whole number"),
        ({"kind": "uncertain", "budget": "9"}, "budget is '9': give a whole number"),
        ({"kind": "circular", "budget": 9}, 'budget goes with pairing "uncertain", not with "circular"'),
    ],
)
def test_options_that_make_no_pairing_are_refused(options: dict, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(AdjudgeError, match=message):
        Pairing(**options)


def test_a_budget_that_cannot_join_the_members_is_refused() -> None:
    with pytest.raises(AdjudgeError, match="budget is 6: give at least 7 pairs for 8 texts"):
        Pairing("uncertain", budget=6).size(8)


MEMBERS = 16


def correlation(pairing: Pairing | int, seed: int) -> float:
    """Kendall's τ of the strengths with the truth; an answer is the mean of 4 wins and losses.

    An `int` in place of a pairing is that many pairs at random.
    """
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 3, MEMBERS)
    wins = {(i, j): rng.binomial(4, expit(truth[i] - truth[j])) / 4 for i, j in every_pair(MEMBERS)}
    if isinstance(pairing, int):
        asked = [every_pair(MEMBERS)[place] for place in rng.permutation(len(wins))[:pairing]]
    else:
        asked = [pair for pairs in rounds(pairing, MEMBERS, wins) for pair in pairs]
    fit: BradleyTerry = bradley_terry(MEMBERS, {pair: wins[pair] for pair in asked})
    return float(kendalltau(fit.theta_N, truth).statistic)


def mean_correlation(pairing: Pairing | int) -> float:
    return float(np.mean([correlation(pairing, seed) for seed in range(40)]))


@pytest.mark.parametrize(("kind", "least"), [("all", 0.9), ("circular", 0.77), ("uncertain", 0.82)])
def test_every_pairing_recovers_an_order_from_noisy_preferences(kind: Kind, least: float) -> None:
    assert mean_correlation(Pairing(kind)) > least


def test_of_strengths_far_apart_uncertain_pairs_tell_more_than_circular_ones_and_those_more_than_random() -> None:
    uncertain, circular = mean_correlation(Pairing("uncertain", budget=40)), mean_correlation(Pairing("circular", k=5))
    assert uncertain > circular + 0.01 and circular > mean_correlation(40)
