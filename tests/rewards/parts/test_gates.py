from __future__ import annotations

import pickle
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.parts.gates import (
    FormatReward,
    LanguageReward,
    LengthReward,
    LengthWindow,
    PatternReward,
    RepetitionReward,
    TextReward,
)
from adjudge.rewards.records.group import Group

SECTIONS = r"<think>(?s:.)*</think>\s*<answer>(?s:.)*</answer>"
GATES: list[TextReward] = [
    FormatReward(),
    PatternReward(SECTIONS),
    LanguageReward("en"),
    RepetitionReward(),
    LengthReward(),
]
MEGABYTES = [
    "<think>" * 150_000,
    "<think>a</think>" * 60_000 + "<answer>",
    "a" * 1_000_000,
    "ab " * 300_000,
    "漢" * 300_000,
    " " * 1_000_000,
    "\ud800" * 300_000,
    "<think>" + "x" * 1_000_000 + "</think><answer>y</answer>",
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>a</think><answer>b</answer>", 1.0),
        (" <think>\na\n</think>\n\n<answer> b </answer>\n", 1.0),
        ("<think>a</think> so <answer>b</answer>", 0.0),
        ("<think>a</think><answer> \n</answer>", 0.0),
        ("<think></think><answer>b</answer>", 0.0),
        ("<answer>b</answer><think>a</think>", 0.0),
        ("<think>a<answer>b</answer></think>", 0.0),
        ("<think>a</think><answer>b</answer><answer>c</answer>", 0.0),
        ("<think>a</think><answer>b</answer> bye", 0.0),
        ("</think>a<think><answer>b</answer>", 0.0),
        ("<think>a<answer>b</think>c</answer>", 0.0),
        ("<think>a</think><answer>b", 0.0),
        ("", 0.0),
    ],
)
def test_a_format_is_its_sections_in_order_and_nothing_else(text: str, expected: float) -> None:
    assert FormatReward().value(text) == expected


def test_a_template_may_have_opened_the_first_section() -> None:
    begun = FormatReward(begun=True)
    assert begun.value("a</think><answer>b</answer>") == 1.0
    assert begun.value("<think>a</think><answer>b</answer>") == 0.0
    assert FormatReward().value("a</think><answer>b</answer>") == 0.0


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"\d{3}", "123", 1.0),
        (r"\d{3}", "1234", 0.0),
        (r"\d{3}", "12", 0.0),
        (r"(Ja|Nein)é?", "Jaé", 1.0),
        (r"", "", 1.0),
        (r"a.b", "a\nb", 0.0),
        (r".*", "\ud800", 1.0),
    ],
)
def test_a_pattern_holds_for_the_whole_text(pattern: str, text: str, expected: float) -> None:
    assert PatternReward(pattern).value(text) == expected


def test_language_is_the_share_of_letters_in_its_scripts() -> None:
    assert LanguageReward("en").value("Hello, wörld! 123 :)") == 1.0
    assert LanguageReward("zh").value("你好，world") == pytest.approx(2 / 7, abs=1e-6)
    assert LanguageReward("en").value("你好，world") == pytest.approx(5 / 7, abs=1e-6)
    assert LanguageReward("ja").value("これは漢字ーカナ") == 1.0
    assert LanguageReward("zh").value("これは漢字") == pytest.approx(2 / 5, abs=1e-6)
    assert LanguageReward("ru").value("Привет") == LanguageReward("ko").value("안녕") == 1.0
    assert LanguageReward("en").value("Ｗｉｄｅ") == 1.0
    assert LanguageReward("en").value("𝐁𝐨𝐥𝐝") == 0.0
    assert LanguageReward("en").value("123 …") == LanguageReward("en").value("") == 0.0


def test_repetition_is_the_share_of_different_runs_of_words() -> None:
    # the runs of two among "a b A b a c": ab ba ab ba ac
    assert RepetitionReward(2).value("a b A b a c") == pytest.approx(3 / 5, abs=1e-6)
    assert RepetitionReward(4).value("one two three") == RepetitionReward().value("") == 1.0
    assert RepetitionReward(1).value("so so so so") == pytest.approx(1 / 4, abs=1e-6)
    assert RepetitionReward(2).value("漢字漢字") == pytest.approx(2 / 3, abs=1e-6)
    for loop in ("the same four words ", "ha,ha,ha,ha,", "the-sea-the-sea-", "ไปทะเล", "!!! ??? ... ;;; "):
        assert RepetitionReward().value(loop * 1000) < 0.01


def test_length_counts_words_and_chinese_characters() -> None:
    reward = LengthReward(LengthWindow(4, 6))
    assert reward.value("one two three") == pytest.approx(0.5, abs=1e-6)
    assert reward.value("四个汉字") == reward.value("ทะเล") == 1.0
    assert reward.value("") == 0.0
    [group] = reward.score_groups([Group("p", ("one two three", ""))])
    assert group.rewards == (0.5, 0.0) and group.measures["words"] == (3.0, 0.0)


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 400), st.integers(0, 400))
def test_length_never_falls_towards_its_window(one: int, other: int, least: int, more: int) -> None:
    window = LengthWindow(least, least + more)
    short, long = sorted((one, other))
    assert 0 <= window.reward(short) <= 1
    if long <= window.most:
        assert window.reward(short) <= window.reward(long)
    if short >= window.least:
        assert window.reward(short) >= window.reward(long)


@given(st.text(), st.integers(1, 50))
def test_more_letters_of_a_language_never_pay_less_and_of_another_never_more(text: str, count: int) -> None:
    reward = LanguageReward("en")
    assert reward.value(text + "a" * count) >= reward.value(text) >= reward.value(text + "я" * count)


@given(st.text(st.sampled_from("ab "), max_size=60), st.integers(1, 4))
def test_a_new_word_never_pays_less_for_repetition(text: str, n: int) -> None:
    assert RepetitionReward(n).value(text + " new") >= RepetitionReward(n).value(text) - 1e-12


@given(st.text())
def test_every_text_has_a_reward_between_0_and_1_and_always_the_same(text: str) -> None:
    for gate in GATES:
        value = gate.value(text)
        assert 0 <= value <= 1 and pickle.loads(pickle.dumps(gate)).value(text) == value


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
def test_hostile_megabytes_are_scored(gate: TextReward) -> None:
    for text in MEGABYTES:
        assert 0 <= gate.value(text) <= 1


def test_a_pattern_gives_every_text_what_it_gives_it_alone() -> None:
    pattern, drawn = r"(?s:.*)\d{1,3}(?s:.{0,200})", random.Random(3)
    words = [
        "the",
        "lamp",
        "was",
        "7",
        "years",
        "dark",
        "when",
        "12",
        "moths",
        "came",
        "back",
        "and",
        "she",
        "let",
        "them",
        "in",
        ".",
        "!",
        "304",
    ]
    texts = [" ".join(drawn.choices(words, k=drawn.randrange(1, 300))) for _ in range(80)]
    reward = PatternReward(pattern)
    assert [reward.value(text) for text in texts] == [float(bool(re.fullmatch(pattern, text))) for text in texts]


def test_a_text_that_overstrains_the_automaton_is_of_no_form_and_spoils_no_other() -> None:
    reward = PatternReward("[ab]*a[ab]{17}")
    drawn = random.Random(0)
    hostile = "".join(drawn.choices("ab", k=100_000))
    scored = reward.score_groups([Group("p", (hostile, "a" * 25))])[0]
    assert scored.rewards == (0.0, 1.0) and scored.abstained == (None, None)
    assert reward.value("a" * 25) == 1.0 and reward.value("b" * 25) == 0.0


def test_a_pattern_that_would_backtrack_for_ages_does_not() -> None:
    assert PatternReward("(a+)+b").value("a" * 100_000) == 0.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: FormatReward("think"), "give a list"),
        (lambda: FormatReward([]), "give a list"),
        (lambda: FormatReward(["a b"]), 'tag "a b" is no name'),
        (lambda: FormatReward(["a", "a"]), 'tag "a" is no name, or is given twice'),
        (lambda: FormatReward(3), "give a list"),
        (lambda: FormatReward([3]), 'tag "3" is no name'),
        (lambda: PatternReward(None), "pattern is None: give a regular expression"),
        (lambda: LanguageReward(["en"]), "no scripts are known for language"),
        (lambda: PatternReward("("), r'pattern "\(" cannot be read'),
        (lambda: LanguageReward("xx"), 'no scripts are known for language "xx": choose ar, be'),
        (lambda: RepetitionReward(0), "n is 0"),
    ],
)
def test_mistakes_are_named(build: Any, message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        build()


@pytest.mark.parametrize("loop", ["ha", "a", "!", "\N{FACE WITH TEARS OF JOY}", "?!", "blahbla", "ha! "])
def test_a_loop_without_blanks_is_a_loop(loop: str) -> None:
    assert RepetitionReward().value(loop * 500) < 0.02


def test_a_word_that_is_only_long_repeats_nothing() -> None:
    assert RepetitionReward().value("Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamter") > 0.9
    assert RepetitionReward().value("She said: the-sea's grey, and went.") == 1.0
