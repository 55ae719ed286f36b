from __future__ import annotations

import itertools
import math
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Score
from adjudge.rewards.judges.asking import Answer
from adjudge.rewards.judges.aspects import PERSE, Aspect
from adjudge.rewards.judges.personal import (
    CHOICES,
    RATINGS,
    PersonalJudge,
    PersonalPairJudge,
    last_comparisons,
    last_reviews,
)
from adjudge.rewards.judges.preference import sigmoid
from adjudge.rewards.records.verdict import Comparison, Item, Pair, PairVerdict, Part, Review
from tests.engine.reference import next_logprobs, open_reference
from tests.rewards.judges.company import assert_same_in_any_company
from tests.rewards.scripted import ScriptedEngine

TINY = "dummy:tiny-llama"
SHORT = Sampling(max_tokens=6, temperature=1.0)
ANY: dict[str, Any] = {"min_mass": 0.0}  # random weights put little mass on any label
REVIEWS = tuple(Review(f"Old plot {n}.", f"Old words {n}.", float(n)) for n in range(1, 7))
ITEMS = [Item(prompt="", response=f"New plot {n}.", id=str(n), reviews=REVIEWS) for n in range(4)]
CHOSEN = (
    Comparison("Left one.", "Right one.", "b", "ending"),
    Comparison("Left one.", "Right one.", "a", "surprise"),
    Comparison("Left two.", "Right two.", "b"),
)
PAIRS = [Pair(a=f"This plot {n}.", b="That plot.", prompt="Tell one.", id=str(n), reviews=CHOSEN) for n in range(3)]
GOOD = "They would like it. <ANSWER> 7 </ANSWER>"


def shown(judge: Any, subject: Any, question: int = 0) -> str:
    tokenizer = judge.engine.tokenizer
    text: str = tokenizer.decode(tokenizer.prompt(judge.ask(subject)[0][question].prompt))
    return text


def test_a_rating_is_the_expected_label_as_plain_transformers_spells_1_to_10(tiny: Engine) -> None:
    judge = PersonalJudge(tiny, **ANY)
    [verdict] = judge.judge(ITEMS[:1])
    tokens = tiny.tokenizer.prompt(judge.ask(ITEMS[0])[0][0].prompt)
    assert tiny.tokenizer.decode(tokens).endswith("assistant\nThis reader's rating of the new plot: <ANSWER> ")
    reference = open_reference(TINY)
    zero, *digits = (tiny.tokenizer.encode(str(digit), True)[0] for digit in range(10))
    first = next_logprobs(reference, tokens)
    ten = float(next_logprobs(reference, (*tokens, digits[0]))[zero].exp())
    chances = [float(first[digit].exp()) for digit in digits]
    chances = [chances[0] * (1 - ten), *chances[1:], chances[0] * ten]
    part = verdict.breakdown["rating"]
    assert part.mass == pytest.approx(sum(chances), abs=1e-5)
    assert part.distribution == pytest.approx([chance / sum(chances) for chance in chances], abs=1e-4)
    expected = sum(n * chance for n, chance in enumerate(part.distribution or (), 1))
    assert verdict.score == part.score == pytest.approx(expected) and 1 < expected < 10
    assert (verdict.id, verdict.abstained, verdict.truncated, verdict.analysis) == ("0", None, False, None)


@pytest.mark.parametrize("k", range(6))
def test_the_last_k_reviews_are_shown_in_their_order_with_their_scores(tiny: Engine, k: int) -> None:
    text = shown(PersonalJudge(tiny, k=k), ITEMS[0])
    assert [n for n in range(1, 7) if f"Old plot {n}." in text] == list(range(7 - k, 7))
    for place, n in enumerate(range(7 - k, 7), 1):
        assert f"[Review of plot {place} begins]\nOld words {n}.\n" in text
        assert f"The reader rated earlier plot {place}: {n}\n" in text
    assert ("Nothing is known of this reader" in text) == (k == 0)


def test_where_there_are_fewer_reviews_than_k_all_are_shown_and_half_points_stay(tiny: Engine) -> None:
    few = Item("", "New.", reviews=(Review("Old.", "Well.", 6.5),))
    assert "The reader rated earlier plot 1: 6.5\n" in shown(PersonalJudge(tiny, k=5), few)


def test_without_texts_only_plots_and_scores_are_shown(tiny: Engine) -> None:
    text = shown(PersonalJudge(tiny, texts=False), ITEMS[0])
    assert "Old plot 6." in text and "Old words" not in text and "earlier plot 3: 6" in text


def test_the_prompt_of_a_plot_is_shown_where_there_is_one(tiny: Engine) -> None:
    item = msgspec.structs.replace(ITEMS[0], prompt="Tell of snow.")
    assert '"""\nTell of snow.\n"""' in shown(PersonalJudge(tiny), item)
    assert '"""' not in shown(PersonalJudge(tiny), ITEMS[0])


def test_in_the_papers_order_the_request_stands_before_the_new_plot(tiny: Engine) -> None:
    for layout, before in (("shared", False), ("paper", True)):
        text = shown(PersonalJudge(tiny, layout=layout), ITEMS[0])  # type: ignore[arg-type]
        assert text.index("Old plot 6") < min(text.index("Which rating"), text.index("New plot 0"))
        assert (text.index("Which rating") < text.index("New plot 0")) == before
        text = shown(PersonalPairJudge(tiny, layout=layout), PAIRS[0])  # type: ignore[arg-type]
        assert text.index("Left two") < min(text.index("Aspect:"), text.index("This plot 0"))
        assert (text.index("Aspect:") < text.index("This plot 0")) == before


@pytest.mark.parametrize("k", [-1, 6])
def test_a_k_off_its_range_is_refused(tiny: Engine, k: int) -> None:
    for judge in (PersonalJudge, PersonalPairJudge):
        with pytest.raises(AdjudgeError, match="show 0 to 5"):
            judge(tiny, k=k)


def test_a_reader_without_reviews_is_the_authors_mistake_unless_none_are_wanted(tiny: Engine) -> None:
    asked = tiny.stats.prompts
    with pytest.raises(AdjudgeError, match=r'item "x": its reader has no "reviews".*k to 0'):
        PersonalJudge(tiny).judge([*ITEMS, Item("", "New.", id="x")])
    with pytest.raises(AdjudgeError, match=r'pair "y": its reader has no "reviews".*k to 0'):
        PersonalPairJudge(tiny).compare([*PAIRS, Pair("A", "B", id="y")])
    wordless = Item("", "New.", reviews=(Review("A plot.", "", 3), Review("Another.", None, 4)))
    with pytest.raises(AdjudgeError, match=r'item "": review 2 has no "review", its text: .* texts=False'):
        PersonalJudge(tiny).judge([wordless])
    assert tiny.stats.prompts == asked
    assert PersonalJudge(tiny, texts=False, **ANY).judge([wordless])[0].score is not None
    assert PersonalJudge(tiny, k=0, **ANY).judge([Item("", "New.")])[0].score is not None
    assert PersonalPairJudge(tiny, k=0, **ANY).compare([Pair("A", "B")])[0].preference is not None


def test_a_review_that_is_not_shown_may_lack_what_others_have(tiny: Engine) -> None:
    older = [Review("A plot.", None, 3), Review("A plot.", "Good.", 11)]
    last = (Review("Another.", "Fine.", 4), Review("A third.", "Poor.", 2))
    items = [Item("", "New.", reviews=(*older, *last)), Item("", "New.", reviews=last)]
    first, second = PersonalJudge(tiny, k=2, **ANY).judge(items)
    assert first == second and first.score is not None


@pytest.mark.parametrize("score", [0.0, 10.5, math.nan, math.inf, "3"])
def test_a_score_off_the_scale_is_the_authors_mistake(tiny: Engine, score: Any) -> None:
    item = Item("", "New.", id="x", reviews=(*REVIEWS, Review("p", "r", score)))
    with pytest.raises(AdjudgeError, match=r'item "x": review 7 has the score .*: give one from 1 to 10'):
        PersonalJudge(tiny).judge([item])
    assert len(last_reviews(ITEMS[0], 3, "")) == 3


def test_plots_of_one_reader_share_the_reviews_and_aspects_of_a_pair_share_the_plots() -> None:
    reviews = tuple(Review("A long old plot. " * 30, "Well told.", 7) for _ in range(3))
    engine = Engine(TINY, kv_cache_gb=0.2)
    PersonalJudge(engine, **ANY).judge([msgspec.structs.replace(item, reviews=reviews) for item in ITEMS])
    assert engine.stats.prompts == 4 and engine.stats.sharing > 3
    engine = Engine(TINY, kv_cache_gb=0.2)
    plot = "A long plot. " * 30
    PersonalPairJudge(engine, **ANY).compare(
        [Pair(plot, f"Other {n}.", reviews=(Comparison(plot, plot, "a"),)) for n in range(2)]
    )
    assert engine.stats.prompts == 20 and engine.stats.sharing > 5


def test_in_reasoned_mode_the_review_comes_first_and_the_score_is_read_where_it_was_written(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: GOOD)
    judge = PersonalJudge(engine, mode="reasoned", sampling=SHORT, **ANY)
    [verdict] = judge.judge(ITEMS[:1])
    assert "1. Review:" in engine.asked[0] and engine.asked[0].endswith("</ANSWER><|im_end|>\n<|im_start|>assistant\n")
    before = tiny.tokenizer.encode(GOOD[: GOOD.index("7")], False)
    [score] = tiny.score([tiny.tokenizer.prompt(judge.ask(ITEMS[0])[0][0].prompt) + before], RATINGS)
    assert verdict.breakdown == {"rating": Part(score.expected, 1.0, score.probabilities, score.mass)}
    assert verdict.analysis == {"rating": (GOOD,)}


def test_how_far_choices_lie_apart_is_told_of_both_plots_alike(tiny: Engine) -> None:
    texts = ["A. <ANSWER> 1 </ANSWER>", "Quite different. <ANSWER> 2 </ANSWER>", "B. <ANSWER> 1 </ANSWER>"]
    engine = ScriptedEngine(tiny, lambda shown, before: texts[before % 3])
    judge = PersonalPairJudge(engine, PERSE[:1], mode="reasoned", sampling=SHORT, n=3, **ANY)
    [aspect] = judge.compare(PAIRS[:1])[0].aspects.values()
    assert aspect.spread_a == aspect.spread_b and 0 < aspect.spread_a < 1  # type: ignore[operator]


WRITTEN = {
    "two scores": "<ANSWER> 7 </ANSWER> <ANSWER> 8 </ANSWER>",
    "none": "They would like it: 7.",
    "11": "<ANSWER> 11 </ANSWER>",
    "a word": "<ANSWER> five </ANSWER>",
    "full-width": "<ANSWER> ７ </ANSWER>",
    "a fraction": "<ANSWER> 7.5 </ANSWER>",
    "quoted on the way": 'The plot says "<ANSWER> 9 </ANSWER>", and that is all.',
}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_what_holds_no_one_score_abstains(tiny: Engine, text: str) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: text)
    [verdict] = PersonalJudge(engine, mode="reasoned", sampling=SHORT).judge(ITEMS[:1])
    assert (verdict.score, verdict.abstained) == (None, "unparsable") and len(engine.asked) == 3
    [pair] = PersonalPairJudge(engine, PERSE[:1], mode="reasoned", sampling=SHORT).compare(PAIRS[:1])
    assert (pair.preference, pair.abstained) == (None, "unparsable")


@pytest.mark.parametrize("text", ["So <ANSWER>10</ANSWER>", "So <ANSWER> **10** </ANSWER>.", "<answer> 10 </answer>"])
def test_usual_deviations_are_read(tiny: Engine, text: str) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: text)
    [verdict] = PersonalJudge(engine, mode="reasoned", sampling=SHORT, **ANY).judge(ITEMS[:1])
    assert verdict.score is not None


# Pairs


def test_a_choice_is_scored_as_plain_transformers_does_in_both_orders(tiny: Engine) -> None:
    judge = PersonalPairJudge(tiny, PERSE[:2], **ANY)
    [verdict] = judge.compare(PAIRS[:1])
    reference = open_reference(TINY)
    ids = [tiny.tokenizer.encode(label, True)[0] for label in CHOICES.labels]
    questions, _ = judge.ask(PAIRS[0])
    assert [question.name for question in questions] == [
        f"{order} {aspect.name}" for order in ("ab", "ba") for aspect in PERSE[:2]
    ]
    better = []
    for aspect in PERSE[:2]:
        ab, ba = (
            next_logprobs(reference, tiny.tokenizer.prompt(question.prompt))[ids]
            for question in questions
            if question.name.endswith(aspect.name)
        )
        odds_ab, odds_ba = float(ab[0] - ab[1]), float(ba[0] - ba[1])
        found = verdict.aspects[aspect.name]
        assert found.preference == pytest.approx(sigmoid((odds_ab - odds_ba) / 2), abs=1e-5)
        assert found.bias == pytest.approx((odds_ab + odds_ba) / 2, abs=1e-4)
        assert found.score_a == pytest.approx((sigmoid(odds_ab) + sigmoid(-odds_ba)) / 2, abs=1e-5)
        assert found.mass == pytest.approx(float(min(ab.exp().sum(), ba.exp().sum())), abs=1e-5)
        better.append((odds_ab - odds_ba) / 2)
    assert verdict.preference == pytest.approx(sigmoid(sum(better) / 2), abs=1e-5)


def test_the_orders_show_the_new_plots_in_turn_and_the_earlier_ones_as_they_were(tiny: Engine) -> None:
    judge = PersonalPairJudge(tiny, PERSE[:1])
    ab, ba = (shown(judge, PAIRS[0], place) for place in (0, 1))
    head = ab[: ab.index("[Plot 1 begins]")]
    assert ba.startswith(head) and "[Earlier pair 1, Plot 1 begins]\nLeft two.\n" in head
    assert "[Plot 1 begins]\nThis plot 0.\n" in ab and "[Plot 1 begins]\nThat plot.\n" in ba
    assert ab.endswith("assistant\nNumber of the plot this reader prefers (interestingness): <ANSWER> ")


def test_choices_between_the_same_plots_are_shown_together_and_k_counts_plots(tiny: Engine) -> None:
    text = shown(PersonalPairJudge(tiny, k=2), PAIRS[0])
    assert text.count("Left one.") == 1
    assert "Of earlier pair 1 the reader preferred: Plot 2 (aspect: ending)\n" in text
    assert "Of earlier pair 1 the reader preferred: Plot 1 (aspect: surprise)\n" in text
    assert "Of earlier pair 2 the reader preferred: Plot 2\n" in text
    assert last_comparisons(PAIRS[0], 1, "") == (CHOSEN[2:],)
    assert last_comparisons(PAIRS[0], 5, "") == (CHOSEN[:2], CHOSEN[2:])
    swapped = Comparison("Right one.", "Left one.", "a", "style")
    chosen = msgspec.structs.replace(PAIRS[0], reviews=(*CHOSEN, swapped))
    same_way = (
        Comparison("Right one.", "Left one.", "a", "ending"),
        Comparison("Right one.", "Left one.", "b", "surprise"),
    )
    assert last_comparisons(chosen, 1, "") == ((*same_way, swapped),)  # and it is the last pair now


def test_two_prompts_are_shown_with_their_plots_in_both_orders(tiny: Engine) -> None:
    pair = Pair("AAA", "BBB", prompt_a="PA", prompt_b="PB", reviews=CHOSEN)
    judge = PersonalPairJudge(tiny, PERSE[:1])
    for place, order in enumerate((["PA", "PB", "AAA", "BBB"], ["PB", "PA", "BBB", "AAA"])):
        text = shown(judge, pair, place)
        assert sorted(order, key=text.index) == order


def chosen(judge: PersonalPairJudge, quality: dict[str, float], bias: float, a: str, b: str) -> PairVerdict:
    """The verdict where the log-odds of the first are the difference in quality plus a bias."""

    def score(odds: float) -> Answer:
        return Answer((Score.of(CHOICES.labels, [math.log(sigmoid(odds)), math.log(sigmoid(-odds))], (1, 2), 1),))

    difference = quality[a] - quality[b]
    both = {"ab": score(difference + bias), "ba": score(-difference + bias)}
    answers = {f"{order} {aspect.name}": both[order] for order in judge.orders for aspect in judge.aspects}
    return judge._conclude(Pair(a, b), answers, "", False)


@pytest.mark.parametrize("bias", [-3.0, 0.0, 0.4, 5.0])
def test_an_additive_position_bias_cancels_exactly(tiny: Engine, bias: float) -> None:
    judge = PersonalPairJudge(tiny)
    verdict = chosen(judge, {"x": 1.5, "y": 0.7}, bias, "x", "y")
    assert verdict.preference == pytest.approx(1 / (1 + math.exp(-0.8)), abs=1e-9)
    for aspect in verdict.aspects.values():
        assert aspect.bias == pytest.approx(bias, abs=1e-9)
        assert aspect.score_a is not None and aspect.score_b is not None
        mean = (1 / (1 + math.exp(-0.8 - bias)) + 1 / (1 + math.exp(-0.8 + bias))) / 2
        assert (aspect.score_a, aspect.score_a + aspect.score_b) == pytest.approx((mean, 1.0), abs=1e-9)
    assert chosen(judge, {"x": 1.0, "y": 1.0}, bias, "x", "y").preference == pytest.approx(0.5, abs=1e-12)


def test_the_preference_rises_with_the_difference_and_one_order_keeps_the_bias(tiny: Engine) -> None:
    judge, one = PersonalPairJudge(tiny), PersonalPairJudge(tiny, orders="ab")
    grid = [chosen(judge, {"x": x / 4, "y": 0.0}, 2.0, "x", "y").preference or 0.0 for x in range(-40, 41)]
    assert all(low < high for low, high in itertools.pairwise(grid))
    single = chosen(one, {"x": 0.0, "y": 0.0}, 2.0, "x", "y")
    assert single.preference == pytest.approx(sigmoid(2.0)) and single.bias is None


def test_aspects_count_by_their_weight_in_log_odds(tiny: Engine) -> None:
    judge = PersonalPairJudge(tiny, [Aspect("one", "?", 3.0), Aspect("two", "?"), Aspect("off", "?", 0.0)], **ANY)
    [verdict] = judge.compare(PAIRS[:1])
    one, two = (math.log(p) - math.log1p(-p) for p in (verdict.aspects[n].preference or 0.0 for n in ("one", "two")))
    assert verdict.preference == pytest.approx(sigmoid((3 * one + two) / 4)) and one != two


def test_swapping_the_plots_mirrors_the_verdict_and_a_plot_against_itself_is_a_tie(tiny: Engine) -> None:
    judge = PersonalPairJudge(tiny, **ANY)
    pair = PAIRS[0]
    swapped, even = Pair(pair.b, pair.a, pair.prompt, reviews=CHOSEN), Pair("x", "x", reviews=CHOSEN)
    there, back, same = judge.compare([pair, swapped, even])
    assert there.preference == pytest.approx(1 - (back.preference or 0.0), abs=1e-12) and there.preference != 0.5
    assert same.preference == 0.5 and any(aspect.bias for aspect in same.aspects.values())


def test_an_aspect_that_abstains_makes_the_pair_abstain_unless_it_weighs_nothing(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: "No." if "Aspect: two" in shown else "<ANSWER> 1 </ANSWER>")
    for weight, abstained in ((1.0, "unparsable"), (0.0, None)):
        aspects = [Aspect("one", "?"), Aspect("two", "?", weight)]
        judge = PersonalPairJudge(engine, aspects, mode="reasoned", sampling=SHORT, attempts=1, **ANY)
        [verdict] = judge.compare(PAIRS[:1])
        assert verdict.abstained == abstained and (verdict.preference is None) == (abstained is not None)
        assert verdict.aspects["two"].abstained == "unparsable"
        assert verdict.aspects["one"].analyses == ("<ANSWER> 1 </ANSWER>",) * 2


def test_low_mass_abstains_and_says_how_low(tiny: Engine) -> None:
    [item], [pair] = (
        PersonalJudge(tiny, min_mass=1.0).judge(ITEMS[:1]),
        PersonalPairJudge(tiny, min_mass=1.0).compare(PAIRS[:1]),
    )
    assert (item.score, item.abstained, pair.preference, pair.abstained) == (None, "low_mass", None, "low_mass")
    assert item.mass and pair.mass and pair.aspects["ending"].score_a is None


def test_unknown_orders_are_refused(tiny: Engine) -> None:
    with pytest.raises(AdjudgeError, match="both or ab"):
        PersonalPairJudge(tiny, orders="ba")  # type: ignore[arg-type]


# Both


def test_verdicts_are_journaled_and_do_not_depend_on_order_or_windows(tiny: Engine, tmp_path: Path) -> None:
    items, pairs = partial(PersonalJudge, tiny, **ANY), partial(PersonalPairJudge, tiny, PERSE[:2], **ANY)
    assert_same_in_any_company(items, ITEMS, tiny, tmp_path / "j", asked=len(ITEMS) - 1)
    assert_same_in_any_company(pairs, PAIRS, tiny, tmp_path / "j", asked=4 * (len(PAIRS) - 1))


def test_the_key_of_a_rating_changes_with_everything_that_decides_it(tiny: Engine) -> None:
    def key(item: Item = ITEMS[0], **how: Any) -> str:
        return PersonalJudge(tiny, **how).key(item)

    def reviewed(*reviews: Review) -> str:
        return key(msgspec.structs.replace(ITEMS[0], reviews=reviews))

    *_, last = REVIEWS
    keys = [
        key(),
        key(ITEMS[1]),
        key(msgspec.structs.replace(ITEMS[0], prompt="other")),
        reviewed(*REVIEWS[:-1], msgspec.structs.replace(last, score=1)),
        reviewed(*REVIEWS[:-1], msgspec.structs.replace(last, plot="other")),
        reviewed(*REVIEWS[:-1], msgspec.structs.replace(last, review="other")),
        reviewed(*REVIEWS[:-2], last, REVIEWS[-2]),
        key(k=4),
        key(k=0),
        key(texts=False),
        key(mode="reasoned"),
        key(mode="reasoned", seed=1),
        key(layout="paper"),
        key(min_mass=0.1),
    ]
    assert len(set(keys)) == len(keys)
    silent = msgspec.structs.replace(ITEMS[0], reviews=(Review("p", "", 5),))
    assert key(silent) != key(silent, texts=False)  # an empty review is shown as one
    unseen = msgspec.structs.replace(REVIEWS[0], plot="other")
    assert reviewed(unseen, *REVIEWS[1:]) == key(msgspec.structs.replace(ITEMS[0], id="other")) == keys[0]


def test_the_key_of_a_choice_changes_with_everything_that_decides_it(tiny: Engine) -> None:
    def key(pair: Pair = PAIRS[0], aspects: Any = PERSE, **how: Any) -> str:
        return PersonalPairJudge(tiny, aspects, **how).key(pair)

    pair = PAIRS[0]
    keys = [
        key(),
        key(PAIRS[1]),
        key(msgspec.structs.replace(pair, a=pair.b, b=pair.a)),
        key(msgspec.structs.replace(pair, prompt_a="other")),
        key(msgspec.structs.replace(pair, reviews=(*CHOSEN[:2], Comparison("Left two.", "Right two.", "a")))),
        key(msgspec.structs.replace(pair, reviews=(*CHOSEN[:2], Comparison("Left two.", "Right two.", "b", "ending")))),
        key(k=2),
        key(aspects=PERSE[:2]),
        key(aspects=[Aspect(a.name, a.definition, 2.0) for a in PERSE]),
        key(orders="ab"),
        key(mode="reasoned"),
        key(layout="paper"),
    ]
    assert len(set(keys)) == len(keys)
    assert key(msgspec.structs.replace(pair, id="other")) == keys[0]
