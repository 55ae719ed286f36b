from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import permutations
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import Reason
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.aspects import HANNA
from adjudge.rewards.judges.pairing import Kind
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.judges.preference import sigmoid
from adjudge.rewards.judges.tournament import Ranking, Tournament
from adjudge.rewards.records.group import Group, GroupVerdict
from adjudge.rewards.records.verdict import Pair, PairVerdict


class MadeUpJudge:
    """Prefers by made-up qualities; abstains on the pairs of `abstains`, and keeps what it was asked, call by call."""

    def __init__(self, quality: dict[str, float], abstains: dict[frozenset[str], Reason] | None = None) -> None:
        self.quality = quality
        self.abstains = abstains or {}
        self.calls: list[list[Pair]] = []

    @property
    def asked(self) -> list[Pair]:
        return [pair for call in self.calls for pair in call]

    def compare_iter(self, pairs: Iterable[Pair], /) -> Iterator[PairVerdict]:
        self.calls.append([])
        for pair in pairs:
            self.calls[-1].append(pair)
            reason = self.abstains.get(frozenset((pair.a, pair.b)))
            preference = None if reason else sigmoid(self.quality[pair.a] - self.quality[pair.b])
            yield PairVerdict(pair.id, preference, {}, reason, "long" in pair.a, "made-up", f"{pair.a}|{pair.b}")


QUALITY = {"b": 1.0, "e": -2.0, "a": 2.5, "d": -1.0, "c": 0.0, "ref": 0.5}
TEXTS = ("b", "e", "a", "d", "c")
GROUP = Group("p", TEXTS, id="g")
WITH_REFERENCE = Group("p", TEXTS, reference="ref", id="r")


def rank(group: Group, judge: MadeUpJudge | None = None, **options: object) -> GroupVerdict:
    return Tournament(judge or MadeUpJudge(QUALITY), **options).rank([group])[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("pairing", ["all", "circular", "uncertain"])
def test_strengths_are_the_judges_qualities_and_preferences_are_over_the_reference(pairing: Kind) -> None:
    verdict = rank(WITH_REFERENCE, pairing=pairing)
    mean = sum(QUALITY.values()) / 6
    assert verdict.strengths == pytest.approx([QUALITY[text] - mean for text in TEXTS], abs=0.02)
    assert verdict.reference_strength == pytest.approx(QUALITY["ref"] - mean, abs=0.02)
    assert verdict.preferences == pytest.approx([sigmoid(QUALITY[text] - 0.5) for text in TEXTS], abs=0.01)
    assert verdict.best == 2 and verdict.worst == min(range(len(verdict.strengths)), key=verdict.strengths.__getitem__)
    assert verdict.model == "made-up" and verdict.id == "r"
    assert verdict.abstained is None and not verdict.abstentions
    assert all(0 < error < 4 for error in verdict.errors if error is not None) and None not in verdict.errors


def test_borda_is_the_mean_preference_and_knows_the_reference_only_where_they_met() -> None:
    others = [text for text in QUALITY if text != "a"]
    verdict = rank(WITH_REFERENCE, ranking="borda")
    assert verdict.strengths[2] == pytest.approx(sum(sigmoid(2.5 - QUALITY[text]) for text in others) / 5)
    assert verdict.errors == (None,) * 5
    assert verdict.preferences == pytest.approx([sigmoid(QUALITY[text] - 0.5) for text in TEXTS])
    sparse = rank(WITH_REFERENCE, ranking="borda", pairing="circular", k=2)
    assert sparse.preferences is not None
    met = {None: set[int]()} | {place: set() for place in range(5)}
    for outcome in sparse.outcomes:
        met[outcome.a].add(outcome.b)  # type: ignore[arg-type]
        met[outcome.b].add(outcome.a)  # type: ignore[arg-type]
    assert {place for place, p in enumerate(sparse.preferences) if p is not None} == met[None] != set(range(5))


@pytest.mark.parametrize("pairing", ["all", "circular", "uncertain"])
@pytest.mark.parametrize("ranking", ["bradley_terry", "borda"])
def test_permuted_responses_have_the_same_strengths_to_the_last_bit(pairing: Kind, ranking: Ranking) -> None:
    judge = MadeUpJudge(QUALITY)
    options = {"pairing": pairing, "ranking": ranking, "k": 3, "seed": 7}
    expected = rank(WITH_REFERENCE, judge, **options)
    by_text = {text: (expected.strengths[n], expected.errors[n]) for n, text in enumerate(TEXTS)}
    for texts in list(permutations(TEXTS))[::17]:
        verdict = rank(Group("p", texts, reference="ref"), judge, **options)
        assert list(zip(verdict.strengths, verdict.errors, strict=True)) == [by_text[text] for text in texts]
        assert verdict.reference_strength == expected.reference_strength
    assert len({(pair.a, pair.b) for pair in judge.asked}) == len(expected.outcomes)  # asked the same way round too


@settings(max_examples=30)
@given(st.floats(-20, 20))
def test_a_constant_added_to_all_qualities_changes_nothing(constant: float) -> None:
    shifted = rank(GROUP, MadeUpJudge({text: quality + constant for text, quality in QUALITY.items()}))
    assert shifted.strengths == pytest.approx(rank(GROUP).strengths, abs=1e-9)


@settings(max_examples=30)
@given(st.floats(-3, 3), st.floats(0, 3), st.sampled_from(["bradley_terry", "borda"]))
def test_a_better_text_never_ranks_lower(quality: float, more: float, ranking: Ranking) -> None:
    before, after = (
        rank(GROUP, MadeUpJudge({**QUALITY, "c": value}), ranking=ranking).strengths[4]
        for value in (quality, quality + more)
    )
    assert before is not None and after is not None and after >= before - 1e-9


def test_equal_texts_are_one_member() -> None:
    judge = MadeUpJudge(QUALITY)
    verdict = rank(Group("p", ("a", "b", "a", "c", "b", "ref"), reference="ref"), judge)
    assert len(judge.asked) == 6  # four texts
    assert verdict.strengths == tuple(verdict.strengths[place] for place in (0, 1, 0, 3, 1, 5))
    assert verdict.strengths[5] == verdict.reference_strength
    assert verdict.preferences is not None and verdict.preferences[5] == 0.5
    assert {place for outcome in verdict.outcomes for place in (outcome.a, outcome.b)} == {0, 1, 3, 5}
    assert rank(Group("p", ("a", "b", "ref"), reference="ref"), ranking="borda").preferences[2] == 0.5  # type: ignore[index]


def test_texts_that_cannot_be_encoded_are_ranked() -> None:
    judge = MadeUpJudge({"x\ufffd": 1.0, "y": 0.0})
    verdict = rank(Group("\ud800", ("x\ud800", "y", "x\udfff")), judge)
    assert len(judge.asked) == 1 and verdict.strengths[0] == verdict.strengths[2]
    msgspec.json.encode(verdict)


def test_abstained_pairs_are_left_out_and_counted() -> None:
    abstains: dict[frozenset[str], Reason] = {
        frozenset("ab"): "low_mass",
        frozenset("cd"): "timeout",
        frozenset("bd"): "low_mass",
    }
    verdict = rank(GROUP, MadeUpJudge(QUALITY, abstains))
    mean = sum(QUALITY[text] for text in TEXTS) / 5
    assert verdict.strengths == pytest.approx([QUALITY[text] - mean for text in TEXTS], abs=0.03)
    assert verdict.abstentions == {"low_mass": 2, "timeout": 1} and verdict.abstained is None
    assert [outcome.preference is None for outcome in verdict.outcomes].count(True) == 3


def never(*texts: str) -> dict[frozenset[str], Reason]:
    """The judge abstains whenever it sees one of these."""
    return {frozenset((text, other)): "too_long" for text in texts for other in QUALITY}


@pytest.mark.parametrize("ranking", ["bradley_terry", "borda"])
def test_a_response_without_an_answered_comparison_has_no_strength(ranking: Ranking) -> None:
    verdict = rank(WITH_REFERENCE, MadeUpJudge(QUALITY, never("d")), ranking=ranking)
    assert [strength is None for strength in verdict.strengths] == [text == "d" for text in TEXTS]
    assert verdict.preferences is not None and verdict.preferences[3] is None and verdict.abstained is None


def test_a_response_that_nothing_joins_to_the_reference_has_no_preference_over_it() -> None:
    answered = [frozenset(pair) for pair in (("a", "ref"), ("b", "c"))]
    abstains: dict[frozenset[str], Reason] = {
        pair: "low_mass" for pair in (frozenset(pair) for pair in permutations(QUALITY, 2)) if pair not in answered
    }
    verdict = rank(Group("p", ("a", "b", "c"), reference="ref"), MadeUpJudge(QUALITY, abstains))
    assert verdict.preferences == (pytest.approx(sigmoid(2.0), abs=1e-2), None, None)
    assert [strength is None for strength in verdict.strengths] == [True, False, False]


def test_a_judge_that_always_abstains_gives_no_number_but_its_commonest_reason() -> None:
    verdict = rank(WITH_REFERENCE, MadeUpJudge(QUALITY, never(*TEXTS) | {frozenset("ab"): "timeout"}))
    assert verdict.strengths == verdict.errors == verdict.preferences == (None,) * 5
    assert verdict.reference_strength is None and verdict.best is None and verdict.worst is None
    assert verdict.abstained == "too_long"


@pytest.mark.parametrize("pairing", ["all", "circular", "uncertain"])
@pytest.mark.parametrize("ranking", ["bradley_terry", "borda"])
def test_a_lone_response_is_compared_with_nobody_but_a_reference(pairing: Kind, ranking: Ranking) -> None:
    judge = MadeUpJudge(QUALITY)
    for count in (1, 3):  # it ties with itself
        alone = rank(Group("p", ("a",) * count), judge, pairing=pairing, ranking=ranking)
        tie = 0.5 if ranking == "borda" else 0.0
        assert alone.strengths == (tie,) * count and not alone.outcomes
        assert alone.preferences is None and alone.abstained is None and alone.model == ""
    assert not judge.asked
    verdict = rank(Group("p", ("a",), reference="ref"), judge, pairing=pairing, ranking=ranking)
    assert verdict.preferences == pytest.approx((sigmoid(2.0),), abs=2e-3)
    assert rank(Group("p", ("a",), reference="a"), judge, ranking=ranking).preferences == (0.5,)


def test_truncation_of_any_pair_is_said() -> None:
    quality = {"a long one": 0.0, "a": 1.0, "b": 2.0}
    assert rank(Group("p", ("a long one", "a", "b")), MadeUpJudge(quality)).truncated
    assert not rank(Group("p", ("a", "b")), MadeUpJudge(quality)).truncated


def test_each_round_of_all_groups_is_one_call_and_verdicts_come_as_groups_end() -> None:
    groups = [Group("p", TEXTS), Group("q", ("a",)), WITH_REFERENCE]
    judge = MadeUpJudge(QUALITY)
    verdicts = Tournament(judge).rank_iter(groups)
    next(verdicts)
    assert len(judge.asked) == 10
    next(verdicts)
    assert len(judge.asked) == 10
    next(verdicts)
    assert [len(call) for call in judge.calls] == [10 + 15]
    assert [pair.prompt for pair in judge.asked] == ["p"] * 25

    judge = MadeUpJudge(QUALITY)
    together = Tournament(judge, pairing="uncertain", k=3).rank(groups)
    assert [len(call) for call in judge.calls] == [5 + 6, 2 + 3, 1]
    assert [Tournament(judge, pairing="uncertain", k=3).rank([group]) for group in groups] == [[v] for v in together]


def test_the_seed_decides_who_meets_whom() -> None:
    met = [{(o.a, o.b) for o in rank(GROUP, pairing="circular", k=2, seed=seed).outcomes} for seed in (0, 0, 1)]
    assert met[0] == met[1] != met[2]


def test_the_key_stands_for_texts_ranking_and_the_verdicts_of_the_pairs() -> None:
    keys = [
        rank(GROUP).key,
        rank(GROUP, ranking="borda").key,
        rank(GROUP, pairing="circular", k=2).key,
        rank(GROUP, pairing="circular", k=2, seed=1).key,
        rank(Group("q", TEXTS)).key,
        rank(Group("p", TEXTS[::-1])).key,
        rank(Group("p", TEXTS, reference="a")).key,
    ]
    assert len(set(keys)) == len(keys)
    assert rank(Group("p", TEXTS, id="other")).key == keys[0]


def test_mistakes_of_the_author_are_named_before_anything_is_judged() -> None:
    judge = MadeUpJudge(QUALITY)
    for groups, options, message in [
        ([GROUP, Group("p", (), id="empty")], {}, 'group "empty", prompt "p": it has no responses'),
        ([GROUP, Group("p", ())], {}, 'group 2, prompt "p": it has no responses, give at least one'),
        ([GROUP], {"pairing": "uncertain", "budget": 3}, 'group "g", prompt "p": budget is 3: give at least 4 pairs'),
        ([GROUP], {"pairing": "swiss"}, 'pairing is "swiss"'),
        ([GROUP], {"ranking": "elo"}, 'ranking is "elo": choose bradley_terry or borda'),
    ]:
        with pytest.raises(AdjudgeError, match=message):
            Tournament(judge, **options).rank(groups)  # type: ignore[arg-type]
    assert not judge.calls


def test_a_real_engine_ranks_and_its_journal_knows_the_pairs_in_any_order(tmp_path: Path) -> None:
    engine = Engine("dummy:tiny-llama", kv_cache_gb=0.2)
    texts = tuple(f"Tale {n}: the sea was {n}. <ANSWER> 5 </ANSWER>" for n in range(5))
    groups = [Group("Tell one.", texts, reference="A lamp.", id="a"), Group("Another.", texts[:2])]
    with Journal(tmp_path / "j") as journal:
        judge = PairwiseJudge(engine, HANNA[:1], journal=journal)
        first, second = Tournament(judge, pairing="uncertain", k=3).rank(groups)
        assert len(set(first.strengths)) == 5 and None not in first.strengths
        assert len(first.outcomes) == 9 and first.preferences is not None and second.preferences is None
        [verdict] = judge.compare([Pair(prompt="Another.", a=texts[0], b=texts[1])])
        assert second.strengths[0] is not None and verdict.preference is not None
        log_odds = math.log(verdict.preference) - math.log1p(-verdict.preference)
        assert log_odds != 0 and 2 * second.strengths[0] == pytest.approx(log_odds, rel=0.01)

        computed, stored = engine.stats.tokens_computed, len(journal)
        turned = Group("Tell one.", texts[::-1], reference="A lamp.")
        [again] = Tournament(judge, pairing="uncertain", k=3).rank([turned])
        assert again.strengths == first.strengths[::-1]
        assert (engine.stats.tokens_computed, len(journal)) == (computed, stored)
    assert msgspec.json.decode(msgspec.json.encode(first), type=GroupVerdict) == first
    assert Counter(outcome.abstained for outcome in first.outcomes) == {None: 9}
