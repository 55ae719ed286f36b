"""What a bare model makes of texts."""

from __future__ import annotations

import math
import random
from statistics import fmean

import pytest
import torch

from adjudge.engine.engine import Engine
from adjudge.engine.models.sources import open_source, resolve
from adjudge.engine.text.labels import LabelSet
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.engine.tokens import Tokens
from adjudge.training.bare_model import BareModel

TINY = "dummy:tiny-llama"
WORDS = (
    "the",
    "rain",
    "fell",
    "on a",
    "small town,",
    "nobody",
    "came home.",
    "Why?",
    "Über",
    "naïve",
    "雨",
    "<|im_end|>",
)


@pytest.fixture(scope="module")
def bare() -> BareModel:
    return BareModel(TINY, "cpu", "float32")


class Oracle:
    """The same weights in float64, a whole pass for every token."""

    def __init__(self) -> None:
        opened = open_source(resolve(TINY), dtype=torch.float64)
        self.model, self.tokenizer = opened.model, Tokenizer(opened.tokenizer)

    def log_probability(self, before: Tokens, text: Tokens) -> float:
        """Of all but the first two tokens."""
        total = 0.0
        for place, token in list(enumerate(text))[2:]:
            seen = torch.tensor([[*before, *text[:place]]])
            total += float(torch.log_softmax(self.model(input_ids=seen).logits[0, -1], -1)[token])
        return total

    def gain(self, parts: list[str]) -> float | None:
        start = self.tokenizer.prompt("\n\n")
        pieces = [self.tokenizer.encode(f" {part}" if place else part, False) for place, part in enumerate(parts)]
        here, alone, before = 0.0, 0.0, (*start, *pieces[0])
        for piece in pieces[1:]:
            here += self.log_probability(before, piece)
            alone += self.log_probability(start, piece)
            before += piece
        return (alone - here) / alone if alone else None


def test_likelihood_is_the_mean_that_the_engine_reads_token_by_token(bare: BareModel) -> None:
    engine = Engine(TINY, device="cpu", dtype="float32")
    before, after = engine.tokenizer.prompt("Tell.\n\n"), engine.tokenizer.encode("It rains <|im_end|>", False)
    whole = before + after
    places = range(len(before), len(whole))
    scores = engine.score([whole[:place] for place in places], [LabelSet.of_ids([whole[place]]) for place in places])
    known = fmean(score.full_logprobs[0] for score in scores if score.full_logprobs)
    assert bare.likelihood("Tell.", "It rains <|im_end|>") == pytest.approx(known, abs=1e-4)
    assert bare.likelihood("Tell.", "") is None


@pytest.mark.parametrize("seed", range(6))
def test_gain_is_that_of_every_token_read_by_itself(bare: BareModel, seed: int) -> None:
    draw = random.Random(f"gain {seed}")
    parts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 6))) for _ in range(draw.randint(2, 5))]
    assert bare.gain(parts) == pytest.approx(Oracle().gain(parts), abs=1e-5)


def test_gain_of_what_has_nothing_before_it_is_none(bare: BareModel) -> None:
    assert bare.gain(["One."]) is None and bare.gain([]) is None
    assert bare.gain(["One.", ""]) is None and bare.gain(["One.", "a"]) is None  # no third token
    assert bare.gain(["long " * 5000, "Two."]) is None


def test_what_does_not_fit_is_left_out_whole(bare: BareModel) -> None:
    short = ["One.", "Two."]
    assert bare.gain([*short, "long " * 5000]) == bare.gain(short)
    assert bare.likelihood("long " * 5000, "text") is None


def test_sentences_that_know_of_each_other_gain_by_it(smollm2: str) -> None:
    real = BareModel(smollm2, "cpu", "float32")
    told = ["Ana lost her keys.", "She looked for them under the sofa.", "The keys were in her coat."]
    mixed = [told[0], "The ship had sailed at dawn.", "His uncle grew tomatoes."]
    gains = [real.gain(parts) or math.nan for parts in (told, mixed)]
    assert 1 > gains[0] > gains[1] + 0.1, gains
