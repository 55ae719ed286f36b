"""Answers that are none, written from a canary."""

from __future__ import annotations

import re

from adjudge.rewards.guards.canary import Canary

ONE_WORD = {"zh": "好"}
FILLER = {
    "zh": "在很多方面来说，各种事情都有各种各样的情况，而这些又与其他方面有着这样那样的联系，总之值得从多个角度看待。",
}
ENGLISH_WORD = "Yes"
ENGLISH_FILLER = (
    "Marem sola vintu dorema, kesti palorum ne hadrit. Ono belira sutem val corint, pellare mosi tundra ki. Sed orlam"
    " vito ranes, filum datora beni sul martek."
)
TIMES = 12
"""How often a sentence is repeated, so that its length is that of an answer."""

_SENTENCE = re.compile(r"[^.!?。！？]*[.!?。！？]?")


def degenerate_texts(canary: Canary, other: Canary) -> dict[str, str]:
    """The degenerate answers by name; `other` is the canary whose good answer stands under the wrong prompt."""
    between = "" if canary.language == "zh" else " "
    sentence = _SENTENCE.match(canary.mediocre.strip())
    return {
        "empty": "",
        "one_word": ONE_WORD.get(canary.language, ENGLISH_WORD),
        "prompt_repeated": between.join([canary.prompt] * 3),
        "sentence_repeated": between.join([sentence[0] if sentence else ""] * TIMES),
        "filler": between.join([FILLER.get(canary.language, ENGLISH_FILLER)] * 3),
        "other_answer": other.good,
        "reference_copied": canary.reference,
    }
