from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock
from typing import Any, cast

import pytest

from adjudge.engine.errors import AdjudgeError, CallTooLarge, EngineFailed, NoServer, NotServing, RemoteError
from adjudge.engine.face import Stats
from adjudge.rewards.engines import specification
from adjudge.rewards.guards.guarded import Guarded
from adjudge.rewards.guards.length_free import LengthFree
from adjudge.rewards.parts.gated import Gated
from adjudge.rewards.parts.section_reward import SectionReward
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward
from adjudge.rewards.trainers.scoring import Scorer
from tests.rewards.trainers.rewards import Judged, Relative, Seen, Short, Told, Waiting, fails_on_second

GROUPS = [Group("Tell one.", ["A", "A A"]), Group("Tell two.", ["A B", "A"])]
LATE = GroupReward((None, None), ("timeout", "timeout"))


def test_an_engine_that_is_gone_is_not_asked_again_for_every_group() -> None:
    class Gone(Told):
        calls = 0

        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            self.calls += 1
            raise NotServing("the engine is closed")

    reward = Gone(float)
    assert (
        Scorer(reward, on_failure="abstain").score(GROUPS * 8).rewards
        == [GroupReward((None, None), ("cancelled",) * 2)] * 16
    )
    assert reward.calls == 1


@pytest.mark.parametrize("deadline", [None, 60.0])
def test_a_failure_ends_the_run_or_costs_the_groups_it_is_in(deadline: float | None) -> None:
    with pytest.raises(AdjudgeError, match="reward \"told\" failed: KeyError: 'no such rubric'"):
        Scorer(Told(fails_on_second), deadline).score(GROUPS)
    first, second = Scorer(Told(fails_on_second), deadline, "abstain").score(GROUPS).rewards
    assert first.rewards == (1.0, 3.0)
    assert (second.rewards, second.abstained) == ((None, None), ("cancelled", "cancelled"))


def test_what_a_failure_says_of_a_text_forges_no_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def fails(response: str) -> float:
        raise ValueError(response)

    group = Group("\x1b[2J\nTell.", ["Well.\nERROR all is lost\x07"])
    Scorer(Told(fails), on_failure="abstain").score([group])
    [said] = [message for message in caplog.messages if "failed on prompt" in message]
    assert "ValueError: Well.⟨U+000A⟩ERROR all is lost⟨U+0007⟩" in said and "⟨U+001B⟩[2J⟨U+000A⟩Tell." in said


def test_the_history_of_a_length_free_reward_is_that_of_steps_though_groups_are_asked_for_again() -> None:
    def rewards(response: str) -> float:
        return 10.0 * fails_on_second(response)

    groups = [Group("Tell one.", ["A", "A A"]), Group("Tell two.", ["A B", "A"]), Group("Tell three.", ["A A", "A"])]
    whole = Scorer(LengthFree(Told(rewards), warmup=0), on_failure="abstain")
    first = whole.score(groups).rewards
    assert first[0].rewards == (10.0, 30.0) and first[2].rewards == (30.0, 10.0)  # no slope before the first step
    assert whole.reward.state.groups == 2  # type: ignore[attr-defined]
    assert whole.score(groups).rewards[0].rewards == pytest.approx((20.0, 20.0))


def test_more_groups_than_a_queue_takes_are_asked_for_one_by_one() -> None:
    class Queued(Relative):
        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            if len(groups) > 1:
                raise CallTooLarge("this call needs 2 places in a queue of 1")
            return super().score_groups(groups)

    assert Scorer(Queued()).score(GROUPS).rewards == Relative().score_groups(GROUPS)

    class TooLarge(Relative):
        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            raise CallTooLarge("this call needs 2 places in a queue of 1")

    with pytest.raises(CallTooLarge):
        Scorer(TooLarge(), on_failure="abstain").score(GROUPS)


def test_what_a_layer_makes_of_rewards_is_checked_too() -> None:
    class Adds(LengthFree):
        def after(self, groups: Sequence[Group], rewards: list[GroupReward]) -> list[GroupReward]:
            return [GroupReward((float("inf"), 1.0), (None, None)) for _ in rewards]

    [reward] = Scorer(Adds(Relative())).score(GROUPS[:1]).rewards
    assert (reward.rewards, reward.abstained) == ((None, 1.0), ("non_finite", None))


def test_groups_that_only_happen_to_be_asked_for_together_do_not_answer_for_each_other() -> None:
    short = Scorer(Short(len)).score_apart(GROUPS)
    assert isinstance(short[0], GroupReward) and short[0].rewards == (1.0, 1.0)
    assert isinstance(short[1], AdjudgeError) and "1 rewards for 2 completions" in str(short[1])
    raised = Scorer(Told(fails_on_second)).score_apart(GROUPS)
    assert isinstance(raised[0], GroupReward)
    assert type(raised[1]) is AdjudgeError and "KeyError: 'no such rubric'" in str(raised[1])
    assert Scorer(Relative()).score_apart([]) == []


def test_a_server_that_is_gone_is_asked_once_for_all_groups_when_that_ends_the_run() -> None:
    calls: list[int] = []

    class Gone(Reward):
        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            calls.append(len(groups))
            raise RemoteError("nobody answers there")

    assert all(isinstance(answer, RemoteError) for answer in Scorer(Gone()).score_apart(GROUPS))
    assert calls == [2]


def test_a_server_that_is_gone_is_lived_with_but_a_mistake_is_not() -> None:
    def gone(response: str) -> float:
        raise RemoteError("nobody answers there")

    assert Scorer(Told(gone), on_failure="abstain").score(GROUPS[:1]).rewards[0].abstained == ("cancelled",) * 2
    with pytest.raises(RemoteError):
        Scorer(Told(gone)).score(GROUPS)
    with pytest.raises(AdjudgeError, match="1 rewards for 2 completions"):
        Scorer(Short(len), on_failure="abstain").score(GROUPS)


@pytest.mark.parametrize("deadline", [None, 60.0])
def test_an_engine_that_fails_at_a_step_costs_the_groups_it_fails_on_where_that_is_lived_with(
    deadline: float | None,
) -> None:
    def no_memory(response: str) -> float:
        if "B" in response:
            raise EngineFailed("cuda:0 has no memory left for a step of 2048 tokens")
        return float(len(response))

    first, second = Scorer(Told(no_memory), deadline, "abstain").score(GROUPS).rewards
    assert first.rewards == (1.0, 3.0) and second.abstained == ("cancelled",) * 2
    with pytest.raises(EngineFailed):
        Scorer(Told(no_memory), deadline).score(GROUPS)
    first_apart, second_apart = Scorer(Told(no_memory), deadline).score_apart(GROUPS)
    assert first_apart == first and isinstance(second_apart, EngineFailed)


def test_a_deadline_covers_a_server_that_does_not_answer_at_its_opening(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    class Gone(Reward):
        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            calls.append(len(groups))
            raise NoServer("nobody answers there")

    for on_failure in ("stop", "abstain"):
        assert Scorer(Gone(), 60, on_failure).score(GROUPS).rewards == [LATE, LATE]
    assert calls == [2, 2] and "which abstains: NoServer: nobody answers there" in caplog.text
    assert Scorer(Gone(), on_failure="abstain").score(GROUPS[:1]).rewards[0].abstained == ("cancelled",) * 2
    with pytest.raises(NoServer):
        Scorer(Gone()).score(GROUPS)


def test_a_judge_that_is_long_in_opening_costs_no_call_more_than_its_deadline() -> None:
    class Opening(Waiting):
        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            with specification._OPENING:
                return super().score_groups(groups)

    reward = Opening()
    scorer = Scorer(reward, 0.2)
    with ThreadPoolExecutor(1) as pool:
        try:
            for _ in range(2):
                assert pool.submit(scorer.score, GROUPS).result(20).rewards == [LATE, LATE]
        finally:
            reward.go.set()


def test_a_server_that_dies_later_ends_a_run_that_nobody_told_to_live_with_it(caplog: pytest.LogCaptureFixture) -> None:
    class Dying(Reward):
        def __init__(self, *left: str | None) -> None:
            self.left = left

        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            return [GroupReward(tuple(None if why else 1.0 for why in self.left), cast(Any, self.left)) for _ in groups]

    dead, partly = Dying("timeout", "timeout"), Dying("timeout", None)
    with pytest.raises(AdjudgeError, match="no longer answers .* mend what the log says and resume, or let it abstain"):
        Scorer(dead).score(GROUPS)
    assert "4 completions got no answer" in caplog.text and "see whether the judge's server answers" in caplog.text
    assert "deadline" not in caplog.text
    for scorer in (Scorer(partly), Scorer(dead, deadline=60), Scorer(dead, on_failure="abstain")):
        assert [reward.abstained[0] for reward in scorer.score(GROUPS).rewards] == ["timeout"] * 2
    assert caplog.text.count("raise the deadline") == 1
    assert Scorer(dead).score([]).rewards == []
    watched = Scorer(Guarded(dead, [seen := Seen()]))
    with pytest.raises(AdjudgeError, match="no longer answers"):
        watched.score(GROUPS)
    assert seen.steps == seen.probed == []


@pytest.mark.parametrize("shutting", [lambda dead: Gated(dead, {"long": Told(len)}, least=2), SectionReward])
def test_a_server_that_dies_ends_a_run_also_where_a_response_was_kept_from_the_judge(
    shutting: Callable[[Reward], Reward],
) -> None:
    class Dead(Reward):
        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            counts = [len(group.responses) for group in groups]
            lost = [((None,) * count, ("timeout",) * count) for count in counts]
            words = [{"words": (1.0,) * count} for count in counts]
            return [GroupReward(*both, {}, measures) for both, measures in zip(lost, words, strict=True)]  # type: ignore[arg-type]

    answer = "<answer>A</answer>"
    groups = [Group("Tell one.", ["", answer]), Group("Tell two.", [answer, answer])]
    with pytest.raises(AdjudgeError, match="no longer answers"):
        Scorer(shutting(Dead())).score(groups)
    rewards = Scorer(shutting(Dead()), on_failure="abstain").score(groups).rewards
    assert [reward.abstained for reward in rewards] == [(None, "timeout"), ("timeout", "timeout")]
    assert rewards[0].rewards == (0.0, None)
    assert Scorer(shutting(Dead())).score([Group("Tell one.", ["", ""])]).rewards[0].rewards == (0.0, 0.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e39])
def test_a_reward_that_is_not_finite_abstains(value: float) -> None:
    [reward] = Scorer(Told(lambda response: value if response == "A" else 1)).score(GROUPS[:1]).rewards
    assert reward.rewards == (None, 1.0)
    assert reward.abstained == ("non_finite", None)
    assert isinstance(reward.rewards[1], float)


def test_that_nothing_at_all_has_a_reward_is_said_until_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    answers: dict[str, float | None] = {"A": None, "B": None}
    scorer, said = Scorer(Told(answers.__getitem__)), []
    for answers["B"] in (None, None, 1.0, None):
        scorer.score([Group("p", ["A", "B"])])
        said.append([one for one in caplog.messages if "none of 2 completions has a reward, most for" in one])
        caplog.clear()
    assert list(map(len, said)) == [1, 0, 0, 1] and '"low_mass": nothing is learned' in said[0][0]


def test_options_are_checked() -> None:
    for deadline in (0.0, -1.0, float("nan"), float("inf"), "5", True):
        with pytest.raises(AdjudgeError, match="deadline is"):
            Scorer(Relative(), deadline)  # type: ignore[arg-type]
    with pytest.raises(AdjudgeError, match='on_failure is "fail"'):
        Scorer(Relative(), on_failure="fail")  # type: ignore[arg-type]


def test_an_engine_that_several_parts_share_is_counted_once() -> None:
    judged = Judged()

    class Twice(Told):
        engines = property(lambda self: judged.engines * 2)  # type: ignore[assignment]

        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            return judged.score_groups(groups)

    judged.score_groups(GROUPS[:1])
    stats = judged.engines[0].stats
    before = stats.tokens_computed
    assert Scorer(Twice(len)).score(GROUPS).tokens_computed == judged.engines[0].stats.tokens_computed - before > 0


def test_what_a_judge_writes_is_not_taken_from_what_sharing_saved() -> None:
    class Writes(Relative):
        stats = Stats()
        engines = property(lambda self: (self,))  # type: ignore[assignment]

        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            self.stats.prompt_tokens += 50
            self.stats.tokens_computed += 10 + 90
            self.stats.tokens_written += 90
            return super().score_groups(groups)

    scored = Scorer(Writes()).score(GROUPS[:1])
    assert (scored.tokens_computed, scored.tokens_saved) == (100, 40)


def test_calls_that_wait_for_each_other_report_what_each_has_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    class Turn:
        """Lets nobody in before `calls` of them are there."""

        def __init__(self, calls: int) -> None:
            self.calls, self.lock = Barrier(calls), Lock()

        def __enter__(self) -> None:
            self.calls.wait(60)
            self.lock.acquire()

        def __exit__(self, *why: object) -> None:
            self.lock.release()

    class Computes(Relative):
        stats = Stats()
        clock = 0.0
        engines = property(lambda self: (self,))  # type: ignore[assignment]

        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            self.stats.tokens_computed += 100
            self.clock += 8.0
            return super().score_groups(groups)

    reward = Computes()
    monkeypatch.setattr("adjudge.rewards.trainers.scoring.time.monotonic", lambda: reward.clock)
    scorer = Scorer(reward)
    scorer._turn = cast(Any, Turn(4))
    with ThreadPoolExecutor(4) as pool:
        scored = list(pool.map(lambda _: scorer.score(GROUPS), range(4)))
    assert [(one.tokens_computed, one.seconds) for one in scored] == [(100, 8.0)] * 4


def test_the_tokens_of_the_rewards_engine_are_counted_from_its_first_call_on() -> None:
    scorer = Scorer(Judged())
    first = scorer.score(GROUPS)
    assert first.tokens_computed > 0 and first.tokens_saved > first.tokens_computed / 2
    again = scorer.score(GROUPS)
    assert again.tokens_computed + again.tokens_saved == first.tokens_computed + first.tokens_saved
    other = Scorer(Judged()).score(GROUPS)  # on the same engine, whose earlier tokens are not its own
    assert other.tokens_computed + other.tokens_saved == first.tokens_computed + first.tokens_saved
    assert again.tokens_computed <= first.tokens_computed and again.rewards == first.rewards
    copy = pickle.loads(pickle.dumps(scorer))
    assert copy.score(GROUPS).rewards == first.rewards


def test_the_time_that_a_call_has_waited_for_its_turn_is_part_of_its_deadline() -> None:
    reward = Waiting()
    scorer = Scorer(reward, 0.2)
    assert scorer.score(GROUPS).rewards == [LATE, LATE]
    began = time.monotonic()
    assert scorer.score(GROUPS, began - 10).rewards == [LATE, LATE]  # it is still busy with the first
    assert time.monotonic() - began < 0.2
    reward.go.set()
