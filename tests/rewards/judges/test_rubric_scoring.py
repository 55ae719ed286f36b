from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.published_rubrics import IGNITING, SIX
from adjudge.rewards.judges.rubric_scoring import Chances, Form, Mark, Scheme, marks_of, mean, reward, scheme_of, vetoed
from adjudge.rewards.records.rubric import Criterion, Level, Rubric

HALVES = (Level(0, 0, "no"), Level(0.5, 0.5, "partly"), Level(1.5, 1.5, "yes"))
QURL = Rubric((Criterion("logic", "?", points=3), Criterion("facts", "?", levels=HALVES)), points=4.5)
FORMS: tuple[Form, Form] = ("fixed", "parity")


def sure(marks: tuple[Mark, ...], *scores: float) -> list[Chances]:
    """Distributions without a doubt."""
    return [[float(value == score) for value in mark.values] for mark, score in zip(marks, scores, strict=True)]


@pytest.mark.parametrize("scheme", ["fixed", "free"])
@pytest.mark.parametrize("form", FORMS)
def test_points_earned_over_points_there_are(scheme: Scheme, form: Form) -> None:
    marks = marks_of(QURL, scheme, form)
    assert reward(marks, sure(marks, 2, 0.5), form) == pytest.approx(2.5 / 4.5, abs=1e-6)
    assert reward(marks, sure(marks, 3, 1.5), form) == 1 and reward(marks, sure(marks, 0, 0), form) == 0


def test_the_two_forms_on_a_distribution() -> None:
    chances = [(0.1, 0.2, 0.4, 0.3), (0.5, 0.25, 0.25)]  # expected 1.9 and 0.5, most probable 2 and 0
    assert reward(marks_of(QURL, "fixed"), chances) == pytest.approx(0.5333333, abs=1e-6)
    assert reward(marks_of(QURL, "fixed", "parity"), chances, "parity") == pytest.approx(0.4444444, abs=1e-6)


def test_binary_published_is_the_share_of_criteria_met_and_fixed_counts_points_and_doubts() -> None:
    chances = [(0.2, 0.8), (0.6, 0.4)]
    assert reward(marks_of(QURL, "binary", "parity"), chances, "parity") == 0.5
    assert reward(marks_of(QURL, "binary"), chances) == pytest.approx((3 * 0.8 + 1.5 * 0.4) / 4.5, abs=1e-6)
    bare = Rubric((Criterion("a", "?"), Criterion("b", "?")))
    assert reward(marks_of(bare, "binary"), chances) == pytest.approx(0.6, abs=1e-6)
    weighted = Rubric((Criterion("a", "?", weight=1), Criterion("b", "?", weight=3)))
    assert reward(marks_of(weighted, "binary"), chances) == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_the_six_dimensions_are_their_sum_over_twelve(form: Form) -> None:
    marks = marks_of(SIX, "free", form)
    assert reward(marks, sure(marks, 2, 1, 0, 2, 1, 1), form) == pytest.approx(7 / 12, abs=1e-6)
    assert mean(marks, sure(marks, 2, 1, 0, 2, 1, 1), form) == pytest.approx(7 / 6, abs=1e-6)


def test_the_five_weighted_dimensions_of_igniting() -> None:
    for form, expected in (("fixed", 0.625), ("parity", 0.75)):
        marks = marks_of(IGNITING, "free", form)  # type: ignore[arg-type]
        chances = sure(marks, 3, 2, 1, 2, 3)  # .30·3 + .30·2 + .15·1 + .15·2 + .10·3 = 2.25 on 1..3
        assert mean(marks, chances, form) == pytest.approx(2.25, abs=1e-6)  # type: ignore[arg-type]
        assert reward(marks, chances, form) == pytest.approx(expected, abs=1e-6)  # type: ignore[arg-type]
    marks = marks_of(IGNITING, "free")
    assert mean(marks, [(0.2, 0.3, 0.5)] * 5) == pytest.approx(2.3, abs=1e-6)
    assert reward(marks, [(0.2, 0.3, 0.5)] * 5) == pytest.approx(0.65, abs=1e-6)


def test_criteria_of_different_scales_have_no_mean() -> None:
    marks = marks_of(QURL, "free")
    assert mean(marks, sure(marks, 1, 0)) is None


VETO = Rubric((Criterion("gate", "?", points=2, veto=2), Criterion("else", "?", points=8)))


def test_a_veto_takes_what_falls_to_draws_in_which_it_strikes() -> None:
    marks = marks_of(VETO, "fixed")
    other = [0.0] * 8 + [1.0]
    assert reward(marks, [(0, 0, 1), other]) == 1
    assert reward(marks, [(0, 1, 0), other]) == 0
    # The gate is passed with 0.7, and then is worth 2 points of 10, the rest 8.
    assert reward(marks, [(0.1, 0.2, 0.7), other]) == pytest.approx(0.7, abs=1e-6)
    assert vetoed(marks, [(0.1, 0.2, 0.7), other]) == () and vetoed(marks, [(0.3, 0.3, 0.4), other]) == ("gate",)


@pytest.mark.parametrize(("bound", "expected"), [(None, 0.55), (1, 0.55), (2, 0.4)])
def test_a_vetoing_criterion_keeps_its_own_share_of_the_draws_that_reach_the_bound(
    bound: float | None, expected: float
) -> None:
    marks = marks_of(Rubric((Criterion("a", "?", points=2, veto=bound),)), "free")
    assert reward(marks, [(0.3, 0.3, 0.4)]) == pytest.approx(expected, abs=1e-6)


def test_published_veto_goes_by_the_most_probable_score() -> None:
    marks = marks_of(VETO, "fixed", "parity")
    other = [0.0] * 8 + [1.0]
    assert reward(marks, [(0.3, 0.3, 0.4), other], "parity") == 1
    assert reward(marks, [(0.1, 0.5, 0.4), other], "parity") == 0
    assert vetoed(marks, [(0.1, 0.5, 0.4), other], "parity") == ("gate",)


def test_in_binary_a_veto_strikes_where_the_criterion_is_not_met() -> None:
    marks = marks_of(VETO, "binary")
    assert reward(marks, [(0.25, 0.75), (0.5, 0.5)]) == pytest.approx(0.75 * 0.2 + 0.75 * 0.5 * 0.8, abs=1e-6)
    assert vetoed(marks, [(0.6, 0.4), (0.5, 0.5)]) == ("gate",)


def test_a_gate_of_no_weight_only_vetoes() -> None:
    rubric = Rubric(
        (Criterion("gate", "?", points=1, veto=1, weight=0), Criterion("else", "?", points=4, weight=1)),
    )
    assert reward(marks_of(rubric, "free"), [(0.25, 0.75), (0, 0, 1, 0, 0)]) == pytest.approx(0.375, abs=1e-6)


@st.composite
def graded(draw: st.DrawFn) -> tuple[tuple[Mark, ...], list[list[float]]]:
    """A rubric under some scheme, and distributions over its values."""
    scheme: Scheme = draw(st.sampled_from(["free", "binary"]))
    weighted = draw(st.booleans())
    criteria = []
    for number in range(draw(st.integers(1, 4))):
        steps = draw(st.lists(st.integers(0, 20), min_size=2, max_size=5, unique=True).map(sorted))
        levels = tuple(Level(step / 2, step / 2, "?") for step in steps)
        veto = draw(st.none() | st.sampled_from([level.low for level in levels[1:]]))
        weight = draw(st.floats(0.01, 5)) if weighted else None
        criteria.append(Criterion(str(number), "?", levels=levels, weight=weight, veto=veto))
    marks = marks_of(Rubric(tuple(criteria)), scheme)
    chances = []
    for mark in marks:
        raw = draw(st.lists(st.floats(0.001, 1), min_size=len(mark.values), max_size=len(mark.values)))
        chances.append([value / sum(raw) for value in raw])
    return marks, chances


@given(graded(), st.data())
def test_moving_probability_upwards_never_lowers_the_reward(
    case: tuple[tuple[Mark, ...], list[list[float]]], data: st.DataObject
) -> None:
    marks, chances = case
    before = reward(marks, chances)
    assert 0 <= before <= 1
    moved = [list(chance) for chance in chances]
    place = data.draw(st.integers(0, len(marks) - 1))
    low = data.draw(st.integers(0, len(moved[place]) - 2))
    high = data.draw(st.integers(low + 1, len(moved[place]) - 1))
    amount = moved[place][low] * data.draw(st.floats(0, 1))
    moved[place][low] -= amount
    moved[place][high] += amount
    assert reward(marks, moved) >= before - 1e-12


@given(graded())
def test_the_reward_is_the_expected_one_of_scores_drawn_independently(
    case: tuple[tuple[Mark, ...], list[list[float]]],
) -> None:
    marks, chances = case
    expected = 0.0
    for drawn in product(*(range(len(mark.values)) for mark in marks)):
        probability, shares, vetoes = 1.0, 0.0, False
        for mark, chance, place in zip(marks, chances, drawn, strict=True):
            probability *= chance[place]
            shares += mark.weight * (mark.values[place] - mark.values[0]) / (mark.values[-1] - mark.values[0])
            vetoes |= mark.bound is not None and mark.values[place] < mark.bound
        expected += 0.0 if vetoes else probability * shares / sum(mark.weight for mark in marks)
    assert reward(marks, chances) == pytest.approx(expected, abs=1e-9)


def test_the_flaw_that_the_published_form_has_is_there_and_mended() -> None:
    rubric = Rubric((Criterion("a", "?", points=2),))
    for form, falls in (("parity", True), ("fixed", False)):
        marks = marks_of(rubric, "free", form)  # type: ignore[arg-type]
        before, after = (reward(marks, [chance], form) for chance in ((0.35, 0.25, 0.4), (0.15, 0.45, 0.4)))  # type: ignore[arg-type]
        assert (after < before) == falls


def test_the_rubrics_own_scheme_is_fixed_where_it_states_a_total() -> None:
    assert scheme_of(QURL) == "fixed" and scheme_of(SIX) == scheme_of(IGNITING) == "free"
    assert scheme_of(QURL, "binary") == "binary"


def test_a_total_of_ten_need_not_be_stated() -> None:
    marks = marks_of(Rubric((Criterion("a", "?", points=10),)), "fixed")
    assert marks[0].labels.labels == tuple(map(str, range(11)))


@pytest.mark.parametrize(
    ("rubric", "scheme", "form", "message"),
    [
        (SIX, "fixed", "fixed", r"sum to 12, not to the 10 of the scheme fixed: .*\(points = 12\), or choose"),
        (IGNITING, "fixed", "fixed", "the criteria have weights, which the scheme fixed does not count"),
        (Rubric((Criterion("a", "?"),)), "free", "fixed", 'criterion "a" has neither points nor levels'),
        (SIX, "loose", "fixed", 'scheme is "loose": choose fixed or free or binary'),
        (SIX, "free", "loose", 'form is "loose": choose fixed or parity'),
    ],
)
def test_a_rubric_that_a_scheme_cannot_mark_is_refused(rubric: Rubric, scheme: str, form: str, message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        marks_of(rubric, scheme, form)  # type: ignore[arg-type]
