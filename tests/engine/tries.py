"""Batches of sequences that begin alike."""

from __future__ import annotations

from hypothesis import strategies as st

sequences = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple), unique=True, max_size=12)
"""Batches of distinct short ones, as hypothesis draws them."""


def prefixes(batch: list[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """All that sequences of a batch begin with."""
    return {tokens[: i + 1] for tokens in batch for i in range(len(tokens))}
