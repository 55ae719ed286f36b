"""Our attention in transformers' models: in its attention interface, and where torch.compile does not look.

No mask goes with it: the batch itself says who sees what, and where none is registered transformers does not ask the
device whether positions are those of several texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import AttentionInterface

from adjudge.engine.errors import ModelUnsupported
from adjudge.kernels.linear import BatchInvariantLinear

if TYPE_CHECKING:
    from adjudge.engine.running.packed_decoder import PackedDecoder
    from adjudge.kernels.paged_kv import PagedBatch

ATTENTION = "adjudge_paged"
APART = "adjudge_paged_apart"
"""The same, which torch.compile does not look into."""


_RUN: ContextVar[tuple[PackedDecoder, PagedBatch]] = ContextVar("adjudge_run")
"""Whose attention it is, and of which batch: not all models would pass an argument on to their layers."""


@contextmanager
def running(decoder: PackedDecoder, batch: PagedBatch) -> Iterator[None]:
    """A block in which a decoder, or the model around it, is called for a batch."""
    before = _RUN.set((decoder, batch))
    try:
        yield
    finally:
        _RUN.reset(before)


def _attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' attention interface: query [1, H, T, D], key and value [1, KV heads, T, D] -> [1, T, H, D].

    `s_aux` [H] are the heads' sinks.
    """
    for name in ("position_bias", "cu_seqlens"):
        if kwargs.get(name) is not None:
            raise ModelUnsupported(
                f"{type(module).__name__} uses {name} in its attention, which adjudge does not support"
            )
    if attention_mask is not None:
        raise ModelUnsupported(f"{type(module).__name__} makes a mask of its own, which adjudge does not read")
    if getattr(module, "is_causal", True) is False:
        raise ModelUnsupported(f"{type(module).__name__} lets tokens see those after them: use a decoder")
    decoder, batch = _RUN.get()
    query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
    layer: Any = module.layer_idx
    how = {"scale": scaling, "sliding_window": sliding_window, "softcap": softcap, "sinks": s_aux}
    output = decoder.attend(layer, query, key, value, batch, **how)
    return output.unsqueeze(0), None


def compile_between(decoder: Any) -> None:
    """Have torch.compile fuse what lies between a decoder's attention and, on a CPU, dense layers, which are ours."""
    _register_apart()
    set_apart(decoder)
    decoder.forward = torch.compile(decoder.forward, dynamic=True)


def set_apart(decoder: Any) -> None:
    """Have torch.compile not look into our dense layers, those of an adapter included."""
    apart: Any = torch.compiler.disable
    for module in decoder.modules():
        if isinstance(module, BatchInvariantLinear) and "forward" not in vars(module):
            module.forward = apart(module.forward)  # type: ignore[method-assign]


@cache
def _register_apart() -> None:
    apart: Any = torch.compiler.disable
    AttentionInterface.register(APART, apart(_attention))


AttentionInterface.register(ATTENTION, _attention)
