"""What a model shows when it opens or takes an adapter: that adjudge runs it, its head, and what heeds the batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from adjudge.engine.errors import AdjudgeError, ModelUnsupported, reason
from adjudge.engine.models.config import mixes_tokens
from adjudge.engine.models.reward_head import RewardHead
from adjudge.engine.running.head import Head
from adjudge.engine.running.packed_decoder import PackedDecoder
from adjudge.kernels.attention import is_batch_invariant
from adjudge.kernels.paged_kv import PagedBatch, PagedSequence

REMEDY = "use a decoder with attention layers only"


def check_layers(packed: PackedDecoder) -> Any:
    """What the model itself gives for the probe; refuses one with layers outside the attention interface."""
    how, mend = ("compiled, ", ": leave torch_compile out") if packed.torch_compile else ("", "")
    with _refusing(
        lambda error: f"{packed.name} does not run {how}on a packed batch with our attention: {error}{mend}"
    ):
        output = packed.call(packed.model, *probe_inputs(packed, 20))
    _check_masks(packed)
    layers = packed.config.num_hidden_layers
    if packed.calls != layers:
        odd = sorted({type(module).__name__ for module in packed.model.modules() if mixes_tokens(module)})
        raise ModelUnsupported(
            f"{packed.name} has {layers} layers but {packed.calls} went through the attention interface"
            f" ({', '.join(odd) or 'the others'} mix tokens in their own way): {REMEDY}"
        )
    if len(packed.layers) != layers:
        raise ModelUnsupported(f"{packed.name} goes through some of its layers several times: {REMEDY}")
    return output


def read_head(packed: PackedDecoder, output: Any) -> Head | None:
    """The language-model head, given what the model itself gives for the probe; a reward head is checked.

    Raises ModelUnsupported for a model of which it cannot be read.
    """
    with _refusing(
        lambda error: (
            f"{packed.name} has its head in a way adjudge does not know ({reason(error)}): choose another model"
        )
    ):
        if packed.model.get_output_embeddings() is not None:
            return Head.of(packed.model, output.logits[0, :20], lambda: probed(packed, 20)[:20])
        if hasattr(output, "logits"):
            _check_reward(packed)
    return None


def check_isolation(packed: PackedDecoder) -> bool:
    """A sequence must not see its neighbours in the batch; whether it is bit-equal without them.

    Among as many rows it meets the same kernels: what a deep model makes of their rounding is no difference then.
    Raises AdjudgeError where that was asked for and is not so.
    """
    together = probed(packed, 12, 20, 30, 5)
    alone, among = probed(packed, 0, 20)[:20], probed(packed, 0, 20, least=len(together))[:20]
    together = together[12:32]
    if not alone.isfinite().all():
        raise ModelUnsupported(f"{packed.name} gives hidden states that are not finite: its weights are spoilt")
    if not torch.allclose(among, together, rtol=1e-2, atol=1e-2 * float(among.abs().max())):
        raise ModelUnsupported(f"{packed.name} mixes tokens of neighbouring sequences: {REMEDY}")
    attention = all(map(is_batch_invariant, packed.kinds))
    found = attention and torch.equal(alone, together) and (not packed.invariance.others or _keeps_bits(packed))
    if packed.invariance.asked and not found:
        raise AdjudgeError(
            f"{packed.name} has layers whose numbers depend on the batch: leave batch_invariant out"
            if attention
            else f"batch_invariant wants attention by triton, and {', '.join(sorted(packed.attention_backends()))}"
            " would serve: set ADJUDGE_ATTENTION=triton, or leave it out"
        )
    return found


def probed(packed: PackedDecoder, *lengths: int, least: int = 0) -> torch.Tensor:
    """The decoder's hidden states of a few short sequences of fixed tokens, packed: for checks at load.

    One of no length is left out, and the others stay what they are; there are `least` rows or more.
    """
    return packed.decode(*probe_inputs(packed, *lengths, least=least))


def probe_inputs(packed: PackedDecoder, *lengths: int, least: int = 0) -> tuple[torch.Tensor, torch.Tensor, PagedBatch]:
    """What `decode` takes for `probed`."""
    token_ids: list[int] = []
    positions: list[int] = []
    sequences: list[PagedSequence] = []
    slots: list[int] = []
    for index, length in enumerate(lengths):
        if not length:
            continue
        first = 1 + 2 * index
        sequences.append(PagedSequence(len(token_ids), length, 0, [first, first + 1]))
        slots += range(first * packed.block_size, first * packed.block_size + length)
        token_ids += [(7919 * (index + 1) + 104729 * place) % packed.tokens for place in range(length)]
        positions += range(length)
    writes = torch.arange(len(slots), device=packed.device), torch.tensor(slots, device=packed.device)
    batch = PagedBatch(tuple(sequences), packed.block_size, packed.rows(max(least, len(token_ids))), *writes)
    return packed.inputs(token_ids, positions, batch)


def _keeps_bits(packed: PackedDecoder) -> bool:
    """Whether a sequence is bit-equal in more companies: of experts each meets a few rows of it, or of others."""
    alone = probed(packed, 0, 20)[:20]
    companies = ((3, 7), (25, 31, 30, 28), (1, 12, 9), (30,))
    return all(
        torch.equal(alone, probed(packed, first, 20, *others)[first : first + 20]) for first, *others in companies
    )


def _check_reward(packed: PackedDecoder) -> None:
    token_ids, positions, batch = probe_inputs(packed, packed.rows(20))  # no padding: the last row is read
    own = float(packed.call(packed.model, token_ids, positions, batch).logits.flatten()[0])
    head, hidden = RewardHead.of(packed.model), packed.decode(token_ids, positions, batch)
    read = () if head is None else head.read_part(tuple(token_ids[0].tolist()))
    found = math.nan if head is None else head.reward(hidden[len(read) - 1].tolist())
    if not abs(found - own) <= (1e-3 if packed.dtype == torch.float32 else 0.05) * max(1.0, abs(own)):
        raise ModelUnsupported(
            f"{packed.name} computes its reward in a way adjudge does not know (a linear head on the last token's"
            f" hidden state gives {found:.3g}, the model {own:.3g}): choose another model"
        )


def _check_masks(packed: PackedDecoder) -> None:
    """Who sees whom must reach us with each attention call: transformers' own masks are not built."""
    kinds = set(getattr(packed.config, "layer_types", None) or ())
    if others := kinds - {"full_attention", "sliding_attention"}:
        raise ModelUnsupported(f"{packed.name} has layers of the kind {', '.join(sorted(others))}: {REMEDY}")
    window = getattr(packed.config, "sliding_window", None) and getattr(packed.config, "use_sliding_window", True)
    if window and kinds != {"full_attention"} and not any(kind.sliding_window for kind in packed.kinds):
        raise ModelUnsupported(f"{packed.name} does not tell its attention about its sliding window: {REMEDY}")


@contextmanager
def _refusing(told: Callable[[Exception], str]) -> Iterator[None]:
    """A block of which what goes wrong is told as of a model that adjudge does not run."""
    try:
        yield
    except ModelUnsupported:
        raise
    except Exception as error:
        raise ModelUnsupported(told(error)) from error
