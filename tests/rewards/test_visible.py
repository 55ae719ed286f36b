"""What nobody sees in a text counts for nothing, costs no time, and does nothing where the text is shown."""

from __future__ import annotations

import unicodedata

import pytest

from adjudge.rewards import visible
from adjudge.rewards.parts.check_reward import Check, CheckReward
from adjudge.rewards.parts.gates import FormatReward, LengthReward, LengthWindow, RepetitionReward
from adjudge.rewards.parts.section_reward import section_after, section_of
from adjudge.rewards.visible import MOST_MARKS, in_a_line, readable
from adjudge.rewards.words import count_words

UNSEEN = "\u200b\u2060\u00ad\ufe0f\u034f\ufe00\u180b\U000e0100\u115f\u3164\u2800"


@pytest.mark.parametrize("sign", UNSEEN, ids=ascii)
def test_a_sign_that_nobody_sees_changes_no_reward(sign: str) -> None:
    loop = "the cat sat on the mat. " * 50
    hidden = "".join(f"{word}{sign * (number % 7)} " for number, word in enumerate(loop.split()))
    assert RepetitionReward().value(hidden) == RepetitionReward().value(loop)
    assert LengthReward(LengthWindow(3, 800)).value("Short story." + f" {sign}" * 250) < 1
    assert CheckReward(Check(avoids=("moon",))).value(f"The mo{sign}on rose.") == 0
    assert CheckReward(Check(ends_with=("The end.",))).value(f"So. The end.{sign}") == 1
    assert CheckReward(Check(avoids=("moon",))).value(f" {sign}") == 0
    assert FormatReward().value(f"<think>{sign}</think><answer>{sign} </answer>") == 0
    assert section_of(f"<answer>{sign}</answer>", "answer") == section_after(f"</think> {sign}", "think") == ""
    assert count_words(f"one {sign} two") == 2


def test_letters_are_composed_and_marks_in_a_row_are_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert readable("cafe\u0301") == "caf\u00e9" == readable("cafe\u200b\u0301") and readable("plain") == "plain"
    longest: list[int] = []

    class Watched:
        category, combining = unicodedata.category, unicodedata.combining

        @staticmethod
        def normalize(form: str, text: str) -> str:
            runs = "".join("m" if unicodedata.combining(one) else " " for one in text).split()
            longest.append(max(map(len, runs)))
            return text

    monkeypatch.setattr(visible, "unicodedata", Watched)
    readable("a" + "\u0327\u0301" * 10_000 + " b\u0301")
    assert longest == [MOST_MARKS]


def test_in_a_line_no_sign_acts() -> None:
    assert in_a_line("\x1b[2J\nadjudge: fine\r\u202e") == "⟨U+001B⟩[2J⟨U+000A⟩adjudge: fine⟨U+000D⟩⟨U+202E⟩"
