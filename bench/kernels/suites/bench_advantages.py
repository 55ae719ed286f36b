"""Group advantages of 8 completions a prompt, one in seventeen without a reward."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from torch import Tensor

from adjudge.kernels import group_advantages

SIZE = 8
GROUPS = [8, 64, 512, 4096]


def rewards_of(groups: int) -> Tensor:
    """Random rewards [groups * SIZE]."""
    rewards = torch.randn(groups * SIZE, generator=torch.Generator().manual_seed(0))
    rewards[::17] = math.nan
    return rewards


def group_by_group(rewards: Tensor) -> Tensor:
    """A loop over groups."""
    advantages = torch.zeros_like(rewards)
    for group, out in zip(rewards.view(-1, SIZE), advantages.view(-1, SIZE), strict=True):
        finite = group.isfinite()
        if finite.sum() > 1:
            out[finite] = (group[finite] - group[finite].mean()) / (group[finite].std() + 1e-4)
    return advantages


def dense(rewards: Tensor) -> Tensor:
    """Masked sums over [G, SIZE] in float32: equal groups only, and no word on bits or groups of equal rewards."""
    grouped = rewards.view(-1, SIZE)
    finite = grouped.isfinite()
    apart = (grouped - grouped.nanmean(1, keepdim=True)).where(finite, 0)
    std = (apart.square().sum(1, keepdim=True) / (finite.sum(1, keepdim=True) - 1)).sqrt()
    return (apart / (std + 1e-4)).view(-1)


def ours(rewards: Tensor) -> Tensor:
    """The kernel."""
    return group_advantages(rewards, group_size=SIZE).advantages


@pytest.mark.parametrize("way", [group_by_group, dense, ours])
@pytest.mark.parametrize("groups", GROUPS)
def test_advantages(groups: int, way: Callable[[Tensor], Tensor], benchmark: BenchmarkFixture) -> None:
    """Time one way, and compare it with another."""
    rewards = rewards_of(groups)
    expected = (group_by_group if way is ours else ours)(rewards)
    assert torch.allclose(benchmark(way, rewards), expected, rtol=1e-4, atol=1e-5)
