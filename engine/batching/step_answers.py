"""What a step has computed, handed to those who asked: label distributions, next tokens, hidden states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from adjudge.engine.batching.prompt_reading import SpanReader, read_tokens
from adjudge.engine.batching.reading import HiddenReader, Reader, ScoreJob
from adjudge.engine.batching.step import Step
from adjudge.engine.batching.writing import Writer, write
from adjudge.engine.face import Stats
from adjudge.engine.running.runner import Runner
from adjudge.kernels.paged_kv import to_device

ROWS_OF_LOGITS = 64
"""Rows whose logits over the vocabulary are in memory at once."""


def answer(step: Step, hidden: torch.Tensor, runner: Runner, stats: Stats) -> None:
    """Read label distributions, write tokens and hand out hidden states at the step's answered rows [R, D]."""
    stats.steps += 1
    stats.tokens_computed += step.size
    reads: list[tuple[int, ScoreJob, int]] = []
    writes: list[tuple[int, Writer]] = []
    embeds: list[tuple[int, HiddenReader]] = []
    spans: list[tuple[int, SpanReader]] = []
    for row, (request, _) in enumerate(step.finished):
        if isinstance(request, Reader):
            reads += [(row, job, number) for job, number in request.reads]
        elif isinstance(request, Writer):
            writes.append((row, request))
        elif isinstance(request, HiddenReader):
            embeds.append((row, request))
        elif isinstance(request, SpanReader):
            spans.append((row, request))
    if reads:
        token_ids = [job.labels.reads[number].token_ids for _, job, number in reads]
        readings = runner.require_head().logprobs(_rows(hidden, [row for row, _, _ in reads]), token_ids)
        for (_, job, number), reading in zip(reads, readings, strict=True):
            job.read(number, reading)
    for few in _chunks(spans, ROWS_OF_LOGITS):
        logits_NV = runner.require_head().vocabulary_logits(_rows(hidden, [row for row, _ in few]))
        read_tokens([span for _, span in few], logits_NV)
    for some in _chunks(writes, ROWS_OF_LOGITS):
        logits_NV = runner.require_head().vocabulary_logits(_rows(hidden, [row for row, _ in some]))
        stats.tokens_written += write([writer for _, writer in some], logits_NV)
    if embeds:
        values_ND = runner.normed(_rows(hidden, [row for row, _ in embeds])).cpu().numpy()
        head = runner.reward_head
        for (_, embedder), values_D in zip(embeds, values_ND, strict=True):
            embedder.read(values_D.copy(), head)  # a view would hold the whole step's in memory


def _rows(hidden: torch.Tensor, places: list[int]) -> torch.Tensor:
    """Some rows of the hidden states, without waiting for them: what reads them is launched meanwhile."""
    if places == list(range(len(hidden))):
        return hidden
    return hidden.index_select(0, to_device(torch.tensor(places), hidden.device))


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))
