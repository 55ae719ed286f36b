"""Runs with a journal: every reward is written down, and comes again from the journal alone."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("trl", reason="needs the extra train")

from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine import engine as engine_module
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal
from adjudge.training.grpo.grpo import train_grpo
from adjudge.training.grpo.recipe import GrpoRecipe
from adjudge.training.grpo.replay import read_run, replay_rewards
from adjudge.training.metrics import read_metrics
from adjudge.training.reward_log import read_engines, read_rewards
from adjudge.training.run_folder import RunFolder
from tests.jsonl import read_lines, write_lines
from tests.training.runs import PROMPTS, KillAfter, Killed, Vowels, tiny_recipe

ENGINE = {"model": "dummy:tiny-llama", "kv_cache_gb": 0.05}
JUDGE = {"kind": "judge", "judge": "pointwise", "options": {"min_mass": 0.0, "aspects": "coherence*2,surprise"}}
TOURNAMENT = {"kind": "tournament", "weight": 0.5, "options": {"min_mass": 0.0, "aspects": "coherence"}}
PARTS = {"judge": JUDGE, "beside": TOURNAMENT, "ends": {"kind": "check", "ends_with": list("aeiou")}}
TABLES: dict[str, Any] = {
    "reward": {"parts": PARTS, "engine": ENGINE, "journal": True},
    "data": {"prompts": PROMPTS, "held_out": 2, "system": "Be brief."},
    "optimiser": {"steps": 2},
}


def recipe(folder: Path, **tables: Any) -> GrpoRecipe:
    return tiny_recipe(folder, **TABLES | tables)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of two steps, whose rewards are of two judges and a check."""
    return train_grpo(recipe(tmp_path_factory.mktemp("run"))).folder.path


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> RunFolder:
    """A copy that a test may spoil."""
    return RunFolder(Path(shutil.copytree(whole, tmp_path / "out")))


@pytest.fixture(autouse=True)
def no_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on opening a model is a failure; the run has its own by then."""
    if "whole" in request.fixturenames:
        request.getfixturevalue("whole")
        monkeypatch.setattr(engine_module.Engine, "__init__", lambda *_, **__: pytest.fail("a model was opened"))


def test_every_reward_of_a_run_comes_again_bit_for_bit_without_a_model(run: RunFolder) -> None:
    replayed = list(replay_rewards(run.path))
    lines = [one.rewarded for one in replayed]
    assert [(line.step, line.split, line.place) for line in lines] == [
        (step, split, place) for step, split in ((0, "held_out"), (1, "train"), (2, "train"), (2, "held_out"))
        for place in range(4)
    ]  # fmt: skip
    assert all(one.equal and one.kept and one.reward is not None for one in replayed)
    assert len({one.reward for one in replayed}) > 4
    metrics = {(line["step"], line["split"]): line["reward"] for line in read_metrics(run.metrics)}
    for key, mean in metrics.items():
        rewards = [line.reward for line in lines if (line.step, line.split) == key]
        assert sum(filter(None, rewards)) / 4 == pytest.approx(mean, abs=1e-6)
    [first, *_] = lines
    assert [turn["role"] for turn in first.prompt] == ["system", "user"]
    assert {"judge", "beside", "ends"} <= first.parts.keys() and first.abstained is None


def test_what_was_stored_is_not_what_is_computed(run: RunFolder) -> None:
    lines = read_lines(run.rewards)
    true = [line["reward"] for line in read_rewards_raw(run)]
    for line in lines:
        line["reward"], line["parts"] = 7.0, {}
    write_lines(run.rewards, *lines)
    replayed = list(replay_rewards(run.path))
    assert [one.reward for one in replayed] == true and not any(one.equal for one in replayed)


def read_rewards_raw(run: RunFolder) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(line) for line in read_rewards(run.rewards)]


def test_a_folder_that_names_code_is_replayed_with_its_recipe_alone(run: RunFolder, monkeypatch: Any) -> None:
    told = json.loads(run.recipe.read_bytes())
    told["reward"]["parts"]["judge"]["judge"] = "own_evil:Judge"
    run.recipe.write_text(json.dumps(told))
    (run.path / "own_evil.py").write_text("raise AssertionError('a folder may be a stranger's')")
    monkeypatch.syspath_prepend(run.path)
    with pytest.raises(AdjudgeError, match="rewards of this run call own_evil:Judge, and a replay .*: give its recipe"):
        list(replay_rewards(run.path))
    assert "own_evil" not in sys.modules
    assert all(one.equal for one in replay_rewards(run.path, recipe(run.path).reward))


TOKENS = """
def counted(completions, completion_ids=None, **_):
    return [None if ids is None else float(sum(ids)) for ids in completion_ids or [None] * len(completions)]

def needed(completion_ids):
    return [float(len(ids)) for ids in completion_ids]
"""


def test_the_tokens_of_completions_come_again_where_a_function_takes_them(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_tokens.py").write_text(TOKENS)
    monkeypatch.syspath_prepend(tmp_path)
    parts = {name: {"kind": "function", "function": f"own_tokens:{name}"} for name in ("counted", "needed")}
    ran = recipe(tmp_path / "tokens", reward={"parts": parts, "journal": True})
    folder = train_grpo(ran).folder
    replayed = list(replay_rewards(folder.path, ran.reward))
    assert len(replayed) == 16 and all(one.equal and one.reward for one in replayed)
    assert all(line.columns["completion_ids"] for line in read_rewards(folder.rewards))
    assert all("completion_ids" not in line.columns for line in read_rewards(run.rewards))  # a judge reads none


def test_a_column_in_which_the_completions_of_a_group_differ_changes_no_reward(run: RunFolder) -> None:
    lines = read_lines(run.rewards)
    write_lines(run.rewards, *({**line, "columns": {**line["columns"], "turns": n}} for n, line in enumerate(lines)))
    assert all(one.equal for one in replay_rewards(run.path))


def test_another_verdict_in_the_journal_is_another_reward_and_a_missing_one_is_told(run: RunFolder) -> None:
    with sqlite3.connect(run.journal) as book:
        for key, verdict in book.execute("SELECT key, verdict FROM verdicts").fetchall():
            told = json.loads(verdict)
            if told.get("score") is not None:
                told["score"] += 0.5
                book.execute("UPDATE verdicts SET verdict = ? WHERE key = ?", (json.dumps(told).encode(), key))
    book.close()
    assert not any(one.equal for one in replay_rewards(run.path))
    with sqlite3.connect(run.journal) as book:
        book.execute("DELETE FROM verdicts")
    book.close()
    assert all(one.lost == "verdict" and one.reward is None and not one.equal for one in replay_rewards(run.path))
    result = CliRunner().invoke(app, ["replay", str(run.path)])
    assert (
        result.exit_code == 1 and "0 are the same, bit for bit; 16 rest on verdicts that the journal" in result.stderr
    )


def test_the_same_verdicts_make_other_rewards_under_other_weights(run: RunFolder) -> None:
    own = read_run(run).reward
    alone = {name: msgspec.structs.replace(part, weight=float(name == "ends")) for name, part in own.parts.items()}
    for one in replay_rewards(run.path, msgspec.structs.replace(own, parts=alone)):
        assert one.reward == one.rewarded.parts["ends"]
    other = msgspec.structs.replace(own, engine=msgspec.structs.replace(own.engine, model="smollm2-135m"))
    with pytest.raises(AdjudgeError, match="no judge was smollm2-135m in this run"):
        list(replay_rewards(run.path, other))


def test_a_group_that_nobody_had_time_to_judge_is_not_compared(run: RunFolder) -> None:
    lines = read_lines(run.rewards)
    for line in lines[4:6]:
        line["reward"], line["abstained"] = None, "timeout"
    write_lines(run.rewards, *lines)
    replayed = list(replay_rewards(run.path))
    assert [one.kept for one in replayed].count(False) == 2
    assert all(one.equal for one in replayed if one.kept)


def test_the_command_replays_a_folder_lists_its_steps_and_fails_where_a_reward_is_another(
    run: RunFolder, tmp_path: Path
) -> None:
    def adjudge(*words: str) -> Any:
        return CliRunner().invoke(app, ["replay", str(run.path), *words], catch_exceptions=True)

    result = adjudge("-o", str(tmp_path / "again.jsonl"))
    assert (
        result.exit_code == 0
        and "16 rewards of 2 steps and 2 evaluations: 16 are the same, bit for bit" in result.stderr
    )
    again = read_lines(tmp_path / "again.jsonl")
    assert all(line["equal"] and line["replayed"] == line["reward"] for line in again) and len(again) == 16
    assert "exists: --overwrite it" in str(adjudge("-o", str(tmp_path / "again.jsonl")).exception)
    assert adjudge("-o", str(tmp_path / "again.jsonl"), "--overwrite").exit_code == 0
    listed = adjudge("--list").stdout
    assert "held out" in listed and "mean reward" in listed
    run.rewards.write_text(run.rewards.read_text().replace('"reward":', '"reward":1', 1))
    result = adjudge()
    assert result.exit_code == 1 and "1 are others, the first in step 0" in result.stderr
    for words in (["--run", "1"], ["-o", str(run.path / "x.jsonl")]):
        assert isinstance(adjudge(*words).exception, AdjudgeError)


def contents(run: RunFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()}


@pytest.mark.parametrize("name", ["rewards.journal", "engines.json"])
@pytest.mark.parametrize("emptied", [False, True])
def test_what_judges_have_left_must_be_there_and_a_replay_makes_none_of_it(
    run: RunFolder, name: str, emptied: bool
) -> None:
    (run.path / name).unlink()
    if emptied:
        (run.path / name).touch()
    before = contents(run)
    with pytest.raises(AdjudgeError, match=f"there is no .*{name}, or nothing in it: put it back as the run wrote it"):
        next(replay_rewards(run.path))
    assert contents(run) == before


def test_a_damaged_journal_of_a_run_is_mended_by_no_option(run: RunFolder) -> None:
    with Journal(run.journal) as book:
        assert len(book)  # and nothing stands beside it any more
    for spoilt, said in ((run.journal.read_bytes()[:4096], "malformed"), (b"other " * 999, "cannot use .* a journal")):
        run.journal.write_bytes(spoilt)
        with pytest.raises(AdjudgeError, match=rf"{said}.*: put it back as it was, or begin a new one$"):
            next(replay_rewards(run.path))


def test_judges_of_a_recipe_over_a_run_without_any_leave_no_journal(run: RunFolder, tmp_path: Path) -> None:
    parts = {"ends": PARTS["ends"]}
    bare = train_grpo(tiny_recipe(tmp_path / "bare", reward={"parts": parts, "journal": True})).folder
    before = contents(bare)
    assert "rewards.journal" not in before and all(one.equal for one in replay_rewards(bare.path))
    with pytest.raises(AdjudgeError, match="no judge was dummy:tiny-llama in this run"):
        next(replay_rewards(bare.path, read_run(run).reward))
    assert contents(bare) == before


def test_a_line_that_a_crash_has_cut_is_left_out_and_one_that_is_wrong_is_named(run: RunFolder, tmp_path: Path) -> None:
    with run.rewards.open("a") as file:
        file.write('{"step": 3, "spl')
    assert len(read_rewards(run.rewards)) == 16
    with run.rewards.open("a") as file:
        file.write("\n{}\n")
    with pytest.raises(AdjudgeError, match=r"line 17 of .*rewards\.jsonl is no reward .*: remove it"):
        read_rewards(run.rewards)
    with pytest.raises(AdjudgeError, match="name a run whose recipe has journal = true"):
        read_rewards(tmp_path / "rewards.jsonl")
    with pytest.raises(AdjudgeError, match="name the output folder of a run"):
        read_run(RunFolder(tmp_path))


def test_of_a_call_that_a_crash_has_cut_whole_groups_are_replayed_and_the_log_tells_of_the_others(
    run: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    stored = run.rewards.read_bytes()
    run.rewards.write_bytes(stored[:-40])  # within the last line
    assert [one.equal for one in replay_rewards(run.path)] == [True] * 14
    assert "left out, as a crash has cut their groups: 1 rewards" in caplog.text
    lines = stored.splitlines(keepends=True)
    run.rewards.write_bytes(b"".join([*lines[:13], *lines[14:]]))  # one process of several had not written
    assert [one.equal for one in replay_rewards(run.path)] == [True] * 14
    assert [one.rewarded.place for one in replay_rewards(run.path, step=2)] == [0, 1, 2, 3, 2, 3]


def test_verdicts_of_a_run_that_was_resumed_with_less_room_for_prompts_are_all_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reward = {"parts": {"judge": JUDGE, "beside": TOURNAMENT}, "engine": ENGINE, "journal": True}
    killed = recipe(tmp_path, reward=reward, optimiser={"steps": 3})
    with pytest.raises(Killed):
        train_grpo(killed, callbacks=[KillAfter(3)])
    monkeypatch.setattr(engine_module.Engine, "max_prompt_tokens", 700)
    folder = train_grpo(killed, resume=True).folder
    cards = [one.card.max_prompt_tokens for one in read_engines(folder.engines)]
    assert len(cards) == 2 and cards[0] != cards[1] == 700
    replayed = list(replay_rewards(folder.path))
    assert len(replayed) == 5 * 4 and all(one.equal and one.reward is not None for one in replayed)


def test_a_resumed_run_has_written_every_reward_once(tmp_path: Path) -> None:
    checked = {"parts": {"ends": PARTS["ends"]}, "journal": True}
    data = {"prompts": ["one\u2028two", "three\x85four", "five"], "held_out": 1}
    killed = recipe(tmp_path, reward=checked, data=data, optimiser={"steps": 4})
    with pytest.raises(Killed):
        train_grpo(killed, callbacks=[KillAfter(3)])
    folder = train_grpo(killed, resume=True).folder
    found = [(line.step, line.split, line.place) for line in read_rewards(folder.rewards)]
    assert len(set(found)) == len(found) == 4 * 4 + 2 * 2
    assert [line["step"] for line in read_metrics(folder.metrics) if line["split"] == "held_out"] == [0, 4]
    assert all(one.equal for one in replay_rewards(folder.path))
    folder.engines.write_text("[]")
    folder.begin({}, resume=False)
    assert not folder.rewards.exists() and not folder.engines.exists()


def test_rewards_without_their_length_trend_come_again_and_a_resumed_run_goes_on_with_the_trend(tmp_path: Path) -> None:
    parts = {"ends": PARTS["ends"], "brief": {"kind": "length", "words": [1, 1]}}
    paid = {"parts": parts, "journal": True, "length_free": {"half_life": 4, "warmup": 2}}
    tables: dict[str, Any] = {
        "reward": paid,
        "generation": {"max_tokens": 16},
        "data": {"prompts": PROMPTS, "held_out": 2},
        "optimiser": {"steps": 5},
    }
    whole = train_grpo(recipe(tmp_path / "whole", **tables)).folder
    replayed = list(replay_rewards(whole.path))
    assert all(one.equal for one in replayed)
    added = [one.rewarded.parts["length_trend"] for one in replayed]
    assert not any(added[:8]) and len({*added}) > 4  # held-out prompts, then the first step: no trend is known yet
    for one in replayed:
        assert one.reward == one.rewarded.parts["with_length_trend"] + one.rewarded.parts["length_trend"]

    stored = whole.rewards.read_bytes()
    forged = [json.loads(line) for line in stored.splitlines()]
    for line in forged:
        line["parts"]["with_length_trend"] = 7.0
    write_lines(whole.rewards, *forged)
    assert [one.reward for one in replay_rewards(whole.path)] == [one.reward for one in replayed]
    whole.rewards.write_bytes(stored)
    for step in (0, 4):
        assert list(replay_rewards(whole.path, step=step)) == [one for one in replayed if one.rewarded.step == step]
    with pytest.raises(AdjudgeError, match="rewarded nothing in step 6: --list names its steps"):
        next(replay_rewards(whole.path, step=6))

    often = train_grpo(recipe(tmp_path / "often", **tables, logging={"evaluate_every": 1})).folder
    paid_for = [[one.reward for one in read_rewards(run.rewards) if one.split == "train"] for run in (whole, often)]
    assert paid_for[0] == paid_for[1]  # held-out prompts leave training alone
    assert all(one.equal for one in replay_rewards(often.path))

    with pytest.raises(AdjudgeError, match="leave .reward.length_free. out"):
        next(replay_rewards(whole.path, read_run(whole).reward))

    killed = recipe(tmp_path / "killed", **tables)
    with pytest.raises(Killed):
        train_grpo(killed, callbacks=[KillAfter(3)])
    resumed = train_grpo(killed, resume=True).folder
    rewards = [[(one.step, one.reward) for one in read_rewards(folder.rewards)] for folder in (whole, resumed)]
    assert rewards[0] == rewards[1]
    assert all(one.equal for one in replay_rewards(resumed.path))


def test_a_length_trend_needs_the_journal_that_it_is_read_from(tmp_path: Path) -> None:
    with pytest.raises(AdjudgeError, match="set journal = true"):
        recipe(tmp_path, reward={"parts": {"ends": PARTS["ends"]}, "length_free": {}})


def test_without_a_journal_no_reward_is_written_down(tmp_path: Path) -> None:
    folder = train_grpo(tiny_recipe(tmp_path, optimiser={"steps": 1}), reward=Vowels()).folder
    assert not folder.rewards.exists() and not folder.engines.exists()


def test_verdicts_of_the_policys_first_weights_are_replayed_too(tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="needs the extra train")
    reward = {"parts": {"judge": JUDGE}, "engine": {"model": "policy", "kv_cache_gb": 0.05}, "journal": True}
    lora = {"method": "lora", "lora": {"rank": 2}}
    data, steps = {"prompts": ["one"]}, {"steps": 1, "prompts_per_step": 1}
    folder = train_grpo(tiny_recipe(tmp_path, reward=reward, policy=lora, data=data, optimiser=steps)).folder
    replayed = list(replay_rewards(folder.path))
    assert replayed and all(one.equal and one.reward is not None for one in replayed)
