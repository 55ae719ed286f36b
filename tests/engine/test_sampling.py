"""How a token is chosen from logits."""

from __future__ import annotations

import pickle
from fractions import Fraction
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from adjudge.engine import choosing
from adjudge.engine.choosing import ROUNDING, Wish, choose_each, likeliest, log_sums, uniform
from adjudge.engine.sampling import PENALTIES, Sampling


def choose(logits_V: torch.Tensor, wish: Wish) -> int:
    return int(choosing.choose(logits_V[None], [wish]))


def counts(sampling: Sampling, logits: torch.Tensor, draws: int = 2000) -> torch.Tensor:
    found = torch.zeros(len(logits))
    for place in range(draws):
        found[choose(logits, Wish(sampling, (), uniform((5, 0), place)))] += 1
    return found / draws


def test_tokens_are_drawn_as_often_as_their_probability_says() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -30.0])
    for temperature in (0.5, 1.0, 2.0):
        expected = torch.softmax(logits / temperature, 0)
        assert torch.allclose(counts(Sampling(temperature=temperature), logits), expected, atol=0.03)


@pytest.mark.parametrize(
    "how",
    [
        *({"temperature": value} for value in (1, 10**30, Fraction(1, 2), np.float16(0.5), np.longdouble(0.5))),
        *({name: Fraction(1, 2)} for name in ("top_p", "min_p", "repetition_penalty", *PENALTIES)),
        {"logit_bias": {np.uint8(1): Fraction(1, 2)}},
        {"top_k": np.int8(100), "logprobs": np.uint8(5), "max_tokens": np.int8(120), "n": np.int8(3)},
        {"seed": np.int32(5), "prompt_logprobs": np.int8(1)},
    ],
    ids=repr,
)
def test_numbers_of_any_kind_are_pythons_own_in_a_step(how: dict[str, Any]) -> None:
    sampling = Sampling(**how)
    for name, value in how.items():
        own = {int(k): float(v) for k, v in value.items()} if isinstance(value, dict) else float(value)
        assert getattr(sampling, name) == own and type(getattr(sampling, name)) in (int, float, dict)
    assert choose(torch.zeros(4), Wish(sampling, (1, 2), 0.5)) in range(4)


def test_filters_leave_out_what_they_say_and_no_more() -> None:
    logits = torch.tensor([0.0, 3.0, 1.0, 2.0, -1.0])  # probabilities .032 .636 .086 .234 .012
    for options, kept in (
        ({"top_k": 2}, [1, 3]),
        ({"top_p": 0.5}, [1]),
        ({"top_p": 0.7}, [1, 3]),
        ({"top_p": 0.9}, [1, 2, 3]),
        ({"min_p": 0.2}, [1, 3]),
        ({"top_k": 3, "min_p": 0.2}, [1, 3]),
    ):
        assert counts(Sampling(**options), logits, 300).nonzero().flatten().tolist() == kept, options  # type: ignore[arg-type]


@pytest.mark.parametrize("spread", [0.0, 0.5, 8.0])
@pytest.mark.parametrize("top_p", [0.01, 0.9, 0.999, 1 - 1e-12])
def test_top_p_keeps_what_putting_the_whole_vocabulary_in_order_keeps(spread: float, top_p: float) -> None:
    logits = (torch.randn(3000, generator=torch.Generator().manual_seed(1)) * spread).round(decimals=1)  # many equals
    probs = torch.softmax(logits.double(), 0)
    ordered, places = probs.sort(descending=True, stable=True)
    kept = torch.zeros(3000, dtype=torch.bool)
    kept[places[ordered.cumsum(0) - ordered < top_p * (1 - ROUNDING)]] = True
    reached = (probs * kept).cumsum(0)
    for draw in torch.linspace(0, 0.9999, 200).tolist():
        expected = int(torch.searchsorted(reached, draw * reached[-1], right=True))
        assert choose(logits, Wish(Sampling(top_p=top_p), (), draw)) == expected


@pytest.mark.parametrize("allowed", [50, 300])
def test_at_a_boundary_of_equal_tokens_the_order_of_a_sum_decides_nothing(allowed: int) -> None:
    for top_p in (0.6, 0.7, 0.9):
        logits = torch.zeros(allowed)
        last = choose(logits, Wish(Sampling(top_p=top_p), (), 1 - 1e-12))
        assert last == round(top_p * allowed) - 1
        wishes = [Wish(Sampling(top_p=top_p), (), 1 - 1e-12), Wish(Sampling(), (), 0.0)]
        assert choosing.choose(logits.expand(2, -1), wishes).tolist() == [last, 0]


def test_a_draw_next_to_one_takes_no_token_that_is_out() -> None:
    logits = torch.tensor([0.0, 0.0, -torch.inf])
    assert choose(logits, Wish(Sampling(top_k=2), (), 1.0 - 2**-53)) == 1


def test_repetition_penalty_is_that_of_the_paper() -> None:
    logits = torch.tensor([2.0, 1.9, -1.0])
    assert choose(logits, Wish(Sampling(temperature=0.0), (0,), 0.5)) == 0
    assert choose(logits, Wish(Sampling(temperature=0.0, repetition_penalty=1.2), (0, 0), 0.5)) == 1
    assert choose(torch.tensor([-1.0, -1.1]), Wish(Sampling(temperature=0.0, repetition_penalty=1.2), (0,), 0.5)) == 1


@pytest.mark.parametrize("seed", range(20))
def test_bias_then_penalties_for_what_was_seen_and_for_what_was_written(seed: int) -> None:
    chance = Random(seed)
    logits = [chance.gauss(0, 3) for _ in range(12)]
    prompt, written = chance.choices(range(12), k=4), chance.choices(range(12), k=chance.randrange(8))
    bias = {token: chance.uniform(-5, 5) for token in chance.sample(range(12), 3)}
    repetition, frequency, presence = chance.uniform(0.5, 2), chance.uniform(-2, 2), chance.uniform(-2, 2)
    expected = []
    for token, value in enumerate(logits):
        value += bias.get(token, 0.0)
        if token in prompt + written:
            value = value / repetition if value > 0 else value * repetition
        expected.append(value - frequency * written.count(token) - presence * (token in written))
    sampling = Sampling(
        repetition_penalty=repetition, frequency_penalty=frequency, presence_penalty=presence, logit_bias=bias
    )
    wish = Wish(sampling, [*prompt, *written], 0.5, own=len(written))
    for rows in (1, 3):
        left = torch.tensor([logits] * rows, dtype=torch.float64)
        choosing._apply_wishes(left, [wish] * rows)
        for left_V in left.tolist():
            assert left_V == pytest.approx(expected, rel=1e-12)


def test_tensors_of_a_sampling_are_made_once_for_all_tokens_of_all_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    biases = {token: float(token % 3) for token in range(500)}
    logits = torch.randn(500, generator=torch.Generator().manual_seed(0))
    make, made = torch.tensor, [0]

    def counted(*args: Any, **options: Any) -> torch.Tensor:
        tensor = make(*args, **options)
        made[0] += tensor.numel() > 99
        return tensor

    monkeypatch.setattr(torch, "tensor", counted)
    for sampling in (Sampling(logit_bias=biases), Sampling(allowed_token_ids=tuple(range(3, 400)))):
        tokens = [choose(logits, Wish(sampling, (), 0.3)) for _ in range(2)]
        before = made[0]
        assert [choose(logits, Wish(sampling, (), 0.3)) for _ in range(2)] == tokens and made[0] == before
        assert pickle.loads(pickle.dumps(sampling)) == sampling


def test_a_logit_bias_is_what_it_was_when_it_was_given() -> None:
    biases = {0: 9.0}
    sampling = Sampling(temperature=0.0, logit_bias=biases)
    biases[1] = 99.0
    assert sampling.logit_bias == {0: 9.0}
    assert choose(torch.zeros(3), Wish(sampling, (), 0.5)) == 0


# ---- scores in texts


@pytest.mark.parametrize("how", [{"top_p": 0.5}, {}, {"min_p": 0.1}, {"top_k": 3}])
def test_the_lowest_temperature_takes_the_most_probable_token(how: dict[str, Any]) -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1))
    sampling = Sampling(temperature=5e-324, **how)
    assert {choose(logits, Wish(sampling, [1], draw)) for draw in (0.0, 0.5, 0.999)} == {int(logits.argmax())}


def test_where_the_model_leaves_no_token_that_may_come_none_is_chosen() -> None:
    logits = torch.tensor([0.0, 1.0, -torch.inf, -torch.inf])
    barred, free = torch.tensor([False, False, True, True]), torch.tensor([True, False, True, True])
    for how in ({"temperature": 0.0}, {}, {"top_p": 0.9}, {"top_k": 2, "min_p": 0.1}, {"repetition_penalty": 2.0}):
        sampling = Sampling(**how)  # type: ignore[arg-type]
        assert choose(logits, Wish(sampling, (2,), 0.5, barred)) == -1
        assert choose(logits, Wish(msgspec.structs.replace(sampling, allowed_token_ids=(2, 3)), (), 0.5)) == -1
        wishes = [Wish(sampling, (), 0.5, barred), Wish(sampling, (), 0.5, free)]
        assert choosing.choose(logits.expand(2, -1), wishes).tolist() == [-1, 0]


# ---- many rows at once


KINDS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {},
    {"temperature": 5e-324},
    {"temperature": 0.3, "top_k": 7},
    {"top_k": 5000},
    {"top_p": 0.6},
    {"temperature": 2.5, "top_p": 0.999, "min_p": 0.01},
    {"min_p": 0.2, "repetition_penalty": 1.7},
    {"top_k": 40, "top_p": 0.8, "min_p": 0.05, "repetition_penalty": 0.5},
    {"allowed_token_ids": (499, 3, 77)},
    {"temperature": 0.0, "repetition_penalty": 1.3, "allowed_token_ids": (5, 6)},
    {"frequency_penalty": 0.7, "presence_penalty": -0.4, "repetition_penalty": 1.2},
    {"temperature": 0.0, "presence_penalty": 1.5, "logit_bias": {3: 4.5, 499: -100.0, 7: 2}},
)


ON_CUDA = pytest.param(
    "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
)


@pytest.mark.parametrize("device", ["cpu", ON_CUDA])
@pytest.mark.parametrize("decimals", [1, 6])
def test_rows_chosen_together_are_chosen_as_each_alone(decimals: int, device: str) -> None:
    chance = Random(decimals)
    generator = torch.Generator().manual_seed(decimals)
    for _ in range(20):
        logits = (torch.randn(30, 500, generator=generator) * chance.choice([0, 1, 6])).round(decimals=decimals)
        wishes = {row: _wish(chance, generator) for row in chance.sample(range(30), chance.randint(1, 30))}
        untouched = logits.clone()
        together = choosing.choose(logits.to(device)[list(wishes)], list(wishes.values()))
        assert together.tolist() == choose_each(logits, wishes)
        assert torch.equal(logits, untouched)
        sums = log_sums(logits.to(device)).cpu()
        assert torch.allclose(sums, log_sums(logits), rtol=1e-6)


def _wish(chance: Random, generator: torch.Generator) -> Wish:
    sampling = Sampling(**chance.choice(KINDS))
    allowed = torch.rand(500, generator=generator) < 0.1
    allowed[chance.randrange(500)] = True
    before = chance.choices(range(500), k=chance.choice([0, 3, 50]))
    draw = chance.choice([0.0, 1.0 - 1e-9, chance.random()])
    masked = allowed if chance.random() < 0.2 and not sampling.allowed_token_ids else None
    return Wish(sampling, before, draw, masked, own=chance.randint(0, len(before)))


def test_there_are_no_more_alternatives_than_tokens() -> None:
    logits_RV = torch.randn(2, 5)
    [all_there_are, some] = likeliest(logits_RV, log_sums(logits_RV), [20, 3])
    assert sorted(token for token, _ in all_there_are) == [0, 1, 2, 3, 4] and len(some) == 3
