"""Kernels compute the same whatever their callers have set for all of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

import pytest
import torch

from adjudge.kernels import ByteTable, answer_spans, group_advantages, restricted_logprobs
from adjudge.kernels.attention import paged_attention
from adjudge.kernels.paged_kv import PagedBatch, PagedKV, PagedSequence, write_kv
from adjudge.kernels.restricted_head_arguments import HeadWeights
from adjudge.kernels.surroundings import undisturbed
from adjudge.kernels.vocabulary_logits import vocabulary_logits
from tests.kernels.restricted_cases import as_dict, assert_same, problem

SURROUNDINGS = [partial(torch.device, "meta"), partial(torch.autocast, "cpu", dtype=torch.bfloat16)]
HOST = torch.device("cpu")


@pytest.fixture(params=SURROUNDINGS, ids=["default-device", "autocast"])
def surroundings(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[Any]]:
    made: Callable[[], AbstractContextManager[Any]] = request.param
    return made


def attention(**how: Any) -> torch.Tensor:
    """What 40 rows see of themselves."""
    generator = torch.Generator(HOST).manual_seed(0)
    query, key, value = (torch.randn(40, n, 32, generator=generator, device=HOST) for n in (4, 2, 2))
    places = torch.arange(40, device=HOST)
    batch = PagedBatch((PagedSequence(0, 40, 0, [1, 2, 3]),), 16, 40, places, 16 + places)
    cache = PagedKV.empty(4, 16, key, value)
    write_kv(key, value, cache, batch)
    return paged_attention(query, cache, batch, **how)


def calls() -> Iterator[Callable[[], Any]]:
    """Calls of every kernel, with all they are given on the host."""
    arguments = problem((33, 130, 257, 11), torch.float32)
    hidden, weight, ids = (arguments[name] for name in ("hidden_ND", "weight_VD", "label_ids"))
    sinks = torch.arange(4.0)
    fields: Any = as_dict
    yield lambda: fields(restricted_logprobs(hidden, weight, ids, normalizer="both"))
    yield lambda: {"logits": vocabulary_logits(hidden, HeadWeights(weight, None, 0.0, None, None, 1.0))}
    yield lambda: {"output": attention()}
    yield lambda: {"output": attention(softcap=5.0)}
    yield lambda: {"output": attention(sinks=sinks)}
    yield lambda: fields(group_advantages([1.0, 2.0, 3.0, 5.0], group_size=2))
    tokens, offsets = torch.tensor([0, 1]), torch.tensor([0, 2])
    given = {"openings": [b"[["], "labels": [b"4"]}
    yield lambda: fields(answer_spans(tokens, offsets, ByteTable.of([b"[[", b"4"]), **given))


def test_kernels_give_the_same_bits_under_autocast_and_under_a_default_device(
    surroundings: Callable[[], AbstractContextManager[Any]],
) -> None:
    for call in calls():
        with surroundings():  # first, so that what is found out once for all is found out here
            found = call()
        assert_same(found, call(), "is another")


def test_what_a_caller_has_set_is_in_force_again_afterwards_and_after_an_error() -> None:
    @undisturbed
    def fails() -> None:
        assert not torch.is_autocast_enabled("cpu") and torch.empty(0).device == HOST
        raise KeyError

    with ExitStack() as stack:
        for surroundings in SURROUNDINGS:
            stack.enter_context(surroundings())
        with pytest.raises(KeyError):
            fails()
        assert torch.is_autocast_enabled("cpu") and torch.empty(0).device.type == "meta"
