"""What a policy wrote, out of a text that holds its prompt as well, as OpenRLHF hands it over."""

from __future__ import annotations

from collections.abc import Sequence

KEPT = 32
"""Characters of a prompt that must be left to know it by, where OpenRLHF has cut off its beginning to fit."""


def response_of(query: str, prompt: str, ends: Sequence[str] = ()) -> str | None:
    """What stands behind the prompt in a query, without such markers at its end; None where the prompt is not there.

    A query may have a token before the prompt, or have lost the beginning of a long one.
    """
    end = _prompts_end(query, prompt)
    if end is None:
        return None
    response = query[end:]
    while marker := next((one for one in ends if one and response.endswith(one)), None):
        response = response.removesuffix(marker)
    return response


def _prompts_end(query: str, prompt: str) -> int | None:
    if (start := query.find(prompt)) >= 0:
        return start + len(prompt)
    head = query[:KEPT]
    start = prompt.find(head) if len(head) == KEPT else -1
    while start >= 0:
        if query.startswith(prompt[start:]):
            return len(prompt) - start
        start = prompt.find(head, start + 1)
    return None
