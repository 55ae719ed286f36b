"""Attention through the libraries a machine may have: flash-attn 2 and 3, and torch's own varlen attention.

None of them is proven to be batch invariant, so none may serve where bit-equal results are promised:
- flash-attn 2 splits the keys of a decode step by how many programs would fill the device. `flash_attn_varlen_func` had
  no argument against it before 2026; where its signature has `num_splits`, it is 1 here;
- flash-attn 3, and torch's varlen attention, which hands block tables to it (on sm_100 to flash-attn 4): `num_splits=1`
  turns splitting off, and torch's documentation then promises equal bits. Yet the tile follows the longest query of the
  batch, and a neighbour that grew by a token has been seen to change a row's bits (vllm-project/vllm#51902).

They read the same cache and batch as `paged_attention`, and honour its contract for padding and for values that were
not finite; nothing here waits for the device. What nobody has written must be finite in their cache, as `PagedKV.empty`
leaves it on a GPU: flash-attn 3 was seen to carry NaN from there into the results where blocks hold 256.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import torch

from adjudge.kernels.dispatch import BackendUnavailable
from adjudge.kernels.paged_kv import PagedBatch, PagedKV, to_device

HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class AttentionKind:
    """What decides which back end may serve a call; how many rows it has is not among it."""

    device: torch.device
    dtype: torch.dtype
    width: int
    value_width: int
    block_size: int
    sliding_window: int | None = None
    softcap: float | None = None
    sinks: bool = False
    group: int = 1
    """Query heads on a KV head."""

    @staticmethod
    def of(
        query_THD: torch.Tensor,
        cache: PagedKV,
        *,
        sliding_window: int | None = None,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
        **_others: Any,
    ) -> AttentionKind:
        """The kind of a call of `paged_attention`."""
        width, value_width, block_size = query_THD.shape[-1], cache.value.shape[-1], cache.value.shape[1]
        how = sliding_window, softcap, sinks is not None, query_THD.shape[1] // cache.key.shape[2]
        return AttentionKind(query_THD.device, query_THD.dtype, width, value_width, block_size, *how)


class LibraryAttention(ABC):
    """A back end of `paged_attention`: a `function` of a `module` that knows the arguments `needed`.

    It is for devices of `capability` and later ones, or of that `only`.
    """

    module: str
    function: str
    needed: tuple[str, ...]
    capability: int
    only = False

    def problem(self, kind: AttentionKind) -> str | None:
        """Why it cannot serve calls of a kind, or None if it can."""
        unfit = _unfit(kind, self.capability, self.only) or self.refusal(kind)
        return unfit or _lacks(self.module, self.function, *self.needed)

    def refusal(self, kind: AttentionKind) -> str | None:
        """What else speaks against calls of a kind that fit the device."""
        return None

    @abstractmethod
    def arguments(self, batch: PagedBatch, scale: float | None, window: tuple[int, int]) -> dict[str, Any]:
        """What the function is told of a batch; `window` is the keys on both sides of a query's own, -1 for all."""

    def __call__(
        self,
        query_THD: torch.Tensor,
        cache: PagedKV,
        batch: PagedBatch,
        *,
        scale: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
    ) -> torch.Tensor:
        """As `paged_attention`: NaN where a row saw what was not finite, zeros in padding, which no library writes."""
        window = (-1 if sliding_window is None else sliding_window - 1, 0)
        attend = getattr(import_module(self.module), self.function)
        more = self.arguments(batch, scale, window) | ({} if softcap is None else {"softcap": softcap})
        if "num_splits" in _parameters(attend):
            more["num_splits"] = 1
        try:
            output: torch.Tensor = attend(query_THD, cache.key, cache.value, **more)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # builds leave out what their signature has: soft caps, windows, widths
            how = f"{self.module}.{self.function} cannot serve here ({error})"
            raise BackendUnavailable(f"{how}: name another in ADJUDGE_ATTENTION, or leave it unset") from error
        output.masked_fill_(seen_bad(cache, batch, sliding_window)[:, None, None], torch.nan)
        output[batch.filled :] = 0
        return output


class FlashAttention2(LibraryAttention):
    """`flash_attn.flash_attn_varlen_func` (compute capability 8.0 and later; blocks of a multiple of 256)."""

    module, function, capability = "flash_attn", "flash_attn_varlen_func", 8
    needed = ("block_table", "window_size")

    def refusal(self, kind: AttentionKind) -> str | None:
        """What else speaks against calls of a kind that fit the device."""
        if kind.block_size % 256:
            return f"flash-attn 2 wants blocks of a multiple of 256, not {kind.block_size}"
        return None if kind.softcap is None else _lacks(self.module, self.function, "softcap")

    def arguments(self, batch: PagedBatch, scale: float | None, window: tuple[int, int]) -> dict[str, Any]:
        """What the function is told of a batch."""
        return {
            "cu_seqlens_q": batch.query_offsets,
            "cu_seqlens_k": _key_offsets(batch),
            "max_seqlen_q": _longest_query(batch),
            "max_seqlen_k": _longest_context(batch),
            "softmax_scale": scale,
            "causal": True,
            "window_size": window,
            "block_table": batch.block_table,
        }


class FlashAttention3(LibraryAttention):
    """flash-attn 3, `flash_attn_interface.flash_attn_with_kvcache` (compute capability 9.0; any block size).

    Its varlen function takes no block table; the one for caches does, and packed queries with it.
    """

    module, function, capability, only = "flash_attn_interface", "flash_attn_with_kvcache", 9, True
    needed = ("page_table", "cu_seqlens_q", "cache_seqlens", "num_splits", "window_size", "softcap")

    def arguments(self, batch: PagedBatch, scale: float | None, window: tuple[int, int]) -> dict[str, Any]:
        """What the function is told of a batch."""
        return {
            "cache_seqlens": batch.context_lengths,
            "page_table": batch.block_table,
            "cu_seqlens_q": batch.query_offsets,
            "max_seqlen_q": _longest_query(batch),
            "softmax_scale": scale,
            "causal": True,
            "window_size": window,
        }


class TorchVarlen(LibraryAttention):
    """`torch.nn.attention.varlen.varlen_attn` (a block table from torch 2.12 on; no softcap).

    Torch hands a block table to flash-attn 3 (9.0) or 4 (10.0), whichever `activate_flash_attention_impl` has chosen.
    """

    module, function, capability = "torch.nn.attention.varlen", "varlen_attn", 9
    needed = ("block_table", "seqused_k", "num_splits", "enable_gqa", "window_size")

    def refusal(self, kind: AttentionKind) -> str | None:
        """What else speaks against calls of a kind that fit the device."""
        if kind.softcap is not None:
            return "torch's varlen attention has no softcap"
        if lacking := _lacks(self.module, self.function, *self.needed):
            return lacking
        wanted = {9: "FA3", 10: "FA4"}.get(torch.cuda.get_device_capability(kind.device)[0])
        active = torch.nn.attention.current_flash_attention_impl()
        if wanted is None or active != wanted:
            return f"torch reads a block table through {wanted or 'FA3 or FA4'} here, and {active or 'none'} is active"
        return None

    def arguments(self, batch: PagedBatch, scale: float | None, window: tuple[int, int]) -> dict[str, Any]:
        """What the function is told of a batch."""
        return {
            "cu_seq_q": batch.query_offsets,
            "cu_seq_k": None,
            "max_q": _longest_query(batch),
            "max_k": _longest_context(batch),
            "scale": scale,
            "window_size": window,
            "enable_gqa": True,
            "seqused_k": batch.context_lengths,
            "block_table": batch.block_table,
        }


def seen_bad(cache: PagedKV, batch: PagedBatch, sliding_window: int | None) -> torch.Tensor:
    """[T] bool: rows that see a key or value that was not finite."""
    if "places" not in batch.plans:
        batch.plans["places"] = *_row_places(batch), *_key_places(batch)
    sequence, position, slots, places = batch.plans["places"]
    # The last bad place up to each place: a row sees it unless its window begins after it.
    last = torch.where(cache.bad[slots], places, -1).cummax(1).values[sequence, position.clamp(min=0)]
    first_seen = 0 if sliding_window is None else (position - sliding_window + 1).clamp(min=0)
    seen: torch.Tensor = (last >= first_seen) & (position >= 0)
    return seen


def _key_places(batch: PagedBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """[S, L] slot and [S, L] absolute position of each sequence's keys; position -1 where it has no more."""
    within = torch.arange(batch.block_size, device=batch.device)
    slots = (batch.block_table.long()[:, :, None] * batch.block_size + within).flatten(1)
    places = torch.arange(slots.shape[1], device=batch.device)
    return slots, torch.where(places < batch.context_lengths[:, None], places, -1)


def _row_places(batch: PagedBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """[T] sequence and [T] absolute position of each row; position -1 marks padding."""
    sequence = torch.zeros(batch.rows, dtype=torch.long)
    position = torch.full((batch.rows,), -1)
    for index, run in enumerate(batch.sequences):
        sequence[run.row : run.row + run.length] = index
        position[run.row : run.row + run.length] = torch.arange(run.start, run.start + run.length)
    return to_device(sequence, batch.device), to_device(position, batch.device)


def _key_offsets(batch: PagedBatch) -> torch.Tensor:
    return torch.nn.functional.pad(batch.context_lengths.cumsum(0), (1, 0)).to(torch.int32)


def _longest_query(batch: PagedBatch) -> int:
    return max(run.length for run in batch.sequences)


def _longest_context(batch: PagedBatch) -> int:
    return max(run.start + run.length for run in batch.sequences)


def _unfit(kind: AttentionKind, capability: int, only: bool = False) -> str | None:
    """Why calls of a kind are not for flash attention; `only`: on devices of that capability and no later one."""
    if kind.device.type != "cuda":
        return f"needs CUDA, and the tensors are on {kind.device.type}"
    if kind.sinks:
        return "has no attention sinks"
    if kind.dtype not in HALVES:
        return f"needs float16 or bfloat16, not {kind.dtype}"
    if kind.width != kind.value_width:
        return f"keys of {kind.width} and values of {kind.value_width} differ"
    if kind.width % 8 or kind.width > 256:
        return f"head width {kind.width} is not a multiple of 8 up to 256"
    major = torch.cuda.get_device_capability(kind.device)[0]
    if major < capability or (only and major != capability):
        return f"needs compute capability {capability}.0{'' if only else ' or later'}, and the device has {major}"
    return None


@cache
def _lacks(module: str, function: str, *needed: str) -> str | None:
    """What is missing from an installation, judged by the function's signature."""
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        return f"{module}.{function} cannot be imported ({error})"
    missing = [name for name in needed if name not in _parameters(found)]
    return f"{module}.{function} of this version lacks {', '.join(missing)}" if missing else None


@cache
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)
