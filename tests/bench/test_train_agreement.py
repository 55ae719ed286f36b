from __future__ import annotations

import csv
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra train")

from typer.testing import CliRunner

from adjudge.bench.agreement.comparison import Line
from adjudge.bench.agreement.statistics import accuracy
from adjudge.bench.train_agreement import LENGTH, MEAN, TRAINED, UNTRAINED, WORDS, bench_trained, finished_run
from adjudge.cli import app
from adjudge.engine.errors import AdjudgeError
from adjudge.training.evaluator.direct import train_direct
from adjudge.training.evaluator.preference import train_reward
from adjudge.training.metrics import read_metrics
from tests.jsonl import write_lines
from tests.training.evaluator.rated import direct_recipe, preference_recipe

pytestmark = pytest.mark.usefixtures("without_pictures")

TALES: list[dict[str, Any]] = [
    {
        "prompt": f"p{n // 2}",
        "response": ("good " if n % 3 else "bad ") * (1 + n % 4),
        "ratings": {"wit": 4 if n % 3 else 2, "grip": [1 + n % 4]},
    }
    for n in range(40)
]
ASPECTS = {"judge": {"options": {"aspects": "wit=Is it funny?,grip=Does it hold one?", "min_mass": 0.0}}}


def table(folder: Path) -> dict[tuple[str, str], dict[str, str]]:
    command = ["train", "agreement", str(folder), "-o", str(folder / "table.csv"), "--device", "cpu"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    with (folder / "table.csv").open() as file:
        return {(row["target"], row["judge"]): row for row in csv.DictReader(file)}


def test_a_direct_evaluator_stands_beside_its_rivals_on_held_out_prompts(tmp_path: Path) -> None:
    run = train_direct(direct_recipe(tmp_path, TALES, **ASPECTS, optimiser={"steps": 2}))
    found = table(run.folder.path)
    assert [judge for target, judge in found if target == "all aspects"] == [UNTRAINED, MEAN, LENGTH, WORDS, TRAINED]
    assert float(found["wit", WORDS]["spearman"]) > 0.9 and float(found["grip", LENGTH]["spearman"]) > 0.9
    assert found["wit", MEAN]["spearman"] == "" and float(found["wit", MEAN]["error"]) > 0.5
    measured = [line for line in read_metrics(run.folder.metrics) if line["split"] == "held_out"]
    for judge, line in ((UNTRAINED, measured[0]), (TRAINED, measured[-1])):
        assert float(found["all aspects", judge]["error"]) == pytest.approx(line["error"], abs=1e-3)
    row = found["all aspects", TRAINED]
    assert row["rows"] == row["asked"] and float(row["error_low"]) < float(row["error"]) < float(row["error_high"])


def test_a_text_has_the_scores_that_people_gave_it_and_no_mean_of_them(tmp_path: Path) -> None:
    aspects = {"judge": {"options": {"aspects": "wit=Is it funny?,overall=Is it good?", "min_mass": 0.0}}}
    tales = [
        tale | {"ratings": {"wit": tale["ratings"]["wit"], **({"overall": 3 + n % 2} if n % 3 else {})}}
        for n, tale in enumerate(TALES)
    ]
    found = table(train_direct(direct_recipe(tmp_path, tales, **aspects, optimiser={"steps": 1})).folder.path)
    for judge in (UNTRAINED, MEAN, LENGTH, WORDS, TRAINED):
        rows, asked = (int(found["overall", judge][name]) for name in ("rows", "asked"))
        assert rows == asked < int(found["wit", judge]["rows"])


def test_why_there_is_no_interval_is_told(tmp_path: Path) -> None:
    run = train_direct(direct_recipe(tmp_path, TALES[:14], **ASPECTS, optimiser={"steps": 1}))
    command = ["train", "agreement", str(run.folder.path), "--device", "cpu"]
    said = CliRunner().invoke(app, command, catch_exceptions=False).output
    assert re.search(r"^all aspects \(untrained model\): .* more: no interval: \d of at least 5 prompts$", said, re.M)


def test_the_table_is_written_though_nobody_reads_what_is_printed(
    tmp_path: Path, unread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line("pairs", TRAINED, 3, {"accuracy": accuracy([0.9], [1.0], ["p"])}, asked=3)
    monkeypatch.setattr("adjudge.bench.train_agreement.finished_run", lambda folder: SimpleNamespace(recipe=None))
    monkeypatch.setattr("adjudge.bench.train_agreement.trained_lines", lambda *_: [line])
    with pytest.raises(BrokenPipeError):
        bench_trained(tmp_path, device="cpu", dtype="auto", pairs=1, output=tmp_path / "table.csv")
    assert f"pairs,{TRAINED},3,3" in (tmp_path / "table.csv").read_text()


def test_a_reward_model_does_too(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"p{n}", "chosen": f"good {n} {'x' * (n % 2)}", "rejected": f"bad {n} {'x' * (n % 2 == 0)}"}
        for n in range(40)
    ]
    run = train_reward(preference_recipe(tmp_path, rows, optimiser={"steps": 2}))
    found = table(run.folder.path)
    assert [judge for _, judge in found] == [UNTRAINED, LENGTH, WORDS, TRAINED]
    assert float(found["pairs", WORDS]["accuracy"]) == 1.0
    measured = [line for line in read_metrics(run.folder.metrics) if line["split"] == "held_out"][-1]
    assert float(found["pairs", TRAINED]["accuracy"]) == pytest.approx(measured["accuracy"], abs=1e-3)


def test_rows_that_have_changed_and_folders_of_other_runs_are_refused(tmp_path: Path) -> None:
    recipe = preference_recipe(tmp_path, optimiser={"steps": 1})
    with pytest.raises(AdjudgeError, match="name the output folder of a run"):
        finished_run(tmp_path / "out")
    train_reward(recipe)
    assert finished_run(tmp_path / "out").recipe == recipe
    write_lines(tmp_path / "rows.jsonl", *[{"prompt": f"p{n}", "chosen": "a", "rejected": "b"} for n in range(16)])
    with pytest.raises(AdjudgeError, match="rows.jsonl is not what the run in .* began with: put it back"):
        finished_run(tmp_path / "out")
    for record, told in (
        ('{"output": "out"}', "is no run of train direct or train reward"),
        ("[]", "cannot read .*: name"),
    ):
        (tmp_path / "out" / "recipe.json").write_text(record)
        with pytest.raises(AdjudgeError, match=told):
            finished_run(tmp_path / "out")
