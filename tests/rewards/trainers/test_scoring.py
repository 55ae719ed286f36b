from __future__ import annotations

import pickle
from collections.abc import Sequence
from threading import Event
from typing import Any

import pytest

from adjudge.engine.errors import AdjudgeError, RemoteError
from adjudge.rewards.group import Group
from adjudge.rewards.reward import GroupReward, Reward
from adjudge.rewards.trainers.scoring import Scorer, checked
from tests.rewards.trainers.rewards import Judged, Relative, Short, Told, fails_on_second

GROUPS = [Group("Tell one.", ["A", "A A"]), Group("Tell two.", ["A B", "A"])]
LATE = GroupReward((None, None), ("timeout", "timeout"))


class Waiting(Reward):
    """Answers when it is let go, and says when it is asked and when it is done."""

    def __init__(self) -> None:
        self.asked, self.go = Event(), Event()
        self.calls = 0

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        self.calls += 1
        self.asked.set()
        assert self.go.wait(60)
        return [GroupReward((1.0, 2.0), (None, None)) for _ in groups]


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
    assert "took longer than 0.05 s: 2 groups abstain" in caplog.text
    reward.go.set()
    assert scorer._busy.acquire(timeout=60)  # it comes back
    scorer._busy.release()
    scorer.deadline = 60
    assert scorer.score(GROUPS).rewards == [GroupReward((1.0, 2.0), (None, None))] * 2


@pytest.mark.parametrize("deadline", [None, 60.0])
def test_a_failure_ends_the_run_or_costs_the_groups_it_is_in(deadline: float | None) -> None:
    with pytest.raises(AdjudgeError, match="reward \"told\" failed: KeyError: 'no such rubric'"):
        Scorer(Told(fails_on_second), deadline).score(GROUPS)
    first, second = Scorer(Told(fails_on_second), deadline, "abstain").score(GROUPS).rewards
    assert first.rewards == (1.0, 3.0)
    assert (second.rewards, second.abstained) == ((None, None), ("cancelled", "cancelled"))


def test_a_server_that_is_gone_is_lived_with_but_a_mistake_is_not() -> None:
    def gone(response: str) -> float:
        raise RemoteError("nobody answers there")

    assert Scorer(Told(gone), on_failure="abstain").score(GROUPS[:1]).rewards[0].abstained == ("cancelled",) * 2
    with pytest.raises(RemoteError):
        Scorer(Told(gone)).score(GROUPS)
    with pytest.raises(AdjudgeError, match="1 rewards for 2 completions"):
        Scorer(Short(len), on_failure="abstain").score(GROUPS)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e39])
def test_a_reward_that_is_not_finite_abstains(value: float) -> None:
    [reward] = Scorer(Told(lambda response: value if response == "A" else 1)).score(GROUPS[:1]).rewards
    assert reward.rewards == (None, 1.0)
    assert reward.abstained == ("non_finite", None)
    assert isinstance(reward.rewards[1], float)


def test_what_a_reward_returns_must_fit_its_groups() -> None:
    good = GroupReward((1.0, 1.0), (None, None))
    cases: list[tuple[Any, str]] = [
        ([good], 'reward "r" returned 1 for 2 groups'),
        (None, "returned NoneType for 2 groups"),
        ([good, [1.0, 2.0]], 'prompt "Tell two.": this is list'),
        ([good, GroupReward((1.0,), (None,))], "1 rewards for 2 completions"),
        ([good, GroupReward((1.0, "five"), (None, None))], "a reward is str"),  # type: ignore[arg-type]
    ]
    for answer, message in cases:
        with pytest.raises(AdjudgeError, match=message):
            checked(answer, GROUPS, "r")
    [reward] = checked([GroupReward((None, 1.0), (None, "timeout"))], GROUPS[:1], "r")
    assert reward.abstained == ("unsupported", None)


def test_options_are_checked() -> None:
    for deadline in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(AdjudgeError, match="deadline is"):
            Scorer(Relative(), deadline)
    with pytest.raises(AdjudgeError, match='on_failure is "fail"'):
        Scorer(Relative(), on_failure="fail")  # type: ignore[arg-type]


def test_the_tokens_of_the_rewards_engine_are_counted_from_its_first_call_on() -> None:
    scorer = Scorer(Judged())
    first = scorer.score(GROUPS)
    assert first.tokens_computed > 0 and first.tokens_saved > first.tokens_computed / 2
    stats = scorer.reward.engines[0].stats
    assert first.tokens_computed + first.tokens_saved == stats.prompt_tokens
    again = scorer.score(GROUPS)
    assert again.tokens_computed < first.tokens_computed and again.rewards == first.rewards
    copy = pickle.loads(pickle.dumps(scorer))
    assert copy.score(GROUPS).rewards == first.rewards
