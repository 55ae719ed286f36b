from __future__ import annotations

import csv
import io
import itertools
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import pytest
from rich.console import Console

from adjudge.bench.agreement.statistics import coefficients
from adjudge.bench.personal.baselines import MatrixFactorisation, reviewer_mean
from adjudge.bench.personal.personal import StudyLine, orders_line, random_line
from adjudge.bench.personal.studies import Plan, plan_of, sides_of, study, study_table, write_study
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.personal import PersonalJudge
from adjudge.training.readers.grouping import Rules, group_choices, group_reviews
from adjudge.training.readers.questions import RatingQuestion
from adjudge.training.readers.reviews import PlotChoice, PlotReview

REVIEWS = [
    PlotReview(f"{reader}{n}", reader, f"Plot {n}.", f"Words {n} {n}.", float(1 + (3 * n + shift) % 10), split)
    for shift, (reader, split) in enumerate([("ann", "test"), ("bob", "train"), ("eve", "train")])
    for n in range(6)
]
CHOICES = [
    PlotChoice(f"c{n}", "ann", f"One {n}.", f"Two {n}.", ("ending", "surprise")[n % 2], "ab"[n % 3 > 0], "test")  # type: ignore[arg-type]
    for n in range(6)
]


def by_name(lines: list[StudyLine]) -> dict[tuple[str, int | None], StudyLine]:
    return {(f"{line.study} {line.who}", line.k): line for line in lines}


def test_every_study_has_its_lines_and_the_baselines_are_those_by_hand(tiny: Engine) -> None:
    sides = sides_of(list(group_reviews(REVIEWS, Rules.ratings(n=4)).questions))
    assert (len(sides.asked), len(sides.known)) == (4, 8)
    plan = plan_of(None, sides.asked, 3, 0)
    assert plan.ks == (0, 1, 2, 3)
    lines = by_name(list(study(tiny, sides, plan, {"min_mass": 0.0})))
    ours = {name for name in lines if not name[0].startswith("paper")}
    assert ours == {
        *(("k judge", k) for k in range(4)),
        *(("k judge, no texts", k) for k in (1, 2, 3)),
        *(("orders judge, 3 orders", k) for k in (2, 3)),
        ("baseline random score, expected", 0),
        *((f"baseline {who}", k) for who in ("reviewer mean", "matrix factorisation") for k in (1, 2, 3)),
    }
    assert all(line.tokens for name, line in lines.items() if "judge" in name[0])
    assert lines["k judge, no texts", 3].tokens < lines["k judge", 3].tokens  # type: ignore[operator]
    human = [one.score for one in sides.asked if isinstance(one, RatingQuestion)]
    items = [one.item for one in sides.asked if isinstance(one, RatingQuestion)]
    mean = [verdict.score or 0.0 for verdict in reviewer_mean(items, 2)]
    assert lines["baseline reviewer mean", 2].measures["Pearson"] == pytest.approx(pearson(mean, human), abs=1e-6)
    assert lines["paper PerSE-13b", 3].measures == {"Pearson": 0.345, "Spearman": 0.368, "Kendall": 0.293}


def pearson(given: list[float], own: list[float]) -> float:
    moments = [(x - fmean(given), y - fmean(own)) for x, y in zip(given, own, strict=True)]
    return sum(x * y for x, y in moments) / (sum(x * x for x, _ in moments) * sum(y * y for _, y in moments)) ** 0.5


def test_without_reviews_the_baseline_is_a_random_score_which_is_worth_nothing_whatever_is_drawn() -> None:
    sides = sides_of(list(group_reviews(REVIEWS, Rules.ratings(n=4)).questions))
    rated = [one for one in sides.asked if isinstance(one, RatingQuestion)]
    line = random_line(rated)
    assert (line.k, line.count, line.abstained) == (0, 4, 0)
    assert line.measures == dict.fromkeys(("Pearson", "Spearman", "Kendall"), 0.0)
    own = [one.score for one in rated]
    drawn = [coefficients(order, own) for order in itertools.permutations((1.0, 2.0, 2.0, 9.0))]
    for place in range(3):
        assert fmean(found[place] or 0.0 for found in drawn) == pytest.approx(0.0, abs=1e-12)
    squares = fmean((found[0] or 0.0) ** 2 for found in drawn)
    assert squares == pytest.approx(1 / (len(rated) - 1))
    assert set(random_line(rated[:2]).measures.values()) == {None}


def test_factorisation_learns_from_the_other_readers_alone(tiny: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    learnt: list[Any] = []
    make = MatrixFactorisation.__init__

    def noting(self: Any, ratings: Any, **how: Any) -> None:
        learnt.extend(ratings)
        make(self, ratings, **how)

    monkeypatch.setattr(MatrixFactorisation, "__init__", noting)
    sides = sides_of(list(group_reviews(REVIEWS, Rules.ratings(n=6)).questions))
    list(study(tiny, sides, Plan((3,), 0), {"min_mass": 0.0}))
    assert {rating.reviewer for rating in learnt} == {"bob", "eve"} and len(learnt) == 12


def test_orders_are_told_by_mean_deviation_and_spread(tiny: Engine) -> None:
    sides = sides_of(list(group_reviews(REVIEWS, Rules.ratings(n=6)).questions))
    lines = by_name(list(study(tiny, sides, Plan((2,), 4, 7), {"min_mass": 0.0})))
    rated = [one for one in sides.asked if isinstance(one, RatingQuestion)]
    made = orders_line(PersonalJudge(tiny, k=2, min_mass=0.0), rated, 4, 7)
    line = lines["orders judge, 4 orders", 2]
    assert msgspec.structs.replace(line, tokens=None) == made and line.tokens and line.count == 24


def test_abstentions_are_counted(tiny: Engine) -> None:
    sides = sides_of(list(group_reviews(REVIEWS, Rules.ratings(n=4)).questions))
    lines = by_name(list(study(tiny, sides, Plan((1,), 0), {"min_mass": 1.0})))
    line = lines["k judge", 1]
    assert (line.count, line.abstained, line.measures["Kendall"]) == (0, 4, None)


def test_choices_are_asked_about_on_their_own_aspect_beside_the_prior_choice(tiny: Engine) -> None:
    sides = sides_of(list(group_choices(CHOICES, Rules.choices(n=6)).questions))
    lines = by_name(list(study(tiny, sides, Plan((0, 1), 3), {"min_mass": 0.0})))
    assert {name for name in lines if not name[0].startswith("paper")} == {
        ("k judge", 0),
        ("k judge", 1),
        ("baseline prior choice", 1),
    }
    line = lines["k judge", 1]
    assert set(line.measures) == {"ending", "surprise", "average"} and line.count == len(sides.asked)
    prior = [one.pair.reviews[-1].preferred == one.preferred for one in sides.asked]  # type: ignore[union-attr]
    found = lines["baseline prior choice", 1].measures
    aspects = [one.aspect for one in sides.asked]  # type: ignore[union-attr]
    for name in ("ending", "surprise"):
        hits = [hit for hit, aspect in zip(prior, aspects, strict=True) if aspect == name]
        assert found[name] == pytest.approx(fmean(hits))
    assert lines["paper PerSE-13b", 1].measures["average"] == 0.602


def test_nothing_is_computed_twice_with_a_journal(tiny: Engine, tmp_path: Path) -> None:
    sides = sides_of(list(group_reviews(REVIEWS, Rules.ratings(n=4)).questions))
    with Journal(tmp_path / "j") as book:
        how: Any = {"min_mass": 0.0, "journal": book}
        first = list(study(tiny, sides, Plan((0, 2)), how))
        again = list(study(tiny, sides, Plan((0, 2)), how))
    assert sum(line.tokens or 0 for line in first) > 0 == sum(line.tokens or 0 for line in again)
    assert [line.measures for line in again] == [line.measures for line in first]


def test_the_table_and_the_file_say_the_same(tmp_path: Path) -> None:
    lines = [
        StudyLine("orders", "judge, 3 orders", 2, 6, 1, {"Kendall": 0.25}, {"Kendall": 0.125}, 1.5, 321),
        StudyLine("paper", "[GPT-4]", 3, None, None, {"Kendall": 0.253}),
    ]
    console = Console(file=io.StringIO(), width=120)
    console.print(study_table(lines))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "0.250 ± 0.125" in text and "1.500" in text and "321" in text and "[GPT-4]" in text
    write_study(tmp_path / "s.csv", lines)
    with (tmp_path / "s.csv").open() as file:
        ours, paper = csv.DictReader(file)
    assert (ours["Kendall"], ours["Kendall sd"], ours["spread"], ours["tokens"]) == (
        "0.2500",
        "0.1250",
        "1.5000",
        "321",
    )
    assert (paper["k"], paper["count"], paper["Kendall sd"]) == ("3", "", "")


def test_studies_that_cannot_be_made_are_refused() -> None:
    questions = list(group_reviews(REVIEWS, Rules.ratings(n=4)).questions)
    trained = [one for one in questions if one.split == "train"]
    with pytest.raises(AdjudgeError, match='no question has the split "test"'):
        sides_of(trained)
    with pytest.raises(AdjudgeError, match="k is 5, but a question has 3 reviews"):
        plan_of([0, 5], questions, 3, 0)
    for ks, shuffles, reason in (((1, 1), 3, "twice"), ((), 3, "no number"), ((1,), 1, "1 order has no spread")):
        with pytest.raises(AdjudgeError, match=reason):
            Plan(ks, shuffles)
    assert len(sides_of(questions, 2).asked) == 2
