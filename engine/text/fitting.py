"""Shortening what may be shortened until prompts fit."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import msgspec

from adjudge.engine.text.prompt import Prompt, Segment
from adjudge.engine.text.tokenizer import Tokenizer


def fit(prompts: Sequence[Prompt], tokenizer: Tokenizer, limit: int) -> tuple[list[Prompt], bool]:
    """The prompts, their untrusted segments shortened alike until each has at most `limit` tokens; and whether any was.

    Every segment may keep the same number of tokens, the largest with which all prompts fit; trusted segments and
    segments cut "never" stay whole. Where that is not enough, prompts come back too long.
    """
    lengths = [[len(ids) for ids in tokenizer.segments(prompt, limit)] for prompt in prompts]
    if all(sum(row) <= limit for row in lengths):
        return list(prompts), False

    def fits(cap: int) -> bool:
        return all(
            sum(min(n, cap) if _is_cuttable(s) else n for s, n in zip(prompt.segments, row, strict=True)) <= limit
            for prompt, row in zip(prompts, lengths, strict=True)
        )

    cap = bisect.bisect_left(range(1, limit + 1), True, key=lambda n: not fits(n))
    fitted = [Prompt(tuple(_limited(segment, cap) for segment in prompt.segments)) for prompt in prompts]
    cut = any(
        n > cap and _is_cuttable(s)
        for prompt, row in zip(prompts, lengths, strict=True)
        for s, n in zip(prompt.segments, row, strict=True)
    )
    return fitted, cut


def _is_cuttable(segment: Segment) -> bool:
    return not segment.trusted and segment.cut != "never"


def _limited(segment: Segment, cap: int) -> Segment:
    """With the common limit, or its own where that is less."""
    if not _is_cuttable(segment):
        return segment
    return msgspec.structs.replace(segment, limit=cap if segment.limit is None else min(cap, segment.limit))
