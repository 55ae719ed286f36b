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


@pytest.mark.parametrize(
    ("command", "recipe", "told"),
    [
        ("grpo", GRPO.replace('data.prompts = ["one", "two"]', 'data.train = "none.jsonl"'), "cannot read"),
        ("grpo", PAID, 'the part "ends" can pay less than 0'),
        ("grpo", GRPO.replace('"out"', '"earlier"'), "holds an earlier run"),
        ("sft", ROWS, 'line 1 of rows.jsonl: "response" is missing'),
        ("direct", ROWS + 'scores.column = "scores"', '"response" is missing'),
        ("reward", ROWS + "data.held_out = 0", 'line 1 of rows.jsonl: "chosen" is missing'),
    ],
)
def test_a_mistake_is_told_without_waiting_for_transformers(
    tmp_path: Path, command: str, recipe: str, told: str
) -> None:
    pytest.importorskip("trl", reason="needs the extra train")
    (tmp_path / "recipe.toml").write_text(recipe)
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "recipe.json").write_text("{}")
    write_lines(tmp_path / "rows.jsonl", {"prompt": "one"}, {"prompt": "two"})
    words = ["adjudge", "train", command, str(tmp_path / "recipe.toml")]
    code = f"import sys; sys.argv = {words}\nfrom adjudge.cli import main\ntry:\n    main()\nfinally:\n"
    code += "    print([name for name in ('transformers', 'trl', 'datasets') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.returncode == 2 and told in result.stderr
    assert result.stdout == "[]\n"
