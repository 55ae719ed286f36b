"""Continuous batching: which tokens the next step computes."""

from __future__ import annotations

from collections import deque

from adjudge.engine.blocks import OutOfBlocks
from adjudge.engine.radix import RadixCache
from adjudge.engine.step import Request, Step


class Scheduler:
    """First come, first served under a token budget; long prompts are computed in chunks.

    A request is admitted when its whole path fits in the KV pool, so admitted requests always end. Requests that
    share a prefix should follow each other (`trie.order`): the first computes it, in this step or an earlier one, the
    rest read it.
    """

    def __init__(self, cache: RadixCache, max_batch_tokens: int) -> None:
        self.cache = cache
        self.max_batch_tokens = max_batch_tokens
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    def has_work(self) -> bool:
        """Whether any request is unanswered."""
        return bool(self.waiting or self.running)

    def add(self, request: Request) -> None:
        """Queue a request, which must fit in the pool when nothing else is there."""
        self.waiting.append(request)

    def schedule(self) -> Step:
        """Fill a step with chunks of running requests, then of waiting ones, until the budget or the pool is spent."""
        step = Step(self.cache)
        for request in self.running:
            self._advance(request, step)
        while self.waiting and step.size < self.max_batch_tokens and self._admit(self.waiting[0]):
            self.running.append(self.waiting.popleft())
            self._advance(self.running[-1], step)
        return step

    def complete(self, step: Step) -> None:
        """Let go of the requests that the step has answered."""
        answered = {id(request) for request, _ in step.finished}
        self.running = [request for request in self.running if id(request) not in answered]
        for request, _ in step.finished:
            assert request.leaf is not None
            self.cache.release(request.leaf, request.keep)

    def cancel(self) -> None:
        """Drop every unanswered request between two steps; what is computed stays in the cache."""
        for request in self.running:
            assert request.leaf is not None
            self.cache.release(request.leaf, request.keep)
        self.running.clear()
        self.waiting.clear()

    def abort(self) -> None:
        """Drop every request and everything computed: what a failed step leaves behind cannot be trusted."""
        self.waiting.clear()
        self.running.clear()
        self.cache.clear()

    def _admit(self, request: Request) -> bool:
        try:
            request.leaf = self.cache.insert(request.tokens)
        except OutOfBlocks:
            if self.running:
                return False
            self.cache.clear()  # nobody uses it, and a prefix cut in many places holds more blocks than it needs
            request.leaf = self.cache.insert(request.tokens)
        return True

    def _advance(self, request: Request, step: Step) -> None:
        """Schedule what the request's path still misses, parents first, and its answer once nothing is missing."""
        assert request.leaf is not None
        for node in request.leaf.path():
            if count := min(node.missing, self.max_batch_tokens - step.size):
                step.compute(node, count)
            if node.missing:
                return
        step.finish(request, self.max_batch_tokens - step.size)
