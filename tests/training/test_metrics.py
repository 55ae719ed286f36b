from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.training.changes import changes
from adjudge.training.curves import PART, draw_curves
from adjudge.training.metrics import append_metrics, cut_metrics, metrics_line, read_metrics
from adjudge.training.run_folder import RunFolder, first_difference


def test_a_line_has_the_step_and_whose_prompts_were_answered() -> None:
    assert metrics_line(3, {"loss": 1.0, "reward": None, "kl": math.nan}) == {
        "step": 3,
        "split": "train",
        "loss": 1.0,
        "reward": None,
        "kl": None,
    }
    assert metrics_line(4, {"eval_reward": 0.5, "epoch": 1}) == {
        "step": 4,
        "split": "held_out",
        "reward": 0.5,
        "epoch": 1,
    }
    assert metrics_line(4, {"learning_rate": 0.1, "eval_quality/abstained": 0.5}) == {  # a reward of that name
        "step": 4,
        "split": "train",
        "learning_rate": 0.1,
        "eval_quality/abstained": 0.5,
    }
    assert metrics_line(5, {"train_runtime": 3.0, "train_loss": 1.0}) is None


def test_lines_after_a_step_are_forgotten_and_a_torn_one_too(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    cut_metrics(path, 1)
    assert not path.exists()
    for step in (1, 2, 3):
        append_metrics(path, {"step": step, "split": "train"})
    with path.open("a") as file:
        file.write('{"step": 4, "spl')
    assert [line["step"] for line in read_metrics(path)] == [1, 2, 3]
    cut_metrics(path, 2)
    assert path.read_text() == '{"step": 1, "split": "train"}\n{"step": 2, "split": "train"}\n'


def test_a_damaged_line_and_a_folder_that_is_no_run_are_named(tmp_path: Path) -> None:
    with pytest.raises(AdjudgeError, match="cannot read .*metrics.jsonl .*: name the output folder of a run"):
        read_metrics(tmp_path / "metrics.jsonl")
    tmp_path.joinpath("metrics.jsonl").write_text('{"step": 1}\nnonsense\n{"step": 2}\n')
    with pytest.raises(AdjudgeError, match=r"line 2 of .*metrics.jsonl is not JSON"):
        read_metrics(tmp_path / "metrics.jsonl")


def test_curves_are_drawn_of_what_there_is(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra report")
    parts = {"tale/mean/sea": 0.5, "tale/mean/reward": 0.4, "tale/mean/reward/wit": 0.3, "tale/mean/reward/mass": 0.9}
    others = {"tale/mean/words": 90.0, "tale/guards/canary/abstained": 0.7, "tale/abstained": 0.0, "kl": None}
    lines = [
        {"step": step, "split": split, "reward": step / 2, **parts, **others}
        for step in (0, 1, 2)
        for split in ("train", "held_out")
    ]
    draw_curves([lines], tmp_path / "c.svg", "a run of three steps")
    text = (tmp_path / "c.svg").read_text()
    drawn = re.findall(r"<!-- (.*?) -->", text)
    for title in ("a run of three steps", "reward", "share that abstained", "parts of the reward"):
        assert title in drawn
    assert {"sea", "wit"} <= {*drawn} and not {"abstained", "mass", "words"} & {*drawn}
    assert [one.name for one in changes([lines])] == [
        "reward",
        "tale/mean/reward",
        "tale/mean/reward/wit",
        "tale/mean/sea",
    ]
    draw_curves([[]], tmp_path / "empty.png", "nothing yet")
    assert (tmp_path / "empty.png").stat().st_size > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.svg", "empty.png"]


def test_runs_that_logged_no_step_together_have_no_mean_and_each_its_own_line(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra report")
    runs = [[{"step": step, "split": "train", "reward": 0.5} for step in steps] for steps in ((5, 10), (3, 6, 9))]
    draw_curves(runs, tmp_path / "c.svg", "two runs")
    assert (tmp_path / "c.svg").stat().st_size > 0


def test_how_a_reward_was_judged_is_no_part_of_it() -> None:
    how = ("mass", "bias", "truncated", "words", "shut", "reward/mass", "reward/pairs_abstained")
    assert not any(PART.fullmatch(f"pointwise/mean/{name}") for name in how)
    assert all(PART.fullmatch(f"pointwise/mean/{name}") for name in ("coherence", "reward", "reward/coherence"))


def test_lines_of_one_panel_are_told_apart_though_only_held_out_prompts_have_them(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra report")
    measured = {"pearson": 0.4, "spearman": 0.5, "order": 0.8, "mass": 0.9, "mass_least": 0.8}
    lines = [{"step": step, "split": "held_out", "loss": 1.0, **measured} for step in (0, 5)]
    draw_curves([[{"step": 1, "split": "train", "loss": 2.0}, *lines]], tmp_path / "c.svg", "a run")
    text = (tmp_path / "c.svg").read_text()
    assert all(f"<!-- {name} -->" in text for name in ("spearman", "order", "mass_least", "train", "held out"))


def test_a_judges_run_without_held_out_rows_has_its_loss_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra report")
    lines = [{"step": 1, "split": "train", "loss": 2.0, "grad_norm": 0.5, "learning_rate": 1e-4}]
    draw_curves([lines], tmp_path / "c.svg", "a run")
    drawn = re.findall(r"<!-- (.*?) -->", (tmp_path / "c.svg").read_text())
    assert {"loss", "norm of the gradient", "learning rate"} <= {*drawn}
    assert not {"not measured", "reward"} & {*drawn}


def test_without_matplotlib_the_mend_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(AdjudgeError, match=r"plots need matplotlib: pip install 'adjudge\[report\]'"):
        draw_curves([[]], tmp_path / "c.png", "")


def test_the_latest_whole_checkpoint_is_found(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.checkpoint() is None
    for name in ("checkpoint-2", "checkpoint-10", "checkpoint-20", "checkpoint-x"):
        (tmp_path / name).mkdir()
    for name in ("checkpoint-2", "checkpoint-10", "checkpoint-x"):
        (tmp_path / name / "trainer_state.json").write_text("{}")
    (tmp_path / "checkpoint-20" / "trainer_state.json").write_text('{"global_step": 2')  # a crash cut it
    assert folder.checkpoint() == tmp_path / "checkpoint-10"


def test_the_first_difference_is_named() -> None:
    assert first_difference({"a": {"b": [1]}}, {"a": {"b": [1]}}) is None
    assert first_difference({"a": {"b": [1]}}, {"a": {"b": [2]}}) == "a.b"
    assert first_difference({"a": 1}, {"a": 1, "c": None}) is None
    assert first_difference({"a": 1}, {"a": 1, "c": 2}) == "c"


def test_a_server_may_move_and_be_asked_otherwise_and_stays_a_server_of_that_model() -> None:
    def told(**engine: Any) -> dict[str, Any]:
        return {"reward": {"engine": {"model": "m", "tokenizer": "t", "url": "http://a:1", "retries": None} | engine}}

    moved = told(url="http://b:2", retries=9, timeout=600.0, max_concurrency=2)
    assert first_difference(told(), moved) is None
    assert first_difference(told(), told(model="n")) == "reward.engine.model"
    assert first_difference(told(), told(tokenizer="u")) == "reward.engine.tokenizer"
    assert first_difference(told(), told(url=None)) == "reward.engine.url"


def test_several_runs_share_their_panels_and_their_mean_stands_at_steps_of_all() -> None:
    from adjudge.training.curves import _mean

    assert _mean([[(0, 1.0), (1, 2.0), (2, 9.0)], [(0, 3.0), (1, 4.0)]]) == [(0, 2.0), (1, 3.0)]


def test_a_dollar_in_a_name_is_a_dollar(tmp_path: Path) -> None:
    lines = [{"step": n, "split": "train", "reward": 1.0, "r/mean/a$^": 0.5, "r/mean/b$^": 1.0} for n in (1, 2)]
    draw_curves([lines], tmp_path / "c.svg", "a_$5_vs_$10")
    assert (tmp_path / "c.svg").exists()
