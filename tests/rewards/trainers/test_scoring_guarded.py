from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from adjudge.engine.waiting import overdue
from adjudge.rewards.engines.colocated import Colocated
from adjudge.rewards.guards.collapse import CollapseGuard
from adjudge.rewards.guards.guarded import Guarded
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward
from adjudge.rewards.trainers.scoring import Scorer
from tests.rewards.trainers.rewards import Relative, Seen, Told, Waiting, fails_on_second

GROUPS = [Group("Tell one.", ["A", "A A"]), Group("Tell two.", ["A B", "A"])]
LATE = GroupReward((None, None), ("timeout", "timeout"))


@pytest.mark.parametrize("nested", [False, True])
def test_a_step_counts_once_to_the_guards_though_its_groups_are_asked_for_again(nested: bool) -> None:
    groups = [*GROUPS, Group("Tell three.", ["A A", "A"])]
    guarded = Guarded(Told(fails_on_second), [seen := Seen()], every=2)
    scorer = Scorer(guarded.during_training() if nested else guarded, on_failure="abstain")
    if nested:
        assert isinstance(scorer.reward, Guarded) and isinstance(scorer.reward.reward, Colocated)
    assert [reward.abstained[0] for reward in scorer.score(groups).rewards] == [None, "cancelled", None]
    assert [reward.abstained[0] for reward in scorer.score(groups[:1]).rewards] == [None]
    assert seen.steps == [["Tell one.", "Tell two.", "Tell three."], ["Tell one."]]
    assert seen.probed == [1]
    assert scorer.reward.step == 2  # type: ignore[attr-defined]


class Probing(Seen):
    """Asks the reward."""

    def probe(self, reward: Reward) -> None:
        reward.score_groups([Group("probe", ["A"])])
        super().probe(reward)


class SlowToProbe(Waiting):
    """Answers at once, but for what guards ask."""

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        return super().score_groups(groups) if groups[0].prompt == "probe" else Relative().score_groups(groups)


def test_guards_that_ask_for_longer_than_there_is_time_cost_no_reward(caplog: pytest.LogCaptureFixture) -> None:
    reward = SlowToProbe()
    scorer = Scorer(Guarded(reward, [seen := Probing()], every=3), 2.0)
    assert scorer.score(GROUPS).rewards == Relative().score_groups(GROUPS)
    assert "probes take longer than is left of 2 s" in caplog.text and seen.steps == [["Tell one.", "Tell two."]]
    reward.go.set()
    assert scorer._busy.acquire(timeout=60)  # it has ended
    scorer._busy.release()
    scorer.deadline = 60
    for _ in range(3):
        scorer.score(GROUPS)
    assert seen.probed == [2, 4] and len(seen.steps) == 4  # the first ended after its step


def test_calls_that_overlap_probe_once_and_no_groups_probe_nothing() -> None:
    guarded = Guarded(Relative(), [seen := Seen()], every=100)
    scorer = Scorer(guarded)
    assert scorer.score_apart([]) == [] and seen.probed == []
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(scorer.score, [GROUPS] * 32))
    assert len(seen.probed) == 1 and len(seen.steps) == 32
    guarded.probe()
    assert len(seen.probed) == 1  # it is not time


def test_a_step_without_rewards_is_not_probed_but_the_next_one_is() -> None:
    reward = Waiting()
    scorer = Scorer(Guarded(reward, [seen := Seen()], every=10), 0.05)
    assert scorer.score(GROUPS).rewards == [LATE, LATE] and seen.probed == []
    reward.go.set()
    scorer.deadline = 60
    for _ in range(3):
        scorer.score(GROUPS)
    assert seen.probed == [2]


def test_the_guards_see_what_is_trained_on() -> None:
    guard = CollapseGuard(enough=2)
    Scorer(Guarded(Told(lambda response: 2.0 if response == "A" else float("nan")), [guard])).score(GROUPS)
    assert list(guard.scores) == [(2.0,), (2.0,)]


class Cut(Told):
    """Answers the probes named `slow` as an engine does whose call ends: with abstentions."""

    def __init__(self, *slow: str) -> None:
        super().__init__(float)
        self.slow, self.asked = set(slow), list[str]()

    def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
        self.asked.append(groups[0].prompt)
        if groups[0].prompt not in self.slow:
            return Relative().score_groups(groups)
        while overdue() < 0:
            time.sleep(0.005)
        return [GroupReward((None,) * len(one.responses), ("timeout",) * len(one.responses)) for one in groups]


class Named(Probing):
    """Asks the reward about a prompt of its own."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def probe(self, reward: Reward) -> None:
        reward.score_groups([Group(self.name, ["A"])])
        self.probed.append(len(self.steps) + 1)


def test_a_probe_that_is_cut_short_says_nothing_and_is_tried_again_first(caplog: pytest.LogCaptureFixture) -> None:
    guards = [Named(name) for name in ("one", "two", "three")]
    reward = Cut("two")
    scorer = Scorer(Guarded(reward, guards, every=10), 0.3)
    for step in range(1, 6):
        assert scorer.score(GROUPS).rewards == Relative().score_groups(GROUPS)  # no step pays for it
        if step == 2:
            assert [guard.probed for guard in guards] == [[1], [], []]
    assert [name for name in reward.asked if name != "Tell one."] == ["one", "two", "two", "two", "three"]
    assert [guard.probed for guard in guards] == [[1], [], [3]]
    assert caplog.text.count("the guard two has not had time to probe: raise the deadline") == 1
    reward.slow.clear()
    for _ in range(6):
        scorer.score(GROUPS)
    assert [guard.probed for guard in guards] == [[1, 11], [11], [3, 11]]
