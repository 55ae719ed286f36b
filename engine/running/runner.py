"""Runs a model on steps: its decoder on packed tokens, its heads, its adapter and the memory it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import accumulate
from numbers import Real
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from adjudge.engine.batching.step import Step
from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import AdjudgeError, EngineFailed, ModelUnsupported, reason
from adjudge.engine.models.adapters import Adapter, attach, read_adapter, without_base
from adjudge.engine.models.reward_head import RewardHead
from adjudge.engine.models.weights import Weights
from adjudge.engine.running.decode_graphs import CudaRecorder, DecodeGraphs
from adjudge.engine.running.head import Head
from adjudge.engine.running.memory import cache_bytes, give_back_freed_memory, keep_freed_memory, spare_memory
from adjudge.engine.running.packed_decoder import PackedDecoder
from adjudge.engine.running.probe import check_isolation, check_layers, read_head
from adjudge.engine.threads.forked import Renewed
from adjudge.kernels.linear import PART, BatchInvariantLinear
from adjudge.kernels.paged_kv import PagedKV, to_device
from adjudge.kernels.prepacked_weights import keep_prepacked

PREPACKED_BYTES, PREPACKED_SHARE = 2 << 30, 1 / 8
"""What prepacked weights may take beside the plain ones: so much at most, and so much of a host's spare memory."""
MOST_GB = 10_000
MOST_BLOCKS = 1 << 24
"""Of which each has its entry in Python, used or not."""
_making = Renewed(Lock)
"""One cache of the process is made at a time, so that each is sized to what the others have left."""


class Runner(PackedDecoder):
    """A model with heads and a KV cache. `forward(step)` gives the hidden states of the rows that answer requests.

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
        self.weights = Weights(model, lent=lent)
        super().__init__(model, batch_invariant=batch_invariant, torch_compile=torch_compile)
        self.max_context = int(getattr(self.config, "max_position_embeddings", None) or 1 << 30)
        self._adapter: Adapter | None = None
        self._peft: Any = None
        if self.device.type == "cpu":
            keep_freed_memory()
        with torch.inference_mode(), self.on_device():
            head = read_head(self, check_layers(self))
            self._head = head and replace(head, batch_invariant=batch_invariant)
            self._keep_prepacked()
            self.batch_invariant = check_isolation(self)
        self.graphs = self._new_graphs() if cuda_graphs else None
        self._kv_cache_gb = kv_cache_gb
        self._block_bytes = sum(cache.key[0].nbytes + cache.value[0].nbytes for cache in self.layers.values())
        self._blanks = {layer: cache.blanks() for layer, cache in self.layers.items()}
        self.layers = {}
        if adapter is not None:
            self.set_adapter(adapter, {})
        self._make_cache()

    @torch.inference_mode()
    def forward(self, step: Step) -> torch.Tensor:
        """Hidden states [R, D] at the rows of `step.finished`, before the final norm where the head applies it.

        Raises AdjudgeError where the device has no memory left for the step.
        """
        try:
            return self._hidden(step)
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):  # a host's
                raise
            raise EngineFailed(
                f"{self.device} has no memory left for a step of {step.size} tokens ({reason(error)}): lower"
                " max_batch_tokens or kv_cache_gb, or free memory there"
            ) from error

    def _hidden(self, step: Step) -> torch.Tensor:
        rows = to_device(torch.tensor([row for _, row in step.finished], dtype=torch.long), self.device)
        if step.copies:
            sources, slots = to_device(torch.tensor(step.copies), self.device).unbind(1)
            for cache in self.layers.values():
                cache.copy(sources, slots)
        batch = step.batch(self.rows(step.size), self.device)
        inputs = self.inputs(step.token_ids, step.positions, batch)
        hidden = None if self.graphs is None else self.graphs.forward(*inputs)
        if hidden is None:
            hidden = self.decode(*inputs)
        return hidden.index_select(0, rows)

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
            self.take_layers()
        self._adapter = adapter  # its head is read by other threads: there is one at any time
        with torch.inference_mode(), self.on_device(), self.probing():
            self.batch_invariant = check_isolation(self)

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
                keep_prepacked(weight, PART if self._head is not None and weight is self._head.weight else None)

    def sleep(self) -> None:
        """Give back the KV cache and, on a GPU, the weights' memory."""
        self._forget_graphs()
        self.layers = {}
        self.weights.to_host()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        else:
            give_back_freed_memory()

    def wake(self) -> None:
        """Fetch the weights, and make a cache of the size that there is memory for now; raises as when it opens."""
        self.weights.to_device()
        self._make_cache()

    @torch.inference_mode()
    def _make_cache(self) -> None:
        """The whole cache, or none of it. Raises ModelUnsupported where it does not fit, and what `_room` raises."""
        with _making.here:
            self.blocks = self._room()
            try:
                self.layers = {
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
        size = self._kv_cache_gb
        if size is not None and not (is_number(size, Real) and 0 <= size <= MOST_GB):
            raise AdjudgeError(f"kv_cache_gb is {shown(size)}: give GiB, at most {MOST_GB:,}")
        context = -(-self.max_context // self.block_size) * self._block_bytes
        blocks = min(MOST_BLOCKS, 1 + cache_bytes(self.device, self._kv_cache_gb, context) // self._block_bytes)
        if blocks < 2:
            mend = "raise kv_cache_gb" if self._kv_cache_gb is not None else "free memory on its device"
            raise ModelUnsupported(f"the KV cache has no room for one block of {self.name}: {mend}")
        return blocks

    def _new_graphs(self) -> DecodeGraphs:
        """Raises AdjudgeError where another back end than Triton's serves attention."""
        if others := self.attention_backends() - {"triton"}:
            raise AdjudgeError(
                f"cuda_graphs want attention by triton, and {', '.join(sorted(others))} would serve: set"
                " ADJUDGE_ATTENTION=triton, or leave them out"
            )
        return DecodeGraphs(self.decode, partial(CudaRecorder, self.device))

    def _forget_graphs(self) -> None:
        if self.graphs is not None:
            self.graphs.clear()
