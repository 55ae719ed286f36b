from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from adjudge.bench.howtobench import SYSTEMS, TABLE_4
from adjudge.bench.tree_agreement import Agreement, Means, agreement, app, fluctuation, system_means
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


def test_verdicts_are_compared_by_task_and_over_all(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    lines = [line(task, system, TABLE_4[task][system], task) for task in ("guide", "open") for system in SYSTEMS]
    lines.append(line("half", SYSTEMS[0], 1.0, "open"))
    path.write_text("".join(json.dumps(entry) + "\n" for entry in lines))
    result = CliRunner().invoke(app, ["compare", str(path)])
    assert result.exit_code == 0, result.output
    assert "completion: no instruction has a score for every system" in result.stdout
    assert "guide: pearson 1.00, spearman 1.00, kendall 1.00 over 10 systems, 1 instruction\n" in result.stdout
    assert "over 10 systems, 1 instruction; 1 instruction left out" in result.stdout
    assert "all: pearson 0.9" in result.stdout and "6.150" in result.stdout


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"system": "a", "task": "open", "score": 1.0}, '"instruction" is missing'),
        (line("1", "a", None) | {"score": "high"}, '"score" is missing or no number'),
        ({"instruction": "1", "system": "a", "task": "open"}, '"score" is missing'),
    ],
)
def test_lines_that_cannot_be_compared_are_named(tmp_path: Path, entry: dict[str, Any], reason: str) -> None:
    path = tmp_path / "v.jsonl"
    path.write_text(json.dumps(entry) + "\n")
    result = CliRunner().invoke(app, ["compare", str(path)])
    assert isinstance(result.exception, AdjudgeError) and reason in str(result.exception)


def test_a_sample_is_converted(tmp_path: Path) -> None:
    row = {"id": "1", "task": "open", "instruction": "Do.", "reference": "r", "outputs": {"a": "x" * 50, "b": "y"}}
    (tmp_path / "h.jsonl").write_text(json.dumps(row) + "\n")
    arguments = ["convert", str(tmp_path / "h.jsonl"), "-o", str(tmp_path / "s.jsonl"), "--characters", "10"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0 and "2 items" in result.stdout
    first, second = map(json.loads, (tmp_path / "s.jsonl").read_text().splitlines())
    assert first["response"] == "xxxxx\n……\nxxxxx" and second["system"] == "b" and first["genre"] is None
    nowhere = CliRunner().invoke(app, [*arguments[:3], str(tmp_path / "no" / "s.jsonl")])
    assert isinstance(nowhere.exception, AdjudgeError) and "name another with -o" in str(nowhere.exception)
