"""CUDA graphs for decode: a step of one token each is recorded once for each size, and then played in one launch.

On a small model the launches of a decode step, some fifteen a layer, take longer than the step itself. Attention is
that of the Triton kernel, whose plan for a step is nothing but tensors; flash-attn's calls hold the longest context as
a number, which a graph would keep.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from adjudge.kernels.held_batch import HeldBatch, Room
from adjudge.kernels.paged_kv import PagedBatch

Decode = Callable[[torch.Tensor, torch.Tensor, PagedBatch], torch.Tensor]
"""Token ids [1, T], positions [1, T] and their batch to hidden states [T, D]."""
Run = Callable[[], torch.Tensor]
Record = Callable[[Run], Run]
"""From what is to be recorded to what plays it again; both give the same tensor, filled anew."""


class DecodeGraphs:
    """Decode steps by `decode`; each size is recorded by `record` when it is first met, and played from then on."""

    def __init__(self, decode: Decode, record: Record | None = None) -> None:
        self._decode = decode
        self._record = record or CudaRecorder()
        self._graphs: dict[Room, _Graph] = {}

    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor, batch: PagedBatch) -> torch.Tensor | None:
        """Hidden states [T, D], in place until the next step; None for a step that is no decode or too large."""
        room = Room.of(batch)
        if room is None:
            return None
        if (graph := self._graphs.get(room)) is not None:
            return graph.play(token_ids, positions, batch)
        hidden_TD = self._decode(token_ids, positions, batch)  # attention plans it, and its kernels are compiled
        self._graphs[room] = _Graph(self._decode, self._record, token_ids, positions, batch, room)
        return hidden_TD

    def clear(self) -> None:
        """Forget all recordings: weights or cache are not where they were."""
        self._graphs.clear()


class _Graph:
    """One size: its inputs, which stay in place, and what plays the recording of them."""

    def __init__(
        self,
        decode: Decode,
        record: Record,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        batch: PagedBatch,
        room: Room,
    ) -> None:
        self._batch = HeldBatch.like(batch, room)
        self._token_ids, self._positions = torch.zeros(2, 1, room.rows, dtype=torch.long, device=batch.device)
        self._take(token_ids, positions)  # recording runs it, and writes to the cache what this step has written
        self._play = record(lambda: decode(self._token_ids, self._positions, self._batch))

    def play(self, token_ids: torch.Tensor, positions: torch.Tensor, batch: PagedBatch) -> torch.Tensor:
        """The hidden states of a step of this size."""
        self._take(token_ids, positions)
        self._batch.take(batch)
        return self._play()[: token_ids.shape[1]]

    def _take(self, token_ids: torch.Tensor, positions: torch.Tensor) -> None:
        for ours, theirs in ((self._token_ids, token_ids), (self._positions, positions)):
            ours[:, : theirs.shape[1]] = theirs


class CudaRecorder:
    """Records on the current CUDA device; all recordings share their scratch memory, since one is played at a time."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Run) -> Run:
        """What plays `run` again."""
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            run()  # libraries set themselves up in a first call, which cannot be recorded
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            output = run()

        def play() -> torch.Tensor:
            graph.replay()
            return output

        return play
