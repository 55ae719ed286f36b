"""Paged attention through every back end that is here, and what one would write with torch's own calls.

A batch's plan (tiles, masks, block tables) is made once, as an engine makes it once for all layers, and not timed.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from adjudge.bench.kernels.limits import AttentionCase
from adjudge.bench.kernels.timing import Variant, cache_bytes, itself
from adjudge.kernels import attention
from adjudge.kernels.attention_library import AttentionKind
from adjudge.kernels.paged_kv import PagedBatch, PagedKV, PagedSequence

BACKENDS = {
    "torch": "ours, torch",
    "numba": "ours, numba",
    "triton": "ours, Triton",
    "flash": "flash-attn",
    "varlen": "torch varlen",
}
"""What ADJUDGE_ATTENTION may name."""
BLOCK = {"flash": 256}
USUAL_BLOCK = 16
CHECKED_SEQUENCES, CHECKED_ROWS = 4, 32


@dataclass(frozen=True)
class AttentionInputs:
    """Queries [copies, T, H, D], keys and values [copies, tokens, KV, D] by absolute order, for calls in turn."""

    case: AttentionCase
    query: Tensor
    key: Tensor
    value: Tensor

    @staticmethod
    def random(
        case: AttentionCase, device: torch.device, dtype: torch.dtype, beyond: int | None = None
    ) -> AttentionInputs:
        """Random states, in as many copies as make `beyond` bytes of keys and values (default: beyond the cache)."""
        generator = torch.Generator(device).manual_seed(0)
        beyond = cache_bytes(device) if beyond is None else beyond
        copies = max(1, -(-beyond // case.kv_bytes(dtype.itemsize)))

        def states(tokens: int, heads: int) -> Tensor:
            shape = (copies, tokens, heads, case.width)
            return torch.randn(shape, generator=generator, device=device, dtype=torch.float32).to(dtype)

        kv = (case.kv_tokens, case.kv_heads)
        return AttentionInputs(case, states(case.rows, case.heads), states(*kv), states(*kv))

    def tokens_of(self, sequence: int) -> Tensor:
        """[context] which keys a sequence has, in order: the shared ones, then its own."""
        shared, ends = self.case.shared, [start + length for start, length in self.case.sequences]
        first = shared + sum(end - shared for end in ends[:sequence])
        own = torch.arange(first, first + ends[sequence] - shared)
        return torch.cat([torch.arange(shared), own]).to(self.query.device)


def exact_attention(inputs: AttentionInputs) -> tuple[Tensor, Tensor]:
    """Some rows [C], and their attention [C, H, D] of the first copy in float64."""
    case = inputs.case
    rows, outputs = [], []
    for sequence, (row, (start, length)) in enumerate(zip(_first_rows(case), case.sequences, strict=True)):
        if sequence >= CHECKED_SEQUENCES:
            break
        checked = torch.arange(max(0, length - CHECKED_ROWS), length, device=inputs.query.device)
        tokens = inputs.tokens_of(sequence)
        key, value = (states[0, tokens].double() for states in (inputs.key, inputs.value))
        key, value = (states.repeat_interleave(case.heads // case.kv_heads, 1) for states in (key, value))
        scores = torch.einsum("thd,lhd->htl", inputs.query[0, row + checked].double(), key) * case.width**-0.5
        hidden = torch.arange(len(tokens), device=checked.device) > start + checked[:, None]
        outputs.append(torch.einsum("htl,lhd->thd", scores.masked_fill(hidden, -torch.inf).softmax(-1), value))
        rows.append(row + checked)
    return torch.cat(rows), torch.cat(outputs)


def attention_variants(inputs: AttentionInputs) -> list[Variant]:
    """Ours first; back ends that cannot run here say so when they are run."""
    variants = [_paged(inputs, backend) for backend in BACKENDS]
    variants.append(Variant("SDPA, a sequence at a time", _one_by_one(inputs), itself))
    variants.append(Variant("SDPA, padded batch", _padded(inputs), itself))
    if inputs.query.is_cuda:
        variants.append(Variant("torch varlen, keys gathered", _varlen(inputs), itself))
    return variants


def _paged(inputs: AttentionInputs, backend: str) -> Variant:
    block_size = BLOCK.get(backend, USUAL_BLOCK)
    made: list[tuple[list[PagedKV], PagedBatch]] = []

    def run(call: int) -> Tensor:
        if not made:
            case, query = inputs.case, inputs.query
            group = case.heads // case.kv_heads
            kind = AttentionKind(query.device, query.dtype, case.width, case.width, block_size, group=group)
            _, attend = attention.attention_backend(kind, backend)  # one that cannot run says so before memory is spent
            made.append(lay_out_pages(inputs, block_size))
            made[0][1].backends[kind] = attend
        caches, batch = made[0]
        copy = call % len(caches)
        return attention.paged_attention(inputs.query[copy], caches[copy], batch)

    return Variant(BACKENDS[backend], run, itself)


def lay_out_pages(inputs: AttentionInputs, block_size: int) -> tuple[list[PagedKV], PagedBatch]:
    """The keys and values of every copy in shuffled blocks, whole shared blocks once, and the batch that reads them."""
    case, device = inputs.case, inputs.query.device
    whole = case.shared // block_size
    own = [-(-(start + length) // block_size) - whole for start, length in case.sequences]
    numbers = list(range(1, whole + sum(own) + 1))
    random.Random(0).shuffle(numbers)
    shared, firsts = numbers[:whole], accumulate(own, initial=whole)
    sequences, slots, tokens = [], [], []
    for index, (row, (start, length)) in enumerate(zip(_first_rows(case), case.sequences, strict=True)):
        first = next(firsts)
        blocks = shared + numbers[first : first + own[index]]
        sequences.append(PagedSequence(row, length, start, blocks))
        slots.append(torch.from_numpy(sequences[-1].slots(block_size)).to(device))
        tokens.append(inputs.tokens_of(index))
    all_slots, all_tokens = torch.cat(slots), torch.cat(tokens)
    caches = []
    for key, value in zip(inputs.key, inputs.value, strict=True):
        pages = PagedKV.empty(1 + len(numbers), block_size, key, value)
        pages.key.zero_()  # what nobody writes is read by libraries that multiply it with a mask's zero
        pages.value.zero_()
        pages.key.flatten(0, 1)[all_slots] = key[all_tokens]
        pages.value.flatten(0, 1)[all_slots] = value[all_tokens]
        caches.append(pages)
    written = [places[start:] for places, (start, _) in zip(slots, case.sequences, strict=True)]
    batch = PagedBatch(
        tuple(sequences), block_size, case.rows, torch.arange(case.rows, device=device), torch.cat(written)
    )
    return caches, batch


def _first_rows(case: AttentionCase) -> list[int]:
    return list(accumulate((length for _, length in case.sequences[:-1]), initial=0))


def _one_by_one(inputs: AttentionInputs) -> Callable[[int], Tensor]:
    """A call of SDPA a sequence, on its gathered keys."""
    case, device = inputs.case, inputs.query.device
    group = case.heads // case.kv_heads
    tokens = [inputs.tokens_of(index) for index in range(len(case.sequences))]
    masks = [
        torch.arange(start + length, device=device) <= torch.arange(start, start + length, device=device)[:, None]
        if start and length > 1
        else None
        for start, length in case.sequences
    ]

    def run(call: int) -> Tensor:
        copy = call % len(inputs.query)
        query, key, value = inputs.query[copy], inputs.key[copy], inputs.value[copy]
        outputs = []
        for index, (row, (start, length)) in enumerate(zip(_first_rows(case), case.sequences, strict=True)):
            q = query[row : row + length].transpose(0, 1)[None]
            k, v = (states[tokens[index]].transpose(0, 1)[None] for states in (key, value))
            outputs.append(_sdpa(q, k, v, group, masks[index], causal=start == 0 and length > 1))
        return torch.cat([output[0].transpose(0, 1) for output in outputs])

    return run


def _sdpa(q: Tensor, k: Tensor, v: Tensor, group: int, mask: Tensor | None, causal: bool) -> Tensor:
    grouped = q.is_cuda and mask is None  # elsewhere torch's fast paths want as many KV heads as query heads
    if not grouped:
        k, v = (states.repeat_interleave(group, 1) for states in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=grouped)


def _padded(inputs: AttentionInputs) -> Callable[[int], Tensor]:
    """One call of SDPA, queries and keys padded to the longest."""
    case, device = inputs.case, inputs.query.device
    group, sequences = case.heads // case.kv_heads, case.sequences
    queries = max(length for _, length in sequences)
    context = max(start + length for start, length in sequences)
    rows = torch.zeros(len(sequences), queries, dtype=torch.long, device=device)
    tokens = torch.zeros(len(sequences), context, dtype=torch.long, device=device)
    positions = torch.zeros_like(rows)
    places = []
    for index, (row, (start, length)) in enumerate(zip(_first_rows(case), sequences, strict=True)):
        rows[index, :length] = torch.arange(row, row + length)
        tokens[index, : start + length] = inputs.tokens_of(index)
        positions[index, :length] = torch.arange(start, start + length)
        places.append(torch.arange(length) + index * queries)
    filled = torch.cat(places).to(device)
    mask = (torch.arange(context, device=device) <= positions[:, :, None])[:, None]

    def run(call: int) -> Tensor:
        copy = call % len(inputs.query)
        q = inputs.query[copy][rows].transpose(1, 2)
        k, v = (states[copy][tokens].transpose(1, 2) for states in (inputs.key, inputs.value))
        return _sdpa(q, k, v, group, mask, causal=False).transpose(1, 2).flatten(0, 1)[filled]

    return run


def _varlen(inputs: AttentionInputs) -> Callable[[int], Tensor]:
    """Torch's varlen attention on gathered keys, for versions of it that take no block table."""
    case, device = inputs.case, inputs.query.device
    lengths = [length for _, length in case.sequences]
    contexts = [start + length for start, length in case.sequences]
    tokens = torch.cat([inputs.tokens_of(index) for index in range(len(contexts))])
    query_offsets, key_offsets = (
        torch.tensor([0, *accumulate(sizes)], dtype=torch.int32, device=device) for sizes in (lengths, contexts)
    )

    def run(call: int) -> Tensor:
        varlen_attn, known = _varlen_attn()
        how: dict[str, Any] = {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}
        copy = call % len(inputs.query)
        key, value = (states[copy][tokens] for states in (inputs.key, inputs.value))
        if "enable_gqa" in known:
            how["enable_gqa"] = True
        else:
            key, value = (states.repeat_interleave(case.heads // case.kv_heads, 1) for states in (key, value))
        offsets = (query_offsets, key_offsets, max(lengths), max(contexts))
        output: Tensor = varlen_attn(inputs.query[copy], key, value, *offsets, **how)
        return output

    return run


@cache
def _varlen_attn() -> tuple[Callable[..., Any], frozenset[str]]:
    """The function, and the arguments that it knows."""
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn, frozenset(inspect.signature(varlen_attn).parameters)
