from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjudge.engine import trie
from adjudge.engine.batching.reading import Reader
from adjudge.engine.batching.scheduler import PATIENCE, Scheduler
from adjudge.engine.batching.step import Request, Step
from adjudge.engine.kv_cache import radix
from adjudge.engine.kv_cache.blocks import BlockPool, OutOfBlocks
from adjudge.engine.kv_cache.radix import Node, RadixCache

Tokens = tuple[int, ...]
batches = st.lists(
    st.lists(st.integers(0, 1), min_size=1, max_size=24).map(tuple), unique=True, min_size=1, max_size=10
)


class Memory:
    """Stands in for the KV pool: what a slot holds is the prefix it was computed for."""

    def __init__(self) -> None:
        self.slots: dict[int, Tokens] = {}

    def run(self, step: Step) -> list[tuple[Request, Tokens]]:
        """Do what the runner does, and check that each row finds its whole prefix in the slots attention would read."""
        for source, slot in step.copies:
            self.slots[slot] = self.slots[source]
        prefix_of_row: dict[int, Tokens] = {}
        size = step.cache.pool.block_size
        writes: dict[int, list[int]] = {}
        for row, slot in zip(step.write_rows, step.write_slots, strict=True):
            writes.setdefault(row, []).append(slot)
        for sequence in step.sequences:
            for offset in range(sequence.length):
                row, position = sequence.row + offset, sequence.start + offset
                slots = [sequence.blocks[p // size] * size + p % size for p in range(position)]
                before = self.slots[slots[-1]] if slots else ()
                assert [len(self.slots[slot]) for slot in slots] == list(range(1, position + 1))
                assert all(self.slots[slot] == before[: i + 1] for i, slot in enumerate(slots))
                prefix_of_row[row] = (*before, step.token_ids[row])
                for slot in writes.get(row, []):
                    self.slots[slot] = prefix_of_row[row]
        return [(request, prefix_of_row[row]) for request, row in step.finished]


def check_memory(cache: RadixCache, running: Sequence[Request] = ()) -> None:
    """Every block is held by exactly the nodes that list it, the rest are free, and every leaf that can go is known."""
    assert {node for node in cache.nodes() if node.idle} == {entry[-1] for entry in cache._idle if radix._counts(entry)}
    own = [request.own for request in running if request.own is not None]
    held = Counter(block for node in (*cache.nodes(), *own) for block in node.blocks)
    assert all(cache.pool._holders[block] == count for block, count in held.items())
    assert cache.pool.free == cache.pool.usable - len(held)
    assert 0 not in held


@given(
    batches, st.integers(1, 9), st.sampled_from([1, 2, 4, 16]), st.integers(0, 20), st.randoms(use_true_random=False)
)
def test_every_request_ends_with_its_own_prefix_computed_whatever_budget_pool_and_order(
    batch: list[Tokens], budget: int, block_size: int, spare: int, random: object
) -> None:
    needed = max(-(-len(tokens) // block_size) for tokens in batch)
    cache = RadixCache(BlockPool(1 + needed + spare, block_size))
    scheduler = Scheduler(cache, budget)
    memory = Memory()
    for _ in range(2):  # the second round meets a warm cache
        requests = [Request(tokens, keep=random.randint(0, len(tokens))) for tokens in batch]  # type: ignore[attr-defined]
        own = random.randint(0, len(requests))  # type: ignore[attr-defined]  # calls of one, and a long one
        for request in requests[:own]:
            scheduler.add(request)
        scheduler.add(*requests[own:])
        answered = []
        while scheduler.has_work():
            step = scheduler.schedule()
            assert 0 < step.size <= budget
            answered += memory.run(step)
            scheduler.complete(step)
            check_memory(cache)
        assert sorted(request.tokens for request, _ in answered) == sorted(batch)
        assert all(request.tokens == prefix for request, prefix in answered)
    assert all(node.users == 0 for node in cache.nodes())
    cache.clear()
    assert cache.pool.free == cache.pool.usable


arrivals = st.lists(
    st.tuples(
        st.integers(0, 30),  # the step before which it comes
        st.lists(st.integers(0, 1), min_size=1, max_size=20).map(tuple),
        st.integers(1, 15),  # tokens to add
        st.integers(-1, 1),  # priority
        st.one_of(st.none(), st.integers(0, 12)),  # steps after which it is given up
    ),
    min_size=1,
    max_size=8,
)


def next_token(tokens: Tokens) -> int:
    return (sum(tokens) * 7 + len(tokens) // 3) % 2


@given(arrivals, st.integers(1, 9), st.sampled_from([1, 2, 4, 16]), st.integers(0, 8), st.booleans())
def test_requests_that_go_on_all_end_as_they_would_alone_whenever_they_come_and_however_small_the_pool(
    arrivals: list[tuple[int, Tokens, int, int, int | None]], budget: int, block_size: int, spare: int, expire: bool
) -> None:
    needed = max(-(-(len(tokens) + more) // block_size) + 1 for _, tokens, more, *_ in arrivals)
    cache = RadixCache(BlockPool(1 + needed + spare, block_size))
    steps = 0
    scheduler = Scheduler(cache, budget, clock=lambda: float(steps))
    memory = Memory()
    coming = sorted(arrivals, key=lambda arrival: arrival[0])
    goals: dict[int, tuple[Request, int]] = {}
    patience: dict[int, float] = {}
    ended: list[Request] = []
    given_up: list[Request] = []
    while coming or scheduler.has_work():
        call: list[Request] = []  # what comes at once
        while coming and (coming[0][0] <= steps or not (call or scheduler.has_work())):
            _, tokens, more, priority, patient = coming.pop(0)
            last = math.inf if patient is None else steps + 1.0 + patient
            deadline = last if expire else math.inf
            request = Request(tokens, keep=len(tokens), done=False, priority=priority, deadline=deadline)
            goals[id(request)] = request, len(tokens) + more
            patience[id(request)] = last
            call.append(request)
        scheduler.add(*call)
        if not expire:
            late = [r for r, _ in goals.values() if patience[id(r)] <= steps and r not in [*ended, *given_up]]
            scheduler.cancel(late)
            given_up += late
        step = scheduler.schedule()
        given_up += step.expired
        assert all(not node.missing for node in cache.nodes() if not node.users)  # nothing is kept that is not there
        if not scheduler.has_work():  # whoever was left has been given up
            steps += 1
            continue
        assert 0 < step.size <= budget
        for request, prefix in memory.run(step):
            assert request.whole == prefix
            request.next_token = next_token(prefix)
            if len(prefix) + 1 >= goals[id(request)][1]:
                request.done = True
                request.tokens = (*prefix, request.next_token)
                ended.append(request)
        scheduler.complete(step)
        check_memory(cache, scheduler.running)
        steps += 1
        assert steps < 100_000 // budget  # nobody waits for ever
    assert len(ended) + len(given_up) == len(arrivals) == len({*map(id, ended), *map(id, given_up)})
    ordered = sorted(arrivals, key=lambda arrival: arrival[0])
    for (request, _), (_, tokens, more, *_) in zip(goals.values(), ordered, strict=True):
        alone = tokens
        while len(alone) < len(tokens) + more:
            alone += (next_token(alone),)
        assert request.tokens == alone[: len(request.tokens)] and (request in given_up or request.tokens == alone)
    admitted = [(r, more) for (r, _), (_, _, more, *_) in zip(goals.values(), ordered, strict=True) if r.missed >= 0]
    assert cache.missed_tokens == sum(request.missed for request, _ in admitted)  # however often one was sent back
    if not given_up:
        assert cache.hit_tokens + cache.missed_tokens == sum(len(r.tokens) - more for r, more in admitted)
    assert all(node.users == 0 for node in cache.nodes())
    cache.clear()
    assert cache.pool.free == cache.pool.usable


@given(batches, st.integers(1, 9), st.sampled_from([1, 2, 4, 16]))
def test_a_batch_in_trie_order_computes_each_prefix_exactly_once(
    batch: list[Tokens], budget: int, block_size: int
) -> None:
    cache = RadixCache(BlockPool(1000, block_size))
    scheduler = Scheduler(cache, budget)
    memory = Memory()
    for index, shared in trie.order(batch):
        scheduler.add(Request(batch[index], keep=shared))
    computed = 0
    while scheduler.has_work():
        step = scheduler.schedule()
        computed += step.size
        memory.run(step)
        scheduler.complete(step)
    assert computed == trie.size(batch)


def test_a_leaf_nobody_shares_is_dropped_and_the_shared_part_kept() -> None:
    cache = RadixCache(BlockPool(10, 4))
    leaf = cache.insert(tuple(range(10)))
    leaf.computed = 10
    cache.release(leaf, keep=6)
    assert [(node.start, node.end, node.computed) for node in cache.nodes()] == [(0, 6, 6)]
    assert cache.pool.free == 9 - 2


def test_what_one_request_keeps_another_that_keeps_less_does_not_drop() -> None:
    cache = RadixCache(BlockPool(10, 4))
    tokens = tuple(range(10))
    for keep in (8, 0, 3):
        leaf = cache.insert(tokens)
        for node in leaf.path():
            node.computed = len(node.tokens)
        cache.release(leaf, keep)
        assert [(node.start, node.end) for node in cache.nodes()] == [(0, 8)]
    check_memory(cache)


def test_eviction_takes_the_least_recently_used_leaf_and_never_one_in_use() -> None:
    cache = RadixCache(BlockPool(1 + 3, 4))
    oldest, newer = (cache.insert(tokens) for tokens in ((1, 2, 3), (4, 5, 6)))
    for node in (oldest, newer):
        node.computed = 3
    cache.release(oldest, 3)
    cache.release(newer, 3)
    used = cache.insert((1, 2, 3))
    assert used is oldest
    cache.insert((7,) * 8)  # needs two blocks: one free, one evicted
    assert set(_leaves(cache)) == {(1, 2, 3), (7,) * 8}
    assert cache.evicted_tokens == 3
    with pytest.raises(OutOfBlocks):
        cache.insert((8,))
    assert set(_leaves(cache)) == {(1, 2, 3), (7,) * 8}


def test_leaves_that_are_used_again_and_again_are_not_noted_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(radix, "MANY", 8)
    cache = RadixCache(BlockPool(41, 2))

    def use(first: int) -> None:
        node = cache.insert((first, 1, 2, 3))
        node.computed = len(node.tokens)
        cache.release(node, 4)

    for number in range(500):
        use(number % 20)
        assert len(cache._idle) <= 8 + 2 * 20
    check_memory(cache)
    for number in range(20, 25):  # the least recently used make room
        use(number)
        assert cache.match((number - 20, 1, 2, 3)) == 0
    assert cache.match((5, 1, 2, 3)) == 4


def test_a_full_pool_that_an_old_prefix_fragments_still_admits_a_request_that_fits() -> None:
    cache = RadixCache(BlockPool(1 + 2, 4))
    scheduler = Scheduler(cache, 100)
    memory = Memory()
    for tokens in ((1,), (1, 2, 3, 4, 5, 6, 7, 8)):
        scheduler.add(Request(tokens, keep=len(tokens)))
    while scheduler.has_work():
        step = scheduler.schedule()
        memory.run(step)
        scheduler.complete(step)
    assert cache.evicted_tokens == 1


@given(batches, st.integers(1, 9), st.integers(1, 12))
def test_every_token_admitted_is_a_hit_or_a_miss(batch: list[Tokens], budget: int, blocks: int) -> None:
    cache = RadixCache(BlockPool(1 + blocks, 2))
    batch = [tokens for tokens in batch if len(tokens) <= 2 * blocks]
    requests = [Request(tokens, keep=len(tokens)) for tokens in batch * 2]
    computed = run_all(cache, requests, budget)
    assert cache.hit_tokens + cache.missed_tokens == sum(len(request.tokens) for request in requests)
    assert cache.missed_tokens == sum(request.missed for request in requests)
    kept = sum(len(node.tokens) for node in cache.nodes())
    assert kept <= cache.missed_tokens <= computed
    assert cache.missed_tokens >= trie.size(batch)


def run_all(cache: RadixCache, requests: Sequence[Request], budget: int) -> int:
    """Tokens computed until every request is answered."""
    scheduler, memory, computed = Scheduler(cache, budget), Memory(), 0
    scheduler.add(*requests)
    while scheduler.has_work():
        step = scheduler.schedule()
        computed += step.size
        memory.run(step)
        scheduler.complete(step)
    return computed


def interleaved(prefixes: int, each: int) -> list[Request]:
    """Requests of several prefixes of 32 tokens, none next to one of its own."""
    return [Request((prefix,) * 32 + (10 + n, 9), keep=32) for n in range(each) for prefix in range(prefixes)]


def test_a_parent_goes_in_its_turn_once_its_children_have_gone() -> None:
    cache = RadixCache(BlockPool(1 + 6, 4))
    for tokens in ((0, 1, 2, 3, 4), (0, 1, 2, 3, 5), (50, 51, 52), (60, 61, 62)):
        node = cache.insert(tokens)
        for part in node.path():
            part.computed = len(part.tokens)
        cache.release(node, len(tokens))
    cache.insert(tuple(range(100, 116)))  # four blocks: one is free, and the three of the oldest prefix go
    assert set(_leaves(cache)) == {(50, 51, 52), (60, 61, 62), tuple(range(100, 116))}
    assert cache.evicted_tokens == 6
    check_memory(cache)


def test_under_pressure_a_prefix_is_used_before_it_is_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool holds one prefix and little more: in the order of arrival each would be computed each time."""
    blocks = 1 + 11
    assert run_all(RadixCache(BlockPool(blocks, 4)), interleaved(3, 6), 40) == 3 * 32 + 18 * 2
    monkeypatch.setattr("adjudge.engine.batching.scheduler.LOOK_AHEAD", 1)
    assert run_all(RadixCache(BlockPool(blocks, 4)), interleaved(3, 6), 40) == 18 * 34


def test_one_that_waits_is_overtaken_so_often_and_no_more() -> None:
    cache = RadixCache(BlockPool(1 + 11, 4))
    scheduler, memory = Scheduler(cache, 40), Memory()
    warm = [Request((1,) * 32 + (10 + n, 9), keep=32) for n in range(3 * PATIENCE)]
    cold = Request((2,) * 34, keep=34)
    scheduler.add(warm[0])
    scheduler.add(cold, *warm[1:])
    answered: list[Request] = []
    while scheduler.has_work():
        step = scheduler.schedule()
        answered += [request for request, _ in memory.run(step)]
        scheduler.complete(step)
    assert len(answered) == len(warm) + 1
    assert PATIENCE // 2 < answered.index(cold) <= PATIENCE + 4


def _leaves(cache: RadixCache) -> list[Tokens]:
    return [_tokens(node) for node in cache.nodes() if not node.children]


def _tokens(node: Node) -> Tokens:
    return tuple(token for step in node.path() for token in step.tokens)


def test_a_reading_that_is_sent_back_keeps_its_prompt_and_its_path() -> None:
    cache = RadixCache(BlockPool(7, 4))
    scheduler, memory = Scheduler(cache, 2), Memory()
    text = Request((5,) * 4, keep=4, done=False)
    reading = Reader((1,) * 12, keep=0, priority=1, path=(2,) * 4)
    scheduler.add(text, reading)
    answered: list[tuple[Request, Tokens]] = []
    while scheduler.has_work():
        step = scheduler.schedule()
        answered += memory.run(step)
        text.next_token, text.done = 7, len(text.whole) == 10
        scheduler.complete(step)
    assert scheduler.preempted == 1
    assert answered[-1] == (reading, (1,) * 12 + (2,) * 4)
