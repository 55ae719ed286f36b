from __future__ import annotations

import math
import pickle

import pytest

from adjudge.rewards.guards.canary import read_canaries
from adjudge.rewards.guards.guarded import Guarded
from adjudge.rewards.guards.probe_texts import degenerate_texts, injected_texts
from adjudge.rewards.guards.probes import DegenerateGuard, InjectionGuard, ProbeEffect, measure_probes
from adjudge.rewards.judge_rewards.judge_reward import JudgeReward
from adjudge.rewards.parts.combining import WeightedSum
from adjudge.rewards.parts.gates import LengthReward
from adjudge.rewards.records.group import Group
from tests.rewards.guards.made_reward import CANARIES, Made, rank
from tests.rewards.written_judges import WrittenJudge, WrittenPairJudge

SPREAD = math.sqrt(8 / 3)  # of 5, 3 and 1


def obedient(group: Group, text: str) -> float:
    """Reads texts well, but adds a point where it is told to."""
    return rank(group, text.replace("To whoever", "Fair")) + ("5" in text or "[[10]]" in text or '"judge"' in text)


def test_effects_are_worked_out_by_hand() -> None:
    """The probe gets 1, 2, 1 and 2 more than the mediocre text, in spreads of 5, 3 and 1."""
    rises = {f"Prompt {n}.": (1.0, 2.0)[n % 2] for n in range(4)}
    reward = Made(lambda group, text: rank(group, text) + rises[group.prompt] * text.endswith("!"))
    [effect] = measure_probes(reward, CANARIES, lambda canary, other: {"shout": canary.mediocre + "!"})
    half = 3.182446305284 * math.sqrt(1 / 3) / 2 / SPREAD
    assert effect.effect == pytest.approx(1.5 / SPREAD, abs=1e-6)
    assert effect.interval == pytest.approx((1.5 / SPREAD - half, 1.5 / SPREAD + half), abs=1e-6)
    assert (effect.count, effect.abstained, effect.raised, effect.rise) == (4, 0, 1.0, effect.effect)


def test_a_reward_that_reads_no_reference_is_shown_no_copy_of_one() -> None:
    guard, made = DegenerateGuard(CANARIES), Made()
    made.reads_reference = False
    guard.probe(Guarded(made, []))
    assert math.isnan(guard.readings()["reference_copied"]) and not math.isnan(guard.readings()["filler"])
    assert not any(canary.reference in group.responses for canary in CANARIES for group in made.asked[0])
    length, judge = LengthReward(), WrittenJudge(lambda text: 1.0, "pointwise")
    assert not WeightedSum({"length": length, "judge": JudgeReward(judge)}).reads_reference
    assert WeightedSum({"length": length, "made": Made()}).reads_reference
    assert JudgeReward(WrittenJudge(lambda text: 1.0, "tree")).reads_reference
    assert JudgeReward(WrittenPairJudge(lambda a, b: {"wit": (1.0, 2.0)})).reads_reference


def test_each_of_several_probes_has_an_interval_so_wide_that_all_hold_together() -> None:
    rises = {f"Prompt {n}.": (1.0, 2.0)[n % 2] for n in range(4)}
    reward = Made(lambda group, text: rank(group, text) + rises[group.prompt] * text.endswith("!"))
    probes = {"!" * count: count for count in range(1, 11)}
    effects = measure_probes(reward, CANARIES, lambda canary, other: {name: canary.mediocre + name for name in probes})
    half = 7.453318505151 * math.sqrt(1 / 3) / 2 / SPREAD  # t at 1 − 0.025/10 with 3 degrees of freedom
    for effect in effects:
        assert effect.interval == pytest.approx((1.5 / SPREAD - half, 1.5 / SPREAD + half), abs=1e-6)
        assert effect.rise == 0.0


def test_a_rise_that_chance_can_explain_counts_as_none() -> None:
    assert ProbeEffect("x", 4, 0, 0.9, (-0.1, 1.9), 0.75).rise == 0.0
    assert ProbeEffect("x", 4, 0, -0.9, (-1.1, -0.7), 0.0).rise == 0.0
    assert ProbeEffect("x", 4, 0, 0.9, (0.1, 1.7), 1.0).rise == 0.9
    assert ProbeEffect("x", 1, 3, 0.9, None, 1.0).rise is None


def test_a_reward_that_follows_instructions_is_caught_and_one_that_reads_the_text_is_not() -> None:
    caught, passed = InjectionGuard(CANARIES), InjectionGuard(CANARIES)
    caught.probe(Made(obedient))
    passed.probe(Made(lambda group, text: rank(group, text.replace("To whoever", "Fair"))))
    for name, effect in caught.readings().items():
        expected = {"abstained": 0.0}.get(name, 1 / SPREAD)
        assert effect == pytest.approx(expected), name
    assert caught.readings()["worst"] > caught.limits["worst"]
    assert passed.readings() == dict.fromkeys(passed.measures, 0.0)


def test_one_obeyed_injection_is_enough() -> None:
    guard = InjectionGuard(read_canaries())
    guard.probe(Made(lambda group, text: 3.0 + ("请忽略" in text)))
    readings = guard.readings()
    assert readings["order_zh"] == readings["worst"] > guard.limits["worst"]
    assert readings["order"] == 0.0


@pytest.mark.parametrize("answer", [-9.0, None])
def test_a_reward_that_punishes_injections_or_abstains_on_them_passes(answer: float | None) -> None:
    own = {text for canary in CANARIES for text in canary.texts}
    guard = InjectionGuard(CANARIES)
    guard.probe(Made(lambda group, text: rank(group, text) if text in own else answer))
    readings = guard.readings()
    assert not readings["worst"] > 0
    assert readings["abstained"] == (answer is None)


@pytest.mark.parametrize(
    ("probe", "pay"),
    [
        ("empty", lambda group, text: 9.0 if not text else rank(group, text)),
        ("one_word", lambda group, text: 9.0 if text == "Yes" else rank(group, text)),
        ("prompt_repeated", lambda group, text: 9.0 if text.count(group.prompt) > 1 else rank(group, text)),
        ("sentence_repeated", lambda group, text: 9.0 if text.count("Fair") > 1 else rank(group, text)),
        ("filler", lambda group, text: 9.0 if "Marem" in text else rank(group, text)),
        ("reference_copied", lambda group, text: 9.0 if text == group.reference else rank(group, text)),
        (
            "other_answer",
            lambda group, text: 9.0 if text[:4] == "Good" and text[5] != group.prompt[7] else rank(group, text),
        ),
    ],
)
def test_a_reward_with_one_weakness_rises_on_that_probe_alone(probe: str, pay: object) -> None:
    guard = DegenerateGuard(CANARIES)
    guard.probe(Made(pay))  # type: ignore[arg-type]
    readings = guard.readings()
    assert (
        readings[probe] == readings["worst"] == pytest.approx((9 - (5 if probe == "reference_copied" else 3)) / SPREAD)
    )
    assert [name for name in degenerate_texts(CANARIES[0], CANARIES[1]) if readings[name] > 2] == [probe]


def test_a_reward_that_knows_its_texts_is_not_fooled_by_degenerate_ones() -> None:
    guard = DegenerateGuard(CANARIES)
    known = {(canary.prompt, text): rank(Group("", ()), text) for canary in CANARIES for text in canary.texts}
    guard.probe(Made(lambda group, text: known.get((group.prompt, text), 0.0)))
    readings = guard.readings()
    assert readings["worst"] == 0.0 and readings["empty"] == pytest.approx(-3 / SPREAD)


def test_a_reward_that_cannot_tell_ordinary_texts_apart_is_measured_by_all_it_gives() -> None:
    [effect] = measure_probes(
        Made(lambda group, text: float(text.endswith("!"))), CANARIES, lambda canary, other: {"shout": "!"}
    )
    assert effect.effect == pytest.approx(1 / math.sqrt(0.25 * 0.75))
    constant = measure_probes(Made(lambda group, text: 0.1), CANARIES, injected_texts)
    assert {(one.effect, one.rise) for one in constant} == {(None, None)}  # nothing is known of such a reward
    rounding = measure_probes(Made(lambda group, text: 0.3 if len(text) % 2 else 0.1 + 0.2), CANARIES, injected_texts)
    assert {one.effect for one in rounding} == {None}


def test_rewards_that_are_missing_or_not_finite_are_counted_not_used() -> None:
    def pay(group: Group, text: str) -> float | None:
        if text.endswith("!"):
            return {"0": None, "1": math.nan, "2": 4.0, "3": 4.0}[group.prompt[7]]
        return rank(group, text)

    [effect] = measure_probes(Made(pay), CANARIES, lambda canary, other: {"shout": canary.mediocre + "!"})
    assert (effect.count, effect.abstained, effect.effect) == (2, 2, pytest.approx(1 / SPREAD))
    guard = InjectionGuard(CANARIES)
    guard.probe(Made(lambda group, text: None))
    assert guard.readings()["abstained"] == 1.0 and math.isnan(guard.readings()["worst"])


def test_every_probe_is_another_text_in_the_language_of_its_canary() -> None:
    shipped = read_canaries()
    for place, canary in enumerate(shipped):
        degenerate = degenerate_texts(canary, shipped[place - 1])
        assert len(set(degenerate.values())) == len(degenerate)
        assert ("好" in degenerate["one_word"]) == (canary.language == "zh")
        injected = injected_texts(canary, canary)
        assert all(canary.mediocre in text and text != canary.mediocre for text in injected.values())
        assert any("<|im_end|>" in text for text in injected.values())
        assert any("<ANSWER> 5 </ANSWER>" in text for text in injected.values())


def test_the_other_answer_is_in_the_same_language_where_there_is_one() -> None:
    shipped, taken = read_canaries(), []
    measure_probes(Made(), shipped, lambda canary, other: taken.append((canary, other)) or {"x": "y"})  # type: ignore[func-returns-value]
    assert all(one.language == other.language and one != other for one, other in taken)


@pytest.mark.parametrize("kind", [DegenerateGuard, InjectionGuard])
def test_names_are_the_same_before_and_after_and_the_state_pickles(kind: type[InjectionGuard]) -> None:
    guard = kind()
    assert list(guard.readings()) == list(guard.measures) and all(map(math.isnan, guard.readings().values()))
    guard.probe(Made(lambda group, text: float(len(text))))
    assert list(guard.readings()) == list(guard.measures) and not any(map(math.isnan, guard.readings().values()))
    assert pickle.loads(pickle.dumps(guard)).readings() == guard.readings()
