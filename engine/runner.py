"""Runs a transformers decoder on packed steps: its own modules, our attention, our KV cache, no logits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import nn

from adjudge.engine.decode_graphs import CudaRecorder, DecodeGraphs
from adjudge.engine.errors import AdjudgeError, EngineFailed, ModelUnsupported, reason
from adjudge.engine.head import Head
from adjudge.engine.invariance import HOLDING, expert_configs, invariant_matrices, invariant_means, other_layers
from adjudge.engine.memory import cache_bytes, give_back_freed_memory, keep_freed_memory, spare_memory
from adjudge.engine.models.adapters import Adapter, attach, read_adapter, without_base
from adjudge.engine.models.config import fix_rope, head_width, mixes_tokens
from adjudge.engine.models.reward_head import RewardHead
from adjudge.engine.models.weights import Weights
from adjudge.engine.packed_attention import APART, ATTENTION, compile_between, running, set_apart
from adjudge.engine.step import Step
from adjudge.kernels.activations import make_activations_invariant
from adjudge.kernels.attention import attention_backend, attention_block_size, is_batch_invariant, paged_attention
from adjudge.kernels.attention_library import AttentionKind
from adjudge.kernels.dispatch import launching_on
from adjudge.kernels.linear import LEAST_ROWS, ROW_TILE, BatchInvariantLinear, make_batch_invariant, padded_rows
from adjudge.kernels.paged_kv import PagedBatch, PagedKV, PagedSequence, to_device, write_kv
from adjudge.kernels.prepacked_weights import keep_prepacked

PROBE_BLOCKS = 16
PREPACKED_BYTES, PREPACKED_SHARE = 2 << 30, 1 / 8
"""What prepacked weights may take beside the plain ones: so much at most, and so much of a host's spare memory."""
MOST_GB = 10_000
MOST_BLOCKS = 1 << 24
"""Of which each has its entry in Python, used or not."""
_making = Lock()
"""One cache of the process is made at a time, so that each is sized to what the others have left."""
REMEDY = "use a decoder with attention layers only"


class Runner:
    """A model, its KV cache and its heads. `forward(step)` gives the hidden states of the rows that answer requests.

    `batch_invariant` says whether a probe at load was bit-equal alone and in a batch; on CPU that fails only for models
    whose dense layers are not `nn.Linear`, on a GPU it wants to be asked for. Weights that are `lent` stay where they
    are when it sleeps. `graphs` play decode steps, if there are any. The cache is sized when all else, the `adapter`
    included, is on the device. Raises ModelUnsupported for a model that adjudge does not run, or whose cache does not
    fit, and AdjudgeError where what is asked for is not to be had.
    """

    def __init__(
        self,
        model: Any,
        kv_cache_gb: float | None = None,
        *,
        adapter: str | Path | None = None,
        lent: bool = False,
        batch_invariant: bool = False,
        cuda_graphs: bool = False,
        torch_compile: bool = False,
    ) -> None:
        self.model = model.eval().requires_grad_(False)
        self.name = type(model).__name__
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.decoder: nn.Module = model.get_decoder()
        self.config: Any = model.config.get_text_config()
        self.max_context = int(getattr(self.config, "max_position_embeddings", None) or 1 << 30)
        self.torch_compile = torch_compile
        self._layers: dict[int, PagedKV] = {}
        self._tokens: int = model.get_input_embeddings().num_embeddings  # an adapter's layer over them does not say
        self._calls = 0
        self._kinds: set[AttentionKind] = set()
        self.block_size = attention_block_size(self.device, self.dtype, head_width(self.decoder, self.config))
        self.blocks = PROBE_BLOCKS
        self.weights = Weights(model, lent=lent)
        self._adapter: Adapter | None = None
        self._peft: Any = None
        self._asked_invariant = batch_invariant
        self._others: set[str] = set()
        self._experts: list[Any] = []
        self._means = invariant_means(self.device) if batch_invariant else nullcontext()
        self._make_invariant()
        if self.device.type == "cpu":
            make_activations_invariant(self.decoder)
            keep_freed_memory()
        if torch_compile:
            compile_between(self.decoder)
        model.set_attn_implementation(APART if torch_compile else ATTENTION)
        fix_rope(model)
        with torch.inference_mode(), self.on_device():
            self._head = self._read_head(self._check_layers())
            if self._head is not None:
                self._head = replace(self._head, batch_invariant=batch_invariant)
            self._keep_prepacked()
            self.batch_invariant = self._check_isolation()
        self.graphs = self._new_graphs() if cuda_graphs else None
        self._kv_cache_gb = kv_cache_gb
        self._block_bytes = sum(cache.key[0].nbytes + cache.value[0].nbytes for cache in self._layers.values())
        self._blanks = {layer: cache.blanks() for layer, cache in self._layers.items()}
        self._layers = {}
        if adapter is not None:
            self.set_adapter(adapter, {})
        self._make_cache()

    def require_head(self) -> Head:
        """The language-model head; raises ModelUnsupported for a model that was saved without one."""
        if self._head is None:
            raise ModelUnsupported(
                f"{self.name} has no language-model head, so it can neither score nor generate: use a causal language"
                " model for that, and this one for embed or a scalar judge"
            )
        return self._head

    @property
    def reward_head(self) -> RewardHead | None:
        """What reads a reward off `normed` hidden states; None for a model that is no reward model."""
        if self._adapter is not None and (weight := self._adapter.reward_weight) is not None:
            return RewardHead.from_tensors(self.model, weight, self._adapter.reward_bias)
        return RewardHead.of(self.model)

    @property
    def vocabulary(self) -> int:
        """Rows of the language-model head, or of the embeddings where there is none."""
        count: int = (self._head or self.model.get_input_embeddings()).weight.shape[0]
        return count

    def normed(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Of what `forward` gives, the hidden states after the final norm, in float32."""
        return hidden_ND.float() if self._head is None else self._head.normed(hidden_ND)

    @property
    def adapter(self) -> str | None:
        """The fingerprint of the adapter in place."""
        return self._adapter and self._adapter.fingerprint

    def set_adapter(self, folder: str | Path | None, new: Mapping[str, torch.Tensor]) -> None:
        """Put the adapter in `folder` in the place of the present one, None for the bare model.

        Where the new one does not fit the model, which is about to take `new` weights, the present one stays.
        """
        before, adapter = self._adapter, None if folder is None else read_adapter(folder)
        if adapter is not None:
            adapter = without_base(adapter, self.weights.after(new))
        try:
            self._exchange(adapter)
        except BaseException:
            self._exchange(before)
            raise

    def _exchange(self, adapter: Adapter | None) -> None:
        """Take off the adapter in place, put this one on, and check the model with it."""
        self._forget_graphs()
        if self._peft is not None:
            self._peft.unload()
        self._peft = None
        if adapter is not None:
            self._peft = attach(self.model, adapter)
            self._make_invariant()
            if self.torch_compile:
                set_apart(self.decoder)
        self._adapter = adapter  # its head is read by other threads: there is one at any time
        with torch.inference_mode(), self.on_device(), self._probing():
            self.batch_invariant = self._check_isolation()

    def _make_invariant(self) -> None:
        """Where it is asked for, and always on CPU: dense layers whose rows do not depend on each other.

        Raises AdjudgeError where it is asked for on a GPU and there are matrices beside those of `nn.Linear`.
        """
        on_cpu = self.device.type == "cpu"
        if not self._asked_invariant and not on_cpu:
            return
        make_batch_invariant(self.decoder)
        others = other_layers(self.decoder)
        self._others = set(others) - HOLDING if on_cpu else set()
        self._experts = expert_configs(self.decoder)
        if others and not on_cpu:
            raise AdjudgeError(
                f"{self.name} has layers that adjudge does not know ({', '.join(others)}), whose numbers may depend on"
                " the batch: leave batch_invariant out"
            )

    def _keep_prepacked(self) -> None:
        """Keep weights of dense layers as a CPU's matmuls want them, too, one after the other while there is room."""
        if self.device.type != "cpu" or self.weights.lent:
            return
        spare = spare_memory()
        room = PREPACKED_BYTES if spare is None else min(PREPACKED_BYTES, int(spare * PREPACKED_SHARE))
        weights = [module.weight for module in self.decoder.modules() if isinstance(module, BatchInvariantLinear)]
        if self._head is not None:
            weights.append(self._head.weight)
        for weight, taken in zip(weights, accumulate(weight.nbytes for weight in weights), strict=True):
            if taken <= room and not weight.is_inference():
                keep_prepacked(weight)

    def on_device(self) -> AbstractContextManager[Any]:
        """A block in which Triton launches where the model is."""
        return launching_on(self.device)

    def sleep(self) -> None:
        """Give back the KV cache and, on a GPU, the weights' memory."""
        self._forget_graphs()
        self._layers = {}
        self.weights.to_host()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        else:
            give_back_freed_memory()

    def wake(self) -> None:
        """Fetch the weights, and make a cache of the size that there is memory for now; raises as it does."""
        self.weights.to_device()
        self._make_cache()

    @torch.inference_mode()
    def _make_cache(self) -> None:
        """The whole cache, or none of it. Raises ModelUnsupported where it does not fit, and what `_room` raises."""
        with _making:
            self.blocks = self._room()
            try:
                self._layers = {
                    layer: PagedKV.empty(self.blocks, self.block_size, *blanks)
                    for layer, blanks in self._blanks.items()
                }
            except RuntimeError as error:  # as which a host's allocator fails, too
                raise ModelUnsupported(
                    f"the KV cache of {self.name} does not fit {self.device} ({reason(error)}): lower kv_cache_gb, or"
                    " free memory there"
                ) from error

    def _room(self) -> int:
        """How many blocks the cache has, the padding included.

        Raises ModelUnsupported where there is room for none, AdjudgeError for a size that no device has.
        """
        if self._kv_cache_gb is not None and not 0 <= self._kv_cache_gb <= MOST_GB:
            raise AdjudgeError(f"kv_cache_gb is {self._kv_cache_gb:g}: give GiB, at most {MOST_GB:,}")
        blocks = min(MOST_BLOCKS, 1 + cache_bytes(self.device, self._kv_cache_gb) // self._block_bytes)
        if blocks < 2:
            mend = "raise kv_cache_gb" if self._kv_cache_gb is not None else "free memory on its device"
            raise ModelUnsupported(f"the KV cache has no room for one block of {self.name}: {mend}")
        return blocks

    @contextmanager
    def _probing(self) -> Iterator[None]:
        """A block in which the KV cache is a small one of its own, for `_probe`."""
        layers, blocks = self._layers, self.blocks
        self._layers, self.blocks = {}, PROBE_BLOCKS
        try:
            yield
        finally:
            self._layers, self.blocks = layers, blocks

    @torch.inference_mode()
    def forward(self, step: Step) -> torch.Tensor:
        """Hidden states [R, D] at the rows of `step.finished`, before the final norm where the head applies it.

        Raises AdjudgeError where the device has no memory left for the step.
        """
        try:
            return self._hidden(step)
        except torch.OutOfMemoryError as error:
            raise EngineFailed(
                f"{self.device} has no memory left for a step of {step.size} tokens ({reason(error)}): lower"
                " max_batch_tokens or kv_cache_gb, or free memory there"
            ) from error

    def _hidden(self, step: Step) -> torch.Tensor:
        rows = to_device(torch.tensor([row for _, row in step.finished], dtype=torch.long), self.device)
        if step.copies:
            sources, slots = to_device(torch.tensor(step.copies), self.device).unbind(1)
            for cache in self._layers.values():
                cache.copy(sources, slots)
        batch = step.batch(self._rows(step.size), self.device)
        inputs = self._inputs(step.token_ids, step.positions, batch)
        hidden = None if self.graphs is None else self.graphs.forward(*inputs)
        if hidden is None:
            hidden = self._decode(*inputs)
        return hidden.index_select(0, rows)

    def _decode(self, token_ids: torch.Tensor, positions: torch.Tensor, batch: PagedBatch) -> torch.Tensor:
        with self._held():
            hidden: torch.Tensor = self._call(self.decoder, token_ids, positions, batch).last_hidden_state[0]
        return hidden

    @contextmanager
    def _held(self) -> Iterator[None]:
        """A block in which rows do not depend on each other, in what is no layer of ours either."""
        matrices = self._others and not self.torch_compile
        with self._means, invariant_matrices(self._experts) if matrices else nullcontext():
            yield

    def _call(self, module: nn.Module, token_ids: torch.Tensor, positions: torch.Tensor, batch: PagedBatch) -> Any:
        with running(self, batch):
            return module(input_ids=token_ids, position_ids=positions, use_cache=False)

    def _rows(self, count: int) -> int:
        """How many rows a step of so many tokens has, padding included."""
        return padded_rows(count, LEAST_ROWS if self.device.type == "cpu" else ROW_TILE)

    def _inputs(
        self, token_ids: list[int], positions: list[int], batch: PagedBatch
    ) -> tuple[torch.Tensor, torch.Tensor, PagedBatch]:
        """What `_decode` takes: token ids and positions [1, rows], padded with zeros, and their batch."""
        padding = [0] * (batch.rows - len(token_ids))
        ids, places = (to_device(torch.tensor([row + padding]), self.device) for row in (token_ids, positions))
        return ids, places, batch

    def _new_graphs(self) -> DecodeGraphs:
        """Raises AdjudgeError where another back end than Triton's serves attention."""
        if others := self._attention_backends() - {"triton"}:
            raise AdjudgeError(
                f"cuda_graphs want attention by triton, and {', '.join(sorted(others))} would serve: set"
                " ADJUDGE_ATTENTION=triton, or leave them out"
            )
        return DecodeGraphs(self._decode, partial(CudaRecorder, self.device))

    def _attention_backends(self) -> set[str]:
        return {attention_backend(kind)[0] for kind in self._kinds}

    def _forget_graphs(self) -> None:
        if self.graphs is not None:
            self.graphs.clear()

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, batch: PagedBatch, **how: Any
    ) -> torch.Tensor:
        """One layer's attention: store the keys and values ([T, KV heads, D]), then read each row's whole context."""
        self._calls += 1
        cache = self._layers.get(layer)
        if cache is None:
            cache = self._layers[layer] = PagedKV.empty(self.blocks, self.block_size, key, value)
            self._kinds.add(AttentionKind.of(query, cache, **how))
        write_kv(key, value, cache, batch)
        return paged_attention(query, cache, batch, **how)

    def _probe(self, *lengths: int, least: int = 0) -> torch.Tensor:
        """The decoder's hidden states of a few short sequences of fixed tokens, packed: for checks at load.

        One of no length is left out, and the others stay what they are; there are `least` rows or more.
        """
        return self._decode(*self._probe_batch(*lengths, least=least))

    def _probe_batch(self, *lengths: int, least: int = 0) -> tuple[torch.Tensor, torch.Tensor, PagedBatch]:
        token_ids: list[int] = []
        positions: list[int] = []
        sequences: list[PagedSequence] = []
        slots: list[int] = []
        for index, length in enumerate(lengths):
            if not length:
                continue
            first = 1 + 2 * index
            sequences.append(PagedSequence(len(token_ids), length, 0, [first, first + 1]))
            slots += range(first * self.block_size, first * self.block_size + length)
            token_ids += [(7919 * (index + 1) + 104729 * place) % self._tokens for place in range(length)]
            positions += range(length)
        writes = torch.arange(len(slots), device=self.device), torch.tensor(slots, device=self.device)
        batch = PagedBatch(tuple(sequences), self.block_size, self._rows(max(least, len(token_ids))), *writes)
        return self._inputs(token_ids, positions, batch)

    def _check_layers(self) -> Any:
        """What the model itself gives for the probe; refuses one with layers outside the attention interface."""
        how, mend = ("compiled, ", ": leave torch_compile out") if self.torch_compile else ("", "")
        try:
            with self._held():
                output = self._call(self.model, *self._probe_batch(20))
        except ModelUnsupported:
            raise
        except Exception as error:
            raise ModelUnsupported(
                f"{self.name} does not run {how}on a packed batch with our attention: {error}{mend}"
            ) from error
        self._check_masks()
        layers = self.config.num_hidden_layers
        if self._calls != layers:
            odd = sorted({type(module).__name__ for module in self.model.modules() if mixes_tokens(module)})
            raise ModelUnsupported(
                f"{self.name} has {layers} layers but {self._calls} went through the attention interface"
                f" ({', '.join(odd) or 'the others'} mix tokens in their own way): {REMEDY}"
            )
        if len(self._layers) != layers:
            raise ModelUnsupported(f"{self.name} goes through some of its layers several times: {REMEDY}")
        return output

    def _read_head(self, output: Any) -> Head | None:
        """The same as `_find_head`; refuses a model of which it cannot be read."""
        try:
            return self._find_head(output)
        except ModelUnsupported:
            raise
        except Exception as error:
            raise ModelUnsupported(
                f"{self.name} has its head in a way adjudge does not know ({reason(error)}): choose another model"
            ) from error

    def _find_head(self, output: Any) -> Head | None:
        """The language-model head, given what the model itself gives for the probe; a reward head is checked."""
        if self.model.get_output_embeddings() is not None:
            return Head.of(self.model, output.logits[0, :20], lambda: self._probe(20)[:20])
        if hasattr(output, "logits"):
            self._check_reward()
        return None

    def _check_reward(self) -> None:
        token_ids, positions, batch = self._probe_batch(self._rows(20))  # no padding: the last row is read
        with self._held():
            own = float(self._call(self.model, token_ids, positions, batch).logits.flatten()[0])
        head, hidden = self.reward_head, self._decode(token_ids, positions, batch)
        read = () if head is None else head.read_part(tuple(token_ids[0].tolist()))
        found = math.nan if head is None else head.reward(hidden[len(read) - 1].tolist())
        if not abs(found - own) <= (1e-3 if self.dtype == torch.float32 else 0.05) * max(1.0, abs(own)):
            raise ModelUnsupported(
                f"{self.name} computes its reward in a way adjudge does not know (a linear head on the last token's"
                f" hidden state gives {found:.3g}, the model {own:.3g}): choose another model"
            )

    def _check_masks(self) -> None:
        """Who sees whom must reach us with each attention call: transformers' own masks are not built."""
        kinds = set(getattr(self.config, "layer_types", None) or ())
        if others := kinds - {"full_attention", "sliding_attention"}:
            raise ModelUnsupported(f"{self.name} has layers of the kind {', '.join(sorted(others))}: {REMEDY}")
        window = getattr(self.config, "sliding_window", None) and getattr(self.config, "use_sliding_window", True)
        if window and kinds != {"full_attention"} and not any(kind.sliding_window for kind in self._kinds):
            raise ModelUnsupported(f"{self.name} does not tell its attention about its sliding window: {REMEDY}")

    def _keeps_bits(self) -> bool:
        """Whether a sequence is bit-equal in more companies: of experts each meets a few rows of it, or of others."""
        alone = self._probe(0, 20)[:20]
        companies = ((3, 7), (25, 31, 30, 28), (1, 12, 9), (30,))
        return all(
            torch.equal(alone, self._probe(first, 20, *others)[first : first + 20]) for first, *others in companies
        )

    def _check_isolation(self) -> bool:
        """A sequence must not see its neighbours in the batch; whether it is bit-equal without them.

        Among as many rows it meets the same kernels: what a deep model makes of their rounding is no difference then.
        Raises AdjudgeError where that was asked for and is not so.
        """
        packed = self._probe(12, 20, 30, 5)
        alone, among, packed = self._probe(0, 20)[:20], self._probe(0, 20, least=len(packed))[:20], packed[12:32]
        if not alone.isfinite().all():
            raise ModelUnsupported(f"{self.name} gives hidden states that are not finite: its weights are spoilt")
        if not torch.allclose(among, packed, rtol=1e-2, atol=1e-2 * float(among.abs().max())):
            raise ModelUnsupported(f"{self.name} mixes tokens of neighbouring sequences: {REMEDY}")
        attention = all(map(is_batch_invariant, self._kinds))
        found = attention and torch.equal(alone, packed) and (not self._others or self._keeps_bits())
        if self._asked_invariant and not found:
            raise AdjudgeError(
                f"{self.name} has layers whose numbers depend on the batch: leave batch_invariant out"
                if attention
                else f"batch_invariant wants attention by triton, and {', '.join(sorted(self._attention_backends()))}"
                " would serve: set ADJUDGE_ATTENTION=triton, or leave it out"
            )
        return found
