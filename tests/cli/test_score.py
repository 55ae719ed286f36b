"""`adjudge score` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.driving import TINY, Run


def test_score_reads_free_prompts_and_labels(run: Run, tmp_path: Path) -> None:
    rows = '{"prompt": "Score: ", "n": 1}\n{"prompt": "Yes? ", "labels": ["Y", "N"], "best": "Y"}\n'
    (tmp_path / "p.jsonl").write_text(rows)
    result = run("score", "p.jsonl", "--labels", "1,2,10", *TINY)
    assert result.returncode == 0, result.stderr
    first, second = map(json.loads, result.stdout.splitlines())
    assert list(first["logprobs"]) == ["1", "2", "10"] and first["n"] == 1
    assert 1 < first["expected"] < 10 and 0 < first["mass"] < 1 and first["best"] in first["logprobs"]
    assert list(second["logprobs"]) == ["Y", "N"] and second["expected"] is None and second["input_best"] == "Y"
    alone = run("score", "--prompt", "Score: ", "--labels", "1,2,10", *TINY)
    assert json.loads(alone.stdout)["logprobs"] == first["logprobs"]
    chat = run("score", "--prompt", "Score: ", "--labels", "1,2,10", "--chat", *TINY)
    assert json.loads(chat.stdout)["logprobs"] != first["logprobs"]


@pytest.mark.parametrize(
    ("labels", "warning"), [("Yes, No", "begin with a blank"), ("Yes", "one label alone"), ("Yes,No", "less than 0.01")]
)
def test_score_warns_once_of_labels_that_are_not_meant(run: Run, tmp_path: Path, labels: str, warning: str) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "Score: "}\n' * 2)
    result = run("score", "p.jsonl", "--labels", labels, *TINY)
    assert result.returncode == 0 and len(result.stdout.splitlines()) == 2
    assert result.stderr.count(warning) == 1
