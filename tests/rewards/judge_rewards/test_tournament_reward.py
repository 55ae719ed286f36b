from __future__ import annotations

import pickle
from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.engines.specification import EngineSpec, JudgeSpec
from adjudge.rewards.judge_rewards.references import StaticReference
from adjudge.rewards.judge_rewards.tournament_reward import TournamentReward
from adjudge.rewards.judges.aspects import HANNA
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.judges.pointwise import PointwiseJudge, PointwisePairJudge
from adjudge.rewards.judges.tournament import Tournament, members_of
from adjudge.rewards.parts.gated import Gated
from adjudge.rewards.records.group import Group
from tests.rewards.written_judges import WrittenJudge, WrittenPairJudge

TINY = "dummy:tiny-llama"


def by_length(a: str, b: str) -> dict[str, Any]:
    return {"length": "timeout" if "late" in (a, b) else (float(len(a)), float(len(b)))}


def test_strengths_and_preferences_are_the_tournaments() -> None:
    groups = [Group("p", ("a", "aaa", "aa"), "aa"), Group("q", ("a", "aaaa"), "aa")]
    verdicts = Tournament(WrittenPairJudge(by_length)).rank(groups)
    over_group = TournamentReward(WrittenPairJudge(by_length)).score_groups(groups)
    over_reference = TournamentReward(WrittenPairJudge(by_length), over="reference").score_groups(groups)
    for verdict, one, other in zip(verdicts, over_group, over_reference, strict=True):
        assert one.rewards == verdict.strengths == one.parts["strength"] and one.measures["error"] == verdict.errors
        assert other.rewards == verdict.preferences
    assert over_group[0].rewards[1] > over_group[0].rewards[2] > over_group[0].rewards[0]  # type: ignore[operator]
    assert over_reference[0].rewards[2] == pytest.approx(0.5, abs=1e-6)  # the reference itself


def test_a_response_that_is_the_reference_is_as_good_whatever_was_asked() -> None:
    groups = [Group("p", ("aa", "aa"), "aa"), Group("q", ("aa",), "aa"), Group("r", ("late", "aa"), "aa")]
    for ranking in ("bradley_terry", "borda"):
        same, alone, late = TournamentReward(
            WrittenPairJudge(by_length), over="reference", ranking=ranking
        ).score_groups(groups)
        assert same.rewards == (0.5, 0.5) and alone.rewards == (0.5,) and same.abstained == (None, None)
        assert late.rewards == (None, 0.5) and late.abstained == ("timeout", None)


def test_a_round_of_all_groups_is_one_call_of_the_judge() -> None:
    judge = WrittenPairJudge(by_length)
    groups = [Group(f"p{n}", tuple("a" * (m + 1) for m in range(8))) for n in range(3)]
    TournamentReward(judge).score_groups(groups)
    assert [len(call) for call in judge.calls] == [3 * 28]


def test_equal_texts_are_equally_strong_and_a_lone_one_is_as_strong_as_the_mean() -> None:
    groups = [Group("p", ("a", "a", "a")), Group("q", ("a",)), Group("r", ()), Group("s", ("a", "aa", "a"))]
    same, lone, empty, mixed = TournamentReward(WrittenPairJudge(by_length)).score_groups(groups)
    assert same.rewards == (0.0, 0.0, 0.0) and same.abstained == (None,) * 3
    assert lone.rewards == (0.0,) and lone.abstained == (None,)
    assert empty.rewards == ()
    assert mixed.rewards[0] == mixed.rewards[2] != mixed.rewards[1]


def test_by_borda_a_lone_text_has_the_strength_of_a_tie_and_nobody_is_below_0() -> None:
    groups = [Group("p", ("a", "a")), Group("q", ("a",)), Group("r", ("a", "aaaa"))]
    borda = TournamentReward(WrittenPairJudge(by_length), ranking="borda")
    same, lone, two = borda.score_groups(groups)
    assert same.rewards == (0.5, 0.5) and lone.rewards == (0.5,) and same.abstained == (None, None)
    assert 0 <= two.rewards[0] < 0.5 < two.rewards[1] <= 1  # type: ignore[operator]
    assert not borda.below_zero and TournamentReward(WrittenPairJudge(by_length)).below_zero
    gated = Gated(borda, {"long": lambda completions, **_: [float(len(text) > 2) for text in completions]})
    assert gated.score_groups(groups[2:])[0].rewards == (0.0, 0.5)


def test_the_only_one_that_passes_a_gate_is_paid_for_it() -> None:
    def long(completions: list[str], **_: Any) -> list[float]:
        return [float(len(text) > 2) for text in completions]

    gated = Gated(TournamentReward(WrittenPairJudge(by_length)), {"long": long}, shut=-5.0)
    [group] = gated.score_groups([Group("p", ("a", "aaaa", "aa", "a"))])
    assert group.rewards == (-5.0, 0.0, -5.0, -5.0) and group.abstained == (None,) * 4


def test_a_response_whose_comparisons_all_abstained_says_why() -> None:
    [group] = TournamentReward(WrittenPairJudge(by_length)).score_groups([Group("p", ("a", "late", "aaa", "late"))])
    assert group.rewards[1] is None and group.rewards[3] is None and group.rewards[0] is not None
    assert group.abstained == (None, "timeout", None, "timeout")
    [nothing] = TournamentReward(WrittenPairJudge(by_length)).score_groups([Group("p", ("a", "late"))])
    assert nothing.abstained == ("timeout", "timeout") and nothing.settled == (None, None)


def test_who_is_not_joined_to_the_largest_part_of_the_group_is_not_paid_for_comparisons_that_nobody_made() -> None:
    def of_a_kind(a: str, b: str) -> dict[str, Any]:
        return by_length(a, b) if a[0] == b[0] else {"length": "low_mass"}

    responses = ("aaaaaaa", "b", "aa", "bb", "bbb", "b")
    [group] = TournamentReward(WrittenPairJudge(of_a_kind)).score_groups([Group("p", responses)])
    [alone] = TournamentReward(WrittenPairJudge(by_length)).score_groups([Group("p", ("b", "bb", "bbb", "b"))])
    places = [1, 3, 4, 5]
    assert [group.rewards[place] for place in places] == pytest.approx(alone.rewards, abs=1e-9)
    assert [group.measures["error"][place] for place in places] == pytest.approx(alone.measures["error"], abs=1e-6)
    assert group.abstained == ("low_mass", None, "low_mass", None, None, None) and group.rewards[::2][:2] == (None,) * 2


def test_one_whose_own_pairs_were_all_answered_but_far_from_the_others_abstains_for_the_groups_reason() -> None:
    group = Group("p", tuple("abcdefgh"))
    circle = members_of(group, 0)
    cuts = [{circle[2], circle[3]}, {circle[-1], circle[0]}]

    def in_two(a: str, b: str) -> dict[str, Any]:
        return {"length": "timeout"} if {a, b} in cuts else by_length(a, b)

    [given] = TournamentReward(WrittenPairJudge(in_two), pairing="circular", k=2).score_groups([group])
    why = dict(zip(group.responses, given.abstained, strict=True))
    assert [why[text] for text in circle] == ["timeout"] * 3 + [None] * 5
    pairs = dict(zip(group.responses, given.measures["pairs_abstained"], strict=True))
    assert pairs[circle[1]] == 0.0


def test_the_pairs_of_a_response_are_measured() -> None:
    responses = ("a", "late", "aaa", "a")
    [group] = TournamentReward(WrittenPairJudge(by_length)).score_groups([Group("p", responses)])
    assert group.measures["pairs_abstained"] == (0.5, 1.0, 0.5, 0.5)
    assert group.measures["mass"] == (0.5,) * 4 and group.measures["bias"] == (0.25, None, 0.25, 0.25)
    [lone] = TournamentReward(WrittenPairJudge(by_length)).score_groups([Group("p", ("a",))])
    assert lone.measures["pairs_abstained"] == lone.measures["mass"] == lone.measures["bias"] == (None,)


def test_the_reference_may_be_a_column_and_a_missing_one_is_named() -> None:
    judge = WrittenPairJudge(by_length)
    [own] = TournamentReward(judge, over="reference").score_groups([Group("p", ("a", "aaa"), "aa")])
    column = TournamentReward(judge, over="reference", reference=StaticReference("human"))
    assert column.score_groups([Group("p", ("a", "aaa"), columns={"human": "aa"})]) == [own]
    with pytest.raises(AdjudgeError, match='group 1, prompt "p": "reference" is missing'):
        TournamentReward(judge, over="reference").score_groups([Group("p", ("a",))])


def test_with_an_engine_and_from_a_specification() -> None:
    groups = [Group("Tell.", ("One.", "Two two.", "Three."), "Theirs.")]
    engine = Engine(TINY, kv_cache_gb=0.2)
    expected = TournamentReward(PairwiseJudge(engine, HANNA[:1]), pairing="circular", k=2).score_groups(groups)
    spec = JudgeSpec("pairwise", {"aspects": "relevance"}, EngineSpec(TINY, kv_cache_gb=0.2))
    reward = pickle.loads(pickle.dumps(TournamentReward(spec, pairing="circular", k=2)))
    assert reward.engines == ()
    assert reward.score_groups(groups) == expected
    assert len(reward.engines) == 1


def test_stories_may_be_read_alone() -> None:
    groups = [Group("Tell.", ("One.", "Two two.", "Three."))]
    engine = Engine(TINY, kv_cache_gb=0.2)
    reward = TournamentReward(PointwisePairJudge(engine, HANNA[:1]))
    assert reward.source.kind == "pointwise of pairs"
    spec = JudgeSpec("pointwise of pairs", {"aspects": "relevance"}, EngineSpec(TINY, kv_cache_gb=0.2))
    assert reward.score_groups(groups) == TournamentReward(spec).score_groups(groups)
    with pytest.raises(AdjudgeError, match="needs a judge of pairs"):
        TournamentReward(PointwiseJudge(engine))


def test_judges_that_cannot_hold_a_tournament_are_refused() -> None:
    with pytest.raises(AdjudgeError, match="needs a judge of pairs"):
        TournamentReward(WrittenJudge(lambda text: 1.0))
    with pytest.raises(AdjudgeError, match="no reviews to give"):
        TournamentReward(JudgeSpec("personal of pairs"))
    with pytest.raises(AdjudgeError, match='over is "all"'):
        TournamentReward(WrittenPairJudge(by_length), over="all")  # type: ignore[arg-type]


def test_borda_over_a_reference_wants_all_pairs() -> None:
    for pairing in ("circular", "uncertain"):
        with pytest.raises(AdjudgeError, match=f'with pairing "{pairing}": choose'):
            TournamentReward(JudgeSpec("pairwise"), over="reference", ranking="borda", pairing=pairing)  # type: ignore[arg-type]
    TournamentReward(JudgeSpec("pairwise"), over="reference", ranking="borda")


def test_in_a_plain_call_a_group_stays_one_whatever_other_columns_say() -> None:
    reward = TournamentReward(WrittenPairJudge(by_length))
    assert reward(["p"] * 3, ["a", "aa", "aaa"], step_id=[1, 2, 3]) == reward(["p"] * 3, ["a", "aa", "aaa"])
    assert reward(["p"] * 3, ["a", "aa", "aaa"], id=[1, 2, 3]) == [0.0] * 3
