"""Continuous batching: which tokens the next step computes."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection

from adjudge.engine.batching.step import Request, Step
from adjudge.engine.errors import CallTooLarge, QueueFull
from adjudge.engine.kv_cache.blocks import OutOfBlocks
from adjudge.engine.kv_cache.radix import RadixCache

LOOK_AHEAD = 32
"""How many of the queue are looked at for the longest prefix in the cache."""
TELLING = 256
"""Tokens of a step whose time tells what a token takes."""
LEAST = 64
"""Tokens that a step may compute however near a deadline is, besides one for each text: others would stand still."""
LEAST_SHARE = 16
"""Or one in so many of a full step, where that is more: deadlines that cannot be kept must not slow everybody."""
PATIENCE = 64
"""How many may be admitted before one that came earlier."""
SHARE = 8
"""A long call has one of so many tokens at the least, however many calls come after it; and what does not go on yet one
of so many of a step, however many texts go on."""
MANY = 1024
"""Deadlines of answered requests that are kept without being looked for."""


class Scheduler:
    """By priority, then by turns of calls, under a token budget; long prompts are computed in chunks.

    What is added at once is a call, and has a turn for every `max_batch_tokens` of its prompts. A call that comes later
    begins at the turn that others have come to, so a short one does not wait for the whole of a long one; within a turn
    who came first is served first. A request is admitted when its whole path fits in the KV pool. Where something must
    be evicted for the first in the queue, one of the next few may go before it that finds more of its prefix here, so
    that a prefix is used before it is evicted; the first waits for `PATIENCE` such at most. One that goes on and finds
    no block for its next token sends those that rank last back to the queue, to be computed again later, so the first
    always ends. Requests that share a prefix should follow each other (`trie.order`): the first computes it, in this
    step or an earlier one, the rest read it. Near a deadline steps are smaller, so that none but the least outlasts
    it (`took`). `clock` gives seconds.
    """

    def __init__(
        self,
        cache: RadixCache,
        max_batch_tokens: int,
        max_queue: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cache = cache
        self.max_batch_tokens = max_batch_tokens
        self.max_queue = max_queue
        self.clock = clock
        self.running: list[Request] = []
        self.preempted = self.aborted = 0
        self._waiting: list[tuple[int, int, int, Request]] = []  # a heap by rank
        self._arrivals = itertools.count()
        self._served = defaultdict[int, float](float)  # by priority: how many tokens of each call have had their turn
        self._hurried: dict[int, Request] = {}  # by arrival: those unanswered that have a deadline
        self._deadlines: list[tuple[float, int]] = []  # a heap of theirs with their arrivals, and of some answered ones
        self._budget = max_batch_tokens
        self._advances = itertools.count()
        self._pace = 0.0  # seconds a token, 0 before that is known
        self._untold = 0, 0.0  # tokens and seconds of steps that tell no pace by themselves

    @property
    def waiting(self) -> int:
        """Requests that are not admitted yet, or not again."""
        return len(self._waiting)

    def has_work(self) -> bool:
        """Whether any request is unanswered."""
        return bool(self._waiting or self.running)

    def add(self, *requests: Request) -> None:
        """Queue requests, each of which must fit in the pool when nothing else is there.

        Raises QueueFull, and queues none, when there would be more than `max_queue` waiting, and as `check_room`.
        """
        self.check_room(len(requests))
        waiting = len(self._waiting)
        if self.max_queue is not None and waiting + len(requests) > self.max_queue:
            raise QueueFull(
                f"{waiting} requests wait and {len(requests)} more would make it over {self.max_queue}: try again later"
            )
        if not self.has_work():
            self._served.clear()
        before = 0
        for request in requests:
            begun = self._served[request.priority] + before
            request.turn, request.arrival = int(begun // self.max_batch_tokens), next(self._arrivals)
            before += request.length
            self._wait(request)
            if request.deadline < math.inf:
                self._hurried[request.arrival] = request
                heapq.heappush(self._deadlines, (request.deadline, request.arrival))

    def check_room(self, count: int) -> None:
        """Raise CallTooLarge for more requests at once than an empty queue takes."""
        if self.max_queue is not None and count > self.max_queue:
            raise CallTooLarge(
                f"this call needs {count} places in a queue of {self.max_queue}: ask for less at once, or raise"
                " max_queue"
            )

    def schedule(self) -> Step:
        """Fill a step until the budget or the pool is spent: requests that go on, chunks of others, waiting ones.

        The latter two by priority, and those that are begun first where it is the same. A share of the step is theirs,
        which those that go on and are no more urgent leave to them, each in its turn.
        """
        step = Step(self.cache, expired=self._expire())
        if not self.running:  # whose work was not waited for is gone
            self._untold = 0, 0.0
        self._budget = self._affordable()
        begun = deque(request for request in sorted(self.running, key=_rank) if _is_begun(request))
        going = deque(sorted((request for request in self.running if not _is_begun(request)), key=_turn))
        self._go_on(going, step, *self._left_to(begun))
        room = True
        while step.size < self._budget:
            if begun and not (room and self._waiting and self._waiting[0][0] < begun[0].priority):
                self._advance(begun.popleft(), step)
            elif room and self._waiting:
                room = self._begin(step)
            else:
                break
        self._go_on(going, step)
        return step

    def complete(self, step: Step) -> None:
        """Let go of the answered requests that are done, and add the next token to the others."""
        finished = list(dict.fromkeys(request for request, _ in step.finished))
        for request in finished:
            if request.done:
                self._leave(request, keep=True)
                self._hurried.pop(request.arrival, None)
        for request in finished:
            if not request.done:
                self._grow(request)

    def took(self, step: Step, seconds: float) -> None:
        """Note how long a step took; by that the next ones are bounded near a deadline.

        Of a step that finishes nothing a GPU's work is not waited for, so it counts with the next one that does. Few
        tokens tell only that one takes less than was thought: else one slow step would make all others small.
        """
        tokens, seconds = self._untold[0] + step.size, self._untold[1] + seconds
        self._untold = (0, 0.0) if step.finished else (tokens, seconds)
        if step.finished and (tokens >= TELLING or seconds < self._pace * tokens):
            self._pace = seconds / tokens

    def cancel(self, requests: Collection[Request]) -> None:
        """Drop requests between two steps; what is computed of them stays in the cache."""
        gone = set(map(id, requests))
        self._untold = 0, 0.0
        for request in [request for request in self.running if id(request) in gone]:
            self._leave(request)
        self._waiting = [entry for entry in self._waiting if id(entry[-1]) not in gone]
        heapq.heapify(self._waiting)
        for request in requests:
            self._hurried.pop(request.arrival, None)

    def abort(self) -> None:
        """Drop every request and everything computed: what a failed step leaves behind cannot be trusted."""
        for request in self.running:
            if request.own is not None:
                self.cache.drop(request.own)
        self._waiting.clear()
        self._hurried.clear()
        self._deadlines.clear()
        self._untold = 0, 0.0
        self.running.clear()
        self.cache.clear()
        self.aborted += 1

    def _wait(self, request: Request) -> None:
        heapq.heappush(self._waiting, (*_rank(request), request))

    def _first_deadline(self) -> float:
        """The next one of an unanswered request, infinity where there is none."""
        if len(self._deadlines) > 2 * len(self._hurried) + MANY:  # else the answered would stay for all of their time
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._hurried]
            heapq.heapify(self._deadlines)
        while self._deadlines and self._deadlines[0][1] not in self._hurried:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else math.inf

    def _expire(self) -> list[Request]:
        """Drop the requests whose deadline has passed."""
        expired: list[Request] = []
        now = self.clock()
        while self._first_deadline() <= now:
            _, arrival = heapq.heappop(self._deadlines)
            expired.append(self._hurried[arrival])
        if expired:
            self.cancel(expired)
        return expired

    def _affordable(self) -> int:
        """How many tokens can be computed until the first deadline passes, within the budget of a step."""
        first = self._first_deadline()
        if first == math.inf or not self._pace:
            return self.max_batch_tokens
        least = max(LEAST, self.max_batch_tokens // LEAST_SHARE)
        affordable = (first - self.clock()) / self._pace
        return int(min(self.max_batch_tokens, max(least + len(self.running), affordable)))

    def _grow(self, request: Request) -> None:
        """Add the next token, if need be in the place of those admitted last, the request itself among them."""
        if request.leaf is None:  # sent back by one before it
            request.tokens += (request.next_token,)
        while request.leaf is not None:
            if request.own is None:
                request.own = self.cache.fork(request.leaf)
            try:
                return self.cache.extend(request.own, request.next_token)
            except OutOfBlocks:
                last = max(self.running, key=_rank)
                if last.own is not None:  # a reader has its label's path apart
                    last.tokens = last.whole
                if last is request:
                    last.tokens += (request.next_token,)
                self._leave(last)
                self._wait(last)
                self.preempted += 1

    def _leave(self, request: Request, keep: bool = False) -> None:
        """Stop running a request; `keep` what it has added, for whoever goes on from there."""
        self.running.remove(request)
        assert request.leaf is not None
        if request.own is not None:
            (self.cache.adopt if keep else self.cache.drop)(request.own)
        self.cache.release(request.leaf, request.keep)
        request.leaf = request.own = None

    def _next(self) -> tuple[Request, Request]:
        """Take from the queue whom to admit next; and who was the first in it."""
        first = heapq.heappop(self._waiting)[-1]
        if first.overtaken >= PATIENCE or self.cache.has_room(first.whole):
            return first, first
        some = [first]
        while self._waiting and len(some) < LOOK_AHEAD and self._waiting[0][0] == first.priority:
            some.append(heapq.heappop(self._waiting)[-1])
        best = max(some, key=lambda request: self.cache.match(request.whole))  # the first of those
        for request in some:
            if request is not best:
                self._wait(request)
        return best, first

    def _begin(self, step: Step) -> bool:
        """Run a waiting request, if the pool has room for it; whether it has."""
        request, first = self._next()
        if not self._admit(request):
            self._wait(request)
            return False
        first.overtaken += request is not first
        self.running.append(request)
        served = self._served[request.priority] + request.length / SHARE
        self._served[request.priority] = max(served, request.turn * self.max_batch_tokens)
        self._advance(request, step)
        return True

    def _admit(self, request: Request) -> bool:
        missed, again = self.cache.missed_tokens, request.missed >= 0
        try:
            request.leaf = self.cache.insert(request.whole, again, request.stem)
        except OutOfBlocks:
            if self.running:
                return False
            self.cache.evict_all()  # a prefix cut in many places holds more blocks than it needs
            request.leaf = self.cache.insert(request.whole, again, request.stem)
        if not again:
            request.missed = self.cache.missed_tokens - missed
        return True

    def _left_to(self, begun: deque[Request]) -> tuple[int, float]:
        """How many tokens of a step are left to requests that do not go on yet, and by those of which priority.

        None where nothing else is there, nor near a deadline, where a step has room for others beside all that go on.
        """
        first = [*itertools.islice(begun, 1), *(entry[-1] for entry in self._waiting[:1])]
        if not first or not 1 < self._budget == self.max_batch_tokens:
            return 0, math.inf
        return -(-self._budget // SHARE), min(request.priority for request in first)

    def _go_on(self, going: deque[Request], step: Step, left: int = 0, priority: float = math.inf) -> None:
        """Advance requests, in order; those from a `priority` on leave so many tokens of the step to others."""
        while going and step.size < self._budget - (left if going[0].priority >= priority else 0):
            request = going.popleft()
            request.advanced = next(self._advances)
            self._advance(request, step)

    def _advance(self, request: Request, step: Step) -> None:
        """Schedule what the request's path still misses, parents first, and its answer once nothing is missing."""
        for node in request.end.path():
            if count := max(0, min(node.missing, self._budget - step.size)):
                step.compute(node, count)
            if node.missing:
                return
        step.finish(request, self.max_batch_tokens - step.size)


def _is_begun(request: Request) -> bool:
    """Whether it is neither going on nor computed and in want of no more than its answer."""
    return request.own is None and request.end.missing > 0


def _turn(request: Request) -> tuple[int, int, int, int]:
    """By priority, and then whoever has waited longest."""
    return request.priority, request.advanced, request.turn, request.arrival


def _rank(request: Request) -> tuple[int, int, int]:
    return request.priority, request.turn, request.arrival
