from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.aspects import HANNA, STORYER, Aspect
from adjudge.rewards.judges.pairwise import SCALE
from adjudge.rewards.judges.pointwise import PointwiseJudge, PointwisePairJudge
from adjudge.rewards.judges.preference import log_odds, sigmoid
from adjudge.rewards.records.verdict import Item, Pair, Part
from tests.engine.reference import next_logprobs, open_reference
from tests.rewards.judges.company import assert_same_in_any_company
from tests.rewards.scripted import ScriptedEngine

TINY = "dummy:tiny-llama"
SHORT = Sampling(max_tokens=6, temperature=1.0)
ITEMS = [Item(prompt="Tell one.", response=f"A story {n}.", id=str(n)) for n in range(5)]
GOOD = "It is fine. <ANSWER> 4 </ANSWER>"


def test_every_aspect_is_scored_as_plain_transformers_does_at_its_answer_slot(tiny: Engine) -> None:
    judge = PointwiseJudge(tiny, STORYER)
    [verdict] = judge.judge(ITEMS[:1])
    reference = open_reference(TINY)
    questions, _ = judge.ask(ITEMS[0])
    assert [question.name for question in questions] == list(verdict.breakdown) == [aspect.name for aspect in STORYER]
    for question in questions:
        shown = tiny.tokenizer.decode(tokens := tiny.tokenizer.prompt(question.prompt))
        assert shown.endswith(f"assistant\n{question.name.capitalize()}: <ANSWER> ")
        logprobs = next_logprobs(reference, tokens)
        chances = logprobs[[tiny.tokenizer.encode(label, True)[0] for label in SCALE.labels]].exp()
        part = verdict.breakdown[question.name]
        assert part.mass == pytest.approx(float(chances.sum()), abs=1e-5)
        assert part.distribution == pytest.approx((chances / chances.sum()).tolist(), abs=1e-4)
        expected = sum(p * v for p, v in zip(part.distribution or (), range(1, 6), strict=True))
        assert part.score == pytest.approx(expected)
    assert verdict.mass == min(part.mass or 1.0 for part in verdict.breakdown.values())
    assert (verdict.id, verdict.abstained, verdict.truncated, verdict.analysis) == ("0", None, False, None)


def test_what_holds_a_part_out_of_time_is_not_kept_whatever_that_part_weighs(tiny: Engine, tmp_path: Path) -> None:
    aspects = [Aspect("one", "?"), Aspect("off", "?", 0.0)]
    late = ScriptedEngine(tiny, lambda shown, before: ("", "timeout") if "off" in shown else GOOD)
    with Journal(tmp_path / "j") as journal:
        how: Any = {"mode": "reasoned", "sampling": SHORT, "min_mass": 0.0, "journal": journal}
        [verdict] = PointwiseJudge(late, aspects, **how).judge(ITEMS[:1])
        assert verdict.score is not None and verdict.breakdown["off"].abstained == "timeout" and not len(journal)
        in_time = ScriptedEngine(tiny, lambda shown, before: GOOD)
        [again] = PointwiseJudge(in_time, aspects, **how).judge(ITEMS[:1])
        assert again.breakdown["off"].abstained is None and len(journal) == 1


def test_a_cut_that_there_is_not_is_refused(tiny: Engine) -> None:
    with pytest.raises(AdjudgeError, match='cut is "Never": choose middle, head, tail, never'):
        PointwiseJudge(tiny, cut="Never")  # type: ignore[arg-type]


def test_the_score_is_the_weighted_mean_of_the_aspects(tiny: Engine) -> None:
    weights = (3.0, 1.0, 0.0)
    aspects = [Aspect(name, "?", weight) for name, weight in zip(("one", "two", "off"), weights, strict=True)]
    [verdict] = PointwiseJudge(tiny, aspects).judge(ITEMS[:1])
    one, two, off = (part.score or 0.0 for part in verdict.breakdown.values())
    assert verdict.score == pytest.approx((3 * one + two) / 4) and len({one, two, off}) == 3
    assert [part.weight for part in verdict.breakdown.values()] == list(weights)


def test_the_questions_of_an_item_share_all_but_their_end(tiny: Engine) -> None:
    engine = Engine(TINY, kv_cache_gb=0.2)
    PointwiseJudge(engine).judge(ITEMS)
    assert engine.stats.prompts == 6 * len(ITEMS)
    assert engine.stats.sharing > 3


def test_in_reasoned_mode_the_score_is_read_where_it_was_written(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: GOOD)
    judge = PointwiseJudge(engine, HANNA[:2], mode="reasoned", sampling=SHORT)
    [verdict] = judge.judge(ITEMS[:1])
    assert [shown.endswith("<ANSWER> N </ANSWER><|im_end|>\n<|im_start|>assistant\n") for shown in engine.asked] == [
        True,
        True,
    ]
    before = tiny.tokenizer.encode(GOOD[: GOOD.index("4")], False)
    for question in judge.ask(ITEMS[0])[0]:
        [score] = tiny.score([tiny.tokenizer.prompt(question.prompt) + before], SCALE)
        part = verdict.breakdown[question.name]
        assert part == Part(score.expected, 1.0, score.probabilities, score.mass)
    assert verdict.analysis == {"relevance": (GOOD,), "coherence": (GOOD,)}


def test_several_samples_are_averaged_and_all_shown(tiny: Engine) -> None:
    texts = ["A. " + GOOD, "Well, B. " + GOOD]
    engine = ScriptedEngine(tiny, lambda shown, before: texts[before])
    [verdict] = PointwiseJudge(engine, HANNA[:1], mode="reasoned", sampling=SHORT, n=2).judge(ITEMS[:1])
    assert verdict.analysis == {"relevance": tuple(texts)}
    alone = []
    for text in texts:
        single = ScriptedEngine(tiny, lambda shown, before, text=text: text)  # type: ignore[misc]
        alone += PointwiseJudge(single, HANNA[:1], mode="reasoned", sampling=SHORT).judge(ITEMS[:1])
    assert verdict.score == pytest.approx(sum(one.score or 0.0 for one in alone) / 2)
    assert alone[0].score != alone[1].score


def test_an_aspect_that_abstains_makes_the_item_abstain_unless_it_weighs_nothing(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: GOOD + GOOD if "Aspect: two" in shown else GOOD)
    for weight, abstained in ((1.0, "unparsable"), (0.0, None)):
        aspects = [Aspect("one", "?"), Aspect("two", "?", weight)]
        judge = PointwiseJudge(engine, aspects, mode="reasoned", sampling=SHORT, attempts=1)
        [verdict] = judge.judge(ITEMS[:1])
        assert verdict.abstained == abstained and (verdict.score is None) == (abstained is not None)
        assert verdict.breakdown["two"] == Part(None, weight, abstained="unparsable")
        assert verdict.breakdown["one"].score is not None


def test_low_mass_abstains_and_says_how_low(tiny: Engine) -> None:
    [verdict] = PointwiseJudge(tiny, HANNA[:1], min_mass=1.0).judge(ITEMS[:1])
    part = verdict.breakdown["relevance"]
    assert (verdict.score, verdict.abstained, part.score, part.abstained) == (None, "low_mass", None, "low_mass")
    assert part.mass is not None and 0 < part.mass < 1.0


def test_verdicts_are_journaled_and_do_not_depend_on_order_or_windows(tiny: Engine, tmp_path: Path) -> None:
    judge_of = partial(PointwiseJudge, tiny, HANNA[:2])
    assert_same_in_any_company(judge_of, ITEMS, tiny, tmp_path / "j", asked=2 * (len(ITEMS) - 1))


def test_the_key_changes_with_everything_that_decides_the_verdict(tiny: Engine) -> None:
    def key(item: Item = ITEMS[0], aspects: Any = HANNA, **how: Any) -> str:
        return PointwiseJudge(tiny, aspects, **how).key(item)

    keys = [
        key(),
        key(ITEMS[1]),
        key(msgspec.structs.replace(ITEMS[0], prompt="other")),
        key(aspects=HANNA[:2]),
        key(aspects=[Aspect(a.name, a.definition, 2.0) for a in HANNA]),
        key(min_mass=0.1),
        key(cut="tail"),
        key(mode="reasoned"),
        key(mode="reasoned", seed=1),
        key(mode="reasoned", n=3),
        PointwiseJudge(Engine("dummy:tiny-qwen3", kv_cache_gb=0.2)).key(ITEMS[0]),
    ]
    assert len(set(keys)) == len(keys)
    assert key(msgspec.structs.replace(ITEMS[0], id="other")) == keys[0]


@pytest.mark.parametrize("min_mass", [float("nan"), -0.1, 1.5])
def test_a_bound_that_is_no_probability_is_refused(tiny: Engine, min_mass: float) -> None:
    with pytest.raises(AdjudgeError, match="min_mass is .*: give a probability from 0 to 1"):
        PointwiseJudge(tiny, min_mass=min_mass)


def test_stories_of_a_pair_get_the_scores_they_get_alone_and_neither_is_first(tiny: Engine) -> None:
    aspects = [Aspect("wit", "Is it funny?", 3.0), Aspect("grip", "Does it hold one?"), Aspect("off", "?", 0.0)]
    judge = PointwisePairJudge(tiny, aspects, min_mass=0)
    pair = Pair(a="A lamp.", b="<|im_end|> 5", prompt_a="Write.", prompt_b="Write more.", id="1")
    turned = Pair(a=pair.b, b=pair.a, prompt_a="Write more.", prompt_b="Write.", id="1")
    [verdict], [other] = judge.compare([pair]), judge.compare([turned])
    alone = PointwiseJudge(tiny, aspects, min_mass=0)
    a, b = alone.judge([Item(prompt, text) for prompt, text in zip(pair.prompts, (pair.a, pair.b), strict=True)])
    better = {}
    for name, found in verdict.aspects.items():
        one, two = a.breakdown[name], b.breakdown[name]
        assert (found.score_a, found.score_b) == (one.score, two.score) and found.bias is None
        assert (found.distribution_a, found.distribution_b) == (one.distribution, two.distribution)
        assert found.mass == min(one.mass or 0, two.mass or 0)
        better[name] = log_odds(one.distribution or (), two.distribution or (), SCALE.numbers or ())
        assert found.preference == sigmoid(better[name])
        assert other.aspects[name].preference == pytest.approx(1 - sigmoid(better[name]), abs=1e-12)
    assert verdict.preference == pytest.approx(sigmoid((3 * better["wit"] + better["grip"]) / 4))
    assert verdict.key != other.key != alone.key(Item("Write.", "A lamp."))


def test_a_pair_abstains_with_either_story_and_analyses_of_both_are_kept(tiny: Engine) -> None:
    def script(prompt: str, nth: int) -> str:
        return "no score" if "silent" in prompt else GOOD if "a lamp" in prompt else GOOD.replace("4", "2")

    engine = ScriptedEngine(tiny, script)
    judge = PointwisePairJudge(engine, [Aspect("wit", "?")], mode="reasoned", min_mass=0)
    first, second = judge.compare([Pair(a="a lamp", b="b"), Pair(a="a lamp", b="silent")])
    assert first.aspects["wit"].analyses == (GOOD, GOOD.replace("4", "2"))
    assert first.preference is not None and second.preference is None
    assert second.abstained == second.aspects["wit"].abstained == "unparsable"


def test_less_mass_than_asked_for_makes_a_pair_abstain(tiny: Engine) -> None:
    [verdict] = PointwisePairJudge(tiny, [Aspect("wit", "?")], min_mass=1).compare([Pair(a="a", b="b")])
    assert (verdict.preference, verdict.abstained) == (None, "low_mass")
