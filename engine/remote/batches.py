"""Which prompts go to a server in one request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from adjudge.engine import trie
from adjudge.engine.tokens import Tokens

T = TypeVar("T")

TOKENS_AT_ONCE = 1 << 16
"""Token ids in one request, unless a prompt alone has more: half a megabyte of JSON, where proxies take one."""


def batches(
    by_tokens: Mapping[Tokens, Sequence[T]], at_once: int, more: Callable[[T], int] = lambda one: 0
) -> Iterator[list[T]]:
    """What is to be asked after each prompt, `at_once` together at most; each brings `more` ids than the prompt's.

    Neighbours in the prefix tree go into one request, or one after the other.
    """
    together: list[T] = []
    size = 0
    prompts = list(by_tokens)
    for place in trie.order(prompts):
        tokens = prompts[place.item]
        for one in by_tokens[tokens]:
            ids = len(tokens) + more(one)
            if together and (len(together) >= at_once or size + ids > TOKENS_AT_ONCE):
                yield together
                together, size = [], 0
            together.append(one)
            size += ids
    if together:
        yield together
