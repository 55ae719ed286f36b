from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import stdev
from typing import Any

import pytest

from adjudge.engine.absent import AbsentEngine, Card
from adjudge.engine.completion import Completion, FinishReason
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.aliases import HOUSE
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Score
from adjudge.engine.text.labels import Labels
from adjudge.engine.text.prompt import Prompt
from adjudge.rewards.judges.asking import ANSWER, SAMPLING, Answer, Direct, Question, Reasoned, _mean_score
from adjudge.rewards.judges.debate import DebateJudge
from adjudge.rewards.judges.pairwise import SCALE, PairwiseJudge
from adjudge.rewards.judges.tree import TreeJudge
from tests.engine.reference import next_logprobs, open_reference
from tests.rewards.scripted import Script, ScriptedEngine

TINY = "dummy:tiny-llama"
SHORT = Sampling(max_tokens=8, temperature=1.0)
GOOD = "Both are fine. <ANSWER> 4 </ANSWER> | <ANSWER> 2 </ANSWER>"
USUAL: dict[str, Any] = {"form": ANSWER, "attempts": 3, "n": 1, "seed": 0, "min_mass": 0.0}


def reasoned(engine: Any, sampling: Sampling = SAMPLING, **how: Any) -> Reasoned:
    return Reasoned(engine, sampling, **USUAL | how)


def question(text: str = "Which? ", name: str = "q", answers: int = 2, labels: Labels = SCALE) -> Question:
    return Question(name, Prompt.template(text), labels, answers)


def ask_one(engine: Engine, script: Script | str, answers: int = 2, **how: Any) -> tuple[Answer, ScriptedEngine]:
    scripted = ScriptedEngine(engine, (lambda shown, before: script) if isinstance(script, str) else script)
    [(subject, found)] = reasoned(scripted, **how).ask({"s": [question(answers=answers)]})
    assert subject == "s"
    return found["q"], scripted


def reasons(answer: Answer) -> list[str | None]:
    return [score.reason for score in answer.scores]


# ---- direct


def test_direct_answers_are_the_engines_scores_and_name_their_subject_and_question(tiny: Engine) -> None:
    questions = {
        name: [question(f"{name}{n} ", f"{n}", 1, labels) for n, labels in enumerate((SCALE, Labels(("Y", "N"))))]
        for name in ("one", "two")
    }
    found = dict(Direct(tiny).ask({**questions, "none": []}))
    assert found.pop("none") == {}
    for subject, answers in found.items():
        assert list(answers) == ["0", "1"]
        for asked, answer in zip(questions[subject], answers.values(), strict=True):
            assert answer == Answer(tuple(tiny.score([asked.prompt], asked.labels)))


# ---- reading what was written

READABLE = {
    "as asked": GOOD,
    "without spaces": "Hm. <ANSWER>4</ANSWER>|<ANSWER>2</ANSWER>",
    "on two lines": "Hm.\n<ANSWER> 4 </ANSWER>\n<ANSWER> 2 </ANSWER>\n",
    "in bold, in a fence": "```\n**<ANSWER> 4 </ANSWER>** | **<ANSWER> 2 </ANSWER>**\n```",
    "bold inside": "<ANSWER> **4** </ANSWER> | <ANSWER> **2** </ANSWER>.",
    "in small letters": "<answer> 4 </answer> | <Answer> 2 </Answer>",
    "with numbers on the way": "Story 1 earns a 5 of 5, Story 2 a 1. <ANSWER> 4 </ANSWER> | <ANSWER> 2 </ANSWER>",
}

UNREADABLE = {
    "nothing": "",
    "no score": "Both stories are fine.",
    "bare numbers": "4 | 2",
    "one": "<ANSWER> 4 </ANSWER>",
    "one and a half": "<ANSWER> 4 </ANSWER> | <ANSWER> 2",
    "three": "<ANSWER> 4 </ANSWER> | <ANSWER> 2 </ANSWER> | <ANSWER> 3 </ANSWER>",
    "in other words first": "<ANSWER> five </ANSWER> | <ANSWER> 2 </ANSWER>",
    "in other words last": "<ANSWER> 4 </ANSWER> | <ANSWER> two </ANSWER>",
    "outside the scale": "<ANSWER> 4 </ANSWER> | <ANSWER> 6 </ANSWER>",
    "eleven": "<ANSWER> 11 </ANSWER> | <ANSWER> 2 </ANSWER>",
    "zero": "<ANSWER> 0 </ANSWER> | <ANSWER> 2 </ANSWER>",
    "half": "<ANSWER> 4.5 </ANSWER> | <ANSWER> 2 </ANSWER>",
    "of five": "<ANSWER> 4/5 </ANSWER> | <ANSWER> 2/5 </ANSWER>",
    "negative": "<ANSWER> -4 </ANSWER> | <ANSWER> 2 </ANSWER>",
    "full width": "<ANSWER> ４ </ANSWER> | <ANSWER> ２ </ANSWER>",
    "superscript": "<ANSWER> ⁴ </ANSWER> | <ANSWER> ² </ANSWER>",
    "the form as it was shown": "<ANSWER> N </ANSWER> | <ANSWER> N </ANSWER>",
    "the form, then the scores": "<ANSWER> N </ANSWER> | <ANSWER> N </ANSWER>\n" + GOOD,
    "two in one": "<ANSWER> 4 | 2 </ANSWER>",
    "other tags": "[[4]] | [[2]]",
    "a story's own score, then one": "It says <ANSWER> 5 </ANSWER> of itself.\n<ANSWER> 2 </ANSWER>",
    "a story's own score, then both": "It says <ANSWER> 5 </ANSWER> of itself.\n" + GOOD,
    "a story's own scores alone": "It says <ANSWER> 5 </ANSWER> | <ANSWER> 1 </ANSWER>, which I leave aside.",
    "far apart": "Story 1: <ANSWER> 4 </ANSWER>\nAs to Story 2, it is dull: <ANSWER> 2 </ANSWER>",
    "opened in an opening": "<ANSWER> <ANSWER> 4 </ANSWER> | <ANSWER> 2 </ANSWER> | <ANSWER>",
    "hidden": "<ANSWER> \u200b4 </ANSWER> | <ANSWER> 2 </ANSWER>",
    "control": "\0\x1b[2J<ANSWER>\0 4 </ANSWER> | <ANSWER> 2 </ANSWER>",
}


@pytest.mark.parametrize("name", READABLE)
def test_a_usual_deviation_is_read_and_nothing_is_written_again(tiny: Engine, name: str) -> None:
    answer, engine = ask_one(tiny, READABLE[name])
    assert reasons(answer) == [None, None]
    assert len(engine.asked) == 1
    assert answer.analyses == (READABLE[name],)


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_would_have_to_be_guessed_is_not_read(tiny: Engine, name: str) -> None:
    answer, engine = ask_one(tiny, UNREADABLE[name], attempts=2)
    assert reasons(answer) == ["unparsable", "unparsable"]
    assert all(score.probabilities is None and score.mass is None for score in answer.scores)
    assert len(engine.asked) == 2
    assert answer.analyses == (UNREADABLE[name],)


@pytest.mark.parametrize(
    ("text", "readable"),
    [
        ("Fine. <ANSWER> 4 </ANSWER>", True),
        (GOOD, False),
        ("<ANSWER> 4 </ANSWER>, that is, good", False),
        ("5", False),
    ],
)
def test_one_score_is_read_where_one_was_asked_for(tiny: Engine, text: str, readable: bool) -> None:
    answer, _ = ask_one(tiny, text, answers=1)
    assert reasons(answer) == [None if readable else "unparsable"]


def test_each_score_is_what_plain_transformers_gives_at_its_place_the_second_after_the_first_as_written(
    tiny: Engine,
) -> None:
    reference = open_reference(TINY)
    answer, _ = ask_one(tiny, GOOD)
    prompt = tiny.tokenizer.prompt(question().prompt)
    seen = set()
    for score, before in zip(answer.scores, (GOOD[: GOOD.index("4")], GOOD[: GOOD.index("2")]), strict=True):
        logprobs = next_logprobs(reference, prompt + tiny.tokenizer.encode(before, False))
        digits = [tiny.tokenizer.encode(label, False)[0] for label in SCALE.labels]
        assert score.full_logprobs == pytest.approx(logprobs[digits].tolist(), abs=1e-4)
        assert score.mass == pytest.approx(float(logprobs[digits].exp().sum()), abs=1e-5)
        seen.add(score.full_logprobs)
    assert len(seen) == 2
    other, _ = ask_one(tiny, GOOD.replace("4", "5"))
    assert other.scores[0].full_logprobs == answer.scores[0].full_logprobs  # what was drawn there does not count
    assert other.scores[1].full_logprobs != answer.scores[1].full_logprobs  # but the second score follows it


def test_a_token_that_the_tokenizer_does_not_know_makes_a_text_unreadable_and_no_error(tiny: Engine) -> None:
    prompts = [question().prompt]
    beyond = tiny.tokenizer.vocab_size  # the model's head is wider
    for ids, reason in (((), None), ((beyond,), "unparsable")):
        tokens = (*ids, *tiny.tokenizer.encode("<ANSWER> 4 </ANSWER>", False))
        [score] = tiny.read_answers(prompts, [Completion(0, 0, "<ANSWER> 4 </ANSWER>", tokens, "stop")], SCALE)
        assert score.reason == reason


# ---- how a text ended


def test_a_text_that_was_cut_after_its_scores_is_read_and_one_before_them_is_not(tiny: Engine) -> None:
    whole, _ = ask_one(tiny, lambda shown, before: (GOOD, "length"))
    assert reasons(whole) == [None, None]
    cut, engine = ask_one(tiny, lambda shown, before: (GOOD[:-10], "length"))
    assert reasons(cut) == ["unparsable"] * 2 and len(engine.asked) == 3


@pytest.mark.parametrize("ended", ["timeout", "too_long", "non_finite", "cancelled"])
def test_a_text_that_failed_gives_its_reason_and_is_not_asked_for_again(tiny: Engine, ended: Any) -> None:
    answer, engine = ask_one(tiny, lambda shown, before: (GOOD, ended))
    assert reasons(answer) == [ended, ended] and len(engine.asked) == 1


# ---- retries and seeds


def test_an_unreadable_text_is_written_again_with_another_seed_until_it_can_be_read(tiny: Engine) -> None:
    def script(shown: str, before: int) -> str:
        return GOOD if before == 2 else "I would rather not."

    answer, engine = ask_one(tiny, script, attempts=4)
    assert reasons(answer) == [None, None] and answer.analyses == (GOOD,)
    assert len(engine.seeds) == len(set(engine.seeds)) == 3
    once, _ = ask_one(tiny, script, attempts=2)
    assert reasons(once) == ["unparsable"] * 2
    again, repeated = ask_one(tiny, script, attempts=4)
    assert again == answer and repeated.seeds == engine.seeds
    _, otherwise = ask_one(tiny, script, attempts=4, seed=1)
    assert set(otherwise.seeds).isdisjoint(engine.seeds)


def test_only_what_was_unreadable_is_asked_again_and_the_rest_does_not_wait_for_it(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: GOOD if "good" in shown or before else "no")
    subjects = {name: [question(f"{name} {n} ", str(n)) for n in (1, 2)] for name in ("good", "bad", "good too")}
    order = []
    for subject, answers in reasoned(engine).ask(subjects):
        order.append(subject)
        assert list(answers) == ["1", "2"] and all(reasons(answer) == [None, None] for answer in answers.values())
        if subject == "good too":
            assert len(engine.asked) == 6
    assert order == ["good", "good too", "bad"]
    assert engine.asked[6:] == ["bad 1 ", "bad 2 "]


def test_at_temperature_0_a_text_is_written_once(tiny: Engine) -> None:
    answer, engine = ask_one(tiny, "no", sampling=Sampling(temperature=0.0))
    assert reasons(answer) == ["unparsable"] * 2 and len(engine.asked) == 1


# ---- several analyses of a question


def test_several_analyses_are_averaged_over_those_that_could_be_read(tiny: Engine) -> None:
    texts = ["A. " + GOOD, "no", "Quite different. " + GOOD, "B. " + GOOD]
    answer, engine = ask_one(tiny, lambda shown, before: texts[before], n=4, attempts=1)
    assert answer.analyses == tuple(texts) and len(set(engine.seeds)) == 4
    alone = [ask_one(tiny, text)[0] for text in texts if text != "no"]
    assert len({one.scores[0].probabilities for one in alone}) == 3
    for place, score in enumerate(answer.scores):
        scores = [one.scores[place] for one in alone]
        means = [sum(column) / 3 for column in zip(*(score.probabilities or () for score in scores), strict=True)]
        assert score.probabilities == pytest.approx(means)
        assert score.expected == pytest.approx(sum(score.expected or math.nan for score in scores) / 3)
        assert score.mass == pytest.approx(sum(score.mass or math.nan for score in scores) / 3)
        assert answer.spreads is not None
        assert answer.spreads[place] == pytest.approx(stdev(score.expected or math.nan for score in scores))
    ended: list[str | tuple[str, FinishReason]] = ["A. " + GOOD, ("half", "timeout"), "no", "B. " + GOOD]
    late, _ = ask_one(tiny, lambda shown, before: ended[before], n=4, attempts=1)
    assert reasons(late) == ["timeout"] * 2  # a later run would read another mean
    faint, whole = sorted((one.scores[0] for one in alone), key=lambda score: score.mass or 0.0)[::2]
    kept = _mean_score([faint, whole], SCALE, ((faint.mass or 0.0) + (whole.mass or 0.0)) / 2)
    assert kept == whole and _mean_score([faint, whole], SCALE, 1.0) == faint  # which then is of low mass
    low, next_, _ = sorted(one.scores[0].mass or 0.0 for one in alone)
    least = (low + next_) / 2
    enough = [one.scores[0] for one in alone if (one.scores[0].mass or 0.0) >= least]
    some, _ = ask_one(tiny, lambda shown, before: texts[before], n=4, attempts=1, min_mass=least)
    assert some.scores[0] == _mean_score(enough, SCALE, 0.0)
    assert some.spreads is not None and some.spreads[0] == stdev(score.expected or math.nan for score in enough)
    asked_again = Score.abstained(SCALE.labels, "unsupported", 1)
    assert _mean_score([whole, asked_again], SCALE, 0.0).reason == "unsupported"
    none, _ = ask_one(tiny, "no", n=2, attempts=1)
    assert reasons(none) == ["unparsable"] * 2 and none.spreads == (None, None) and alone[0].spreads is None


def test_each_analysis_has_its_own_retries(tiny: Engine) -> None:
    texts = ["no", GOOD, "never", "Well. " + GOOD]
    answer, engine = ask_one(tiny, lambda shown, before: texts[before], n=2, attempts=3)
    assert reasons(answer) == [None, None] and len(engine.asked) == 4
    assert sorted(answer.analyses or ()) == sorted([GOOD, "Well. " + GOOD])


# ---- nothing depends on company


def test_answers_do_not_depend_on_order_or_company(tiny: Engine) -> None:
    def script(shown: str, before: int) -> str:
        return f"About {shown}. {GOOD}" if before or len(shown) % 2 else "no"

    names = ["a", "bb", "ccc", "dddd"]
    subjects = {name: [question(f"{name}{n * '!'}", str(n)) for n in range(3)] for name in names}
    expected = dict(reasoned(ScriptedEngine(tiny, script)).ask(subjects))
    assert dict(reasoned(ScriptedEngine(tiny, script, last_first=True)).ask(subjects)) == expected
    for name in names:
        [alone] = reasoned(ScriptedEngine(tiny, script)).ask({name: subjects[name][::-1]})
        assert alone == (name, dict(reversed(expected[name].items())))


def test_what_a_real_engine_writes_depends_on_question_seed_and_sample_alone(tiny: Engine) -> None:
    subjects = {name: [question(f"{name} ", "q")] for name in "abc"}

    def texts(names: Sequence[str], **how: Any) -> dict[str, tuple[str, ...] | None]:
        asking = reasoned(tiny, SHORT, attempts=2, **how)
        return {name: answers["q"].analyses for name, answers in asking.ask({n: subjects[n] for n in names})}

    expected = texts("abc", n=2)
    assert texts("cb", n=2) == {name: expected[name] for name in "bc"}
    assert texts("abc", n=2) == expected
    flat = [text for two in expected.values() for text in two or ()]
    assert len(set(flat)) == 6
    assert {name: both[:1] for name, both in expected.items() if both} == texts("abc")
    assert set(texts("abc", seed=1).values()).isdisjoint(texts("abc").values())


# ---- mistakes


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"attempts": 0}, "attempts is 0"),
        ({"n": 0}, "n is 0"),
        ({"sampling": Sampling(n=2)}, "give them to the judge"),
        ({"sampling": Sampling(seed=2)}, "give them to the judge"),
        ({"sampling": Sampling(temperature=0.0), "n": 2}, "one text 2 times"),
        ({"sampling": Sampling(max_tokens=5000)}, "5000 tokens of analysis leave no room"),
    ],
)
def test_settings_that_make_no_sense_are_one_sentence(tiny: Engine, how: dict[str, Any], reason: str) -> None:
    with pytest.raises(AdjudgeError, match=reason):
        reasoned(tiny, **how)


def test_modes_are_two_and_direct_takes_no_sampling(tiny: Engine) -> None:
    with pytest.raises(AdjudgeError, match="direct or reasoned"):
        PairwiseJudge(tiny, mode="deep")  # type: ignore[arg-type]
    with pytest.raises(AdjudgeError, match="writes nothing"):
        PairwiseJudge(tiny, sampling=SHORT)


def test_a_judge_that_would_write_with_the_weights_of_house_is_refused_where_it_is_made(tiny: Engine) -> None:
    makes: list[Callable[[Any], Any]] = [
        lambda engine: PairwiseJudge(engine, mode="reasoned"),
        DebateJudge,
        lambda engine: TreeJudge(engine, weights="generated"),
    ]
    house = ScriptedEngine(tiny, lambda shown, before: pytest.fail("asked"))
    house.fingerprint = HOUSE.fingerprint
    for make in makes:
        with pytest.raises(AdjudgeError, match="^house was trained to score, not to write: name another model$"):
            make(house)
        make(tiny)
        make(AbsentEngine(Card("house", HOUSE.fingerprint)))  # which writes nothing: replays what others wrote
    for one in (PairwiseJudge, TreeJudge):
        one(house)
    house.adapter = "of one's own"
    for make in makes:
        make(house)
