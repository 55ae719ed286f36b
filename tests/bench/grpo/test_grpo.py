from __future__ import annotations

import csv
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra train")

import httpx2
import torch
from typer.testing import CliRunner

from adjudge.bench.grpo import grpo
from adjudge.bench.grpo import phases as grpo_phases
from adjudge.bench.grpo import variants as grpo_variants
from adjudge.bench.grpo.grpo import measure, needed
from adjudge.bench.grpo.phases import Phases, StepTimes
from adjudge.bench.grpo.report import COLUMNS, Need, Setting, result_lines, result_rows, result_table
from adjudge.bench.grpo.variants import ChatReward, Judging, Opened, Spent, Variant, chats, in_process, serving
from adjudge.cli import app
from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.aspects import parse_aspects
from adjudge.rewards.records.group import Group
from tests.engine.http.serving import served
from tests.training.runs import Vowels

pytestmark = pytest.mark.usefixtures("without_pictures")

TINY = "dummy:tiny-llama"
JUDGING = Judging(TINY, parse_aspects("coherence"), "cpu")
SETTING = Setting(TINY, TINY, "coherence", prompts=2, group=2, max_tokens=4)
GROUP = Group("Write.", ("one", "two"))


def step(reward: float = 2.0, groups: tuple[Group, ...] = (GROUP,)) -> StepTimes:
    return StepTimes(3.0, reward, 1.0, Spent(100, 40, 6), groups, 1)


class Counting:
    """A judge without a model, which spends ten tokens a call."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.opened = 0

    @contextmanager
    def open(self, judging: Judging) -> Iterator[Opened]:
        self.opened += 1
        if self.fails:
            raise RuntimeError("no such server")
        reward = Vowels()
        yield Opened(reward, lambda: Spent(10 * len(reward.groups), 5 * len(reward.groups), 0))


def clock(*readings: float) -> Callable[[], float]:
    left = iter(readings)
    return lambda: next(left)


def test_the_phases_of_a_step_are_told_by_when_trl_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpo_phases.time, "perf_counter", clock(10.0, 14.0, 15.5, 18.0))
    spent = iter([Spent(5, 4, 1), Spent(105, 44, 3)])
    phases = Phases(Opened(Vowels(), lambda: next(spent)), torch.device("cpu"))

    class Control:
        should_save = True

    control = Control()
    phases.on_step_begin(None, None, control)
    [rewards] = phases.reward.score_groups([Group("p", ("aeb", "bcd"))])
    phases.on_step_end(None, None, control)
    [found] = phases.steps
    assert (found.generate, found.reward, found.update, found.step) == (4.0, 1.5, 2.5, 8.0)
    assert found.spent == Spent(100, 40, 2) and found.abstained == 0 and rewards.rewards[1] == 0.0
    assert not control.should_save and found.peak_bytes is None


def test_every_round_trains_each_variant_from_the_same_start_on_the_same_texts() -> None:
    one, broken = Counting(), Counting(fails=True)
    variants = [Variant("one", one.open), Variant("broken", broken.open)]
    *_, (first, second) = measure(["a", "b", "c", "d"], SETTING, JUDGING, steps=2, rounds=2, variants=variants)
    assert (one.opened, broken.opened) == (2, 1)
    assert len(first.steps) == 2  # one a round: the first warms up
    assert first.steps[0].groups == first.steps[1].groups
    assert [len(group.responses) for group in first.steps[0].groups] == [2, 2]
    assert first.steps[0].spent == Spent(20, 10, 0)
    assert (second.steps, second.failure) == ([], "no such server")
    assert all(seconds > 0 for seconds in (first.steps[0].generate, first.steps[0].update))


def test_the_first_variant_may_not_fail() -> None:
    with pytest.raises(RuntimeError, match="no such server"):
        variants = [Variant("broken", Counting(fails=True).open)]
        list(measure(["a"], SETTING, JUDGING, steps=2, rounds=1, variants=variants))


def test_what_must_be_computed_is_what_an_empty_engine_computes_for_a_step() -> None:
    groups = [Group("Write about rain.", ("It rained.", "It poured.")), Group("Write about sun.", ("It shone.",))]
    need = needed([groups], JUDGING)
    with in_process(JUDGING, sleep=True) as opened:
        opened.reward.score_groups(groups)
        first = opened.spent()
        opened.reward.score_groups(groups)
        second = opened.spent().since(first)
    assert need.asked == first.asked and need.least == first.computed
    assert need.least < need.asked and need.replies > need.least
    assert second == first  # asleep between calls, it remembers nothing
    with in_process(JUDGING, sleep=False) as opened:
        for text in ("It rained.", "It snowed."):
            opened.reward.score_groups([Group("Write about rain.", (text,))])
        alone = needed([[Group("Write about rain.", ("It rained.",))]], JUDGING).least
        assert alone < opened.spent().computed < 1.5 * alone  # awake, it knows what both questions begin with


def test_the_baseline_reads_the_first_digit_of_a_reply_and_abstains_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replies = iter(["Score: 4 of 5", "I cannot say", "9 then 2"])
    asked: list[dict[str, Any]] = []

    def post(self: httpx2.Client, path: str, json: dict[str, Any]) -> httpx2.Response:
        asked.append(json)
        usage = {"prompt_tokens": 50, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 20}}
        return httpx2.Response(200, json={"choices": [{"message": {"content": next(replies)}}], "usage": usage})

    monkeypatch.setattr(httpx2.Client, "post", post)
    with ChatReward("http://127.0.0.1:1", JUDGING) as reward:
        [found] = reward.score_groups([Group("Write.", ("one \ud800", "two", "three"))])
        assert found.rewards == (0.75, None, 0.25) and found.abstained == (None, "unparsable", None)
        assert reward.spent == Spent(150, 3 * (50 - 20 + 2), 9)
    assert len(asked) == 3 and all((one["temperature"], one["max_tokens"]) == (0, 8) for one in asked)
    [system, user] = asked[1]["messages"]
    assert system["role"] == "system" and "[Story begins]\ntwo\n[Story ends]" in user["content"]
    assert user["content"].endswith("Answer with the number alone.") and "coherence" in user["content"]


def test_the_baseline_asks_about_each_aspect_by_itself() -> None:
    judging = Judging(TINY, parse_aspects("coherence,wit=Is it funny?"))
    assert len(chats(judging, "p", "r")) == 2


def test_a_server_is_a_process_that_ends_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "adjudge: serving m on http://127.0.0.1:7 (API at /schema)"
    script = f"import signal, sys; print({line!r}, flush=True); signal.sigwait([signal.SIGTERM]); sys.exit(5)"
    monkeypatch.setattr(grpo_variants, "SERVE", (sys.executable, "-c", script))
    processes: list[subprocess.Popen[str]] = []
    start = subprocess.Popen

    def started(*command: Any, **how: Any) -> Any:
        processes.append(start(*command, **how))
        return processes[-1]

    monkeypatch.setattr(grpo_variants.subprocess, "Popen", started)
    with serving(JUDGING) as url:
        assert url == "http://127.0.0.1:7" and processes[0].poll() is None
    assert processes[0].returncode in (5, -signal.SIGTERM)
    assert list(processes[0].args)[3:7] == ["--model", TINY, "--port", "0"]  # type: ignore[arg-type]


def test_a_server_that_does_not_start_is_told_with_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpo_variants, "SERVE", (sys.executable, "-c", "import sys; sys.exit('adjudge: no model')"))
    with pytest.raises(AdjudgeError, match="adjudge serve did not start: adjudge: no model"), serving(JUDGING):
        pytest.fail("it started")


def test_the_command_measures_all_variants_and_writes_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts, output = tmp_path / "prompts.csv", tmp_path / "out" / "grpo.csv"
    prompts.write_text("prompt\none\ntwo\nthree\nfour\n")

    @contextmanager
    def in_thread(judging: Judging) -> Iterator[str]:
        with served(AsyncEngine(Engine(judging.model, device="cpu"))) as server:
            yield server.url

    monkeypatch.setattr(grpo_variants, "serving", in_thread)
    sizes = {"group": 2, "max-tokens": 4, "reply-tokens": 3, "steps": 2, "rounds": 1}
    command = ["bench", "grpo", prompts, "--model", TINY, "--judge-model", TINY, "--device", "cpu", "-o", output]
    command += [word for name, size in sizes.items() for word in (f"--{name}", size)]
    result = CliRunner().invoke(app, list(map(str, command)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    with output.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["variant"] for row in rows] == [variant.name for variant in grpo_variants.VARIANTS]
    assert [row["note"] for row in rows] == [""] * 4 and {row["steps"] for row in rows} == {"1"}
    here, asleep, batch, alone = rows
    assert asleep["computed"] == asleep["must_compute"] == here["must_compute"]
    assert int(here["computed"]) <= int(here["must_compute"]) < int(here["asked"]) == int(batch["asked"])
    assert batch["computed"] == here["computed"] and batch["written"] == "0" < alone["written"]
    assert int(alone["written"]) <= 2 * 2 * 3
    assert "the policy wrote other texts" not in result.output


def test_the_table_of_a_run_that_is_cut_short_has_the_rounds_that_were_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_short(*_: object, **__: object) -> Iterator[list[grpo.Measured]]:
        yield [grpo.Measured(grpo_variants.VARIANTS[0], [step(2.0)])]
        raise KeyboardInterrupt

    (tmp_path / "prompts.csv").write_text("prompt\none\n")
    monkeypatch.setattr(grpo, "measure", cut_short)
    how = {"group": 2, "prompts": 1, "max_tokens": 4, "reply_tokens": 3, "steps": 2, "rounds": 2, "device": "cpu"}
    models = {"model": TINY, "judge_model": TINY, "aspects": "coherence", "dtype": "auto"}
    with pytest.raises(KeyboardInterrupt):
        grpo.bench_grpo(tmp_path / "prompts.csv", **models, **how, output=tmp_path / "g.csv")  # type: ignore[arg-type]
    [row] = csv.DictReader((tmp_path / "g.csv").open())
    assert row["variant"] == grpo_variants.VARIANTS[0].name


def test_losers_and_failures_stay_in_the_table_and_the_file() -> None:
    found: dict[str, Sequence[StepTimes] | str] = {"ours": [step(2.0)], "faster": [step(1.0)], "gone": "no server"}
    need, table = Need(100, 40, 60), result_table(found, Need(100, 40, 60), ["faster"])
    assert table.row_count == 3
    rows = result_rows(found, SETTING, need, ["faster"], "here")
    assert all(len(row) == len(COLUMNS) for row in rows) and rows[2][-2:] == ["no server", "here"]
    assert rows[1][COLUMNS.index("must_compute")] == "60" and rows[0][COLUMNS.index("must_compute")] == "40"
    found["other texts"] = [step(groups=(Group("Write.", ("x",)),))]
    assert any("other texts for other texts" in line for line in result_lines(found, SETTING, need))


def test_too_few_prompts_are_told_before_anything_is_trained(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "one"}\n')
    with pytest.raises(AdjudgeError, match="has 1 of the 2 prompts that a step takes"):
        CliRunner().invoke(app, ["bench", "grpo", str(tmp_path / "prompts.jsonl")], catch_exceptions=False)
