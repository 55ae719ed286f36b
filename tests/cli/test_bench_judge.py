"""`adjudge bench judge` as a user meets it."""

from __future__ import annotations

from pathlib import Path

from tests.cli.driving import TINY, Run, write_pairs


def test_bench_judge_prints_every_variant_with_the_same_scores(run: Run, tmp_path: Path) -> None:
    write_pairs(tmp_path / "pairs.jsonl", 1)
    result = run("bench", "judge", "pairs.jsonl", "--limit", "1", "--repeats", "1", "-o", "b.csv", *TINY)
    assert result.returncode == 0, result.stderr
    assert "scores differ by more than 0.001: nowhere" in result.stdout
    absent = [line for line in result.stdout.splitlines() if ": not installed" in line]
    assert all("(pip install " in line for line in absent), absent
    rows = (tmp_path / "b.csv").read_text().splitlines()
    assert [row.split(",")[0].strip('"') for row in rows[1:]] == ["adjudge", *["transformers"] * 3]
