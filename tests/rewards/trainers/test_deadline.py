"""What becomes of a call that has until then."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, RemoteError
from adjudge.rewards.guards.length_free import LengthFree, LengthState
from adjudge.rewards.judge_rewards.judge_reward import JudgeReward
from adjudge.rewards.judges.aspects import STORYER
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.parts.function_reward import FunctionReward
from adjudge.rewards.parts.layer import learning
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward
from adjudge.rewards.trainers import scoring
from adjudge.rewards.trainers.deadline import Call
from adjudge.rewards.trainers.scoring import Scorer
from tests.rewards.trainers.rewards import Relative, Told, Waiting, fails_on_second

GROUPS = [Group("Tell one.", ["A", "A A"]), Group("Tell two.", ["A B", "A"])]
LATE = GroupReward((None, None), ("timeout", "timeout"))


def test_a_reward_in_time_is_what_it_is_without_a_deadline() -> None:
    assert Scorer(Relative(), 60).score(GROUPS).rewards == Scorer(Relative()).score(GROUPS).rewards


def test_a_judge_that_does_not_return_costs_its_own_rewards_and_those_asked_meanwhile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reward = Waiting()
    scorer = Scorer(reward, 0.05)
    assert scorer.score(GROUPS).rewards == [LATE, LATE]
    assert scorer.score(GROUPS).rewards == [LATE, LATE]
    assert reward.calls == 1  # nothing is asked beside a call under way
    assert "took longer than 0.05 s, groups that abstain: 2" in caplog.text
    reward.go.set()
    assert scorer._busy.acquire(timeout=60)  # it comes back
    scorer._busy.release()
    scorer.deadline = 60
    assert scorer.score(GROUPS).rewards == [GroupReward((1.0, 2.0), (None, None))] * 2


def test_what_was_scored_in_time_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine("dummy:tiny-llama", kv_cache_gb=0.05, max_batch_tokens=128)
    reward = JudgeReward(PointwiseJudge(engine, STORYER[:1]))
    groups = [Group(f"Tell the {n}th of all.", [f"{word} {n}." for word in ("Once", "Then")]) for n in range(12)]
    whole = Scorer(reward).score(groups).rewards
    steps = engine.stats.steps
    engine.scheduler.clock = lambda: time.monotonic() + 100 * (engine.stats.steps - steps > 4)  # time flies
    cut = Scorer(reward, 60).score(groups).rewards
    values = [value for row in cut for value in row.rewards]
    late = [why for row in cut for why in row.abstained if why is not None]
    assert 0 < len(late) < len(values) and set(late) == {"timeout"}
    expected = [value for row in whole for value in row.rewards]
    assert values == [None if value is None else one for value, one in zip(values, expected, strict=True)]
    assert f"{len(late)} completions got no answer in time, and abstain after" in caplog.text
    engine.scheduler.clock = time.monotonic
    assert Scorer(reward, 60).score(groups).rewards == whole


def test_a_reward_that_stumbles_over_what_came_too_late_abstains_and_ends_no_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def pays(completions: Sequence[str], **_: Any) -> list[float]:
        time.sleep(0.7)
        raise TypeError("unsupported operand: None - 1")

    with pytest.raises(AdjudgeError, match="TypeError"):
        Scorer(FunctionReward(pays, "late"), 60).score(GROUPS[:1])
    monkeypatch.setattr(scoring, "SPARE", 0.99)  # engines were to be done after 0.6 s
    [row] = Scorer(FunctionReward(pays, "late"), 60).score(GROUPS[:1]).rewards
    assert row.abstained == ("timeout", "timeout")


def test_a_call_whose_thread_cannot_begin_leaves_the_next_one_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(call: Call) -> None:
        raise RuntimeError("can't start new thread")

    scorer = Scorer(Relative(), 60)
    with monkeypatch.context() as broken:
        broken.setattr(Call, "start", refused)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            scorer.score(GROUPS)
    assert scorer.score(GROUPS).rewards == Scorer(Relative()).score(GROUPS).rewards


def test_a_deadline_does_not_hide_from_layers_that_a_step_is_held_out() -> None:
    class Seen(Told):
        learns: bool | None = None

        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            self.learns = LengthFree(self).learning
            return super().score_groups(groups)

    for deadline in (None, 60):
        reward = Seen(lambda text: 1.0)
        with learning(False):
            Scorer(reward, deadline).score(GROUPS)
        assert reward.learns is False


def test_a_calls_time_begins_when_its_turn_has_come() -> None:
    reward = Waiting()
    scorer = Scorer(reward, 60)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(scorer.score, GROUPS)
        assert reward.asked.wait(60)
        scorer.deadline = 0.5
        Timer(1.0, reward.go.set).start()
        assert None not in [value for group in scorer.score(GROUPS).rewards for value in group.rewards]
        assert first.result(60).rewards[0].rewards == (1.0, 2.0)


def test_many_that_wait_for_a_dead_judge_wait_at_the_same_time() -> None:
    reward, began = Waiting(), time.monotonic()
    scorer = Scorer(reward, 1.0)
    with ThreadPoolExecutor(16) as pool:
        assert [one.rewards for one in pool.map(scorer.score, [GROUPS] * 16)] == [[LATE, LATE]] * 16
    assert time.monotonic() - began < 8 and reward.calls == 1  # one after the other they were 16 s
    reward.go.set()


def test_a_call_that_is_late_leaves_no_trace_in_what_a_layer_remembers() -> None:
    reward = Waiting()
    free = LengthFree(reward)
    scorer = Scorer(free, 0.05)
    assert scorer.score(GROUPS).rewards[0].abstained == ("timeout", "timeout")
    reward.go.set()
    assert scorer._busy.acquire(timeout=60)  # it has ended
    scorer._busy.release()
    assert free.state == LengthState()
    scorer.deadline = 60
    scorer.score(GROUPS)
    assert free.state.groups == 2


class Late(Waiting):
    """Ends with an error once it is let go."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        super().score_groups(groups)
        raise self.error


@pytest.mark.parametrize("error", [KeyError("no such rubric"), RemoteError("nobody answers there"), SystemExit(3)])
def test_an_error_after_the_deadline_is_logged_once_with_the_rewards_name(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    reward = Late(error)
    reward.name = "slow"
    scorer = Scorer(reward, 0.01)
    assert scorer.score(GROUPS).rewards == [LATE, LATE]
    reward.go.set()
    assert scorer._busy.acquire(timeout=60)  # it has ended
    found = [record for record in caplog.records if "after its deadline" in record.getMessage()]
    assert [record.levelname for record in found] == ["ERROR"]
    text = found[0].getMessage()
    assert text.startswith('reward "slow" failed after its deadline had passed: ')
    assert str(error.args[0]) in text


def test_an_error_in_time_is_raised_and_not_logged_as_late(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(AdjudgeError, match="no such rubric"):
        Scorer(Told(fails_on_second), 60).score(GROUPS)
    assert "after its deadline" not in caplog.text


ENDING = """
import json, pathlib, sys
from adjudge.engine.engine import Engine
from adjudge.rewards.records.group import Group
from adjudge.rewards.judge_rewards.judge_reward import JudgeReward
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.trainers.scoring import Scorer

wide = {"model_type": "llama", "hidden_size": 512, "intermediate_size": 4096, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 4096}
path = pathlib.Path(sys.argv[1])
path.write_text(json.dumps(wide))
reward = JudgeReward(PointwiseJudge(Engine(f"dummy:{path}", kv_cache_gb=0.2), min_mass=0.0))
[one] = Scorer(reward, deadline=0.1).score([Group("p", ["A dog barked. " * 150])]).rewards
assert one.abstained == ("timeout",)
print("the end")
"""


def test_a_process_that_ends_while_a_late_call_computes_ends_well(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDING, str(tmp_path / "wide.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "the end\n"), done.stderr
