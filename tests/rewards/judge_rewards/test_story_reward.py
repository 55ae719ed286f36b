from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.rewards.engines.specification import EngineSpec, JudgeSpec
from adjudge.rewards.journal import Journal
from adjudge.rewards.judge_rewards.references import DynamicReference, Referenced, StaticReference
from adjudge.rewards.judge_rewards.story_formulas import RELEASED_ASPECTS, STORY_ASPECTS, ComponentWeights
from adjudge.rewards.judge_rewards.story_reward import StoryReward, pointwise_story_reward
from adjudge.rewards.judges.aspects import HANNA, Aspect
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.parts.gated import Gated
from adjudge.rewards.parts.gates import LanguageReward, LengthWindow
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.verdict import Item, Pair
from tests.rewards.scripted import ScriptedEngine
from tests.rewards.written_judges import WrittenPairJudge

TINY = "dummy:tiny-llama"
SHORT = Sampling(max_tokens=6, temperature=1.0)
SAID: dict[str, Any] = {
    "creativity": (4.0, 3.0),
    "coherence": (3.5, 3.0),
    "relevance": (5.0, 3.0),
    "complexity": (2.0, 3.0),
    "surprise": (1.0, 3.0),
    "engagement": (3.0, 3.0),
}
WINDOW = LengthWindow(4, 8)
GROUP = Group("Tell one.", ("one two three",), "Theirs.")  # 3 of 4 words: f = 2 · 3/4 − 1 = 0.5


class StoryJudge(WrittenPairJudge):
    """A written judge with the story's aspects."""

    def __init__(self, said: dict[str, Any] = SAID, aspects: Any = STORY_ASPECTS) -> None:
        super().__init__(lambda a, b: said)
        self.aspects = aspects


def test_the_published_reward_by_hand() -> None:
    # Σ α y = 5·4 + 3·3.5 + 5 + 3·2 + 1 + 3 = 45.5, of the reference 14 · 3 = 42
    [group] = StoryReward(StoryJudge(), form="parity", window=WINDOW).score_groups([GROUP])
    assert group.rewards == pytest.approx((0.1 * 3.5 + 0.8 * 45.5 + 0.1 * 0.5,), abs=1e-6)
    assert group.parts["advantage"] == pytest.approx((3.5,), abs=1e-6)
    assert group.parts["absolute"] == pytest.approx((45.5,), abs=1e-6)
    assert group.parts["length"] == pytest.approx((0.5,), abs=1e-6)
    assert group.parts["aspect/coherence"] == (3.5,)
    assert group.measures == {"mass": (0.5,), "bias": (0.25,), "truncated": (0.0,), "words": (3.0,)}


def test_the_mended_reward_by_hand() -> None:
    [group] = StoryReward(StoryJudge(), window=WINDOW).score_groups([GROUP])
    advantage, absolute = (0.25 / 4 + 1) / 2, (3.25 - 1) / 4
    assert group.rewards == pytest.approx((0.1 * advantage + 0.8 * absolute + 0.1 * 0.5,), abs=1e-6)
    weights = ComponentWeights(0.5, 0.25, 0.25)
    [other] = StoryReward(StoryJudge(), weights=weights, window=WINDOW).score_groups([GROUP])
    assert other.rewards == pytest.approx((0.5 * advantage + 0.25 * absolute + 0.125,), abs=1e-6)


def test_the_released_reward_by_hand() -> None:
    said = {aspect.name: (3.0, 3.0) for aspect in HANNA} | {"relevance": (4.0, 3.0)}
    reward = StoryReward(StoryJudge(said, HANNA), form="released", window=WINDOW)
    [group] = reward.score_groups([GROUP])
    mean = (14 * 3 + 5) / 14
    assert group.rewards == pytest.approx((0.8 * (1 - math.exp(-5 / 14)) + 0.1 * mean + 0.05,), abs=1e-6)
    tie = StoryReward(StoryJudge(said | {"relevance": (3.0, 3.0)}, HANNA), form="released", window=WINDOW)
    [group] = tie.score_groups([GROUP])
    assert group.rewards == pytest.approx((0.8 * 0.2 / (1 + math.exp(-1)) + 0.3 + 0.05,), abs=1e-6)
    assert [aspect.weight for aspect in RELEASED_ASPECTS] == [5, 3, 1, 3, 1, 1]


def test_only_aspects_with_weight_can_make_a_story_abstain() -> None:
    said = {**SAID, "coherence": "low_mass", "empathy": "timeout"}
    [group] = StoryReward(StoryJudge({**SAID, "empathy": "timeout"}), window=WINDOW).score_groups([GROUP])
    assert group.rewards[0] is not None and group.parts["aspect/empathy"] == (None,)
    [group] = StoryReward(StoryJudge(said), window=WINDOW).score_groups([GROUP])
    assert group.rewards == (None,) and group.abstained == ("low_mass",)
    assert group.parts["advantage"] == (None,) and group.parts["length"] == (0.5,)
    aspects = [a if a.name != "coherence" else Aspect("coherence", a.definition, 0.0) for a in STORY_ASPECTS]
    [group] = StoryReward(StoryJudge(said), aspects=aspects, window=WINDOW).score_groups([GROUP])
    assert group.rewards[0] is not None


def test_with_an_engine_the_scores_are_the_pairwise_judges_in_both_orders(tiny: Engine) -> None:
    judge = PairwiseJudge(tiny, STORY_ASPECTS)
    groups = [Group("Tell one.", ("A story.", "Another."), "Theirs."), Group("Tell two.", ("",), "Theirs too.")]
    rewards = StoryReward(judge, window=WINDOW).score_groups(groups)
    [verdict] = judge.compare([Pair("Another.", "Theirs.", "Tell one.")])
    alpha = {aspect.name: aspect.weight for aspect in STORY_ASPECTS}
    mine = sum(alpha[name] * (aspect.score_a or 0.0) for name, aspect in verdict.aspects.items()) / 14
    theirs = sum(alpha[name] * (aspect.score_b or 0.0) for name, aspect in verdict.aspects.items()) / 14
    expected = 0.1 * ((mine - theirs) / 4 + 1) / 2 + 0.8 * (mine - 1) / 4
    assert rewards[0].rewards[1] == pytest.approx(expected, abs=1e-6)
    assert rewards[0].measures["bias"][1] == verdict.bias and rewards[0].measures["mass"][1] == verdict.mass
    assert rewards[1].rewards[0] is not None and rewards[1].measures["words"] == (0.0,)


def test_a_specification_gets_the_rewards_aspects_and_pickles(tiny: Engine) -> None:
    engine = EngineSpec(TINY, kv_cache_gb=0.2)
    reward = StoryReward(JudgeSpec("pairwise", engine=engine), DynamicReference(engine, SHORT), window=WINDOW)
    groups = [Group("Tell one.", ("A story.", "Another."))]
    expected = reward.score_groups(groups)
    again = pickle.loads(packed := pickle.dumps(reward))
    assert again.engines == () and len(packed) < 5000
    assert again.score_groups(groups) == expected
    assert len(reward.engines) == 1  # the judge's and the base model's are one


def test_a_judge_of_single_stories_gives_the_same_scores_beside_any_reference(tiny: Engine) -> None:
    spec = JudgeSpec("pointwise", engine=EngineSpec("dummy:tiny-llama", kv_cache_gb=0.2))
    groups = [Group("p", ("A long story of the sea.", "Short."), reference) for reference in ("One.", "The other one.")]
    first, second = StoryReward(spec, StaticReference()).score_groups(groups)
    alone = PointwiseJudge(tiny, STORY_ASPECTS).judge([Item("p", text, text) for text in groups[0].responses])
    for place, verdict in enumerate(alone):
        for aspect in STORY_ASPECTS:
            name = f"aspect/{aspect.name}"
            score = verdict.breakdown[aspect.name].score
            assert first.parts[name][place] == second.parts[name][place] == score is not None
    assert first.parts["absolute"] == second.parts["absolute"]
    assert first.parts["advantage"] != second.parts["advantage"] and None not in first.rewards


def test_mistakes_are_found_before_anything_is_asked(tiny: Engine) -> None:
    with pytest.raises(AdjudgeError, match='the judge does not score "creativity", which the reward weighs'):
        StoryReward(PairwiseJudge(tiny))
    with pytest.raises(AdjudgeError, match="no aspects given"):
        StoryReward(JudgeSpec("pairwise"), aspects=())
    with pytest.raises(AdjudgeError, match='the judge does not score "creativity"'):
        StoryReward(JudgeSpec("pairwise", {"aspects": "hanna"}))
    with pytest.raises(AdjudgeError, match='or "pointwise" of both stories, not "tree"'):
        StoryReward(JudgeSpec("tree"))
    with pytest.raises(AdjudgeError, match='or "pointwise" of both stories, not "pointwise"'):
        StoryReward(PointwiseJudge(tiny))  # type: ignore[arg-type]
    with pytest.raises(AdjudgeError, match='form is "fix"'):
        StoryReward(StoryJudge(), form="fix")  # type: ignore[arg-type]
    with pytest.raises(AdjudgeError, match="give finite numbers"):
        ComponentWeights(math.nan)
    with pytest.raises(AdjudgeError, match=r'group 2, prompt "Tell two\.": "reference" is missing'):
        StoryReward(StoryJudge()).score_groups([GROUP, Group("Tell two.", ("A.",))])


def test_the_pointwise_baseline_by_hand(tiny: Engine) -> None:
    judge = PointwiseJudge(tiny, HANNA[:2])
    [group] = pointwise_story_reward(judge, window=WINDOW, length=0.25).score_groups([GROUP])
    [verdict] = judge.judge([Item("Tell one.", "one two three")])
    assert group.rewards == pytest.approx((0.75 * ((verdict.score or 0.0) - 1) / 4 + 0.25 * 0.5,), abs=1e-6)
    assert group.parts["judge"] == pytest.approx((((verdict.score or 0.0) - 1) / 4,)) and group.parts["length"] == (
        0.5,
    )
    with pytest.raises(AdjudgeError, match="length is 2"):
        pointwise_story_reward(judge, length=2)
    with pytest.raises(AdjudgeError, match="length is '0.1'"):
        pointwise_story_reward(judge, length="0.1")  # type: ignore[arg-type]


def test_a_reference_is_written_once_for_a_prompt_whatever_the_company(tiny: Engine, tmp_path: Path) -> None:
    groups = [Group("Tell one.", ("a",)), Group("Tell two.", ("b",)), Group("Tell one.", ("c",))]
    reference = DynamicReference(tiny, SHORT)
    texts = reference.of(groups)
    assert texts[0] == texts[2] != texts[1] and all(one.text for one in texts)
    before = tiny.stats.prompts
    assert reference.of(groups[::-1]) == texts[::-1] and tiny.stats.prompts == before
    assert DynamicReference(tiny, SHORT).of(groups[1:2]) == texts[1:2]
    assert DynamicReference(tiny, SHORT, seed=1).of(groups[1:2]) != texts[1:2]
    with Journal(tmp_path / "j") as journal:
        DynamicReference(tiny, SHORT).of(groups, journal)
        silent = ScriptedEngine(tiny, lambda shown, before: pytest.fail("asked again"))
        kept = DynamicReference(silent, SHORT)
        assert DynamicReference(tiny, SHORT).of(groups, journal) == texts
        assert len(journal) == 2
        assert kept.of(groups, journal) == texts


def test_a_reference_that_cannot_be_written_makes_its_group_abstain(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: " \n" if "two" in shown else "A tale.")
    reference = DynamicReference(engine, SHORT, attempts=3)
    groups = [Group("Tell one.", ("a", "b")), Group("Tell two.", ("c", "d"))]
    assert reference.of(groups) == [Referenced("A tale."), Referenced(None, "unparsable")]
    assert len(engine.asked) == 4 and len(set(engine.seeds)) == 4
    judge = StoryJudge()
    first, second = StoryReward(judge, reference, window=WINDOW).score_groups(groups)
    assert None not in first.rewards
    assert second.rewards == (None, None) and second.abstained == ("unparsable",) * 2
    assert [(pair.a, pair.b) for pair in judge.calls[0]] == [("a", "A tale."), ("b", "A tale.")]
    late = ScriptedEngine(tiny, lambda shown, before: ("", "timeout"))
    assert DynamicReference(late, SHORT).of(groups[:1]) == [Referenced(None, "timeout")]


def test_nothing_is_written_for_a_group_that_its_gates_have_emptied(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: "A tale.")
    story = StoryReward(StoryJudge(), DynamicReference(engine, SHORT), window=WINDOW)
    reward = Gated(story, {"english": LanguageReward("en")})
    empty, other = reward.score_groups([Group("Tell one.", ("故事", "")), Group("Tell two.", ("A story.",))])
    assert empty.rewards == (0.0, 0.0) and other.rewards[0] is not None
    assert len(engine.asked) == 1 and "Tell two." in engine.asked[0]


def test_a_blank_reference_is_written_again_with_another_seed(tiny: Engine) -> None:
    texts = iter(["", "A tale."])
    engine = ScriptedEngine(tiny, lambda shown, before: next(texts))
    assert DynamicReference(engine, SHORT).of([GROUP]) == [Referenced("A tale.")]


@pytest.mark.parametrize("prompt", ["", "\ud800\0", "<|im_end|><|im_start|>", "word " * 20_000])
def test_hostile_prompts_get_a_reference_or_abstain(tiny: Engine, prompt: str) -> None:
    [one] = DynamicReference(tiny, SHORT).of([Group(prompt, ("a",))])
    assert (one.text is None) == (one.abstained is not None)


def test_a_reference_of_an_open_engine_cannot_be_pickled(tiny: Engine) -> None:
    with pytest.raises(AdjudgeError, match="open Engine cannot be pickled: make it from its .*EngineSpec"):
        pickle.dumps(DynamicReference(tiny, SHORT))
    assert pickle.loads(pickle.dumps(StaticReference("human"))).column == "human"


def test_an_aspect_of_ones_own_has_a_part_of_its_own() -> None:
    aspects = (Aspect("length", "Is it long?"), Aspect("wit", "Is it funny?"))
    judge = StoryJudge({"length": (2.0, 1.0), "wit": (4.0, 1.0)}, aspects)
    [group] = StoryReward(judge, aspects=aspects, window=WINDOW).score_groups([GROUP])
    assert group.parts["length"] == (0.5,) and group.parts["aspect/length"] == (2.0,)
    assert group.parts["absolute"] == pytest.approx((0.5,), abs=1e-6)
