"""Attention over a ragged batch and a paged key/value cache: one call for prefill, chunks of it, and single tokens.

| back end | where | bit-equal in any company |
|---|---|---|
| `flash` | flash-attn 3 or 2, if importable | no (attention_library says what is known) |
| `varlen` | torch's varlen attention with a block table | no |
| `triton` | our kernel, on CUDA (attention_triton) | yes |
| `numba` | our compiled kernel, in float32 on CPUs with AVX-512 (attention_numba) | yes |
| `torch` | everywhere (attention_torch: tiles for CPUs) | yes |

The first that can serve the device, dtype, widths, query heads on a KV head, block size, window, soft cap and sinks of
a call serves it, never depending on how many rows there are; on a CPU that is `numba` or `torch`, and `torch` on a GPU
where no tile of our kernel fits. `ADJUDGE_ATTENTION` names one, and BackendUnavailable says why it cannot.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec

import torch

from adjudge.kernels.attention_library import (
    AttentionKind,
    FlashAttention2,
    FlashAttention3,
    LibraryAttention,
    TorchVarlen,
)
from adjudge.kernels.attention_torch import torch_attention
from adjudge.kernels.dispatch import BackendUnavailable, triton_problem
from adjudge.kernels.paged_kv import PagedBatch, PagedKV
from adjudge.kernels.surroundings import undisturbed

BLOCK_SIZE = 16
FLASH_2_BLOCK_SIZE = 256
TRITON_WIDTH = 512
"""The widest heads that our kernel has tiles for."""
LIBRARIES: dict[str, tuple[LibraryAttention, ...]] = {
    "flash": (FlashAttention3(), FlashAttention2()),
    "varlen": (TorchVarlen(),),
}
INVARIANT = ("triton", "numba", "torch")
NAMES = (*LIBRARIES, *INVARIANT)

Attention = Callable[..., torch.Tensor]


@undisturbed
def paged_attention(
    query_THD: torch.Tensor,
    cache: PagedKV,
    batch: PagedBatch,
    *,
    scale: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Causal attention of every row over its own sequence's context, which `write_kv` has stored already.

    Shapes: query [T, H, D] with H a multiple of the KV heads -> [T, H, Dv]; padding rows come back as zeros, rows
    that see a key or value that was not finite as NaN. `scale` is D ** -0.5 where none is given. `sinks` [H] are the
    scores (not scaled) of one more key for each head, which every row sees and which has no value: gpt-oss's.
    """
    kind = AttentionKind.of(query_THD, cache, sliding_window=sliding_window, softcap=softcap, sinks=sinks)
    _, attend = attention_backend(kind)
    more = {} if sinks is None else {"sinks": sinks}
    scale = query_THD.shape[-1] ** -0.5 if scale is None else scale
    return attend(query_THD, cache, batch, scale=scale, sliding_window=sliding_window, softcap=softcap, **more)


def attention_backend(kind: AttentionKind) -> tuple[str, Attention]:
    """The back end for calls of one kind, by name, and its function.

    Raises BackendUnavailable if `ADJUDGE_ATTENTION` names one that cannot serve.
    """
    forced = os.environ.get("ADJUDGE_ATTENTION", "")
    if forced and forced not in NAMES:
        raise BackendUnavailable(f'ADJUDGE_ATTENTION is "{forced}": set it to {", ".join(NAMES)}, or leave it unset')
    problems: list[str] = []
    for name, libraries in LIBRARIES.items():
        for library in libraries if forced in ("", name) else ():
            if (problem := library.problem(kind)) is None:
                return name, library
            problems.append(problem)
    if forced == "triton" or (not forced and kind.device.type == "cuda"):
        if (problem := triton_problem(kind.device) or _no_tile(kind)) is None:
            from adjudge.kernels.attention_triton import triton_attention

            return "triton", triton_attention
        problems.append(problem)
    if forced == "numba" or (not forced and kind.device.type == "cpu"):
        if (problem := _no_numba() or _compiled_problem(kind)) is None:
            from adjudge.kernels.attention_numba import numba_attention

            return "numba", numba_attention
        problems.append(problem)
    if forced in ("", "torch"):
        return "torch", torch_attention
    raise BackendUnavailable(f'ADJUDGE_ATTENTION is "{forced}" but it cannot serve here: {"; ".join(problems)}')


def _no_tile(kind: AttentionKind) -> str | None:
    from adjudge.kernels.attention_triton import Tile

    widest = max(kind.width, kind.value_width)
    if widest <= TRITON_WIDTH and Tile.of(widest, kind.group, kind.dtype, kind.device):
        return None
    return f"our kernel has no tile for heads of {widest}, {kind.group} on a KV head, that fits on {kind.device}"


@cache
def _no_numba() -> str | None:
    return None if find_spec("numba") else "numba is not installed"


def _compiled_problem(kind: AttentionKind) -> str | None:
    from adjudge.kernels.attention_numba import numba_problem

    return numba_problem(kind)


def attention_block_size(device: torch.device, dtype: torch.dtype, width: int) -> int:
    """Positions a block of the cache should hold: more than BLOCK_SIZE only where flash-attn 2 would serve for it."""
    for size in (BLOCK_SIZE, FLASH_2_BLOCK_SIZE):
        with suppress(BackendUnavailable):
            if attention_backend(AttentionKind(device, dtype, width, width, size))[0] == "flash":
                return size
    return BLOCK_SIZE


def is_batch_invariant(kind: AttentionKind) -> bool:
    """Whether the back end that serves such calls gives a row the same bits in any company."""
    return attention_backend(kind)[0] in INVARIANT
