from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import TIMEOUT_MAX, Event
from types import SimpleNamespace

import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.parts.function_reward import FunctionReward
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.grouping import Sample
from adjudge.rewards.reward import GroupReward
from adjudge.rewards.trainers import buffer as module
from adjudge.rewards.trainers.buffer import Buffer, waited
from adjudge.rewards.trainers.filling import LoneAbstention, Member
from adjudge.rewards.trainers.scoring import OnFailure, Scorer
from tests.rewards.trainers.rewards import Patient, Relative, Short, Told, fails_on_second

LONG = 3600.0


def sample(response: str, prompt: str = "p") -> Sample:
    return Sample(prompt, response)


def value(number: float) -> Member:
    return Member(number, number, None)


def asked(buffer: Buffer) -> list[list[str]]:
    reward = buffer.scorer.reward
    assert isinstance(reward, Relative)
    return [list(group.responses) for group in reward.asked]


def test_a_group_is_scored_when_its_last_member_has_come() -> None:
    buffer = Buffer(Scorer(Relative()), 2, LONG)
    first, other = buffer.put("p", sample("a")), buffer.put("q", sample("a", "q"))
    assert not first.done()
    second = buffer.put("p", sample("bbb"))
    assert (first.result(60), second.result(60)) == (value(-1.0), value(1.0))
    assert not other.done()
    assert asked(buffer) == [["a", "bbb"]]


def test_members_may_come_from_many_threads_and_of_many_groups() -> None:
    buffer = Buffer(Scorer(Relative()), 4, LONG)
    with ThreadPoolExecutor(32) as pool:
        futures = [
            pool.submit(lambda place: buffer.put(place % 8, sample("x" * place, str(place % 8))).result(60), place)
            for place in range(32)
        ]
        rewards = [future.result(60).reward for future in futures]
    for key in range(8):
        assert rewards[key::8] == [-12.0, -4.0, 4.0, 12.0]


def test_an_id_that_cannot_be_read_is_told_to_its_own_group_and_the_others_go_on() -> None:
    class Nameless:
        def __str__(self) -> str:
            raise ValueError("no name")

    buffer = Buffer(Scorer(Relative()), 2, LONG)
    bad = [buffer.put("p", Sample("p", text, {"id": Nameless()})) for text in ("a", "b")]
    for one in bad:
        with pytest.raises(ValueError, match="no name"):
            one.result(60)
    good = [buffer.put("q", sample(text, "q")) for text in ("a", "bbb")]
    assert [one.result(60) for one in good] == [value(-1.0), value(1.0)]


def test_a_column_that_cannot_be_compared_stops_no_group() -> None:
    def endless() -> dict[str, object]:
        column: dict[str, object] = {}
        column["self"] = column
        return column

    buffer = Buffer(Scorer(Relative()), 2, LONG)
    odd = [buffer.put("p", Sample("p", text, {"odd": endless()})) for text in ("a", "bbb")]
    assert [one.result(60) for one in odd] == [value(-1.0), value(1.0)]


def test_the_next_sample_of_a_prompt_whose_group_is_whole_begins_another_group() -> None:
    buffer = Buffer(Scorer(Relative()), 2, LONG)
    futures = [buffer.put("p", sample(text)) for text in ("a", "bb", "c", "ddd")]
    assert [future.result(60).reward for future in futures] == [-0.5, 0.5, -1.0, 1.0]
    assert sorted(asked(buffer)) == [["a", "bb"], ["c", "ddd"]]


def test_a_group_that_does_not_become_whole_is_scored_as_it_is_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    buffer = Buffer(Scorer(Relative()), 2, 0.0)
    assert buffer.put("p", sample("a")).result(60) == value(0.0)
    [record] = caplog.records
    assert record.getMessage().startswith(
        'reward "relative": a group is scored with 1 members, as no more came within 0'
    )


def test_a_group_that_is_whole_is_nothing_to_warn_of(caplog: pytest.LogCaptureFixture) -> None:
    buffer = Buffer(Scorer(Relative()), 2, LONG)
    small = buffer.put("q", sample("a", "q"), size=1)
    assert small.result(60) == value(0.0)
    futures = [buffer.put("p", sample("a")) for _ in range(2)]
    assert [future.result(60) for future in futures] == [value(0.0)] * 2
    assert not caplog.records


def test_a_retried_sample_counts_once() -> None:
    buffer = Buffer(Scorer(Relative()), 2, LONG)
    first = buffer.put("p", sample("a"), "one")
    assert buffer.put("p", sample("a"), "one") is first
    second = buffer.put("p", sample("bbb"), "two")
    assert (first.result(60), second.result(60)) == (value(-1.0), value(1.0))
    assert buffer.put("p", sample("bbb"), "two").result(60) == value(1.0)  # also when all is done
    assert asked(buffer) == [["a", "bbb"]]


def test_the_later_text_of_a_retried_sample_counts_while_its_group_waits_and_is_another_sample_then() -> None:
    buffer = Buffer(Scorer(Relative()), 2, LONG)
    first = buffer.put("p", sample("aborted"), "one")
    again = buffer.put("p", sample("a"), "one")
    buffer.put("p", sample("bbb"), "two").result(60)
    assert first.result(60) == again.result(60) == value(-1.0)
    assert asked(buffer) == [["a", "bbb"]]
    assert not buffer.put("p", sample("of the next epoch"), "one").done()


def test_a_group_under_one_identity_is_a_mistake_that_is_told_at_once() -> None:
    buffer = Buffer(Scorer(Relative()), 3, LONG)
    futures = [buffer.put("p", sample(text), "row 7") for text in ("a", "b", "b", "c")]
    for future in futures:
        with pytest.raises(AdjudgeError, match="3 different samples of a group came as 'row 7': give an identity"):
            future.result(60)


def test_a_text_that_comes_again_in_a_later_epoch_is_another_sample() -> None:
    buffer = Buffer(Scorer(Relative()), 2, 0.5)
    first = [buffer.put("p", sample(text), text) for text in ("a", "bbb")]
    assert [future.result(60).reward for future in first] == [-1.0, 1.0]
    time.sleep(0.6)
    second = [buffer.put("p", sample(text), text) for text in ("a", "bb")]
    assert [future.result(60).reward for future in second] == [-0.5, 0.5] and second[0] is not first[0]


def test_a_sample_that_comes_again_while_its_group_is_scored_for_long_is_the_same_sample() -> None:
    reward = Patient()
    buffer = Buffer(Scorer(reward), 2, 0.2)
    first = [buffer.put("p", sample(text), text) for text in ("a", "bbb")]
    assert reward.began.wait(60)
    time.sleep(0.4)
    assert buffer.put("p", sample("a"), "a") is first[0]
    reward.went_on.set()
    assert [future.result(60).reward for future in first] == [-1.0, 1.0]


def test_equal_identities_of_different_groups_are_different_samples() -> None:
    buffer = Buffer(Scorer(Relative()), 1, LONG)
    assert buffer.put("p", sample("a"), "one").result(60) == value(0.0)
    assert buffer.put("q", sample("a", "q"), "one").result(60) == value(0.0)
    assert len(asked(buffer)) == 2


def test_a_failure_reaches_everybody_in_the_group_and_a_retry_is_scored_anew() -> None:
    calls = iter(range(10))
    buffer = Buffer(Scorer(Told(lambda response: fails_on_second("B") if next(calls) == 0 else 1.0)), 1, LONG)
    with pytest.raises(AdjudgeError, match="no such rubric"):
        buffer.put("p", sample("a"), "one").result(60)
    assert buffer.put("p", sample("a"), "one").result(60) == value(1.0)


@pytest.mark.parametrize("on_failure", ["stop", "abstain"])
def test_a_mistake_in_one_group_is_raised_to_its_own_members_alone(on_failure: OnFailure) -> None:
    entered, go = Event(), Event()

    class Slow(Short):
        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            if groups[0].prompt == "first":
                entered.set()
                assert go.wait(60)
            return super().score_groups(groups)

    buffer = Buffer(Scorer(Slow(len), on_failure=on_failure), 2, LONG)
    first = [buffer.put("first", sample("a", "first")) for _ in range(2)]
    assert entered.wait(60)  # the others wait together
    good = [buffer.put("good", sample("a")) for _ in range(2)]
    unlike = [buffer.put("unlike", Sample("p", "a", {"reference": text})) for text in ("Once.", "Twice.")]
    short = [buffer.put("short", sample("B")) for _ in range(2)]
    go.set()
    assert [future.result(60) for future in (*first, *good)] == [value(1.0)] * 4
    for future in unlike:
        with pytest.raises(AdjudgeError, match='different texts in the column "reference"'):
            future.result(60)
    for future in short:
        with pytest.raises(AdjudgeError, match="1 rewards for 2 completions"):
            future.result(60)


def test_a_failure_that_is_lived_with_costs_its_own_group_alone() -> None:
    buffer = Buffer(Scorer(Told(fails_on_second), on_failure="abstain"), 1, LONG, fill=0.0)
    futures = [buffer.put(text, sample(text, text)) for text in ("a", "B", "ccc")]
    assert [future.result(60) for future in futures] == [
        value(1.0),
        Member(None, 0.0, "cancelled", few=True),
        value(3.0),
    ]


def test_abstentions_come_with_their_reason_and_a_neutral_number() -> None:
    buffer = Buffer(Scorer(Told(lambda response: None if response == "a" else float(len(response)))), 3, LONG)
    futures = [buffer.put("p", sample(text)) for text in ("a", "bb", "cccc")]
    assert futures[0].result(60) == Member(None, 3.0, "low_mass")
    assert [future.result(60) for future in futures[1:]] == [value(2.0), value(4.0)]


def test_a_group_without_a_reward_gets_the_mean_of_those_before_and_again_when_it_comes_again() -> None:
    buffer = Buffer(Scorer(Told(lambda response: float(response) if response else None)), 2, LONG)

    def scored(prompt: str, *responses: str, learns: bool = True) -> list[float]:
        puts = [buffer.put(prompt, sample(text, prompt), n, learns=learns) for n, text in enumerate(responses)]
        return [put.result(60).filled for put in puts]

    assert scored("v", "7", "8", learns=False) == [7.0, 8.0]
    assert scored("p", "1", "3") == [1.0, 3.0]
    assert scored("q", "", "") == [2.0, 2.0]
    assert scored("w", "", "", learns=False) == [7.5, 7.5]  # an evaluation has means of its own
    assert scored("r", "5", "") == [5.0, 5.0]
    assert scored("q", "", "") == [2.0, 2.0]  # a sample that comes again gets what it got
    assert scored("s", "", "") == [3.0, 3.0]


def test_groups_that_become_ready_while_the_reward_is_busy_are_scored_together() -> None:
    entered, go = Event(), Event()
    calls: list[int] = []

    class Slow(Relative):
        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            calls.append(len(groups))
            entered.set()
            assert go.wait(60)
            return super().score_groups(groups)

    buffer = Buffer(Scorer(Slow()), 1, LONG)
    futures = [buffer.put(0, sample("a"))]
    assert entered.wait(60)
    futures += [buffer.put(key, sample("a", str(key))) for key in range(1, 4)]
    go.set()
    assert [future.result(60) for future in futures] == [value(0.0)] * 4
    assert calls == [1, 3]


def test_a_busy_reward_uses_up_nobodys_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    now, entered, go = [0.0], Event(), Event()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    class Slow(Relative):
        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            entered.set()
            assert go.wait(60)
            return super().score_groups(groups)

    buffer = Buffer(Scorer(Slow()), 2, LONG)
    first = [buffer.put("b", sample("b"))]
    now[0] += LONG / 4
    busy = [buffer.put("a", sample("a")) for _ in range(2)]
    assert entered.wait(60)
    now[0] += LONG / 4
    first.append(buffer.put("c", sample("c")))
    after = [buffer.put("d", sample("d")) for _ in range(2)]
    now[0] += 2 * LONG
    go.set()
    assert [future.result(60) for future in (*busy, *after)] == [value(0.0)] * 4
    assert [buffer._waiting[key].until - now[0] for key in "bc"] == [LONG * 3 / 4, LONG]
    both = [*first, *(buffer.put(key, sample(key + "cc")) for key in "bc")]
    assert [future.result(60).reward for future in both] == [-1.0, -1.0, 1.0, 1.0]


def test_a_cancelled_caller_leaves_its_sample_in_the_group() -> None:
    buffer = Buffer(Scorer(Relative()), 2, LONG)

    async def train() -> Member:
        waiting = asyncio.create_task(waited(buffer.put("p", sample("a"), "one")))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        _, again = await asyncio.gather(
            *map(waited, (buffer.put("p", sample("bbb")), buffer.put("p", sample("a"), "one")))
        )
        return again

    assert asyncio.run(train()) == value(-1.0)
    assert asked(buffer) == [["a", "bbb"]]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 2)
    buffer = Buffer(Scorer(Relative()), 1, LONG)
    for name in ("one", "two", "three"):
        buffer.put("p", sample("a"), name).result(60)
    assert len(buffer._done) == 2
    buffer.put("p", sample("a"), "one").result(60)
    assert len(asked(buffer)) == 4


def test_a_pickle_carries_the_reward_and_no_samples() -> None:
    buffer = Buffer(Scorer(Relative()), 2, 7.0, fill=0.5)
    first = buffer.put("p", sample("a"))
    copy = pickle.loads(pickle.dumps(buffer))
    assert (copy.size, copy.patience, copy.fill, copy._waiting) == (2, 7.0, 0.5, {})
    puts = [copy.put("q", sample("a")) for _ in range(2)]
    puts += [first, buffer.put("p", sample("a"))]  # who waited for it in vain would say so in another test's log
    assert [put.result(60) for put in puts] == [value(0.0)] * 4


def test_who_abstains_alone_is_told_and_others_that_were_scored_with_it_get_their_rewards() -> None:
    buffer = Buffer(Scorer(Told(lambda response: None if response == "a" else 1.0)), 1, LONG)
    alone, other = buffer.put("p", sample("a")), buffer.put("q", sample("b"))
    assert other.result(60).filled == 1.0
    with pytest.raises(LoneAbstention):
        alone.result(60)


def test_a_group_without_an_answer_ends_no_run_but_three_calls_in_a_row_do() -> None:
    late = FunctionReward(lambda completions: [1.0 if text == "b" else (None, "timeout") for text in completions])
    buffer = Buffer(Scorer(late), 2, LONG)

    def scored(response: str) -> list[Member]:
        return [future.result(60) for future in [buffer.put("p", sample(response)) for _ in range(2)]]

    seen = False
    for response in ("a", "a", "b", "a", "a"):
        seen = seen or response == "b"
        silent = Member(None, float(seen), "timeout", few=True)
        assert scored(response)[0] == (value(1.0) if response == "b" else silent)
    with pytest.raises(AdjudgeError, match='every completion of the last 3 calls is "timeout"'):
        scored("a")


def test_options_are_checked() -> None:
    with pytest.raises(AdjudgeError, match="num_generations is 0"):
        Buffer(Scorer(Relative()), 0)
    for patience in (-1.0, float("inf"), float("nan"), 2 * TIMEOUT_MAX, "9"):
        with pytest.raises(AdjudgeError, match="patience is"):
            Buffer(Scorer(Relative()), 1, patience)  # type: ignore[arg-type]


def test_what_each_sample_says_for_itself_reaches_a_function_in_its_place() -> None:
    buffer = Buffer(Scorer(FunctionReward(lambda completions, turns: turns)), 2, LONG)
    puts = [buffer.put(prompt, Sample(prompt, "a", {"turns": n})) for n, prompt in enumerate("pqqp")]
    assert [one.result(60).reward for one in puts] == [0.0, 1.0, 2.0, 3.0]
