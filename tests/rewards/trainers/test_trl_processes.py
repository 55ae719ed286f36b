from __future__ import annotations

from typing import Any

import pytest

from adjudge.rewards.records.group import Group
from adjudge.rewards.trainers.measures import REASONS
from adjudge.rewards.trainers.trl import AsyncTrlReward, TrlReward, for_trl, shares
from tests.rewards.guards.made_reward import CANARIES
from tests.rewards.trainers.processes import NOTES, PROMPTS, STORIES, TURNS, in_two_processes, levelled, no_time_for
from tests.rewards.trainers.rewards import Judged, Relative, Told, fails_on_second


@pytest.fixture(scope="module")
def came(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return in_two_processes(tmp_path_factory.mktemp("processes"))


def groups_of_second() -> list[Group]:
    """The groups that the second of the two processes scores."""
    groups = [Group(prompt, STORIES[2 * n : 2 * n + 2]) for n, prompt in enumerate(PROMPTS[::2])]
    return [groups[place] for place in shares(groups, 2)[1]]


def alone(function: TrlReward | AsyncTrlReward) -> list[float | None]:
    assert isinstance(function, TrlReward)
    return function(PROMPTS, STORIES, notes=NOTES)


@pytest.mark.parametrize(("name", "reward"), [("relative", Relative()), ("inferred", Relative()), ("judged", Judged())])
def test_a_group_cut_by_the_local_batch_gets_to_the_bit_what_one_process_gives(
    came: list[dict[str, Any]], name: str, reward: Any
) -> None:
    assert came[0][name]["rewards"] + came[1][name]["rewards"] == alone(for_trl(reward, 2))


def test_what_lengths_earn_is_learnt_from_all_groups_whoever_scored_them(came: list[dict[str, Any]]) -> None:
    one = levelled()
    for name in ("levelled", "levelled again"):
        assert came[0][name]["rewards"] + came[1][name]["rewards"] == alone(one)
        assert came[0][name]["metrics"] == came[1][name]["metrics"]
    assert came[0]["levelled"]["rewards"] != came[0]["levelled again"]["rewards"]
    assert dict(came[0]["levelled again"]["metrics"])["relative/length_free/groups"] == 6.0


def test_guards_see_all_groups_and_ask_their_own_texts_once(came: list[dict[str, Any]]) -> None:
    assert came[0]["watched"]["metrics"] == came[1]["watched"]["metrics"]
    probes = {canary.prompt for canary in CANARIES}
    assert probes <= set(came[0]["watched"]["asked"]) and not probes & set(came[1]["watched"]["asked"])


def test_a_judge_that_is_late_in_one_process_costs_the_groups_it_had_and_the_guards_see_the_others(
    came: list[dict[str, Any]],
) -> None:
    rewards = came[0]["late in one"]["rewards"] + came[1]["late in one"]["rewards"]
    reasons = [why for one in came for why in one["late in one"]["extra"]["relative/abstained"]]
    whole = alone(for_trl(Relative(), 2))
    kept = {group.prompt for group in groups_of_second()}
    assert 0 < len(kept) < 3
    assert rewards == [value if prompt in kept else None for prompt, value in zip(PROMPTS, whole, strict=True)]
    assert reasons == [None if prompt in kept else "timeout" for prompt in PROMPTS]
    assert dict(came[0]["late in one"]["metrics"])["relative/guards/failed"] == 0.0


def test_every_group_is_scored_once_and_the_work_is_shared(came: list[dict[str, Any]]) -> None:
    asked = [one["relative"]["asked"] for one in came]
    assert sorted(asked[0] + asked[1]) == sorted(set(PROMPTS))
    assert all(asked)


def test_every_process_logs_the_same_metrics_in_the_same_order(came: list[dict[str, Any]]) -> None:
    assert came[0]["judged"]["metrics"] == came[1]["judged"]["metrics"]
    metrics = dict(came[0]["judged"]["metrics"])
    for name in ("abstained", *(f"abstained/{reason}" for reason in REASONS), "zero_variance"):
        assert metrics[f"judged/{name}"] == 0.0
    for name in ("mean/mass", "seconds", "tokens_computed", "tokens_saved"):
        assert metrics[f"judged/{name}"] > 0.0
    assert "judged/length_slope" in metrics


def test_the_breakdown_of_a_process_is_of_its_own_completions(came: list[dict[str, Any]]) -> None:
    lengths = [float(len(story)) for story in STORIES]
    assert came[0]["relative"]["extra"] == {"relative/abstained": [None] * 3, "relative/length": lengths[:3]}
    assert came[1]["relative"]["extra"] == {"relative/abstained": [None] * 3, "relative/length": lengths[3:]}


@pytest.mark.parametrize(
    ("name", "kind", "text", "rank"),
    [
        ("no whole groups", "AdjudgeError", "6 completions are no whole groups of 4: check num_generations", 0),
        ("unequal groups", "AdjudgeError", "runs of 3, 1, 2 completions", 0),
        ("no column here", "AdjudgeError", 'column "rubric" is missing', 1),
        ("not to be sent", "RewardError", "cannot be sent to the other processes", 1),
        ("short", "AdjudgeError", "1 rewards for 2 completions", 1),
        ("fails in one", "AdjudgeError", "reward \"told\" failed: KeyError: 'no such rubric'", 1),
        ("tripped", "GuardTripped", "length", 1),
    ],
)
def test_an_error_of_one_process_is_raised_in_all_as_what_it_is_and_none_waits(
    came: list[dict[str, Any]], name: str, kind: str, text: str, rank: int
) -> None:
    assert came[0][name] == came[1][name]
    found_kind, found_text, notes = came[0][name]
    assert found_kind == kind and text in found_text
    assert notes == [f"in process {rank} of 2"]


def test_after_errors_the_processes_are_still_in_step(came: list[dict[str, Any]]) -> None:
    assert [one["after all that"]["rewards"] for one in came] == [one["relative"]["rewards"] for one in came]


def test_a_group_that_fails_costs_only_itself_wherever_it_is_scored(came: list[dict[str, Any]]) -> None:
    rewards = came[0]["abstains in one"]["rewards"] + came[1]["abstains in one"]["rewards"]
    assert rewards == alone(for_trl(Told(fails_on_second), 2, on_failure="abstain")) == [1.0, 3.0, None, None, 1.0, 9.0]


def test_a_process_of_which_no_group_was_answered_ends_no_run_in_which_others_were(came: list[dict[str, Any]]) -> None:
    rewards = came[0]["no time for one"]["rewards"] + came[1]["no time for one"]["rewards"]
    assert rewards == alone(for_trl(no_time_for("Tell three."), 2)) == [1.0, 3.0, 5.0, 3.0, None, None]
    for one in came:
        kind, text, notes = one["no time at all"]
        assert kind == "AdjudgeError" and 'every completion of this step is "timeout"' in text and notes == []


def test_shares_are_about_equal_and_leave_no_group_out() -> None:
    groups = [Group("p", ["x" * size]) for size in (90, 10, 40, 30, 20)]
    assert shares(groups, 2) == [(0, 1), (2, 3, 4)]
    assert shares(groups, 1) == [(0, 1, 2, 3, 4)]
    assert sorted(place for places in shares(groups, 9) for place in places) == list(range(5))


def test_what_each_completion_has_for_itself_reaches_functions_in_every_process(came: list[dict[str, Any]]) -> None:
    assert [one["functions"]["rewards"] for one in came] == [[11.0, 22.0, 33.0], [41.0, 52.0, 63.0]]
    extra = [one["functions"]["extra"]["sum/turns"] for one in came]
    assert extra == TURNS


def test_tokens_are_sent_to_no_other_process_where_nothing_takes_them(came: list[dict[str, Any]]) -> None:
    assert [one["tokens stay here"]["rewards"] for one in came] == [one["relative"]["rewards"] for one in came]
