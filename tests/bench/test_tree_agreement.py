from __future__ import annotations

import math
from typing import Any

import pytest

from adjudge.bench.howtobench import TABLE_4
from adjudge.bench.tree_agreement import Agreement, Means, agreement, fluctuation, system_means
from adjudge.engine.errors import AdjudgeError


def line(instruction: str, system: str, score: float | None, task: str = "guide") -> dict[str, Any]:
    return {"instruction": instruction, "system": system, "score": score, "task": task}


def test_an_instruction_counts_for_all_systems_or_for_none() -> None:
    lines = [line("1", "a", 4.0), line("1", "b", 6.0), line("2", "a", 5.0), line("2", "b", 9.0)]
    assert system_means(lines) == Means({"a": 4.5, "b": 7.5}, 2, 0)
    lines[3]["score"] = None
    assert system_means(lines) == Means({"a": 4.0, "b": 6.0}, 1, 1)
    assert system_means(lines[:3]) == Means({"a": 4.0, "b": 6.0}, 1, 1)  # absent is as good as abstained
    assert system_means([line("1", "a", None)]) == Means({}, 0, 1)


def test_agreement_by_hand() -> None:
    ours = {"a": 1.0, "b": 2.0, "c": 4.0, "other": 0.0}
    published = {"a": 1.0, "b": 3.0, "c": 2.0}
    found = agreement(ours, published)
    assert found.systems == 3
    # deviations -4/3, -1/3, 5/3 and -1, 1, 0: covariance 1, squares 14/3 and 2
    assert found.pearson == pytest.approx(1 / math.sqrt(28 / 3), abs=1e-9)
    assert found.spearman == pytest.approx(0.5, abs=1e-9)  # 1 - 6 * 2 / 24
    assert found.kendall == pytest.approx(1 / 3, abs=1e-9)  # two pairs of three agree
    assert agreement(TABLE_4["all"], TABLE_4["all"]) == Agreement(
        10, pytest.approx(1), pytest.approx(1), pytest.approx(1)
    )


def test_without_variation_there_is_no_correlation() -> None:
    assert agreement({"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 2.0}) == Agreement(2, None, None, None)
    assert agreement({"x": 1.0}, {"a": 1.0}) == Agreement(0, None, None, None)


def test_fluctuation_is_the_published_formula() -> None:
    delta, sigma = fluctuation([0.2, 0.3, 0.2, 0.1, 0.2])
    assert delta == pytest.approx(0.2, abs=1e-6)
    assert sigma == pytest.approx(math.sqrt(0.02), abs=1e-6)  # not divided by five
    assert fluctuation([0.4]) == (0.0, 0.0)
    with pytest.raises(AdjudgeError, match="at least one trial"):
        fluctuation([])
