"""The file of rewards: what it keeps, what it refuses, and where it is cut."""

from __future__ import annotations

import datetime
import errno
import math
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.engines.specification import EngineSpec
from adjudge.rewards.guards.length_free import LengthFree
from adjudge.rewards.trainers.trl import for_trl
from adjudge.training import reward_log
from adjudge.training.metrics import append_metrics, read_metrics
from adjudge.training.prompts import Prompts
from adjudge.training.reward_log import (
    Recorded,
    Rewarded,
    check_columns,
    cut_rewards,
    kept,
    read_engines,
    read_rewards,
    remember,
)
from adjudge.training.run import Begun, cut, processes
from adjudge.training.run_folder import RunFolder
from tests.training.runs import Trainer, Vowels

BREAKS = "a\u2028b\u2029c\x85d\x0be\x1cf\rg\nh"


def record(path: Path, *, step: int = 0, training: bool = True, text: Any = "aeb", **columns: Any) -> None:
    """Two completions of a step that follows `step`, rewarded."""
    trainer = Trainer()
    trainer.model.training, trainer.state.global_step = training, step
    recorded = Recorded(for_trl(Vowels()), RunFolder(path))  # type: ignore[arg-type]
    logs: dict[str, Any] = {"trainer_state": trainer.state, "log_extra": print, "log_metric": trainer.log_metric}
    recorded([f"p{text}"] * 2, [text, "x"], **logs, **{name: [value] * 2 for name, value in columns.items()})


def test_texts_with_line_breaks_of_all_kinds_are_cut_and_kept_byte_for_byte(tmp_path: Path) -> None:
    for step in (0, 1):
        record(tmp_path, step=step, text=BREAKS, column=BREAKS)
    folder = RunFolder(tmp_path)
    first = folder.rewards.read_bytes().split(b"\n")[:2]
    with folder.rewards.open("ab") as file:
        file.write(b'{"step": 3, "spl')
    assert [line.completion for line in read_rewards(folder.rewards)] == [BREAKS, "x"] * 2
    cut_rewards(folder.rewards, 1, None)
    assert folder.rewards.read_bytes() == b"\n".join(first) + b"\n"
    assert {line.columns["column"] for line in read_rewards(folder.rewards)} == {BREAKS}


def test_metrics_are_lines_whatever_their_texts_hold(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "a\u2028b": 2}\n', encoding="utf-8")
    assert read_metrics(path) == [{"step": 1, "a\u2028b": 2}]


def log(folder: RunFolder, *steps: int) -> None:
    for step in steps:
        append_metrics(folder.metrics, {"step": step, "split": "held_out"})


def held(folder: RunFolder) -> list[tuple[int, str]]:
    return sorted({(line.step, line.split) for line in read_rewards(folder.rewards)})


def test_a_run_that_goes_on_forgets_held_out_rewards_that_are_not_all_there(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in (0, 1, 2, 3):
        record(tmp_path, step=step)
    for step in (0, 2, 4):
        record(tmp_path, step=step, training=False)
    log(folder, 0, 2)  # of step 4 they were not all answered when the run was killed
    cut(folder, tmp_path / "checkpoint-4")
    trained = [(step, "train") for step in (1, 2, 3, 4)]
    assert held(folder) == sorted([*trained, (0, "held_out"), (2, "held_out")])
    cut(folder, tmp_path / "checkpoint-1")
    assert held(folder) == [(0, "held_out"), (1, "train")] and [
        line["step"] for line in read_metrics(folder.metrics)
    ] == [0]


def test_a_run_that_begins_anew_without_a_checkpoint_forgets_all(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    record(tmp_path, training=False)
    log(folder, 0)
    folder.journal.write_text("verdicts")
    for resume in (True, True, False):
        Begun(folder, processes(), {"seed": 1}, resume, None, None).clear()
        assert not folder.rewards.exists() and not folder.metrics.exists() and folder.recipe.exists()
        assert folder.journal.exists() == resume  # to be resumed, it has its verdicts


def test_arrays_are_kept_as_lists_and_come_again_so(tmp_path: Path) -> None:
    record(tmp_path, scores=np.array([[1.5], [2.0]]), one=np.float32(0.5), yes=np.bool_(True), table={"a": (1, None)})
    for line in read_rewards(RunFolder(tmp_path).rewards):
        assert line.columns == {"scores": [[1.5], [2.0]], "one": 0.5, "yes": True, "table": {"a": [1, None]}}
    assert kept("x", [1 << 63, -5, True, "\ud800"]) == [1 << 63, -5, True, "\ufffd"]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (datetime.date(2026, 1, 1), "date"),
        ([math.nan], "nan"),
        (np.array([np.inf]), "inf"),
        ({"a": b"b"}, "bytes"),
        ({1: 2}, "dict"),
        (1 << 70, str(1 << 70)),
        (np.datetime64("2026-01-01"), "date"),
    ],
)
def test_a_column_that_cannot_be_kept_is_named_before_anything_is_judged(tmp_path: Path, value: Any, what: str) -> None:
    with pytest.raises(AdjudgeError, match=f'column "when" holds {what}, which the journal of a run cannot keep: make'):
        record(tmp_path, when=value)
    assert not RunFolder(tmp_path).rewards.exists()


def called(**arguments: Any) -> list[dict[str, Any]]:
    """A completion that calls a tool."""
    function = {"name": "wait", "arguments": arguments}
    return [{"role": "assistant", "content": "aeb", "tool_calls": [{"type": "function", "function": function}]}]


def test_a_completion_is_kept_whatever_numbers_the_policy_gives_a_tool(tmp_path: Path) -> None:
    record(tmp_path, text=called(most=math.inf, least=[-math.inf, math.nan], seed=1 << 70, steps=7, rate=0.5))
    line, _ = read_rewards(RunFolder(tmp_path).rewards)
    numbers = {"most": "Infinity", "least": ["-Infinity", "NaN"], "seed": str(1 << 70), "steps": 7, "rate": 0.5}
    assert line.completion == called(**numbers) and line.reward == 2 / 3
    for other in (b"b", datetime.date(2026, 1, 1)):
        with pytest.raises(AdjudgeError, match='column "completion" holds'):
            kept("completion", called(when=other))


def test_a_row_of_the_data_that_cannot_be_kept_is_named_before_the_run(tmp_path: Path) -> None:
    from adjudge.rewards.records.rows import Row

    rows = (Row("line 1 of x", {"prompt": "a", "n": 1}), Row("line 2 of x", {"prompt": "a", "n": math.nan}))
    with pytest.raises(AdjudgeError, match='line 2 of x: column "n" holds nan'):
        check_columns(Prompts(rows[:1], rows[1:]))


def test_a_short_write_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow(monkeypatch, lambda written: 7)
    record(tmp_path)
    assert [line.completion for line in read_rewards(RunFolder(tmp_path).rewards)] == ["aeb", "x"]


def test_of_a_write_that_fails_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path)
    before = RunFolder(tmp_path).rewards.read_bytes()

    def full(written: int) -> int:
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return 7

    slow(monkeypatch, full)
    with pytest.raises(AdjudgeError, match="cannot write .*No space left on device.*: make room, then --resume"):
        record(tmp_path)
    assert RunFolder(tmp_path).rewards.read_bytes() == before


def slow(monkeypatch: pytest.MonkeyPatch, room: Any) -> None:
    """From here on a write takes so many bytes as `room` says, by how many were taken."""
    write, taken = os.write, [0]

    def short(file: int, content: Any) -> int:
        count = write(file, bytes(content)[: room(taken[0])])
        taken[0] += count
        return count

    monkeypatch.setattr(reward_log.os, "write", short)


def test_rewards_are_read_in_order(tmp_path: Path) -> None:
    record(tmp_path, step=1)
    record(tmp_path, training=False)
    lines = read_rewards(RunFolder(tmp_path).rewards)
    assert [(line.step, line.split, line.place) for line in lines] == [
        (0, "held_out", 0), (0, "held_out", 1), (2, "train", 0), (2, "train", 1)
    ]  # fmt: skip
    assert all(isinstance(line, Rewarded) and msgspec.json.encode(line) for line in lines)


def test_each_process_notes_the_cards_of_its_own_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, spec = Engine("dummy:tiny-llama", kv_cache_gb=0.01), EngineSpec("dummy:tiny-llama")
    monkeypatch.setattr(reward_log, "engines_open", lambda engines: {spec: engine})
    for process, room in enumerate((900, 700, 900)):
        monkeypatch.setattr(reward_log, "place_among_processes", lambda process=process: (process, 3))
        monkeypatch.setattr(Engine, "max_prompt_tokens", room)
        record(tmp_path)
    opened = read_engines(RunFolder(tmp_path).engines)
    assert {one.spec for one in opened} == {spec}
    assert sorted(one.card.max_prompt_tokens for one in opened) == [700, 900]


def test_a_run_that_is_resumed_with_another_judge_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine("dummy:tiny-llama", kv_cache_gb=0.01)
    said = []
    for port, weights in enumerate(["a", "a", "b", "b"]):  # the server may have moved as well
        spec = EngineSpec(url=f"http://localhost:{port}")
        monkeypatch.setattr(reward_log, "engines_open", lambda engines, spec=spec: {spec: engine})
        engine.fingerprint = weights
        record(tmp_path)
        said.append("other weights judge than did before" in caplog.text)
        caplog.clear()
    assert said == [False, False, True, False]


def test_what_a_length_free_reward_remembers_is_counted_in_the_words_that_were_judged() -> None:
    def states(said: dict[str, float]) -> float:
        free = LengthFree(Vowels())
        about = {"step": 1, "split": "train", "call": 0, "group": 2, "prompt": "p", "columns": {}}
        lines = [
            Rewarded(place=place, completion="w " * (1 + place), reward=float(place), parts=parts, **about)  # type: ignore[arg-type]
            for place, parts in enumerate(({}, said))
        ]
        remember(free, lines)
        return free.state.slope

    assert states({}) == pytest.approx(1.0) and states({"length_words": 11.0}) == pytest.approx(0.1)


def test_groups_of_any_size_are_remembered_one_by_one_without_those_of_held_out_prompts() -> None:
    free, expected = LengthFree(Vowels()), LengthFree(Vowels())
    lines: list[Rewarded] = []
    for call, (split, size) in enumerate((("train", 2), ("held_out", 3), ("train", 3), ("train", 1))):
        words, rewards = [1.0 + place * place for place in range(size)], [0.5 * place + call for place in range(size)]
        about = {"step": 1, "split": split, "call": call, "group": size, "prompt": "p", "completion": "c"}
        lines += [
            Rewarded(place=place, reward=rewards[place], columns={}, parts={"length_words": words[place]}, **about)  # type: ignore[arg-type]
            for place in range(size)
        ]
        if split == "train":
            expected.remember(words, rewards)
    remember(free, lines)
    assert free.state == expected.state and free.state.groups == 2
