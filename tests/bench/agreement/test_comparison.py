"""Scores and preferences beside people's, on small sets whose figures are counted by hand."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest

from adjudge.bench.agreement.baselines import bag_of_words, folds_of, length_only
from adjudge.bench.agreement.comparison import (
    OVERALL,
    POOLED,
    Scores,
    confusion_of,
    lines_of,
    listed_of,
    raters_line,
    scores_of,
    targets_of,
)
from adjudge.bench.agreement.dataset import DataSet, RatedPair, RatedText
from adjudge.bench.agreement.preferring import (
    Choice,
    choices_between,
    choices_of,
    preference_lines,
    rater_lines,
    sureness,
)
from adjudge.bench.agreement.protocols import PARTNERS, fitting, partners_lines
from adjudge.bench.agreement.resampling import Bootstrap, wilson
from adjudge.bench.agreement.systems import system_level
from adjudge.rewards.judges.ensemble import EnsembleAspect, EnsembleVerdict
from adjudge.rewards.records.verdict import AspectVerdict, Item, Pair, PairVerdict, Part, Verdict

FEW = Bootstrap(draws=100)


def texts(*scores: dict[str, tuple[float, ...]], system: str | None = None) -> DataSet:
    rows = tuple(
        RatedText(Item(f"P{n}", "word " * (n + 1), str(n)), given, f"P{n}", f"line {n}", system)
        for n, given in enumerate(scores)
    )
    return DataSet("own", "items", rows)


def verdict(score: float | None, **parts: Part) -> Verdict:
    return Verdict("", score, parts, None if score is not None else "low_mass", False, "m", "k")


def sure(label: int, probability: float) -> tuple[float, ...]:
    rest = (1 - probability) / 4
    return tuple(probability if place == label else rest for place in range(1, 6))


def test_each_aspect_all_aspects_and_the_whole_have_their_own_figures() -> None:
    dataset = texts(*({"wit": (n,), "depth": (6 - n, 6 - n)} for n in (1, 2, 4, 5)))
    verdicts = [
        verdict(s, Wit=Part(s, distribution=sure(round(s), 0.8)), depth=Part(s), other=Part(3.0)) for s in (1, 2, 4, 5)
    ]
    scores = scores_of("pointwise", dataset, verdicts)
    assert targets_of(dataset, scores) == ["wit", "depth"]
    found = {line.target: line for line in lines_of(dataset, scores, ["wit", "depth"], FEW)}
    assert list(found) == ["wit", "depth", POOLED, OVERALL]
    assert found["wit"].figures["pearson"].value == pytest.approx(1)
    assert found["depth"].figures["kendall"].value == pytest.approx(-1)
    assert found[POOLED].rows == 8 and found[POOLED].figures["pearson"].value == pytest.approx(0)
    assert found["wit"].figures["mse"].value == 0 and found["wit"].figures["f1"].value == 1
    assert found["depth"].figures["mse"].value == pytest.approx((1 + 0.25 + 0.25 + 1) / 4)
    assert found["wit"].figures["ece"].value == pytest.approx(0.2) and "ece" not in found["depth"].figures
    assert found[OVERALL].figures["spearman"].why == "all of people's scores are equal"


def test_of_two_labels_equally_near_to_peoples_score_the_lower_is_right_for_ece_as_in_the_confusion_matrix() -> None:
    dataset = texts(*({"wit": (half,)} for half in (1.5, 2.5, 3.5, 4.5)))
    verdicts = [verdict(s, Wit=Part(s, distribution=sure(round(s), 1.0))) for s in (1.0, 2.0, 3.0, 4.0)]
    scores = scores_of("pointwise", dataset, verdicts)
    assert listed_of(dataset, scores, ["wit"]).correct == [1, 1, 1, 1]
    assert {(one.human, one.judge) for one in confusion_of(dataset, scores, ["wit"], FEW) if one.count} == {
        (n, n) for n in (1, 2, 3, 4)
    }


def test_abstentions_are_left_out_and_logits_are_only_ranked() -> None:
    dataset = texts(*({OVERALL: (float(n),)} for n in (1, 2, 3, 4)))
    scores = scores_of("scalar", dataset, [verdict(-7.0), verdict(None), verdict(40.0), verdict(41.0)])
    (line,) = lines_of(dataset, scores, [], FEW)
    assert line.rows == 3 and line.figures.keys() == {"pearson", "spearman", "kendall", "length_bias"}
    assert line.figures["spearman"].value == pytest.approx(1)


def test_a_judge_of_one_score_is_calibrated_by_its_only_part_and_goodness_by_itself() -> None:
    dataset = texts({OVERALL: (2.0,)}, {OVERALL: (4.0,)})
    rated = scores_of("pointwise", dataset, [verdict(2.0, rating=Part(2.0, distribution=sure(2, 0.9)))] * 2)
    (line,) = lines_of(dataset, rated, [], FEW)
    assert line.figures["ece"].value == pytest.approx(abs(0.9 - 0.5))
    rows = texts({OVERALL: (1.0,)}, {OVERALL: (0.0,)}).rows
    good = DataSet("own", "items", rows, (0.0, 1.0))
    (line,) = lines_of(good, scores_of("principle", good, [verdict(0.7), verdict(0.6)]), [], FEW)
    assert line.figures["ece"].value == pytest.approx((0.3 + 0.6) / 2) and line.figures["f1"].value == pytest.approx(
        2 / 3
    )


def test_one_rater_is_held_against_the_others() -> None:
    line = raters_line(texts({"wit": (1, 3)}, {"wit": (2, 4)}, {"wit": (5,)}), ["wit"], FEW)
    assert line is not None and line.rows == 4 and line.figures["mse"].value == pytest.approx(4 / 16)
    assert raters_line(texts({"wit": (5,)}), ["wit"]) is None


def test_the_confusion_matrix_is_only_of_the_same_scale() -> None:
    dataset = texts({OVERALL: (2.0,)}, {OVERALL: (2.2,)}, {OVERALL: (5.0,)})
    scores = Scores("own", {OVERALL: [2.0, 3.4, None]}, (1.0, 5.0))
    counts = {(cell.human, cell.judge): cell.count for cell in confusion_of(dataset, scores, [OVERALL], FEW)}
    assert counts[2, 2] == counts[2, 3] == 1 and sum(counts.values()) == 2
    assert confusion_of(dataset, Scores("own", {OVERALL: [1, 2, 3]}, (0.0, 1.0)), [OVERALL], FEW) == []


def test_systems_are_compared_by_their_means_over_whole_prompts() -> None:
    systems, prompts = ["a", "b", "c"] * 3, ["p"] * 3 + ["q"] * 3 + ["r"] * 3
    judge = [1.0, 2.0, 3.0, 2.0, 2.0, 5.0, None, 99.0, 0.0]
    found = system_level(judge, [3.0, 3.5, 4.0] * 3, systems, prompts, FEW)
    assert found["spearman"].value == found["kendall"].value == pytest.approx(1)
    assert found["pearson"].value == pytest.approx(0.9449, abs=1e-4) and (
        found["pearson"].rows,
        found["pearson"].clusters,
    ) == (3, 2)
    assert (
        system_level([None] * 3, [1.0] * 3, "abc", "ppp", FEW)["pearson"].why
        == "no prompt has a score for every system"
    )


def test_several_texts_of_a_system_for_one_prompt_count_by_their_mean() -> None:
    systems, judge, human = ["a", "b", "c", "a"], [5.0, 2.0, 3.0, -3.0], [3.0, 4.0, 6.0, 1.0]
    found = system_level(judge, human, systems, "pppp", FEW)
    assert found["pearson"].value == pytest.approx(1) and found["pearson"].rows == 3


def pairs(*preferred: float, group: str | None = None, aspect: str | None = None) -> DataSet:
    rows = tuple(
        RatedPair(Pair("long text", "text", "P", id=str(n)), said, f"P{n}", f"line {n}", group, aspect)
        for n, said in enumerate(preferred)
    )
    return DataSet("own", "pairs", rows)


def said(preference: float | None, bias: float = 0.0, **aspects: float) -> PairVerdict:
    parts = {name: AspectVerdict(None, None, value, 0.0, 1.0) for name, value in aspects.items()}
    return PairVerdict(
        "", preference, parts or {"wit": AspectVerdict(None, None, preference, bias, 1.0)}, None, False, "m", "k"
    )


def test_pairs_have_accuracy_position_and_calibration() -> None:
    dataset = pairs(1, 0, 0.5, 1, 1)
    verdicts = [said(0.8), said(0.9), said(0.6, bias=4.0), said(0.7, bias=-3.0), said(None)]
    (line,) = preference_lines(dataset, choices_of("pairwise", dataset, verdicts), FEW)
    values = {name: figure.value for name, figure in line.figures.items()}
    assert line.rows == 4 and values["accuracy"] == pytest.approx(2 / 3)
    assert values["accuracy_with_ties"] == 0.5  # both of differing orders are ties, of which people call one
    assert values["consistency"] == 0.5 and values["bias"] == pytest.approx(0.25)
    assert values["ece"] == pytest.approx((abs(0.8 - 1) + abs(0.9 - 0) + abs(0.6 - 0.5) + abs(0.7 - 1)) / 4)


def test_a_judges_tie_is_half_right_whichever_text_is_called_a() -> None:
    preference, human = [0.5, 0.5, 0.5, 0.55], [1.0, 1.0, 0.0, 1.0]
    confidence, correct = sureness(list(map(Choice, preference)), human)
    exchanged = sureness([Choice(1 - p) for p in preference], [1 - said for said in human])
    assert confidence == [0.5, 0.5, 0.5, 0.55] and correct == [0.5, 0.5, 0.5, 1.0]
    assert exchanged[0] == pytest.approx(confidence) and exchanged[1] == correct


def test_pairs_that_are_all_the_same_in_both_orders_are_as_sure_as_there_are_prompts() -> None:
    dataset = pairs(*[1] * 8)
    (line,) = preference_lines(dataset, choices_of("pairwise", dataset, [said(0.9)] * 8), FEW)
    assert line.figures["consistency"].interval == pytest.approx(wilson(8, 8))
    assert line.figures["bias"].interval is None


def test_pairs_of_an_aspect_count_by_it_and_groups_and_aspects_have_lines() -> None:
    asked = pairs(1, 1, aspect="wit", group="wit")
    (line,) = preference_lines(asked, choices_of("personal", asked, [said(0.9, wit=0.2, depth=0.9)] * 2), FEW)
    assert line.figures["accuracy"].value == 0
    one, two = pairs(1, group="x").rows[0], pairs(0, group="y").rows[0]
    grouped = DataSet("own", "pairs", (one, two))
    lines = list(preference_lines(grouped, choices_of("pairwise", grouped, [said(0.9, wit=0.9, depth=0.1)] * 2), FEW))
    assert [line.target for line in lines] == [OVERALL, "x", "y", "by wit", "by depth"]
    assert [line.figures["accuracy"].value for line in lines] == [0.5, 1, 0, 0.5, 0.5]
    assert [line.of_group for line in lines] == [False, True, True, False, False]


def test_single_texts_decide_a_pair_and_only_logits_are_sure() -> None:
    both = [3.0, 1.0, 1.0, 1.0, None, 1.0]
    sides = choices_between("pointwise", both)
    assert [one.preference for one in sides.overall] == [1.0, 0.5, None]
    for score in (1 / 3, 2 / 3, 0.9, 0.6, 5 / 7):
        [tie] = choices_between("rubric", [score, score]).overall
        assert tie.preference == 0.5
    logits = choices_between("scalar", both, logits=True)
    assert logits.overall[0].preference == pytest.approx(0.8808, abs=1e-4)
    dataset = pairs(1, 1, 1)
    assert "ece" not in next(preference_lines(dataset, sides, FEW)).figures
    assert "ece" in next(preference_lines(dataset, logits, FEW)).figures


def test_length_is_a_judge_of_its_own() -> None:
    scores: Any = length_only(texts({OVERALL: (1.0,)}, {OVERALL: (2.0,)}), ["wit"])
    assert scores.by_target == {"wit": [5.0, 10.0], OVERALL: [5.0, 10.0]} and scores.scale is None
    choices: Any = length_only(pairs(1))
    assert choices.overall == [Choice(1.0, sure=False)]


def worded(count: int) -> DataSet:
    """Texts whose score is how good their adjective is, with other words at random."""
    rows = []
    for n in range(count):
        score = n % 3
        text = f"a {('dull', 'fair', 'fine')[score]} tale of {'sea' if n % 2 else 'land'} number {n}"
        rows.append(RatedText(Item(f"P{n}", text, str(n)), {OVERALL: (1.0 + 2 * score,)}, f"P{n}", ""))
    return DataSet("own", "items", tuple(rows))


def test_words_foretell_what_words_decide_and_never_see_their_own_prompt() -> None:
    dataset = worded(60)
    (line,) = rater_lines(dataset, bag_of_words(dataset), [], FEW)
    assert line.figures["pearson"].value is not None and line.figures["pearson"].value > 0.95
    noise = DataSet("own", "items", tuple(_with(row, 1.0 + crc32(row.id.encode()) % 5) for row in dataset.rows))
    (line,) = rater_lines(noise, bag_of_words(noise), [], FEW)
    assert line.figures["pearson"].value is None or abs(line.figures["pearson"].value) < 0.4
    changed = DataSet("own", "items", (dataset.rows[0], _with(dataset.rows[1], 5.0), *dataset.rows[2:]))
    found: list[Any] = [bag_of_words(one) for one in (dataset, changed)]
    before, after = (scores.by_target[OVERALL][1] or 0.0 for scores in found)
    assert after - before == pytest.approx((5 - 3) / 60)  # the mean about which all stand has moved, and nothing else
    folds = folds_of(["p", "q", "p", "r"], 0)
    assert folds[0] == folds[2]


def _with(row: Any, score: float) -> RatedText:
    return RatedText(row.item, {OVERALL: (score,)}, row.cluster, "")


def test_words_decide_pairs_whichever_stands_first() -> None:
    rows = []
    for n in range(60):
        sides = (f"a fine tale {n}", f"a dull tale {n}")
        a, b = sides if n % 2 else sides[::-1]
        rows.append(RatedPair(Pair(a, b, id=str(n)), float(n % 2), f"P{n}", ""))
    dataset = DataSet("own", "pairs", tuple(rows))
    assert next(rater_lines(dataset, bag_of_words(dataset), [], FEW)).figures["accuracy"].value == 1


def ensembles(dataset: DataSet, count: int) -> list[EnsembleVerdict]:
    """People's own scores where a story is shown first, and the other way round where it is second."""
    found = []
    for row in dataset.rows:
        aspects = {}
        for name in ("Wit", "depth"):  # people's names are in small letters
            own = row.overall or 0.0
            scores = (own,) * max(count, 1) + (6 - own,) * max(count, 1)
            aspects[name] = EnsembleAspect(scores, (None,) * len(scores))
        found.append(EnsembleVerdict(row.id, (), aspects))
    return found


def test_evolvrs_table_has_both_ways_of_counting_both_orders_and_the_papers_figures() -> None:
    dataset = texts(*({"wit": (float(n),), "depth": (float(n),)} for n in (1, 2, 4, 5)))
    by_size = {size: ensembles(dataset, size) for size in PARTNERS[:4]}
    lines = list(partners_lines(dataset, by_size, "ensemble", FEW))
    told = {(line.target, line.judge): line for line in lines}
    assert told["N = 2", "ensemble, all scores"].rows == 4 * 2 * 4
    assert told["N = 2", "ensemble, all scores"].figures["pearson"].value == pytest.approx(0)
    assert told["N = 2", "ensemble, story means"].figures["pearson"].why == "all of the judge's scores are equal"
    assert told["(A, B)", "ensemble, N = 4"].figures["pearson"].value == pytest.approx(1)
    assert told["(B, A)", "ensemble, N = 4"].figures["pearson"].value == pytest.approx(-1)
    assert told["N = 0", "published: EvolvR 7B on HANNA"].figures["kendall"].value == 0.5389


def test_stories_with_one_score_are_held_against_the_mean_over_aspects() -> None:
    dataset = texts({OVERALL: (2.0,)})
    score = EnsembleAspect((1.0, None), (None, "low_mass"))
    (found,) = fitting(
        dataset, [EnsembleVerdict("0", (), {"wit": score, "depth": EnsembleAspect((4.0, 5.0), (None, None))})]
    )
    assert found.aspects.keys() == {OVERALL} and found.aspects[OVERALL].scores == (2.5, None)
