from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra train")

from adjudge.engine.engine import Engine
from adjudge.rewards.journal import Journal
from adjudge.rewards.judge_rewards.references import DynamicReference
from adjudge.rewards.trainers.processes import Result
from adjudge.training.grpo import preparing
from adjudge.training.grpo.grpo import train_grpo
from adjudge.training.grpo.preparing import WINDOW, Preparing
from tests.rewards.scripted import ScriptedEngine
from tests.training.runs import PROMPTS, KillAfter, Killed, curve, tiny_recipe

OPTIONS = {"min_mass": 0.0, "aspects": "coherence"}
PART = {"kind": "judge", "judge": "pointwise of pairs", "reference": "dynamic", "options": OPTIONS}
ENGINE = {"model": "dummy:tiny-llama", "kv_cache_gb": 0.05}


class Written:
    """Notes which prompts references were written to, and whether in a step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before: list[str] = []
        self.in_steps: list[str] = []
        write, prepare = DynamicReference._write, DynamicReference.prepare
        ahead: list[bool] = []

        def noted(reference: DynamicReference, groups: dict[str, Any], *how: Any) -> Any:
            (self.before if ahead else self.in_steps).extend(group.prompt for group in groups.values())
            return write(reference, groups, *how)

        def prepared(reference: DynamicReference, *how: Any, **more: Any) -> None:
            ahead.append(True)
            prepare(reference, *how, **more)
            ahead.pop()

        monkeypatch.setattr(DynamicReference, "_write", noted)
        monkeypatch.setattr(DynamicReference, "prepare", prepared)


def test_references_of_the_prompts_that_a_run_comes_to_are_written_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(monkeypatch)
    reward = {"parts": {"x": PART, "y": PART}, "engine": ENGINE}
    tables: dict[str, Any] = {"data": {"held_out": 1}, "optimiser": {"steps": 2}, "reward": reward}
    train_grpo(tiny_recipe(tmp_path, **tables))
    assert len(written.before) == 5 == len(set(written.before) & set(PROMPTS)) and PROMPTS[-1] in written.before
    assert not written.in_steps


@pytest.mark.parametrize("journal", [True, False])
def test_a_resumed_run_writes_what_it_still_needs_and_goes_on_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal: bool
) -> None:
    written = Written(monkeypatch)
    reward = {"parts": {"x": PART}, "engine": ENGINE, "journal": journal}
    tables: dict[str, Any] = {"reward": reward, "optimiser": {"steps": 2}, "logging": {"save_every": 1}}
    whole = train_grpo(tiny_recipe(tmp_path / "whole", **tables))
    recipe = tiny_recipe(tmp_path / "killed", **tables)
    with pytest.raises(Killed):
        train_grpo(recipe, callbacks=[KillAfter(2)])
    assert len(written.before) == 8
    resumed = train_grpo(recipe, resume=True)
    assert len(written.before) == (8 if journal else 10) and not written.in_steps
    clocks = ("seconds", "tokens_computed", "tokens_saved", "step_time")
    curves = [
        [{name: value for name, value in line.items() if not name.endswith(clocks)} for line in curve(run.folder)]
        for run in (whole, resumed)
    ]
    assert curves[0] == curves[1]


def test_each_process_writes_its_share_and_knows_what_the_others_wrote(
    tiny: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [f"Prompt {number}." for number in range(2 * WINDOW + 3)]
    references = [DynamicReference(ScriptedEngine(tiny, lambda shown, before: "A tale.")) for _ in range(2)]
    sent: list[list[Any]] = [[], []]

    def train(rank: int, others: list[Any]) -> None:
        def share(outcome: Result[Any]) -> list[Result[Any]]:
            sent[rank].append(outcome)
            return [outcome, *others[len(sent[rank]) - 1 : len(sent[rank])]]

        monkeypatch.setattr(preparing, "place_among_processes", lambda: (rank, 2))
        monkeypatch.setattr(preparing, "share", share)
        Preparing(references[rank], prompts, None, nullcontext).on_train_begin(None, None, None)

    train(0, [])
    train(1, sent[0])
    assert [len(reference.engine.asked) for reference in references] == [WINDOW + 2, WINDOW + 1]  # type: ignore[attr-defined]
    assert len(references[1].known) == len(prompts) and len(sent[0]) == len(sent[1]) == 2


def test_what_a_journal_has_is_not_written_again(tiny: Engine, tmp_path: Path) -> None:
    for texts in (1, 0):
        engine = ScriptedEngine(tiny, lambda shown, before: "A tale.")
        journal = tmp_path / "rewards.journal"
        Preparing(DynamicReference(engine), ["One."], journal, nullcontext).on_train_begin(None, None, None)
        assert len(engine.asked) == texts
    with Journal(journal) as kept:
        assert len(kept) == 1
