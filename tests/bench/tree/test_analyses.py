from __future__ import annotations

import math
from typing import Any

import pytest

from adjudge.bench.tree.analyses import (
    Cell,
    Judged,
    by_task,
    disturbance_cells,
    fluctuation,
    fluctuation_cells,
    length_cells,
)
from adjudge.bench.tree.figures import FLUCTUATION
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.tree_weights import Weights
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.verdict import Part, Verdict


def judged(score: float | None, content: float | None = None, **columns: Any) -> Judged:
    parts = {"content": Part(content if content is not None else score)}
    verdict = Verdict("", score, parts, None if score is not None else "unparsable", False, "m", "k")
    return Judged(Row("line 1 of v.jsonl", {"prompt": "p", "response": "r", **columns}), verdict)


def cell(cells: list[Cell], row: str, column: str) -> Cell:
    [found] = [cell for cell in cells if (cell.row, cell.column) == (row, column)]
    return found


def disturbed(of: str, kind: str, score: float | None) -> Judged:
    return judged(score, disturbance={"of": of, "kind": kind, "amount": 1})


def test_fluctuation_is_the_published_formula_in_parity_and_divided_by_the_trials_in_fixed() -> None:
    delta, sigma = fluctuation([0.2, 0.3, 0.2, 0.1, 0.2], "parity")
    assert delta == pytest.approx(0.2, abs=1e-6)
    assert sigma == pytest.approx(math.sqrt(0.02), abs=1e-6)  # not divided by five
    assert fluctuation([0.2, 0.3, 0.2, 0.1, 0.2]) == pytest.approx((0.2, math.sqrt(0.02 / 5)), abs=1e-6)
    assert fluctuation([0.4]) == (0.0, 0.0)
    with pytest.raises(AdjudgeError, match="at least one trial"):
        fluctuation([])


def test_the_published_fluctuation_is_beyond_the_printed_formula_and_within_the_fixed_one() -> None:
    farthest = [0.0, 1.0, 1.0, 1.0, 1.0]  # where Cauchy and Schwarz hold with equality
    printed, fixed = (delta / sigma for delta, sigma in (fluctuation(farthest, "parity"), fluctuation(farthest)))
    assert printed == pytest.approx(math.sqrt(20)) and fixed == pytest.approx(10.0)
    for delta, sigma in FLUCTUATION.values():
        assert printed < (delta - 0.0005) / (sigma + 0.0005) and (delta + 0.0005) / (sigma - 0.0005) < fixed


def test_fluctuation_is_the_mean_of_the_published_formula_over_all_weights() -> None:
    wish, other = ("Write.", ("x", "y")), ("Sing.", ("x", "y"))
    xs = [0.2, 0.3, 0.2, 0.1, 0.2]
    trials = [
        {wish: Weights({"x": x, "y": 1 - x}), other: Weights({"x": 0.5, "y": 0.5} if t else None)}
        for t, x in enumerate(xs)
    ]
    cells = fluctuation_cells(trials)
    # sum over t = 2..5 of |l(t) - l(1)| = .1 + 0 + .1 + 0; squares about the mean .2: .01 + .01, not divided by 5
    assert cell(cells, "x", "delta").value == pytest.approx(0.2, abs=1e-9)
    assert cell(cells, "y", "sigma as printed").value == pytest.approx(math.sqrt(0.02), abs=1e-9)
    assert cell(cells, "y", "sigma").value == pytest.approx(math.sqrt(0.02 / 5), abs=1e-9)
    assert cell(cells, "all weights", "delta").value == pytest.approx(0.2, abs=1e-9)
    published = [cell(cells, "all weights", column).published for column in ("delta", "sigma", "sigma as printed")]
    assert published == [0.080, 0.017, None]
    assert {one.count for one in cells} == {1, 2}  # the other instruction has no weights in the first trial
    steady = {other: Weights({"x": 0.5, "y": 0.5})}
    both = fluctuation_cells([{**trial, **steady} for trial in trials])
    assert cell(both, "all weights", "delta").value == pytest.approx(0.1, abs=1e-9)


def test_without_any_weights_there_is_no_fluctuation() -> None:
    cells = fluctuation_cells([{("Write.", ("x",)): Weights(None, "unparsable")}] * 5)
    assert [(one.value, one.count) for one in cells] == [(None, 0)] * 3


def test_lengths_are_correlated_by_task_with_what_is_known() -> None:
    texts = [
        judged(float(n), content=float(-n), prompt="p" * n, response="r" * (10 - n), task="guide") for n in range(1, 6)
    ]
    cells = length_cells([*texts, judged(None, prompt="p" * 99, task="guide"), judged(3.0, task="open")])
    # the sixth is 99 and 1 long: deviations -18..-14, 80 and 3, 2, 1, 0, -1, -5 about the means 19 and 6
    expected = -490 / math.sqrt(7690 * 40)
    assert cell(cells, "input - output", "guide").value == pytest.approx(expected, abs=1e-9)
    assert cell(cells, "input - overall", "guide") == Cell(
        "lengths", "input - overall", "guide", pytest.approx(1.0), 5, -0.44, "**"
    )
    assert cell(cells, "output - content", "guide").value == pytest.approx(1.0)
    assert cell(cells, "output - overall", "guide").value == pytest.approx(-1.0)
    assert cell(cells, "input - overall", "open") == Cell("lengths", "input - overall", "open", None, 1, -0.15)
    assert cell(cells, "input - overall", "all").count == 6
    assert cell(cells, "input - format", "guide").value is None


def test_a_disturbance_is_held_against_its_own_original_and_must_lower_the_score() -> None:
    texts = [
        disturbed("a", "none", 6.0),
        disturbed("b", "none", 4.0),
        disturbed("c", "none", None),
        disturbed("a", "drop", 5.0),
        disturbed("b", "drop", 3.5),
        disturbed("c", "drop", 1.0),
        disturbed("a", "to_poem", 6.5),
        disturbed("b", "to_poem", None),
    ]
    cells = disturbance_cells([judged(9.0), *texts])
    assert cell(cells, "overall", "initial") == Cell("disturbances", "overall", "initial", 5.0, 2, 5.41)
    assert cell(cells, "overall", "drop") == Cell("disturbances", "overall", "drop", -0.75, 2, -0.36)
    assert cell(cells, "overall", "to_poem") == Cell("disturbances", "overall", "to_poem", 0.5, 1, -0.62, "!")
    assert cell(cells, "format", "drop") == Cell("disturbances", "format", "drop", None, 0, -0.58)
    assert disturbance_cells([judged(9.0)]) == []


@pytest.mark.parametrize(
    ("column", "reason"),
    [({"of": "x", "kind": "drop"}, '"x" that it was made of is not there'), ("drop", 'lacks "of" or "kind"')],
)
def test_disturbances_that_cannot_be_compared_are_named(column: Any, reason: str) -> None:
    with pytest.raises(AdjudgeError, match=f"line 1 of v.jsonl: .*{reason}"):
        disturbance_cells([judged(1.0, disturbance=column)])


def test_several_tasks_are_counted_apart_and_together() -> None:
    one, two = judged(1.0, task="open"), judged(2.0)
    assert by_task([one, two]) == {"open": [one], "any": [two], "all": [one, two]}
    assert by_task([one]) == {"open": [one]}
