"""The restricted head over a vocabulary cut into shards, against the whole one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from adjudge.kernels import LabelSetError, restricted_logprobs
from adjudge.kernels.restricted_head_shards import ShardScores, combine_shards, shard_scores
from tests.kernels.restricted_cases import FEATURES, as_dict, assert_same, of_row, problem, select
from tests.kernels.restricted_oracle import restricted_logprobs_oracle

OF_LABELS = ("label_offsets", "label_groups", "label_values", "targets")


def shards(arguments: dict[str, Any], count: int) -> list[ShardScores]:
    """The parts of `count` ranks, the last of which owns fewer rows."""
    head = {name: value for name, value in arguments.items() if name not in (*OF_LABELS, "weight_VD", "bias")}
    offsets = arguments.get("label_offsets")
    weight, bias = arguments["weight_VD"], arguments.get("bias")
    size = -(-len(weight) // count)
    return [
        shard_scores(
            **head,
            weight_VD=weight[first : first + size],
            bias=None if bias is None else bias[first : first + size],
            first_id=first,
            label_offsets=offsets,
        )
        for first in range(0, len(weight), size)
    ]


def labels_of(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: arguments[name] for name in OF_LABELS if name in arguments}


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("features", ["values targets", *FEATURES])
@pytest.mark.parametrize("normalizer", ["set", "full", "both"])
def test_the_parts_of_all_ranks_make_the_scores_of_the_whole_head(count: int, features: str, normalizer: str) -> None:
    arguments = problem((33, 130, 257, 11), torch.float32, features)
    combined = as_dict(combine_shards(shards(arguments, count), **labels_of(arguments), normalizer=normalizer))
    exact = as_dict(restricted_logprobs_oracle(**arguments, normalizer=normalizer))
    whole = as_dict(restricted_logprobs(**arguments, normalizer=normalizer))
    assert combined.keys() == whole.keys()
    for name, value in combined.items():
        if value.is_floating_point():
            error, usual = ((x.double() - exact[name]).abs().max() for x in (value, whole[name]))
            assert error <= 2 * usual + 4e-6 * max(1.0, float(exact[name].abs().max())), name
        else:
            assert torch.equal(value, whole[name]), name


def test_combining_is_pure_and_a_row_is_the_same_bits_in_any_company() -> None:
    arguments = problem((33, 130, 257, 11), torch.float32, "values norm")
    together = as_dict(combine_shards(shards(arguments, 3), label_values=arguments["label_values"], normalizer="both"))
    alone = arguments | {"hidden_ND": arguments["hidden_ND"][20:21]}
    parts = shards(alone, 3)
    for _ in range(2):
        scores = as_dict(combine_shards(parts, label_values=arguments["label_values"], normalizer="both"))
        assert_same(scores, {name: value[20:21] for name, value in together.items()})


@pytest.mark.parametrize("features", ["values norm", "csr groups values"])
def test_one_row_of_4096_is_the_same_bits_alone_and_in_any_order(features: str) -> None:
    arguments = problem((4096, 20, 300, 4), torch.float32, features)

    def combined(arguments: dict[str, Any]) -> dict[str, torch.Tensor]:
        return as_dict(combine_shards(shards(arguments, 2), **labels_of(arguments), normalizer="both"))

    together = combined(arguments)
    order = torch.randperm(4096, generator=torch.Generator().manual_seed(1)).tolist()
    shuffled = combined(select(arguments, order))
    for row in (0, 1, 2049, 4095):
        alone = of_row(combined(select(arguments, [row])), 0)
        assert_same(of_row(together, row), alone)
        assert_same(of_row(shuffled, order.index(row)), alone)


def test_a_row_that_is_not_finite_is_invalid_and_alone_in_it() -> None:
    arguments = problem((5, 48, 257, 5), torch.float32, "softcap")
    arguments["hidden_ND"][3, 2] = torch.inf
    scores = combine_shards(shards(arguments, 2), normalizer="both")
    assert scores.valid.tolist() == [True, True, True, False, True]
    assert scores.logprobs[3].isnan().all()


def test_a_missing_or_repeated_shard_is_named() -> None:
    parts = shards(problem((5, 48, 257, 5), torch.float32), 3)
    first, last = (int(part.owned.long().argmax()) for part in (parts[0], parts[2]))
    with pytest.raises(LabelSetError, match=rf"label_ids\[{last}\] is on 0 shards: pass each rank's part"):
        combine_shards(parts[:2])
    with pytest.raises(LabelSetError, match=rf"label_ids\[{first}\] is on 2 shards"):
        combine_shards([*parts, parts[0]])
    other = shards(problem((6, 48, 257, 5), torch.float32), 3)
    with pytest.raises(LabelSetError, match="differ in shape"):
        combine_shards([parts[0], other[1]])
    with pytest.raises(LabelSetError, match=r"label_ids\[0\] is -1"):
        shard_scores(torch.ones(1, 4), torch.ones(3, 4), torch.tensor([-1]), first_id=0)


def test_a_normalizer_that_is_none_is_refused() -> None:
    parts = shards(problem((5, 48, 257, 5), torch.float32), 3)
    with pytest.raises(ValueError, match="normalizer is 'sum'"):
        combine_shards(parts, normalizer="sum")  # type: ignore[arg-type]
