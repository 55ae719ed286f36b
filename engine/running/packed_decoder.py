"""A transformers decoder on packed batches: its own modules, our attention, our KV cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn

from adjudge.engine.models.config import fix_rope, head_width
from adjudge.engine.running.invariance import Invariance
from adjudge.engine.running.packed_attention import APART, ATTENTION, compile_between, running, set_apart
from adjudge.kernels.activations import make_activations_invariant
from adjudge.kernels.attention import attention_backend, attention_block_size, paged_attention
from adjudge.kernels.attention_library import AttentionKind
from adjudge.kernels.dispatch import launching_on
from adjudge.kernels.linear import LEAST_ROWS, ROW_TILE, padded_rows
from adjudge.kernels.paged_kv import PagedBatch, PagedKV, to_device, write_kv

PROBE_BLOCKS = 16


class PackedDecoder:
    """A model that runs on a flat batch of tokens; `layers` is the KV cache, a part for each.

    A layer without its part, as none has when a model is probed, makes itself a small one. `kinds` and `calls` are what
    attention has been asked for; of `tokens` there are embeddings.
    """

    def __init__(self, model: Any, *, batch_invariant: bool = False, torch_compile: bool = False) -> None:
        self.model = model.eval().requires_grad_(False)
        self.name = type(model).__name__
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.decoder: nn.Module = model.get_decoder()
        self.config: Any = model.config.get_text_config()
        self.torch_compile = torch_compile
        self.layers: dict[int, PagedKV] = {}
        self.tokens: int = model.get_input_embeddings().num_embeddings  # an adapter's layer over them does not say
        self.calls = 0
        self.kinds: set[AttentionKind] = set()
        self.block_size = attention_block_size(self.device, self.dtype, head_width(self.decoder, self.config))
        self.invariance = Invariance(model, asked=batch_invariant, torch_compile=torch_compile)
        if self.device.type == "cpu":
            make_activations_invariant(self.decoder)
        if torch_compile:
            compile_between(self.decoder)
        model.set_attn_implementation(APART if torch_compile else ATTENTION)
        fix_rope(model)

    def take_layers(self) -> None:
        """Treat what an adapter has brought as the model's own; raises as `Invariance.take_layers`."""
        self.invariance.take_layers()
        if self.torch_compile:
            set_apart(self.decoder)

    def on_device(self) -> AbstractContextManager[Any]:
        """A block in which Triton launches where the model is."""
        return launching_on(self.device)

    @contextmanager
    def probing(self) -> Iterator[None]:
        """A block in which the KV cache is a small one of its own."""
        layers, self.layers = self.layers, {}
        try:
            yield
        finally:
            self.layers = layers

    def decode(self, token_ids: torch.Tensor, positions: torch.Tensor, batch: PagedBatch) -> torch.Tensor:
        """Hidden states [T, D] of token ids and positions [1, T], before the head and what it has of the norm."""
        hidden: torch.Tensor = self.call(self.decoder, token_ids, positions, batch).last_hidden_state[0]
        return hidden

    def call(self, module: nn.Module, token_ids: torch.Tensor, positions: torch.Tensor, batch: PagedBatch) -> Any:
        """What the decoder, or the model around it, gives for a batch."""
        with self.invariance.held(), running(self, batch):
            return module(input_ids=token_ids, position_ids=positions, use_cache=False)

    def rows(self, count: int) -> int:
        """How many rows a step of so many tokens has, padding included."""
        return padded_rows(count, LEAST_ROWS if self.device.type == "cpu" else ROW_TILE)

    def inputs(
        self, token_ids: list[int], positions: list[int], batch: PagedBatch
    ) -> tuple[torch.Tensor, torch.Tensor, PagedBatch]:
        """What `decode` takes: token ids and positions [1, rows], padded with zeros, and their batch."""
        padding = [0] * (batch.rows - len(token_ids))
        ids, places = (to_device(torch.tensor([row + padding]), self.device) for row in (token_ids, positions))
        return ids, places, batch

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, batch: PagedBatch, **how: Any
    ) -> torch.Tensor:
        """One layer's attention: store the keys and values ([T, KV heads, D]), then read each row's whole context."""
        self.calls += 1
        cache = self.layers.get(layer)
        if cache is None:
            cache = self.layers[layer] = PagedKV.empty(PROBE_BLOCKS, self.block_size, key, value)
            self.kinds.add(AttentionKind.of(query, cache, **how))
        write_kv(key, value, cache, batch)
        return paged_attention(query, cache, batch, **how)

    def attention_backends(self) -> set[str]:
        """What serves the kinds of attention it has asked for."""
        return {attention_backend(kind)[0] for kind in self.kinds}
