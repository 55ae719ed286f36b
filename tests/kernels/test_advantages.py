from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from statistics import fmean
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from adjudge.kernels import GroupAdvantages, RaggedError, group_advantages
from adjudge.kernels.advantages import LARGEST

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
ODD_SIZES = [1, 2, 3, 7, 8, 9, 31, 1, 100]


def problem(sizes: list[int], seed: int = 0, abstaining: float = 0.2) -> tuple[Tensor, Tensor]:
    """Rewards with abstentions of each kind, and offsets."""
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.randn(sum(sizes), generator=generator) * 3 + 5
    kind = torch.rand(len(rewards), generator=generator) / max(abstaining, 1e-9)
    rewards[kind < 1.0] = math.nan
    rewards[kind < 0.4] = math.inf
    rewards[kind < 0.2] = -math.inf
    return rewards, F.pad(torch.tensor(sizes, dtype=torch.int64).cumsum(0), (1, 0))


def oracle(rewards: list[float], scale: str, eps: float) -> dict[str, Any]:
    """One group, written out in Python's floats with exact sums."""
    finite = [reward for reward in rewards if math.isfinite(reward)]
    nothing = {"advantages": [0.0] * len(rewards), "valid": [False] * len(rewards)}
    if len(finite) < min(2, len(rewards)):
        return nothing | {"mean": math.nan, "std": math.nan, "zero_variance": False}
    mean = fmean(finite)
    std = math.sqrt(math.fsum((x - mean) ** 2 for x in finite) / (len(finite) - 1)) if len(finite) > 1 else 0.0
    divisor = std + eps if scale == "group_std" else 1.0
    return {
        "advantages": [(x - mean) / divisor if math.isfinite(x) else 0.0 for x in rewards],
        "valid": [math.isfinite(x) for x in rewards],
        "mean": mean,
        "std": std,
        "zero_variance": len(set(finite)) == 1,
    }


def assert_same(left: GroupAdvantages, right: GroupAdvantages) -> None:
    for field in fields(GroupAdvantages):
        one, other = getattr(left, field.name), getattr(right, field.name)
        assert torch.equal(one.nan_to_num(-7.5), other.nan_to_num(-7.5)), field.name


@pytest.fixture
def poisoned_memory() -> Iterator[None]:
    """Uninitialised tensors are filled with NaN and the largest integers."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", ["none", "group_std"])
@pytest.mark.parametrize("eps", [1e-4, 0.5])
def test_every_field_is_the_oracles_in_ragged_groups(
    dtype: torch.dtype, scale: Any, eps: float, poisoned_memory: None
) -> None:
    assert torch.empty(1).isnan()
    rewards, offsets = problem(ODD_SIZES * 3)
    rewards = rewards.to(dtype)
    result = group_advantages(rewards, offsets=offsets, scale=scale, eps=eps)
    assert result.advantages.dtype == result.mean.dtype == result.std.dtype == torch.float32
    assert result.valid.dtype == result.zero_variance.dtype == torch.bool
    for group, (first, last) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        expected = oracle(rewards[first:last].tolist(), scale, eps)
        assert result.advantages[first:last].tolist() == pytest.approx(expected["advantages"], rel=1e-6, abs=1e-6)
        assert result.valid[first:last].tolist() == expected["valid"]
        assert result.mean[group].item() == pytest.approx(expected["mean"], rel=1e-6, nan_ok=True)
        assert result.std[group].item() == pytest.approx(expected["std"], rel=1e-6, nan_ok=True)
        assert result.zero_variance[group].item() == expected["zero_variance"]


def test_is_what_trl_computes_where_nobody_abstains() -> None:
    rewards = torch.randn(6 * 8, generator=torch.Generator().manual_seed(1))
    grouped = rewards.view(6, 8)
    expected = (grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)
    result = group_advantages(rewards, group_size=8)
    assert torch.allclose(result.advantages, expected.view(-1), rtol=1e-5, atol=1e-6)
    assert torch.allclose(result.std, grouped.std(1))


@pytest.mark.parametrize("scale", ["none", "group_std"])
def test_a_group_is_bit_equal_alone_and_anywhere_among_4096(scale: Any) -> None:
    generator = torch.Generator().manual_seed(2)
    sizes = torch.randint(1, 40, (4096,), generator=generator).tolist()
    rewards, offsets = problem(sizes, seed=3)
    together = group_advantages(rewards, offsets=offsets, scale=scale)
    groups, expected = rewards.split(sizes), together.advantages.split(sizes)
    for place in (0, 1, 17, 4095):
        alone = group_advantages(groups[place], group_size=sizes[place], scale=scale)
        assert torch.equal(alone.advantages, expected[place])
        assert torch.equal(alone.mean.nan_to_num(-7.5), together.mean[place : place + 1].nan_to_num(-7.5))
    order = torch.randperm(4096, generator=generator).tolist()
    large = torch.randn(5000, generator=generator)  # makes the trees deeper
    shuffled = group_advantages(
        torch.cat([*(groups[place] for place in order), large]),
        offsets=F.pad(torch.tensor([*(sizes[place] for place in order), 5000]).cumsum(0), (1, 0)),
        scale=scale,
    )
    assert torch.equal(shuffled.advantages[:-5000], torch.cat([expected[place] for place in order]))
    assert torch.equal(shuffled.std[:-1].nan_to_num(-7.5), together.std[order].nan_to_num(-7.5))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 33])
def test_a_group_size_means_equal_offsets(size: int) -> None:
    rewards, offsets = problem([size] * 13)
    assert_same(group_advantages(rewards, group_size=size), group_advantages(rewards, offsets=offsets.int()))


def test_rewards_and_offsets_may_be_strided() -> None:
    rewards, offsets = problem(ODD_SIZES)
    strided = group_advantages(rewards.repeat_interleave(2)[::2], offsets=offsets.repeat_interleave(3)[::3])
    assert_same(strided, group_advantages(rewards, offsets=offsets))


def test_none_in_a_list_is_an_abstention() -> None:
    listed = group_advantages([1.0, None, 3, None, None, 2.0], group_size=3, scale="none")
    assert listed.advantages.tolist() == [-1.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    assert listed.valid.tolist() == [True, False, True, False, False, False]
    assert listed.mean[0] == 2 and listed.mean[1].isnan()
    nan = group_advantages(torch.tensor([1, math.nan, 3, math.nan, math.nan, 2]), group_size=3, scale="none")
    assert_same(listed, nan)


def test_fewer_than_two_rewards_make_a_group_invalid_but_a_group_of_one_keeps_its_own() -> None:
    result = group_advantages([5.0, None, 5.0, None, None, 1.0], offsets=torch.tensor([0, 2, 3, 4, 6]))
    assert result.valid.tolist() == [False, False, True, False, False, False]
    assert result.advantages.tolist() == [0.0] * 6
    assert result.mean.isnan().tolist() == [True, False, True, True]
    assert result.zero_variance.tolist() == [False, True, False, False]


@pytest.mark.parametrize("eps", [0.0, 1e-4])
@pytest.mark.parametrize("scale", ["none", "group_std"])
def test_equal_rewards_give_exactly_zero_and_are_told(scale: Any, eps: float) -> None:
    rewards = [0.1] * 3 + [0.7] * 7 + [None, 1e-30, 1e-30] + [1.0, 2.0]
    result = group_advantages(rewards, offsets=torch.tensor([0, 3, 10, 13, 15]), scale=scale, eps=eps)
    assert result.advantages[:13].tolist() == [0.0] * 13
    assert result.std[:3].tolist() == [0.0] * 3
    assert result.zero_variance.tolist() == [True, True, True, False]
    assert result.advantages[13:].tolist() == pytest.approx(
        [-(0.5**0.5), 0.5**0.5] if scale != "none" else [-0.5, 0.5], abs=1e-3
    )


@pytest.mark.parametrize("scale", ["none", "group_std"])
def test_no_finite_reward_however_large_or_close_gives_a_number_that_is_not(scale: Any) -> None:
    rewards = torch.tensor(
        [LARGEST, -LARGEST, -LARGEST, 1e308, 1e200, 2.0, 1.0, 1.0 + 1e-16, 1e-200, 0.0], dtype=torch.float64
    )
    result = group_advantages(rewards, offsets=torch.tensor([0, 3, 6, 8, 10]), scale=scale, eps=0.0)
    assert result.advantages.isfinite().all()
    assert result.valid.tolist() == [True] * 3 + [False] * 3 + [True] * 4
    assert result.std[[0, 2, 3]].isfinite().all()


def test_no_groups_give_empty_results() -> None:
    for result in (group_advantages([], group_size=4), group_advantages([], offsets=torch.tensor([0]))):
        assert [len(getattr(result, field.name)) for field in fields(GroupAdvantages)] == [0] * 5


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, RaggedError, "either group_size or offsets"),
        ({"group_size": 2, "offsets": torch.tensor([0, 6])}, RaggedError, "either group_size or offsets"),
        ({"group_size": 4}, RaggedError, "group_size is 4 for 6 rewards"),
        ({"group_size": 0}, RaggedError, "group_size is 0 for 6 rewards"),
        ({"group_size": -2}, RaggedError, "group_size is -2"),
        ({"offsets": torch.tensor([0, 5])}, RaggedError, "from 0 to 5: it must start at 0 and end at 6"),
        ({"offsets": torch.tensor([0, 4, 3, 6])}, RaggedError, r"offsets\[2\] is 3 after 4"),
        ({"offsets": torch.tensor([0, 3, 3, 6])}, RaggedError, "group 1 is empty"),
        ({"offsets": torch.tensor([0.0, 6.0])}, TypeError, "offsets has dtype torch.float32"),
        ({"group_size": 3, "scale": "batch"}, ValueError, 'scale is \'batch\': use "none" or "group_std"'),
        ({"group_size": 3, "eps": -1.0}, ValueError, "eps is -1.0"),
        ({"group_size": 3, "eps": math.nan}, ValueError, "eps is nan"),
        ({"group_size": 3, "rewards": torch.ones(6, dtype=torch.int64)}, TypeError, "rewards has dtype torch.int64"),
        ({"group_size": 3, "rewards": torch.ones(2, 3)}, RaggedError, r"rewards has shape \(2, 3\)"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        group_advantages(**({"rewards": torch.ones(6)} | arguments))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("scale", ["none", "group_std"])
def test_cuda_gives_the_bits_of_the_cpu(scale: Any) -> None:
    rewards, offsets = problem(ODD_SIZES * 50)
    on_gpu = group_advantages(rewards.cuda(), offsets=offsets, scale=scale)
    assert on_gpu.advantages.is_cuda and on_gpu.zero_variance.is_cuda
    on_cpu = group_advantages(rewards, offsets=offsets, scale=scale)
    for field in fields(GroupAdvantages):
        one, other = getattr(on_gpu, field.name).cpu(), getattr(on_cpu, field.name)
        assert torch.equal(one.nan_to_num(-7.5), other.nan_to_num(-7.5)), field.name
