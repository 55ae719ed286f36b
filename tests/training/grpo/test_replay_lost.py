"""Replays of runs in which a judge had no time for something: what was judged is compared, and nothing else."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("trl", reason="needs the extra train")

from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.absent import AbsentEngine, Card
from adjudge.engine.completion import Completion
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.model_reward import ModelReward
from adjudge.engine.score import Score
from adjudge.engine.text.prompt import Prompt
from adjudge.rewards.engines import specification
from adjudge.rewards.engines.specification import EngineSpec, without_models
from adjudge.rewards.journal import Journal
from adjudge.rewards.trainers.trl import for_trl
from adjudge.training.grpo.replay import Replayed, replay_rewards
from adjudge.training.grpo.reward_recipe import RewardRecipe
from adjudge.training.reward_log import Opened, Recorded, read_rewards
from adjudge.training.run_folder import RunFolder
from tests.training.runs import Trainer, tiny_recipe

CARD = Card("hasty", "f", None, "float32", 4000)
TEXTS = ["alpha", "beta", "gamma"]
OPTIONS = {"min_mass": 0.0, "aspects": "coherence,surprise"}
JUDGE = {"kind": "judge", "judge": "pointwise", "options": OPTIONS}
TOURNAMENT = {"kind": "tournament", "judge": "pairwise", "options": {**OPTIONS, "aspects": "coherence"}}


class Hasty(AbsentEngine):
    """Answers every prompt by its letters, but for those that it has no time for."""

    def __init__(self, late: Callable[[str], bool]) -> None:
        super().__init__(CARD)
        self.late = late

    def score_iter(self, prompts: Sequence[Any], labels: Any, **_: Any) -> Iterator[tuple[int, Score]]:
        for place, text in enumerate(map(_text, prompts)):
            own = labels[place]
            logprobs = [-1.0 - _number(text + label) for label in own.labels]
            late = Score.abstained(own.labels, "timeout")
            yield place, late if self.late(text) else Score.of(own.labels, logprobs, own.numbers, 1)

    def generate_iter(self, prompts: Sequence[Any], *_: Any, **options: Any) -> Iterator[tuple[int, Completion]]:
        for place in range(len(prompts)):
            yield place, Completion(place, 0, " \n", (), "stop")

    def reward_iter(self, prompts: Sequence[Any], **_: Any) -> Iterator[tuple[int, ModelReward]]:
        for place, text in enumerate(map(_text, prompts)):
            yield place, ModelReward(None, "timeout") if self.late(text) else ModelReward(_number(text))


def _text(prompt: Prompt) -> str:
    return "".join(segment.text for segment in prompt.segments)


def _number(text: str) -> float:
    return hashlib.sha256(text.encode()).digest()[0] / 64


def played(folder: Path, *calls: Callable[[str], bool], **parts: Any) -> RunFolder:
    """A run that rewarded the same three texts in each of its calls, each with another idea of what comes too late."""
    recipe = tiny_recipe(folder, reward={"parts": parts, "journal": True}, generation={"group": 3})
    run = RunFolder(Path(recipe.output))
    specs = recipe.reward.engine.spec(), EngineSpec(recipe.policy.model)
    run.begin({**msgspec.to_builtins(recipe), "prompts": "", "files": []}, resume=False)
    for step, late in enumerate(calls):
        reward = recipe.reward.open(recipe.written(), str(run.journal))
        recorded, trainer = Recorded(for_trl(reward, deadline=60), run), Trainer(group=3)  # type: ignore[arg-type]
        trainer.state.global_step = step
        with without_models({spec: Hasty(late) for spec in specs}):
            logs: dict[str, Any] = {"log_extra": lambda *_: None, "log_metric": trainer.log_metric}
            recorded(["Tell one."] * 3, TEXTS, trainer_state=trainer.state, **logs)
    run.engines.write_bytes(msgspec.json.encode([Opened(spec, CARD) for spec in specs]))
    return run


def replay(run: RunFolder) -> list[Replayed]:
    """The rewards again; what a replay could not know never gets into the journal."""
    with Journal(run.journal) as book:
        before = len(book)
    found = list(replay_rewards(run.path))
    with Journal(run.journal) as book:
        assert len(book) == before
    return found


def spoil(run: RunFolder, completion: str) -> None:
    """Write down another reward than the trainer was given."""
    lines = [
        msgspec.structs.replace(line, reward=7.0) if line.completion == completion else line
        for line in read_rewards(run.rewards)
    ]
    run.rewards.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def test_strengths_that_rest_on_the_pairs_which_were_answered_are_the_same_again(tmp_path: Path) -> None:
    run = played(tmp_path, lambda text: "alpha" in text and "gamma" in text, tournament=TOURNAMENT)
    again = replay(run)
    assert all(one.equal and one.reward is not None for one in again) and len({one.reward for one in again}) == 3
    spoil(run, "beta")
    assert [one.lost for one in replay(run)] == [None, "verdict", None]
    result = CliRunner().invoke(app, ["replay", str(run.path)])
    assert result.exit_code == 1
    assert "2 are the same, bit for bit; 1 rest on verdicts that the journal does not hold" in result.stderr


def test_of_a_group_with_a_text_that_came_too_late_the_others_are_compared(tmp_path: Path) -> None:
    run = played(tmp_path, lambda text: "beta" in text, judge=JUDGE)
    again = replay(run)
    assert [one.lost for one in again] == [None, "time", None]
    assert all(one.equal and one.reward is not None for one in again if one.kept)
    result = CliRunner().invoke(app, ["replay", str(run.path)])
    assert result.exit_code == 0 and "2 are the same, bit for bit; 1 were never judged" in result.stderr


def test_a_text_that_was_judged_in_a_later_step_was_not_in_the_earlier_one(tmp_path: Path) -> None:
    run = played(tmp_path, lambda text: "beta" in text, lambda text: False, judge=JUDGE)
    assert [one.lost for one in replay(run)] == [None, "time", None, None, None, None]
    spoil(run, "alpha")
    assert [(one.kept, one.equal) for one in replay(run)][3] == (True, False)
    lonely = played(tmp_path / "lonely", lambda text: "alpha" not in text, lambda text: False, judge=JUDGE)
    first = replay(lonely)[0]  # the only one with a verdict, and a group of one reward has none
    assert first.rewarded.reward is None and first.rewarded.abstained is None and first.lost == "time"


def test_an_abstention_whose_verdict_is_gone_is_not_the_same(tmp_path: Path) -> None:
    judge = {**JUDGE, "options": {**OPTIONS, "min_mass": 1.0}}
    run = played(tmp_path, lambda text: False, judge=judge)
    assert all(one.equal and one.reward is None for one in replay(run))
    with sqlite3.connect(run.journal) as book:
        for table in ("verdicts", "questions"):  # else they are concluded anew from the answers
            book.execute(f"DELETE FROM {table}")
    book.close()
    assert all(one.lost == "verdict" for one in replay(run))


def test_a_reference_that_could_not_be_written_makes_the_same_abstentions_again(tmp_path: Path) -> None:
    run = played(tmp_path, lambda text: False, judge={**JUDGE, "judge": "pairwise", "reference": "dynamic"})
    again = replay(run)
    assert [one.rewarded.abstained for one in again] == ["unparsable"] * 3 and all(one.equal for one in again)
    result = CliRunner().invoke(app, ["replay", str(run.path)])
    assert result.exit_code == 0, result.output


def test_a_run_that_no_judge_ever_answered_is_told_as_one(tmp_path: Path) -> None:
    run = played(tmp_path, lambda text: True, judge=JUDGE)
    run.engines.unlink()
    assert [one.lost for one in replay(run)] == ["time"] * 3
    result = CliRunner().invoke(app, ["replay", str(run.path)])
    assert result.exit_code == 1 and "3 were never judged" in result.output  # nothing was compared


def test_rewards_of_a_reward_model_are_replayed(tmp_path: Path) -> None:
    asked = {"judge": "scalar", "engine": {"model": "dummy:tiny-llama"}}
    parts = {"logit": {"kind": "judge", **asked}, "beside": {"kind": "tournament", **asked}}
    run = played(tmp_path, lambda text: False, **parts)
    again = replay(run)
    assert all(one.equal and one.reward is not None for one in again) and len({one.reward for one in again}) == 3


def test_between_two_rewards_of_a_replay_models_can_be_opened(tmp_path: Path) -> None:
    replayed = replay_rewards(played(tmp_path, lambda text: False, judge=JUDGE).path)
    next(replayed)
    assert specification._STAND_INS.get() is None
    replayed.close()


def test_another_recipe_rewards_the_same_verdicts_or_says_which_it_lacks(tmp_path: Path) -> None:
    ends = {"kind": "check", "ends_with": ["a"]}
    run = played(tmp_path, lambda text: False, lambda text: False, judge=JUDGE, ends=ends)

    def adjudge(judge: str, *words: str) -> Any:
        told = '[policy]\nmodel = "dummy:tiny-llama"\n[data]\nprompts = ["one"]\n[reward.parts.judge]\n'
        options = 'options = {min_mass = 0.0, aspects = "coherence,surprise"}\n'
        (tmp_path / "other.toml").write_text('output = "other"\n' + told + f'kind = "judge"\n{judge}\n' + options)
        return CliRunner().invoke(app, ["replay", str(run.path), "--recipe", str(tmp_path / "other.toml"), *words])

    result = adjudge('judge = "pointwise"\nweight = 2.0', "-o", str(tmp_path / "again.jsonl"))
    assert result.exit_code == 0, result.output
    assert "6 rewards of 2 steps under" in result.stderr and "now on average" in result.stderr
    assert "other.toml, 0 the same, bit for bit: " in result.stderr
    lines = [msgspec.json.decode(line) for line in (tmp_path / "again.jsonl").read_bytes().split(b"\n")[:-1]]
    for line in lines:
        assert line["replayed"] == pytest.approx(2 * line["parts"]["judge"])
    result = adjudge('judge = "pairwise"\nreference = "static"')
    assert isinstance(result.exception, AdjudgeError) and '"reference" is missing' in str(result.exception)
    late = played(tmp_path / "late", lambda text: "beta" in text, judge=JUDGE)
    other = RewardRecipe(parts=tiny_recipe(tmp_path, reward={"parts": {"t": TOURNAMENT}}).reward.parts)
    assert [one.lost for one in replay_rewards(late.path, other)] == ["verdict", "time", "verdict"]
    result = CliRunner().invoke(app, ["replay", str(run.journal), "--recipe", str(tmp_path / "other.toml")])
    assert isinstance(result.exception, AdjudgeError) and "--recipe is for the folder of a training run" in str(
        result.exception
    )
