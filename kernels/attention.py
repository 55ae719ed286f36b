"""Attention over a ragged batch and a paged key/value cache: one call for prefill, chunks of it, and single tokens.

| back end | where | bit-equal in any company |
|---|---|---|
| `triton` | our kernel, on CUDA (attention_triton) | yes |
| `flash` | flash-attn 3 or 2, if importable | no (attention_library says what is known) |
| `varlen` | torch's varlen attention with a block table | no |
| `numba` | our compiled kernel, in float32 on CPUs with AVX2 or AVX-512 (attention_numba) | yes |
| `torch` | everywhere (attention_torch: tiles for CPUs) | on a CPU |

The first that can serve the device, dtype, widths, query heads on a KV head, block size, window, soft cap and sinks of
a call serves it, never depending on how many rows there are: on a GPU `triton`, and the others where no tile of our
kernel fits; on a CPU `numba` or `torch`. flash-attn 3, with what our contract adds to it, takes 1.4 to 3 times as long
for a judge's questions and for decode, and 0.6 of the time for long prompts by themselves (bench/results/gpu.md).
`ADJUDGE_ATTENTION` names one, and BackendUnavailable says why it cannot.
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
NUMBA_LANES = 16
"""Heads of our compiled kernel are whole vectors of so many numbers: AVX-512's, or two of AVX2's."""
LIBRARIES: dict[str, tuple[LibraryAttention, ...]] = {
    "flash": (FlashAttention3(), FlashAttention2()),
    "varlen": (TorchVarlen(),),
}
INVARIANT = ("triton", "numba", "torch")
NAMES = (*LIBRARIES, *INVARIANT)
IN_TURN = {"cuda": ("triton", *LIBRARIES, "torch"), "cpu": ("numba", "torch")}
"""Who is asked to serve a device's calls, one after the other."""

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
    attend = batch.backends.get(kind)
    if attend is None:
        _, attend = attention_backend(kind)
        batch.backends[kind] = attend
    more = {} if sinks is None else {"sinks": sinks}
    scale = query_THD.shape[-1] ** -0.5 if scale is None else scale
    return attend(query_THD, cache, batch, scale=scale, sliding_window=sliding_window, softcap=softcap, **more)


def attention_backend(kind: AttentionKind, forced: str | None = None) -> tuple[str, Attention]:
    """The back end for calls of one kind, by name, and its function.

    Raises BackendUnavailable if the one that is `forced`, by default by `ADJUDGE_ATTENTION`, cannot serve.
    """
    named = "ADJUDGE_ATTENTION" if forced is None else "the back end"
    forced = os.environ.get("ADJUDGE_ATTENTION", "") if forced is None else forced
    if forced and forced not in NAMES:
        raise BackendUnavailable(f'{named} is "{forced}": set it to {", ".join(NAMES)}, or leave it unset')
    problems: list[str] = []
    for name in (forced,) if forced else IN_TURN.get(kind.device.type, ("torch",)):
        if (attend := _serving(name, kind, problems)) is not None:
            return name, attend
    said = "; ".join(problems)
    raise BackendUnavailable(f'{named} is "{forced}" but it cannot serve here: {said}: name another, or leave it unset')


def _serving(name: str, kind: AttentionKind, problems: list[str]) -> Attention | None:
    """What serves calls of a kind by that name; None where nothing does, and `problems` say why."""
    for library in LIBRARIES.get(name, ()):
        if (problem := library.problem(kind)) is None:
            return library
        problems.append(problem)
    if name == "triton":
        if (problem := triton_problem(kind.device) or _no_tile(kind)) is None:
            from adjudge.kernels.attention_triton import triton_attention

            return triton_attention
        problems.append(problem)
    if name == "numba":
        if (problem := numba_problem(kind)) is None:
            from adjudge.kernels.attention_numba import numba_attention

            return numba_attention
        problems.append(problem)
    return torch_attention if name == "torch" else None


def _no_tile(kind: AttentionKind) -> str | None:
    from adjudge.kernels.attention_triton import Tile

    widest = max(kind.width, kind.value_width)
    if widest <= TRITON_WIDTH and Tile.of(widest, kind.group, kind.dtype, kind.device):
        return None
    return f"our kernel has no tile for heads of {widest}, {kind.group} on a KV head, that fits on {kind.device}"


def numba_problem(kind: AttentionKind) -> str | None:
    """Why calls of a kind are not for our compiled attention, or None if they are; numba is imported only then."""
    if kind.device.type != "cpu":
        return f"our compiled attention is for CPUs, and the tensors are on {kind.device.type}"
    if kind.dtype != torch.float32:
        return f"our compiled attention needs float32, not {kind.dtype}"
    if kind.softcap is not None or kind.sinks:
        return "our compiled attention has no soft cap and no sinks"
    if kind.width % NUMBA_LANES or kind.value_width % NUMBA_LANES:
        widths = f"{kind.width} and {kind.value_width}"
        return f"our compiled attention needs heads of a multiple of {NUMBA_LANES}, not {widths}"
    return _compiled_problem()


@cache
def _compiled_problem() -> str | None:
    """Why there is no compiled attention on this machine, or None if there is."""
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        return "our compiled attention needs a CPU with AVX2"
    if not find_spec("numba"):
        return "numba is not installed"
    try:
        from adjudge.kernels.attention_numba import compilation_problem
    except Exception as error:  # numba refuses releases of numpy that it does not know
        return f"numba is installed, but cannot be imported ({error})"
    return compilation_problem()


def attention_block_size(device: torch.device, dtype: torch.dtype, width: int) -> int:
    """Positions a block of the cache should hold: more than BLOCK_SIZE only where flash-attn 2 would serve for it."""
    for size in (BLOCK_SIZE, FLASH_2_BLOCK_SIZE):
        with suppress(BackendUnavailable):
            if attention_backend(AttentionKind(device, dtype, width, width, size))[0] == "flash":
                return size
    return BLOCK_SIZE


def is_batch_invariant(kind: AttentionKind) -> bool:
    """Whether the back end that serves such calls gives a row the same bits in any company."""
    name, _ = attention_backend(kind)
    return name in INVARIANT and (name != "torch" or kind.device.type == "cpu")
