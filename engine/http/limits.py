"""What one server takes on."""

from __future__ import annotations

import msgspec

SLOWEST = 1000
"""Bytes a second, on the whole, under which a client has stalled: a byte now and then would hold a place for ever."""
LATE = 5.0
"""Seconds after its timeout by which a request is read, and answered with reasons, or else is an error."""

MOST_EMBEDDINGS = 2048
"""In one answer, as OpenAI has it: they are large."""
MOST_LABEL_LOGPROBS = 1 << 18
"""Of labels in one answer, items times labels: as many as 64 items of the most labels have."""
MOST_LOGPROBS = 1 << 22
"""Of texts in one answer, some 60 bytes each until it is read: of each token its own and its alternatives'."""
MOST_PROMPT_NUMBERS = 1 << 19
"""About prompts' tokens in one answer, some 60 bytes each: two for a token, and one for each alternative."""


class Limits(msgspec.Struct, frozen=True):
    """`api_key` None lets everybody in; `max_body` is in bytes; timeouts are in seconds.

    More than `max_concurrency` requests at once are turned away, and so is one request for more than `max_answers`
    scores or texts. `request_timeout` is the longest that a request may ask for and what it gets if it asks for
    nothing; what is not done by then is answered with the reason "timeout". A client that sends no request, or nothing
    of its body, or reads nothing of its answer, for `stall_timeout` is dropped, and so is one that does so more slowly
    than `SLOWEST`. `drain_timeout` is what requests under way have left when the server is told to stop.
    """

    api_key: str | None = None
    max_body: int = 10_000_000
    max_concurrency: int = 1024
    max_answers: int = 10_000
    request_timeout: float = 600.0
    stall_timeout: float = 60.0
    drain_timeout: float = 30.0

    @property
    def max_joined(self) -> int:
        """What a query joined with each of its items may come to: a small body must not grow without bounds."""
        return 10 * self.max_body

    def patience(self, since: float, now: float, moved: int) -> float:
        """Until when to wait for a client of which `moved` bytes have come, or gone, from `since` to `now`."""
        return min(now, since + moved / SLOWEST) + self.stall_timeout
