from __future__ import annotations

from pathlib import Path

import pytest

from adjudge.rewards.judges.principle import read_principles
from adjudge.training.curate.label_agreement import LabelAgreement
from adjudge.training.curate.results import draw_rounds, write_principles
from adjudge.training.curate.search import Round

ODD = ('Say "no" to \\ and \x7f.', "语言：不落俗套。", "It's # not a comment = []")


def rounds() -> list[Round]:
    first = Round(0, "s", ("Be kind.",), LabelAgreement(1, 1, 1, 1, 0, 0.5))
    return [
        first,
        Round(1, "s", ODD, LabelAgreement(2, 0, 2, 0, 0, 0.5), 4, 1, 3, 6, 2),
        Round(2, "t", ("x",), first.held_out),
    ]


def test_the_file_holds_the_best_rounds_principles_as_a_judge_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    write_principles(path, rounds())
    assert read_principles(path) == ODD and list(tmp_path.iterdir()) == [path]
    assert path.read_text(encoding="utf-8").startswith("# Round 1 of 2: 100.0% of the 4 texts held out")


def test_rounds_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw_rounds(rounds(), tmp_path / "p.svg", "Principles")
    assert "bad texts caught" in (tmp_path / "p.svg").read_text()
