from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from rich.console import Console

from adjudge.bench.agreement.resampling import wilson
from adjudge.bench.policy.bouts import (
    Against,
    Bout,
    Match,
    Referee,
    first_places,
    matches_of,
    repeated_places,
    subject_of,
)
from adjudge.bench.policy.policies import Asked
from adjudge.bench.policy.report import COLUMNS, aspect_table, result_lines, result_rows
from adjudge.bench.policy.texts import Opening, Text, opening_of
from adjudge.bench.policy.wins import HUMAN, PolicyResult, Spread, Wins, human_result, result_of, wins_of
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import Reason
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.verdict import Item
from tests.rewards.written_judges import WrittenJudge, WrittenPairJudge

ROWS = [
    Row("line 1", {"prompt": "p", "reference": "human 1"}),
    Row("line 2", {"prompt": "q"}),
    Row("line 3", {"prompt": "r", "reference": "human 3"}),
]


def text(place: int, sample: int, words: str | None) -> Text:
    return Text(place, sample, words, "too_long" if words is None else "stop", 3)


def openings(rows: Sequence[Row]) -> list[Opening]:
    return [opening_of(row, "a test") for row in rows]


def bout(place: int, preference: float | None, against: Against = "base", why: Reason | None = None) -> Bout:
    return Bout(Match("policy", against, place, place, 0, "t", "r"), preference, why)


def matches(policy: Sequence[Text], base: Sequence[Text], paired: int = 1) -> list[Match]:
    own = [one for one in base if one.sample < paired]
    return matches_of(ROWS, {"base": own, "policy": policy}, base, paired=paired, prompts=[0, 1, 2])


def test_a_tie_is_half_a_win_and_what_abstained_is_no_match_at_all() -> None:
    """Prompt 0: a win, a loss, an abstention; prompt 1: a tie; prompt 2: a win: 2.5 points of 4."""
    bouts = [bout(0, 0.9), bout(0, 0.2), bout(0, None, why="low_mass"), bout(1, 0.5), bout(2, 0.51)]
    wins = wins_of(bouts)
    assert (wins.won, wins.tied, wins.lost, wins.counted, wins.prompts) == (2, 1, 1, 4, 3)
    assert wins.rate == 2.5 / 4 and wins.abstained == {"low_mass": 1}
    assert wins.interval is None  # of three prompts
    more = wins_of(bouts + [bout(place, 0.9 * (place % 2)) for place in range(3, 7)])
    assert more.interval is not None and more.rate is not None
    assert 0.2 <= more.interval[0] < more.rate < more.interval[1] <= 1.0
    assert wins_of(bouts) == wins


def test_prompts_are_drawn_whole_so_that_more_texts_of_the_same_prompts_make_nothing_surer() -> None:
    few = [bout(place, float(place % 2)) for place in range(8)]
    many = [one for one in few for _ in range(50)]
    assert wins_of(many).rate == wins_of(few).rate == 0.5
    assert wins_of(many).interval == wins_of(few).interval
    wide = wins_of(few).interval
    assert wide is not None and wide[1] - wide[0] > 0.4


def test_where_all_prompts_are_alike_the_interval_is_not_a_point() -> None:
    wins = wins_of([bout(place, 0.9) for place in range(5)])
    assert wins.rate == 1.0 and wins.interval == wilson(5, 5) and wins.interval[0] < 0.6
    assert wins_of([bout(0, 0.9)]).interval is None
    assert wins_of([bout(0, None, why="timeout")]) == Wins(0, 0, 0, {"timeout": 1}, 0, None, None)


def test_every_text_meets_the_same_text_of_the_base_and_the_base_meets_others_of_its_own() -> None:
    base = [text(place, sample, f"base {place}.{sample}") for place in range(3) for sample in range(4)]
    policy = [text(place, sample, f"policy {place}.{sample}") for place in range(3) for sample in range(2)]
    met = matches(policy, base, paired=2)
    assert all(match.rival == f"base {match.place}.{match.sample + 2}" for match in met if match.against == "base")
    assert all(match.rival == f"human {match.place + 1}" for match in met if match.against == "human")
    assert [match.place for match in met] == sorted(match.place for match in met)
    assert {match.place for match in met if match.against == "human"} == {0, 2}
    assert len(met) == 2 * 3 * 2 + 2 * 2 * 2


def test_rows_that_share_a_prompt_are_one_prompt_with_several_texts_of_people() -> None:
    rows = [Row(f"line {n}", {"prompt": "pq"[n % 2], "reference": f"human {n}"}) for n in range(6)]
    own, base = (
        [text(place, sample, f"{who} {place % 2}") for place in range(6) for sample in range(n)]
        for who, n in (("own", 1), ("base", 2))
    )
    made = matches_of(rows, {"policy": own}, base, paired=1, prompts=first_places(openings(rows), Asked()))
    assert [match.place for match in made if match.against == "base"] == [0, 1]
    assert [(match.place, match.prompt, match.rival) for match in made if match.against == "human"] == [
        (n, n % 2, f"human {n}") for n in range(6)
    ]
    assert wins_of([Bout(match, 0.9, None) for match in made if match.against == "human"]).prompts == 2


def test_what_the_system_says_parts_prompts_only_where_it_is_said() -> None:
    rows = [Row(f"line {n}", {"prompt": "p", "system": system}) for n, system in enumerate(["Be kind.", None, ""])]
    assert first_places(openings(rows), Asked()) == [0, 1, 1]
    for asked in (Asked(chat=False), Asked(system="Be brief.")):
        assert first_places(openings(rows), asked) == [0, 0, 0]


def test_a_conversation_is_not_the_prompt_that_reads_like_it() -> None:
    said = [{"role": role, "content": role[0]} for role in ("user", "assistant", "user")]
    talk = opening_of(Row("line 1", {"prompt": said}), "a test")
    assert first_places([talk, Opening(talk.prompt), talk], Asked()) == [0, 1, 0]


def test_a_row_that_comes_twice_is_found_and_other_references_of_its_prompt_stay() -> None:
    columns = {"prompt": "p", "reference": "human 1"}
    told = [columns, {**columns, "id": "again"}, {**columns, "reference": "human 2"}, {**columns, "prompt": "q"}]
    rows = [Row(f"line {number}", one) for number, one in enumerate([*told, {"prompt": "r"}, {"prompt": "r"}], 1)]
    assert repeated_places(rows, openings(rows), Asked(), "pairwise", {}) == {1, 5}
    rubrics = [{"criteria": [{"name": "c", "text": f"{n}?", "points": 2}]} for n in (1, 2, 2)]
    graded = [Row("line", {"prompt": "p", "reference": "r", "rubric": rubric}) for rubric in rubrics]
    assert repeated_places(graded, openings(graded), Asked(), "rubric", {}) == {2}


def test_a_missing_text_abstains_with_its_own_reason_and_is_never_judged() -> None:
    judge = WrittenPairJudge(lambda a, b: {"wit": (4.0, 2.0)})
    base = [text(place, sample, None if (place, sample) == (1, 1) else "b") for place in range(3) for sample in (0, 1)]
    policy = [text(place, 0, None if place == 0 else "t") for place in range(3)]
    bouts = [one for one, _ in Referee(judge, "pairwise", ROWS, {}).bouts(matches(policy, base))]
    of_policy = {(one.match.place, one.match.against): one.abstained for one in bouts if one.match.policy == "policy"}
    assert of_policy == {(0, "base"): "too_long", (0, "human"): "too_long", (1, "base"): "too_long"} | {
        (2, "base"): None,
        (2, "human"): None,
    }
    assert all(pair.a and pair.b for call in judge.calls for pair in call)


def test_rates_and_scores_of_a_judge_of_pairs_are_those_computed_by_hand() -> None:
    scores = {"good": 5.0, "fair": 3.0, "poor": 1.0, "base": 3.0, "human 1": 4.0, "human 3": 2.0}

    def says(a: str, b: str) -> dict[str, Any]:
        wit: Any = "low_mass" if "odd" in (a, b) else (scores[a], scores[b])
        return {"wit": wit, "end": (2.0, 2.0)}

    policy = [text(0, 0, "good"), text(0, 1, "odd"), text(1, 0, "fair"), text(1, 1, "poor"), text(2, 0, "good")]
    policy.append(text(2, 1, "fair"))
    base = [text(place, sample, "base") for place in range(3) for sample in range(4)]
    bouts = [
        one for one, _ in Referee(WrittenPairJudge(says), "pairwise", ROWS, {}).bouts(matches(policy, base, paired=2))
    ]
    row = result_of("policy", policy, [one for one in bouts if one.match.policy == "policy"])
    # Over the base: good wins, odd abstains, fair ties, poor loses, good wins, fair ties.
    assert row.wins["base"].rate == (1 + 0.5 + 0 + 1 + 0.5) / 5
    assert row.wins["base"].abstained == {"low_mass": 1}
    # Over people: good (5) over 4, odd abstains; good and fair over 2.
    assert row.wins["human"].rate == 1.0 and row.wins["human"].counted == 3
    assert row.aspects["wit"].mean == pytest.approx((5 + 3 + 1 + 5 + 3) / 5) and row.aspects["wit"].count == 5
    assert row.aspects["wit"].deviation == pytest.approx((11.2 / 4) ** 0.5)
    assert row.overall is not None and row.overall.mean == pytest.approx((3.4 + 2.0) / 2)
    assert row.words is not None and (row.words.mean, row.texts, row.whole) == (1.0, 6, 6)
    assert row.bias == 0.25
    human = human_result([one for one in bouts if one.match.policy == "base"])
    assert human is not None and human.name == HUMAN and human.aspects["wit"].mean == 3.0 and human.texts == 2


def test_a_persons_text_is_scored_by_the_first_bout_in_which_it_was_judged() -> None:
    judge = WrittenPairJudge(lambda a, b: {"wit": (4.0, {"human 1": {"b1": 3.0, "b2": 2.0}.get(a, 1.0)}.get(b, 5.0))})
    base = [text(place, sample, f"b{sample}" if place or sample else None) for place in range(3) for sample in range(6)]
    bouts = [one for one, _ in Referee(judge, "pairwise", ROWS, {}).bouts(matches([], base, paired=3))]
    [first, *_] = [one for one in bouts if one.match.against == "human"]
    assert first.abstained == "too_long"
    human = human_result(bouts)
    assert human is not None and human.texts == 2
    assert human.aspects["wit"].count == 2 and human.aspects["wit"].mean == (3.0 + 5.0) / 2


def test_a_judge_of_single_texts_compares_their_scores_and_judges_each_once() -> None:
    says: Callable[[str], float | Reason] = lambda shown: "unparsable" if shown == "odd" else float(len(shown))  # noqa: E731
    judge = WrittenJudge(says, "pointwise")
    base = [text(place, sample, "four") for place in range(3) for sample in range(2)]
    policy = [text(0, 0, "fives"), text(1, 0, "odd"), text(2, 0, "four")]
    bouts = [one for one, _ in Referee(judge, "pointwise", ROWS, {}).bouts(matches(policy, base))]
    found = {(one.match.place, one.match.against): one for one in bouts if one.match.policy == "policy"}
    assert found[0, "base"].preference == 1.0 and found[0, "human"].preference == 0.0
    assert (found[1, "base"].preference, found[1, "base"].abstained) == (None, "unparsable")
    assert found[2, "base"].preference == 0.5 and found[2, "base"].scores == {"all": 4.0}
    asked = [shown for call in judge.calls for shown in call]
    assert sorted(asked) == sorted(["four", "fives", "human 1", "four", "odd", "four", "human 3"])


def test_a_model_against_itself_wins_half() -> None:
    """Texts of one distribution, a judge that counts words: of 200 prompts the rate is near one half."""
    lots = random.Random(0)
    rows = [Row(f"line {place}", {"prompt": f"{place}"}) for place in range(200)]
    base = [text(place, sample, "w " * lots.randint(1, 9)) for place in range(200) for sample in range(4)]
    own = {"base": [one for one in base if one.sample < 2]}
    judge = WrittenPairJudge(lambda a, b: {"length": (float(len(a)), float(len(b)))})
    made = matches_of(rows, own, base, paired=2, prompts=range(200))
    bouts = [one for one, _ in Referee(judge, "pairwise", rows, {}).bouts(made)]
    row = result_of("base", own["base"], bouts)
    wins = row.wins["base"]
    assert wins.rate is not None and wins.interval is not None and wins.tied > 0
    assert wins.interval[0] < 0.5 < wins.interval[1] and abs(wins.rate - 0.5) < 0.06
    turned = [Bout(one.match, None if one.preference is None else 1 - one.preference, None) for one in bouts]
    assert wins_of(turned).rate == pytest.approx(1 - wins.rate)
    assert "it should win half" in result_lines([row], "base")[0]
    assert all(len(line) == len(COLUMNS) for line in result_rows([row], "pairwise", "m", "here"))


def test_the_mean_over_aspects_is_what_evolvr_calls_overall_and_not_the_spread_of_the_texts_scores() -> None:
    told = "4.400 ± .768, 4.338 ± .741, 2.638 ± .746, 2.737 ± .754, 3.100 ± .604, 3.575 ± .721"  # Table 14, the base
    numbers = [[float(number) for number in one.split(" ± ")] for one in told.split(", ")]
    aspects = {str(place): Spread(mean, deviation, 80) for place, (mean, deviation) in enumerate(numbers)}
    row = PolicyResult("p", {}, aspects, Spread(3.465, 0.5, 80), None, 80, 80)
    overall = row.mean_of_aspects
    assert overall is not None and (round(overall.mean, 3), round(overall.deviation or 0, 3)) == (3.465, 0.722)
    found = {line[1]: line[2:5] for line in result_rows([row], "pairwise", "m", "here")}
    assert found["mean of aspects"][1:] == ["0.722333", 80] and found["score"] == ["3.465", "0.5", 80]
    console = Console(width=200, file=io.StringIO())
    console.print(aspect_table([row]))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "mean of aspects" in shown and "3.46 ± 0.72" in shown
    alone = msgspec.structs.replace(row, aspects={**aspects, "x": Spread(1.0, None, 1)}).mean_of_aspects
    assert alone is not None and alone.deviation is None and alone.count == 1
    assert msgspec.structs.replace(row, aspects={}).mean_of_aspects is None


def test_rows_that_lack_what_a_judge_reads_are_named() -> None:
    with pytest.raises(AdjudgeError, match='line 2: "rubric" is missing: give each row one, or all by --rubric'):
        subject_of("rubric", ROWS[1], 1, {}, "text")
    subject = subject_of("pointwise", ROWS[0], 0, {}, "text")
    assert isinstance(subject, Item) and (subject.response, subject.id) == ("text", "1")
