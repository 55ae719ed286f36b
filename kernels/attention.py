"""Attention over a ragged batch and a paged key/value cache: one call for prefill, chunks of it, and single tokens."""

from __future__ import annotations

import torch

from adjudge.kernels.attention_torch import torch_attention
from adjudge.kernels.paged_kv import PagedBatch, PagedKV


def paged_attention(
    query_THD: torch.Tensor,
    cache: PagedKV,
    batch: PagedBatch,
    *,
    scale: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """Causal attention of every row over its own sequence's context, which `write_kv` has stored already.

    Shapes: query [T, H, D] with H a multiple of the KV heads -> [T, H, Dv]; padding rows come back as zeros, rows
    that see a key or value that was not finite as NaN. `scale` is D ** -0.5 where none is given.
    """
    if scale is None:
        scale = query_THD.shape[-1] ** -0.5
    return torch_attention(query_THD, cache, batch, scale=scale, sliding_window=sliding_window, softcap=softcap)
