import math

import numpy as np
import pytest
from scipy import stats

from adjudge.bench.agreement import statistics as agreement
from adjudge.bench.agreement.resampling import Bootstrap, Clusters, wilson
from adjudge.engine.errors import AdjudgeError

FEW = Bootstrap(draws=200)


def rated(rows=120, prompts=30, seed=3):
    """Scores of a judge with ties, people's on a scale of five, and the prompt of each row."""
    rng = np.random.default_rng(seed)
    human = rng.integers(1, 6, rows).astype(float)
    judge = np.round(human + rng.normal(0, 1.5, rows), 1)
    return judge, human, rng.integers(0, prompts, rows).tolist()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (agreement.pearson, stats.pearsonr),
        (agreement.spearman, stats.spearmanr),
        (agreement.kendall, stats.kendalltau),
    ],
)
def test_correlations_are_those_of_scipy_and_their_draws_those_of_the_rows_drawn(ours, theirs):
    judge, human, prompts = rated()
    found = ours(judge, human, prompts, FEW)
    assert found.value == pytest.approx(theirs(judge, human).statistic, abs=1e-12)
    assert (found.rows, found.clusters, found.why) == (120, len(set(prompts)), None)
    clusters = Clusters(prompts)
    values = []
    for counts in clusters.draws(FEW):
        rows = np.repeat(np.arange(120), counts[clusters.of_row].astype(int))
        values.append(theirs(judge[rows], human[rows]).statistic)
    assert found.interval == pytest.approx(tuple(np.quantile(values, (0.025, 0.975))), abs=1e-9)


def test_the_same_seed_draws_the_same_interval_and_another_seed_another():
    judge, human, prompts = rated()
    first, again, other = (agreement.kendall(judge, human, prompts, Bootstrap(200, seed)) for seed in (0, 0, 1))
    assert first == again and first.value == other.value and first.interval != other.interval


def test_rows_of_one_prompt_are_drawn_together():
    judge, human, prompts = rated(40, 10)
    repeated = agreement.pearson(np.tile(judge, 5), np.tile(human, 5), prompts * 5, FEW)
    assert repeated.interval == pytest.approx(agreement.pearson(judge, human, prompts, FEW).interval)
    rowwise = agreement.pearson(np.tile(judge, 5), np.tile(human, 5), range(200), FEW)
    assert np.ptp(rowwise.interval) < np.ptp(repeated.interval)


@pytest.mark.parametrize("measure", [agreement.pearson, agreement.spearman, agreement.kendall])
@pytest.mark.parametrize(
    ("judge", "human", "why"),
    [
        ([2.0, 2.0, 2.0], [1.0, 2.0, 3.0], "all of the judge's scores are equal"),
        ([1.0, 2.0, 3.0], [0.1, 0.1, 0.1], "all of people's scores are equal"),
        ([1.0, 2.0], [1.0, 2.0], "2 of at least 3 rows"),
        ([], [], "0 of at least 3 rows"),
    ],
)
def test_what_has_no_correlation_is_none_with_its_reason(measure, judge, human, why):
    found = measure(judge, human, range(len(judge)), FEW)
    assert (found.value, found.interval, found.why) == (None, None, why)


def test_length_bias_is_what_a_regression_on_people_leaves_of_both():
    judge, human, prompts = rated()
    characters = 100 + 30 * human + 20 * judge + np.random.default_rng(5).normal(0, 40, 120)

    def theirs(rows):
        left = [column[rows] - np.polyval(np.polyfit(human[rows], column[rows], 1), human[rows]) for column in
                (judge, characters)]  # fmt: skip
        return stats.pearsonr(*left).statistic

    found = agreement.length_bias(judge, human, characters, prompts, FEW)
    assert found.value == pytest.approx(theirs(np.arange(120)), abs=1e-12) and found.value > 0.3
    clusters = Clusters(prompts)
    draws = [np.repeat(np.arange(120), counts[clusters.of_row].astype(int)) for counts in clusters.draws(FEW)]
    assert found.interval == pytest.approx(np.quantile([theirs(rows) for rows in draws], (0.025, 0.975)), abs=1e-9)
    assert agreement.length_bias(judge, human, 400 - characters, prompts, FEW).value == pytest.approx(-found.value)


@pytest.mark.parametrize(
    ("judge", "characters", "why"),
    [
        ([2.0, 1.0, 4.0, 3.0], [7, 7, 7, 7], "all texts are equally long"),
        ([2.0, 2.0, 2.0, 2.0], [7, 8, 9, 7], "all of the judge's scores are equal"),
        ([1.0, 2.0, 3.0, 4.0], [7, 8, 9, 7], "people's scores leave nothing over of the judge's, or of length"),
        ([2.0, 1.0, 4.0, 3.0], [30, 20, 10, 0], "people's scores leave nothing over of the judge's, or of length"),
    ],
)
def test_length_bias_that_cannot_be_told_is_none_with_its_reason(judge, characters, why):
    found = agreement.length_bias(judge, [1.0, 2.0, 3.0, 4.0], characters, range(4), FEW)
    assert (found.value, found.interval, found.why) == (None, None, why)


def test_few_prompts_give_a_value_without_an_interval():
    found = agreement.pearson([1, 2, 3, 5], [1, 3, 2, 4], "aabb", FEW)
    assert found.value == pytest.approx(stats.pearsonr([1, 2, 3, 5], [1, 3, 2, 4]).statistic)
    assert found.interval is None and found.why == "no interval: 2 of at least 5 prompts"


def test_a_statistic_that_most_draws_lack_has_no_interval():
    judge, human = [0.0] * 9 + [1.0], [0.0] * 9 + [1.0]  # without the last row nothing varies
    found = agreement.spearman(judge, human, range(10), FEW)
    assert found.value == 1.0 and found.interval is None and "draws it does not exist" in found.why


def test_accuracy_leaves_out_peoples_ties_and_halves_the_judges():
    found = agreement.accuracy([0.9, 0.2, 0.5, 0.7, 0.6], [1, 1, 0, 0.5, 1], range(5), FEW)
    assert (found.value, found.rows) == (pytest.approx((1 + 0 + 0.5 + 1) / 4), 4)
    none = agreement.accuracy([0.9], [0.5], "a", FEW)
    assert (none.value, none.why) == (None, "no pair on which people decided")


def test_accuracy_with_ties_counts_a_tie_that_both_call():
    preference, human = [0.9, 0.52, 0.5, 0.3], [1, 0.5, 0.5, 0.5]
    assert agreement.accuracy_with_ties(preference, human, range(4), FEW).value == 0.5


def test_errors_and_f1_are_those_counted_by_hand():
    judge, human = [0.0, 0.6, 0.5, 1.0, 0.7], [0.5, 0.8, 0.9, 0.0, 1.0]
    assert agreement.squared_error(judge, human, range(5), FEW).value == pytest.approx(
        (0.25 + 0.04 + 0.16 + 1.0 + 0.09) / 5
    )
    assert agreement.f1(judge, human, range(5), FEW).value == pytest.approx(4 / (4 + 1 + 1))
    none = agreement.f1([0.1, 0.2], [0.3, 0.5], "ab", FEW)
    assert (none.value, none.why) == (None, "neither people nor the judge put a row above 0.5")
    assert agreement.f1([], [], [], FEW).why == "no rows"


def test_the_calibration_error_weighs_each_bin_by_its_rows():
    confidence, correct = [0.95, 1.0, 0.91, 0.33, 0.31], [1, 0, 1, 1, 0]
    by_hand = (3 * abs((0.95 + 1.0 + 0.91) / 3 - 2 / 3) + 2 * abs(0.32 - 0.5)) / 5
    found = agreement.calibration_error(confidence, correct, range(5))
    assert found.value == pytest.approx(by_hand) and found.interval is None and found.clusters == 5
    with pytest.raises(AdjudgeError, match=r"number 2 of confidence is 1\.2, outside 0 to 1"):
        agreement.calibration_error([0.5, 1.2], [1, 0], "ab")
    assert agreement.calibration_error([], [], "").why == "no rows"


def test_a_bin_of_the_calibration_error_has_its_upper_end():
    assert agreement.bins_of(np.array([0.0, 0.05, 0.1, 0.11, 0.3, 0.5, 0.51, 0.7, 1.0])).tolist() == [
        0,
        0,
        0,
        1,
        2,
        4,
        5,
        6,
        9,
    ]
    # 0.5 and 0.45 are of one bin, 0.55 is of the next
    assert agreement.calibration_error([0.5, 0.45], [1, 0], "ab").value == pytest.approx(abs(0.475 - 0.5))
    assert agreement.calibration_error([0.5, 0.55], [1, 0], "ab").value == pytest.approx((0.5 + 0.55) / 2)


def test_a_confusion_matrix_has_shares_of_each_human_label():
    cells = agreement.confusion([1.2, 2.4, 2.6, 3.9, 1.0], [1, 1, 3, 3, 3], "abcde", [1, 2, 3, 4], FEW)
    table = {(cell.human, cell.judge): (cell.count, cell.share.value) for cell in cells}
    assert len(table) == 16
    assert table[1, 1] == table[1, 2] == (1, 0.5)
    assert table[3, 3] == table[3, 4] == table[3, 1] == (1, pytest.approx(1 / 3))
    assert table[2, 2] == (0, None)
    assert {cell.share.why for cell in cells if cell.human == 2} == {"people gave no row 2"}


def test_every_interval_of_good_data_holds_its_value():
    judge, human, prompts = rated()
    scaled = [agreement.normalised(np.clip(column, 1, 5), 1, 5) for column in (judge, human)]
    for measure in (agreement.pearson, agreement.squared_error, agreement.f1):
        found = measure(*scaled, prompts, FEW)
        low, high = found.interval
        assert low < found.value < high and math.isfinite(low + high)


def test_numbers_that_are_not_finite_or_outside_the_scale_are_named():
    with pytest.raises(AdjudgeError, match='number 2 of "human" is nan: leave out'):
        agreement.pearson([1, 2, 3], [1, math.nan, 3], "abc")
    with pytest.raises(AdjudgeError, match='"human" has 2 numbers for 3 rows'):
        agreement.pearson([1, 2, 3], [1, 2], "abc")
    with pytest.raises(AdjudgeError, match="number 3 of a rating is 6, outside 1 to 5"):
        agreement.normalised([1, 5, 6], 1, 5, "a rating")
    assert agreement.normalised([1, 3, 5], 1, 5) == [0, 0.5, 1]


def test_equal_shares_are_as_sure_as_there_are_prompts_and_not_surer():
    right = agreement.accuracy([0.9] * 6, [1.0] * 6, range(6))
    assert right.value == 1.0 and right.interval == pytest.approx(wilson(6, 6)) and right.interval[0] < 0.62
    half = agreement.share([0, 1] * 6, [place // 2 for place in range(12)])
    assert half.value == 0.5 and half.interval == pytest.approx(wilson(3, 6)) and half.why is None
    assert agreement.share([1] * 4, range(4)).interval is None  # of four prompts no share has one
    [_, cell, *_] = agreement.confusion([2] * 8, [1] * 8, range(8), [1, 2])
    assert cell.share.value == 1.0 and cell.share.interval == pytest.approx(wilson(8, 8))


def test_a_label_that_few_prompts_have_has_no_interval_in_a_confusion_matrix_however_many_there_are():
    for few in (1, 3):
        human = [2.0] * few + [1.0] * 20
        cells = agreement.confusion(human, human, range(len(human)), [1, 2])
        table = {(cell.human, cell.judge): cell.share for cell in cells}
        assert table[1, 1].interval == pytest.approx(wilson(20, 20)) and table[1, 1].clusters == 20
        assert table[2, 2].value == 1.0 and table[2, 2].interval is None and table[2, 2].clusters == few


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0, 0.4, 0.1])
def test_what_does_not_vary_and_is_no_share_has_no_interval_whatever_its_value(value: float):
    for found in (
        agreement.mean([value] * 8, range(8)),
        agreement.squared_error([value] * 8, [0.0] * 8, range(8)),
        agreement.f1([1.0] * 8, [1.0] * 8, range(8)),
        agreement.f1([0.0] * 8, [1.0] * 8, range(8)),
    ):
        assert found.interval is None and "all draws are alike" in str(found.why)


@pytest.mark.parametrize("most", ["MOST_CLUSTERS", "MOST_KINDS"])
def test_kendall_of_very_many_has_no_interval_and_no_square_of_memory_or_time(
    monkeypatch: pytest.MonkeyPatch, most: str
):
    judge, human, _ = rated()
    whole = agreement.kendall(judge, human, range(len(judge)), FEW)
    monkeypatch.setattr(agreement, most, 80)
    monkeypatch.delattr(agreement, "_concordance")
    found = agreement.kendall(judge, human, range(len(judge)), FEW)
    assert found.value == pytest.approx(whole.value) and found.interval is None and "at most 80" in str(found.why)


def test_kendall_looks_at_rows_that_are_alike_as_one(monkeypatch: pytest.MonkeyPatch):
    human = np.random.default_rng(4).integers(1, 6, (2, 3000)).astype(float)
    looked_at, sign = [], np.sign
    monkeypatch.setattr(np, "sign", lambda cells: looked_at.append(np.size(cells)) or sign(cells))
    found = agreement.kendall(*human, [row % 40 for row in range(3000)], FEW)
    assert found.value == pytest.approx(stats.kendalltau(*human).statistic) and found.interval is not None
    assert sum(looked_at) <= 2 * 25**2
