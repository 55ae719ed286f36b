"""CUDA graphs for decode: a step of one token each is recorded once for each size, and then played in one launch.

Of a small model the launches of a decode step (some fifteen a layer, at 3 to 5 µs each) take longer than the step
itself: on an H200 twelve texts of the default model took 0.28 of the time (bench/results/gpu.md). Attention is that
of the Triton kernel, whose plan for a step is nothing but tensors; flash-attn's calls hold the longest context as a
number, which a graph would keep.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Lock
from typing import Any

import torch

from adjudge.engine.errors import AdjudgeError, reason
from adjudge.kernels.held_batch import HeldBatch, Room
from adjudge.kernels.paged_kv import PagedBatch

Decode = Callable[[torch.Tensor, torch.Tensor, PagedBatch], torch.Tensor]
"""Token ids [1, T], positions [1, T] and their batch to hidden states [T, D]."""
Run = Callable[[], torch.Tensor]
Record = Callable[[Run], Run]
"""From what is to be recorded to what plays it again; both give the same tensor, filled anew."""

_log = logging.getLogger("adjudge")
_recording = Lock()
"""A process may record one graph at a time."""


def check_recordable(device: torch.device, lent: bool) -> None:
    """Raises AdjudgeError for an engine whose decode steps cannot be recorded, whatever its model."""
    if device.type != "cuda":
        raise AdjudgeError(f"cuda_graphs are for a GPU, and the model is to be on {device.type}: leave them out")
    if lent:
        raise AdjudgeError("cuda_graphs would play weights of a policy that may have moved: leave them out")


class DecodeGraphs:
    """Decode steps by `decode`; each size is recorded when it is first met, and played from then on.

    The step of the first meeting is computed as it comes, then twice more for the recording. Where a recording fails,
    the log says so, and no step is played until `clear`. `recorder` makes what records, anew after `clear`.
    """

    def __init__(self, decode: Decode, recorder: Callable[[], Record]) -> None:
        self._decode = decode
        self._recorder = recorder
        self._record: Record | None = None
        self._graphs: dict[Room, _Graph] = {}
        self._failed = False

    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor, batch: PagedBatch) -> torch.Tensor | None:
        """Hidden states [T, D], in place until the next step; None for a step that is no decode or too large."""
        room = None if self._failed else Room.of(batch)
        if room is None:
            return None
        if (graph := self._graphs.get(room)) is not None:
            return graph.play(token_ids, positions, batch)
        hidden_TD = self._decode(token_ids, positions, batch)  # attention plans it, and its kernels are compiled
        try:
            self._record = self._record or self._recorder()
            self._graphs[room] = _Graph(self._decode, self._record, token_ids, positions, batch, room)
        except Exception as error:
            self.clear()
            self._failed = True
            _log.warning("decode is launched step by step, since it could not be recorded (%s)", reason(error))
        return hidden_TD

    def clear(self) -> None:
        """Forget all recordings: weights or cache are not where they were."""
        self._graphs.clear()
        self._record = None
        self._failed = False


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
    """Records on one device; its recordings share their scratch memory, since one is played at a time.

    Libraries set themselves up for a stream in their first call there, which cannot be recorded: a run before the
    recording is on the same stream, and nobody else's.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Run) -> Run:
        """What plays `run` again."""
        with torch.cuda.device(self._device), _recording, self._aside():
            run()
            graph = torch.cuda.CUDAGraph()
            how = {"pool": self._pool, "stream": self._stream, "capture_error_mode": "thread_local"}
            with torch.cuda.graph(graph, **how):
                output = run()
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

        def play() -> torch.Tensor:
            graph.replay()
            return output

        return play

    def _aside(self) -> AbstractContextManager[Any]:
        """A block on the recorder's stream, after what was launched before; also left when a recording fails."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        return torch.cuda.stream(self._stream)
