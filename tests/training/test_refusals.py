"""What is wrong with a recipe, its rows or its folder is told before the packages of training are imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.jsonl import write_lines

GRPO = """
output = "out"
data.prompts = ["one", "two"]
reward.parts.ends = {kind = "check", ends_with = ["."]}
"""
PAID = """
output = "out"
data.prompts = ["one", "two"]
reward.parts.ends = {kind = "check", ends_with = ["."], weight = -1}
reward.gates.latin = {kind = "language"}
"""
ROWS = 'output = "out"\ndata.train = "rows.jsonl"\n'


MISTAKES = [
    ("grpo", GRPO.replace('data.prompts = ["one", "two"]', 'data.train = "none.jsonl"'), "cannot read"),
    ("grpo", PAID, 'the part "ends" can pay less than 0'),
    ("grpo", GRPO.replace('"out"', '"earlier"'), "holds an earlier run"),
    ("sft", ROWS, 'line 1 of rows.jsonl: "response" is missing'),
    ("direct", ROWS + 'scores.column = "scores"', '"response" is missing'),
    ("reward", ROWS + "data.held_out = 0", 'line 1 of rows.jsonl: "chosen" is missing'),
]
IN_TURN = """
import sys
from adjudge.cli import main

for command, recipe in zip(sys.argv[1::2], sys.argv[2::2]):
    sys.argv = ["adjudge", "train", command, recipe]
    try:
        main()
    except SystemExit as ended:
        print(ended.code, [name for name in ("transformers", "trl", "datasets") if name in sys.modules])
"""


def test_mistakes_are_told_without_waiting_for_transformers(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="needs the extra train")
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "recipe.json").write_text("{}")
    write_lines(tmp_path / "rows.jsonl", {"prompt": "one"}, {"prompt": "two"})
    words: list[str] = []
    for number, (command, recipe, _) in enumerate(MISTAKES):
        path = tmp_path / f"{number}.toml"
        path.write_text(recipe)
        words += [command, str(path)]
    result = subprocess.run([sys.executable, "-c", IN_TURN, *words], capture_output=True, text=True, timeout=300)
    assert result.stdout.splitlines() == ["2 []"] * len(MISTAKES)
    said = [line for line in result.stderr.splitlines() if line.startswith("adjudge: ")]
    for line, (_, _, told) in zip(said, MISTAKES, strict=True):
        assert told in line
