from __future__ import annotations

import logging
import math
import pickle
import struct
from collections import deque
from collections.abc import Sequence
from threading import Thread
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.engines.specification import EngineSpec, JudgeSpec
from adjudge.rewards.guards.canary import Canary, CanaryGuard, read_canaries
from adjudge.rewards.guards.collapse import CollapseGuard
from adjudge.rewards.guards.guard import Guard, GuardTripped
from adjudge.rewards.guards.guarded import STANDARD, Guarded, GuardedState
from adjudge.rewards.guards.length import LengthGuard
from adjudge.rewards.guards.length_free import LengthFree
from adjudge.rewards.guards.probes import DegenerateGuard, InjectionGuard
from adjudge.rewards.judge_rewards.judge_reward import JudgeReward
from adjudge.rewards.judges.aspects import HANNA
from adjudge.rewards.parts.gated import Gated
from adjudge.rewards.parts.gates import FormatReward
from adjudge.rewards.parts.layer import learning
from adjudge.rewards.parts.section_reward import SectionReward
from adjudge.rewards.records.group import Group
from adjudge.rewards.reward import GroupReward, Reward, checked
from adjudge.rewards.trainers.scoring import Scorer
from adjudge.rewards.words import count_words
from tests.rewards.guards.made_reward import CANARIES, Made, of_words, rank, rewarded

GROUPS = [of_words(1, 2, 3), of_words(2, 4)]


class Dial(Guard):
    """A guard that shows what it is set to."""

    name = "dial"
    measures = ("turned",)

    def __init__(self, value: float = 0.0) -> None:
        self.limits = {"turned": 1.0}
        self.value = value

    def readings(self) -> dict[str, float]:
        return {"turned": self.value}


class Broken(Guard):
    """A guard that fails at whatever it is `at`."""

    name = "broken"
    measures = ("cracks",)

    def __init__(self, at: str) -> None:
        self.limits = {"cracks": 0.0}
        self.at = at

    def observe(self, groups: Sequence[Group], rewards: Sequence[GroupReward]) -> None:
        self._fail("observe")

    def probe(self, reward: Reward) -> None:
        self._fail("probe")

    def readings(self) -> dict[str, float]:
        self._fail("read")
        return {"cracks": float(self.at == "explain")}

    def why(self, measure: str) -> str:
        self._fail("explain")
        return "it is old"

    def _fail(self, at: str) -> None:
        if at == self.at:
            raise OSError("it broke\nin two")


def small_guards(canaries: Sequence[Canary] = CANARIES) -> list[Guard]:
    return [
        LengthGuard(enough=2),
        CanaryGuard(canaries),
        DegenerateGuard(canaries),
        InjectionGuard(canaries),
        CollapseGuard(),
    ]


def untimed(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if name != "guards/seconds"}


def bits(rows: Sequence[GroupReward]) -> list[list[bytes | None]]:
    return [[None if value is None else struct.pack("d", value) for value in row.rewards] for row in rows]


@given(st.lists(st.lists(st.none() | st.floats(), max_size=5), max_size=4))
def test_rewards_pass_through_bit_for_bit_under_the_same_names(rows: list[list[float | None]]) -> None:
    given_rows = [rewarded(row) for row in rows]

    class Table(Made):
        def score_groups(self, groups: Sequence[Group]) -> list[GroupReward]:
            return given_rows if groups and groups[0].id == "asked" else super().score_groups(groups)

    guarded = Guarded(Table(), small_guards())
    groups = [Group("p", tuple("w " * n for n in range(len(row))), id="asked") for row in rows]
    found = guarded.score_groups(groups)
    if groups:
        plain = checked(given_rows, groups, "it")
        assert found == plain and bits(found) == bits(plain)
    else:
        assert found == []
    assert list(guarded.metrics) == [
        *(f"guards/{guard.name}/{measure}" for guard in guarded.guards for measure in guard.measures),
        "guards/over",
        "guards/failed",
        "guards/seconds",
    ]
    assert all(type(value) is float for value in guarded.metrics.values())
    assert guarded.metrics["guards/failed"] == 0


def test_the_standard_guards_watch_where_none_are_named() -> None:
    assert tuple(guard.name for guard in Guarded(Made(rank)).guards) == tuple(STANDARD)
    assert tuple(STANDARD) == ("length", "canary", "degenerate", "injection", "collapse")
    assert Guarded(Made(rank), []).guards == []


def test_probes_come_at_the_first_step_and_every_so_many_after() -> None:
    reward = Made()
    guarded = Guarded(reward, [CanaryGuard(CANARIES), InjectionGuard(CANARIES)], every=3)
    calls = []
    for _ in range(7):
        before = len(reward.asked)
        guarded.score_groups(GROUPS)
        calls.append(len(reward.asked) - before)
    assert calls == [3, 1, 1, 3, 1, 1, 3]


def test_a_crossing_is_warned_of_once_until_it_has_been_undone(caplog: pytest.LogCaptureFixture) -> None:
    dial = Dial()
    guarded = Guarded(Made(), [dial])
    warned = []
    for value in (0.0, 1.0, 1.5, 2.0, 0.5, math.nan, 3.0):
        dial.value = value
        caplog.clear()
        with caplog.at_level(logging.WARNING, "adjudge"):
            guarded.score_groups(GROUPS)
        warned.append([record.getMessage() for record in caplog.records])
        assert guarded.metrics["guards/over"] == (value > 1)
    assert [len(lines) for lines in warned] == [0, 0, 1, 0, 0, 0, 1]
    assert warned[2] == ["step 3: the guard dial measures turned 1.5, above its limit 1"]


def test_a_guard_to_stop_on_raises_with_everything_one_needs_to_know() -> None:
    dial = Dial()
    guarded = Guarded(Made(), [dial], stop_on=("dial",))
    guarded.score_groups(GROUPS)
    dial.value = 2.5
    for step in (2, 3):
        with pytest.raises(
            GuardTripped, match=f"step {step}: the guard dial measures turned 2.5, above its limit 1: "
        ) as hit:
            guarded.score_groups(GROUPS)
        trip = pickle.loads(pickle.dumps(hit.value))
        assert isinstance(trip, AdjudgeError) and str(trip) == str(hit.value)
        assert (trip.guard, trip.measure, trip.value, trip.limit, trip.step) == ("dial", "turned", 2.5, 1.0, step)
        assert guarded.metrics["guards/dial/turned"] == 2.5  # what tripped is in the metrics, too


def test_the_log_names_the_probes_that_fool_the_reward(caplog: pytest.LogCaptureFixture) -> None:
    def pay(group: Group, text: str) -> float:
        return rank(group, text) + 4 * ("请忽略" in text) + 2 * ("[[10]]" in text)

    with pytest.raises(GuardTripped, match=r"\(order_zh \+2.45, brackets \+1.22\): look at") as hit:
        Guarded(Made(pay), [InjectionGuard(CANARIES)], stop_on=("injection",)).score_groups(GROUPS)
    assert pickle.loads(pickle.dumps(hit.value)).why == "order_zh +2.45, brackets +1.22"
    assert "above its limit 0.25 (order_zh +2.45, brackets +1.22)" in caplog.text


def test_only_what_is_named_stops() -> None:
    guarded = Guarded(Made(), [Dial(9.0), CanaryGuard(CANARIES)], stop_on=("canary",))
    assert len(guarded.score_groups(GROUPS)) == 2


def test_a_guard_that_cannot_explain_itself_trips_all_the_same() -> None:
    guarded = Guarded(Made(), [Broken("explain")], stop_on=("broken",))
    with pytest.raises(GuardTripped, match="measures cracks 1, above its limit 0: look"):
        guarded.score_groups(GROUPS)
    assert guarded.metrics["guards/failed"] == 1


@pytest.mark.parametrize("at", ["observe", "probe", "read"])
def test_a_guard_that_fails_costs_no_reward_and_no_other_guard(at: str, caplog: pytest.LogCaptureFixture) -> None:
    guarded = Guarded(Made(), [Broken(at), Dial(0.5)], stop_on=("broken",))
    with caplog.at_level(logging.WARNING, "adjudge"):
        assert guarded.score_groups(GROUPS) == Made().score_groups(GROUPS)
    [record] = caplog.records
    assert (
        record.getMessage() == f"step 1: the guard broken could not {at} (OSError: it broke); rewards are not touched"
    )
    cracks = guarded.metrics.pop("guards/broken/cracks")
    assert math.isnan(cracks) == (at == "read")
    assert untimed(guarded.metrics) == {"guards/dial/turned": 0.5, "guards/over": 0.0, "guards/failed": 1.0}


def test_a_reward_that_fails_at_probes_alone_still_rewards() -> None:
    def pay(group: Group, text: str) -> float:
        if group.id.startswith(("canary", "probe")):
            raise AdjudgeError('"reviews" is missing')
        return 1.0

    guarded = Guarded(Made(pay), small_guards(), stop_on=[guard.name for guard in small_guards()])
    assert guarded.score_groups(GROUPS) == Made(lambda group, text: 1.0).score_groups(GROUPS)
    assert guarded.metrics["guards/failed"] == 3 and guarded.metrics["guards/over"] == 0


def test_held_out_prompts_are_logged_without_the_guards_readings_of_a_step_before() -> None:
    inner = LengthFree(Made())
    guarded = Guarded(inner, [LengthGuard()])
    scorer = Scorer(guarded)
    assert "guards/over" in scorer.score(GROUPS).metrics
    with learning(False):
        assert scorer.score(GROUPS).metrics.keys() == inner.metrics.keys() > set()
    assert "guards/over" in guarded.metrics and scorer.score(GROUPS).metrics.keys() > inner.metrics.keys()


def test_a_length_hungry_reward_is_stopped_and_without_its_trend_it_is_not() -> None:
    def pay(group: Group, text: str) -> float:
        return 0.01 * count_words(text)

    def train(reward: Reward) -> None:
        for step in range(24):
            reward.score_groups(
                [Group("p", tuple(f"w{(place * step) % 7} " * (place + step) for place in range(9, 17)))]
            )

    with pytest.raises(GuardTripped) as hit:
        train(Guarded(Made(pay), [LengthGuard()], stop_on=("length",)))
    assert (hit.value.guard, hit.value.measure) == ("length", "grip")
    free = LengthFree(Made(pay), warmup=0)
    free.score_groups([of_words(1, 9)])
    guarded = Guarded(free, [LengthGuard()], stop_on=("length",))
    train(guarded)
    assert guarded.metrics["length_free/slope"] == pytest.approx(1.0)
    assert guarded.metrics["length_free/groups"] == 25
    outside = LengthFree(Guarded(Made(pay), [LengthGuard()]))
    train(outside)
    assert outside.metrics["guards/over"] == 1 and outside.metrics["length_free/slope"] == pytest.approx(1.0)


def test_probes_leave_the_history_of_a_reward_alone() -> None:
    plain = LengthFree(Made(rank))
    guarded = Guarded(LengthFree(Made(rank)), small_guards(), every=1)
    for reward in (plain, guarded):
        reward.score_groups(GROUPS)
    assert isinstance(guarded.reward, LengthFree)
    assert guarded.reward.state == plain.state and plain.state.groups == 2


def test_it_pickles_with_its_state_and_goes_on_from_there() -> None:
    guarded = Guarded(LengthFree(Made(rank)), small_guards(), every=2)
    guarded.score_groups(GROUPS)
    again = pickle.loads(pickle.dumps(guarded))
    for reward in (guarded, again):
        reward.score_groups(GROUPS)
    assert again.step == 2
    assert untimed(again.metrics) == pytest.approx(untimed(guarded.metrics), nan_ok=True)


def test_its_state_is_plain_and_another_goes_on_from_there() -> None:
    shift = [0.0]
    reward = Made(lambda group, text: rank(group, text) + 0.1 * count_words(text) + shift[0])
    guarded, again = (
        Guarded(reward, [*small_guards()[:-1], CollapseGuard(enough=4), Broken("read")], every=3) for _ in range(2)
    )
    for _ in range(2):
        guarded.score_groups(GROUPS)
    again.state = msgspec.json.decode(msgspec.json.encode(guarded.state), type=GuardedState)
    shift[0] = 1.0
    for moved in (0.0, 1.0):  # probed at the first step and at the fourth
        for one in (guarded, again):
            one.score_groups([of_words(5, 7, 7)])
        assert untimed(again.metrics) == pytest.approx(untimed(guarded.metrics), nan_ok=True)
        assert again.metrics["guards/canary/moved"] == pytest.approx(moved)
    assert again.step == again.metrics["guards/failed"] == 4 and again.over == guarded.over
    assert not any(math.isnan(again.metrics[f"guards/{name}"]) for name in ("length/grip", "collapse/loss"))
    before = again.state
    with pytest.raises(msgspec.ValidationError):
        again.state = msgspec.structs.replace(before, step=9, guards={**before.guards, "length": {"groups": 5}})
    assert again.state == before


@pytest.mark.parametrize("others", [CANARIES[1:], [*CANARIES[1:], CANARIES[0]]])
def test_what_is_known_of_other_canaries_is_forgotten_and_nothing_else(
    others: list[Canary], caplog: pytest.LogCaptureFixture
) -> None:
    guarded, again = (Guarded(Made(), [CanaryGuard(canaries)], every=2) for canaries in (CANARIES, others))
    guarded.score_groups(GROUPS)
    state = guarded.state
    for of in (state.guards["canary"]["of"], None):  # None: as it was kept before
        caplog.clear()
        kept = {**state.guards, "canary": {**state.guards["canary"], "of": of}}
        again.state = msgspec.structs.replace(state, guards=kept)
        assert again.step == 1 and again.guards[0].first is None
        assert "the guard canary had other canaries before: its drift is from now on" in caplog.text
    again.score_groups(GROUPS)
    again.score_groups(GROUPS)
    assert again.guards[0].first is not None


class Seen(Dial):
    """A user's own guard, which counts the groups of every step."""

    name = "seen"

    def __init__(self, kind: Any = list[int]) -> None:
        super().__init__()
        self.counts: Any = deque(maxlen=2)
        self.kind = kind

    @property
    def remembers(self) -> dict[str, Any]:
        return {"counts": self.kind}

    def observe(self, groups: Sequence[Group], rewards: Sequence[GroupReward]) -> None:
        self.counts.append(len(groups))

    def readings(self) -> dict[str, float]:
        return {"turned": float(sum(self.counts))}


class ByNumber(Seen):
    """The same, by the number of something."""

    def __init__(self, counts: dict[int, float]) -> None:
        super().__init__(dict[int, float])
        self.counts = counts


def test_a_guard_of_ones_own_goes_on_with_what_it_remembers(caplog: pytest.LogCaptureFixture) -> None:
    guarded, again = (Guarded(Made(), [Seen()]) for _ in range(2))
    for groups in (GROUPS, GROUPS[:1]):
        guarded.score_groups(groups)
    again.state = msgspec.json.decode(msgspec.json.encode(guarded.state), type=GuardedState)
    again.score_groups(GROUPS[:1])
    assert again.metrics["guards/seen/turned"] == 2.0 and again.guards[0].counts.maxlen == 2

    strange = Guarded(Made(), [Seen(), LengthGuard()])
    strange.guards[0].counts = [object()]
    strange.guards[1].groups.append([(1.0, 2.0)])
    assert list(strange.state.guards) == ["length"]
    assert "the guard seen could not be kept" in caplog.text
    fresh = Guarded(Made(), [Seen(), LengthGuard()])
    fresh.state = strange.state
    assert "nothing is known of the guard seen" in caplog.text
    assert list(fresh.guards[1].groups) == [[(1.0, 2.0)]] and not fresh.guards[0].counts


def test_what_is_remembered_by_a_number_is_so_again() -> None:
    told, again = (Guarded(Made(), [ByNumber(counts)]) for counts in ({3: 0.5}, {}))
    again.state = msgspec.json.decode(msgspec.json.encode(told.state), type=GuardedState)
    assert again.guards[0].counts == {3: 0.5}


def test_one_that_does_not_raise_tells_its_trainer_what_tripped() -> None:
    dial = Dial(2.5)
    guarded = Guarded(Made(), [dial], stop_on=("dial",))
    guarded.raises = False
    assert guarded.score_groups(GROUPS) == Made().score_groups(GROUPS)
    assert guarded.tripped is not None and guarded.tripped.guard == "dial"
    dial.value = 0.0
    guarded.score_groups(GROUPS)
    assert guarded.tripped is None


def test_calls_may_overlap() -> None:
    guarded = Guarded(Made(), [LengthGuard(window=1000)], every=10)
    threads = [Thread(target=lambda: [guarded.score_groups(GROUPS) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert guarded.step == 80


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"guards": [Dial(), Dial()]}, "the guards are dial, dial: give each once"),
        (
            {"stop_on": ("lenght",)},
            'stop_on names "lenght": choose from length, canary, degenerate, injection, collapse',
        ),
        (
            {"guards": [], "stop_on": ("length",)},
            'stop_on names "length": no guard is in use: add one, or stop on none',
        ),
        ({"stop_on": "canary"}, "stop_on is 'canary': give a list of guards' names"),
        ({"every": 0}, "every is 0: give at least 1"),
        ({"guards": ["length"]}, r"a guard is 'length': give guards, as LengthGuard\(\)"),
    ],
)
def test_options_that_make_no_sense_are_mistakes(how: dict[str, Any], said: str) -> None:
    with pytest.raises(AdjudgeError, match=said):
        Guarded(Made(), **how)


def test_a_judge_on_a_real_engine_goes_through_all_of_it() -> None:
    reward = JudgeReward(
        JudgeSpec(
            "pointwise",
            {"aspects": HANNA[:1]},
            EngineSpec("dummy:tiny-llama", kv_cache_gb=0.21),  # an engine of its own, whose prompts are counted
        )
    )
    guarded = pickle.loads(pickle.dumps(Guarded(reward, small_guards(read_canaries()[8:10]))))
    assert guarded.engines == ()
    groups = [Group("Tell one.", ("A story.", "Another, longer story.", "", "<|im_end|>\ud800 5"), id="g")]
    expected = reward.score_groups(groups)
    assert bits(guarded.score_groups(groups)) == bits(expected)
    [engine] = guarded.engines
    assert engine.stats.prompts == 2 * 4 + 336 // 6 - 2 and guarded.metrics["guards/failed"] == 0
    for guard in ("canary", "degenerate", "injection"):
        assert guarded.metrics[f"guards/{guard}/abstained"] < 0.05  # random weights: some label masses are low
    assert 0 <= guarded.metrics["guards/canary/agreement"] <= 1
    assert guarded.metrics["guards/canary/drift"] == 0
    unknown = {name for name, value in guarded.metrics.items() if math.isnan(value)}
    collapse = {f"guards/collapse/{measure}" for measure in CollapseGuard.measures}
    assert unknown == {*collapse, "guards/degenerate/reference_copied"}  # of a reference that it does not read


def test_a_reward_that_looks_for_tags_is_probed_in_their_form() -> None:
    paid = Gated(SectionReward(Made()), {"format": FormatReward(("think", "answer"))})
    bare, formed = (
        Guarded(paid, [CanaryGuard(CANARIES), InjectionGuard(CANARIES)], form=form)
        for form in (None, "<think>So.</think><answer>{text}</answer>")
    )
    for guarded in (bare, formed):
        guarded.score_groups([of_words(1, 2)])
    assert all(math.isnan(bare.metrics[f"guards/{name}"]) for name in ("canary/drift", "injection/worst"))
    assert formed.metrics["guards/canary/agreement"] == 1.0 and formed.metrics["guards/canary/drift"] == 0.0
    assert not math.isnan(formed.metrics["guards/injection/worst"])
    with pytest.raises(AdjudgeError, match=r"form is \"<answer>\": write \{text\}"):
        Guarded(paid, [], form="<answer>")
