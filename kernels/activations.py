"""Activation functions whose values do not depend on where they stand among others, on CPU.

torch computes SiLU, GELU's tanh form and others many numbers at a time, and what is left of a thread's share one by
one, with other last bits. Where shares end depends on how many numbers there are and on the threads: 96 rows of 1,536
become five shares of 29,492 where there are five threads or more. Here an activation is applied in a few calls whose
shares are multiples of 64 numbers, so that all are computed many at a time; with one or two threads that is one call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from math import lcm
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

GRAIN = 32768
"""A thread's share is at least so many numbers (at::internal::GRAIN_SIZE)."""
GELU_ALONE = 16384
"""Beyond so many numbers, GELU has a share for every thread."""
STEP = 64
"""Numbers computed at a time, at most: two registers of 32 in half precision."""
PLAIN = (nn.SiLU, nn.GELU, nn.Sigmoid, nn.Tanh, nn.Mish, nn.Softplus, nn.ELU)
"""torch's own; those of transformers are all elementwise."""


def in_even_shares(activation: Callable[[torch.Tensor], torch.Tensor], input: torch.Tensor) -> torch.Tensor:
    """`activation(input)`, elementwise: a number has the same bits in every tensor, and for any count of threads."""
    flat = input.reshape(-1)
    if missing := -len(flat) % STEP:
        flat = F.pad(flat, (0, missing))
    parts = [activation(part) for part in torch.split(flat, list(even_parts(len(flat), torch.get_num_threads())))]
    whole = parts[0] if len(parts) == 1 else torch.cat(parts)
    return whole[: input.numel()].view(input.shape)


@lru_cache(1024)
def even_parts(count: int, threads: int) -> tuple[int, ...]:
    """So many numbers, a multiple of `STEP`, in parts that torch shares out among threads in multiples of `STEP`."""
    parts: list[int] = []
    while count or not parts:
        part = count
        while left := part % (STEP * lcm(*_shares(part, threads))):
            part -= left
        parts.append(part or min(count, GELU_ALONE))
        count -= parts[-1]
    return tuple(parts)


def _shares(count: int, threads: int) -> tuple[int, int]:
    """Into how many shares torch cuts so many numbers: for GELU, and for the others."""
    return threads if count > GELU_ALONE else 1, min(threads, max(1, -(-count // GRAIN)))


class BatchInvariantActivation(nn.Module):
    """What `make_activations_invariant` puts before an activation's class."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Apply the activation; where torch.compile looks in, the loops are its own."""
        activation = super().forward
        return activation(input) if torch.compiler.is_compiling() else in_even_shares(activation, input)


def make_activations_invariant(model: nn.Module) -> int:
    """Give every activation module of `model` even shares; returns how many there are."""
    modules = [module for module in model.modules() if _is_activation(module)]
    for module in modules:
        kind: Any = type(module)
        module.__class__ = _invariant(kind)
    return len(modules)


def _is_activation(module: nn.Module) -> bool:
    kind = type(module)
    return not issubclass(kind, BatchInvariantActivation) and (
        kind in PLAIN or kind.__module__ == "transformers.activations"
    )


@cache
def _invariant(kind: Any) -> Any:
    return type(f"BatchInvariant{kind.__name__}", (BatchInvariantActivation, kind), {})
