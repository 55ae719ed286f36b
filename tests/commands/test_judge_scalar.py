from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.kinds import prepare


def test_a_reward_model_scores_items(tmp_path: Path) -> None:
    rows = [{"prompt": "Tell one.", "response": f"Story {n}.", "id": f"i{n}", "genre": "tale"} for n in range(3)]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["judge", "items.jsonl", "--judge", "scalar", "--model", "dummy:tiny-qwen3-reward"]
    result = subprocess.run([sys.executable, "-m", "adjudge", *command], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    verdicts = [json.loads(line) for line in (tmp_path / "items.verdicts.jsonl").read_text().splitlines()]
    assert [verdict["id"] for verdict in verdicts] == ["i0", "i1", "i2"] and verdicts[0]["genre"] == "tale"
    assert len({verdict["score"] for verdict in verdicts}) == 3
    assert all(verdict["breakdown"]["reward"]["score"] == verdict["score"] for verdict in verdicts)
    assert "i2" in result.stdout


def test_options_of_judges_that_ask_are_refused() -> None:
    with pytest.raises(AdjudgeError, match="--mode is for --judge pairwise, .*: leave it out"):
        prepare("scalar", {"mode": "reasoned"})
