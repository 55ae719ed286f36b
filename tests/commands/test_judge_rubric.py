"""`adjudge judge --judge rubric` as a user meets it, in this process, with a tiny model of random weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.kinds import prepare

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_example_is_graded_each_item_by_its_own_rubric_or_the_files(tmp_path: Path) -> None:
    output = tmp_path / "v.jsonl"
    command = ["judge", str(EXAMPLES / "items.jsonl"), "--judge", "rubric", "--rubric", str(EXAMPLES / "rubric.toml")]
    options = ["--model", "dummy:tiny-llama", "--min-mass", "0", "-o", str(output)]
    result = CliRunner().invoke(app, [*command, *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "5 items" in result.stdout and "abstained on 0 of 5" in result.stdout
    verdicts = {verdict["id"]: verdict for verdict in map(json.loads, output.read_text().splitlines())}
    assert list(verdicts["scene"]["breakdown"]) == ["answers the prompt", "scene", "turn", "language"]
    assert list(verdicts["own-rubric"]["breakdown"]) == ["Storage", "Freezing", "Fridge"]
    assert list(verdicts["checklist"]["breakdown"]) == ["Brevity"]
    for verdict in verdicts.values():
        assert 0 <= verdict["score"] <= 1 and {"mean", "acceptable", "vetoed", "mass", "key"} <= verdict.keys()
        assert not {"response", "rubric", "checklist"} & verdict.keys()


def test_a_line_with_a_bad_rubric_is_refused_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    row = {
        "prompt": "p",
        "response": "r",
        "rubric": {"points": 3, "criteria": [{"name": "a", "text": "?", "points": 2}]},
    }
    (tmp_path / "i.jsonl").write_text(json.dumps(row))
    result = CliRunner().invoke(app, ["judge", "i.jsonl", "--judge", "rubric", "--model", "dummy:tiny-llama"])
    assert isinstance(result.exception, AdjudgeError) and result.output == ""
    expected = 'line 1 of i.jsonl: "rubric": the criteria\'s points sum to 2, not to the 3 stated: mend them'
    assert str(result.exception).startswith(expected) and "\n" not in str(result.exception)
    assert not (tmp_path / "i.verdicts.jsonl").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), 'line 2 of i.jsonl: "rubric" is missing, and the judge has none: give either'),
        (("--scheme", "fixed"), 'line 1 of i.jsonl: the rubric of item "1": the criteria'),
        (("--language", "xx"), "xx"),
        (("--min-mass", "5"), "min_mass"),
    ],
)
def test_mistakes_that_the_judge_finds_are_found_before_the_model_is_loaded(
    options: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = {"criteria": [{"name": "a", "text": "?", "points": 2}]}
    rows = [{"prompt": "p", "response": "r", "rubric": own}, {"prompt": "p", "response": "r"}]
    (tmp_path / "i.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = CliRunner().invoke(app, ["judge", "i.jsonl", "--judge", "rubric", "--model", "./absent", *options])
    assert isinstance(result.exception, AdjudgeError) and message in str(result.exception)


def test_published_rubrics_go_by_their_names() -> None:
    for options in ({"rubric": Path("six")}, {"rubric": Path("igniting"), "form": "parity"}, {"scheme": "binary"}, {}):
        assert callable(prepare("rubric", options))
