"""How a token is chosen from logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from adjudge.engine.sampling import Sampling, choose, uniform


def counts(sampling: Sampling, logits: torch.Tensor, draws: int = 4000) -> torch.Tensor:
    found = torch.zeros(len(logits))
    for place in range(draws):
        found[choose(logits, sampling, (), uniform((5, 0), place))] += 1
    return found / draws


def test_tokens_are_drawn_as_often_as_their_probability_says() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -30.0])
    for temperature in (0.5, 1.0, 2.0):
        expected = torch.softmax(logits / temperature, 0)
        assert torch.allclose(counts(Sampling(temperature=temperature), logits), expected, atol=0.03)


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
        assert counts(Sampling(**options), logits, 2000).nonzero().flatten().tolist() == kept, options  # type: ignore[arg-type]


@pytest.mark.parametrize("spread", [0.0, 0.5, 8.0])
@pytest.mark.parametrize("top_p", [0.01, 0.9, 0.999, 1 - 1e-12])
def test_top_p_keeps_what_putting_the_whole_vocabulary_in_order_keeps(spread: float, top_p: float) -> None:
    logits = (torch.randn(3000, generator=torch.Generator().manual_seed(1)) * spread).round(decimals=1)  # many equals
    probs = torch.softmax(logits.double(), 0)
    ordered, places = probs.sort(descending=True, stable=True)
    kept = torch.zeros(3000, dtype=torch.bool)
    kept[places[ordered.cumsum(0) - ordered < top_p]] = True
    reached = (probs * kept).cumsum(0)
    for draw in torch.linspace(0, 0.9999, 200).tolist():
        expected = int(torch.searchsorted(reached, draw * reached[-1], right=True))
        assert choose(logits, Sampling(top_p=top_p), (), draw) == expected


def test_a_draw_next_to_one_takes_no_token_that_is_out() -> None:
    logits = torch.tensor([0.0, 0.0, -torch.inf])
    assert choose(logits, Sampling(top_k=2), (), 1.0 - 2**-53) == 1


def test_repetition_penalty_is_that_of_the_paper() -> None:
    logits = torch.tensor([2.0, 1.9, -1.0])
    assert choose(logits, Sampling(temperature=0.0), (0,), 0.5) == 0
    assert choose(logits, Sampling(temperature=0.0, repetition_penalty=1.2), (0, 0), 0.5) == 1
    assert choose(torch.tensor([-1.0, -1.1]), Sampling(temperature=0.0, repetition_penalty=1.2), (0,), 0.5) == 1


# ---- scores in texts


@pytest.mark.parametrize("how", [{"top_p": 0.5}, {}, {"min_p": 0.1}, {"top_k": 3}])
def test_the_lowest_temperature_takes_the_most_probable_token(how: dict[str, Any]) -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1))
    sampling = Sampling(temperature=5e-324, **how)
    assert {choose(logits, sampling, [1], draw) for draw in (0.0, 0.5, 0.999)} == {int(logits.argmax())}
