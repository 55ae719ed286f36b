"""The routing policy without replicas: where prompts go, what is remembered, and what that is worth on real prompts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from adjudge.engine import trie
from adjudge.engine.cluster import routing
from adjudge.engine.cluster.routing import BLOCK, Lane, Route, Router, cut
from adjudge.engine.engine import Engine
from adjudge.engine.kv_cache.blocks import BlockPool
from adjudge.engine.kv_cache.radix import RadixCache
from adjudge.engine.tokens import Tokens
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.records.row_files import read_rows
from adjudge.rewards.records.wire import pair_of
from tests.engine.tries import prefixes, sequences

PAIRS = Path(__file__).parents[3] / "examples/pairs.jsonl"

Arrival = tuple[int, Tokens]
"""Who asks, and what."""


def blocks(*numbers: int) -> Tokens:
    """A prompt of whole blocks, each of one token said often."""
    return tuple(number for number in numbers for _ in range(BLOCK))


def router(lanes: int = 2, capacity: int = 100 * BLOCK) -> Router:
    made = Router()
    made.lanes = [Lane(replica, capacity) for replica in range(lanes)]
    return made


prompts = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(lambda numbers: blocks(*numbers) + (7,) * numbers[0])
calls = st.lists(st.lists(prompts, max_size=8), max_size=6)


@given(calls, st.integers(1, 3), st.integers(0, 50))
def test_load_is_what_was_sent_and_not_answered(batches: list[list[Tokens]], lanes: int, extra: int) -> None:
    some = router(lanes)
    routes: list[Route] = []
    for batch in batches:
        new = some.route(batch, extra)
        assert len(new) == len(batch)
        assert all(extra <= route.cost <= len(prompt) + extra for route, prompt in zip(new, batch, strict=True))
        routes += new
        for lane in some.lanes:
            assert lane.load == sum(route.cost for route in routes if route.lane is lane)
    for route in routes:
        route.leave()
        route.leave()
    assert [lane.load for lane in some.lanes] == [0] * lanes


@given(st.lists(prompts, max_size=20), st.integers(0, 8))
def test_a_lane_remembers_what_came_last_and_never_an_end_without_its_beginning(
    batch: list[Tokens], capacity: int
) -> None:
    some = router(1, capacity * BLOCK)
    [lane] = some.lanes
    for prompt in batch:
        some.route([prompt])
        assert lane.held <= capacity * BLOCK
    for prompt in batch:
        remembered = [not lane.missing({block}) for block in routing._blocks(prompt)]
        assert remembered == sorted(remembered, reverse=True)
    if batch:
        last = batch[-1]
        some.route([last])
        [again] = some.route([last])
        assert again.cost == max(0, len(last) // BLOCK - capacity) * BLOCK + len(last) % BLOCK


def test_prompts_that_begin_alike_follow_each_other_while_others_take_the_free_replica() -> None:
    some = router()
    story, other = blocks(*range(10)), blocks(*range(50, 60))
    first = [some.route([story + blocks(100 + question)])[0].lane for question in range(5)]
    assert len(set(map(id, first))) == 1
    [route] = some.route([other])
    assert route.lane is not first[0]
    assert all(some.route([other + blocks(100 + question)])[0].lane is route.lane for question in range(5))


def test_a_prompt_leaves_its_prefix_when_too_much_waits_there() -> None:
    some = router()
    story = blocks(*range(4))
    [warm] = some.route([story])
    [route] = some.route([story + blocks(99)])
    assert route.lane is warm.lane
    warm.lane.load += 100 * BLOCK
    [route] = some.route([story + blocks(98)])
    assert route.lane is not warm.lane


def test_a_full_replica_gives_way_to_one_that_has_room() -> None:
    some = router(capacity=10 * BLOCK)
    template = blocks(0)
    lanes = []
    for story in range(1, 3):
        [route] = some.route([template + blocks(*range(100 * story, 100 * story + 8))])
        route.leave()
        lanes.append(route.lane)
    assert lanes[0] is not lanes[1]


def test_an_emptied_replica_is_cold() -> None:
    some = router(1)
    story = blocks(*range(5))
    assert some.route([story])[0].cost == len(story)
    assert some.route([story])[0].cost == 0
    some.lanes[0].forget()
    assert some.route([story])[0].cost == len(story)


@given(st.integers(2, 4), st.integers(1, 6), st.integers(1, 6))
def test_a_call_is_spread_evenly_and_siblings_stay_together(lanes: int, stories: int, questions: int) -> None:
    some = router(lanes)
    stem = range(10)
    batch = [
        blocks(*(1000 * story + block for block in stem), 1000 * story + 500 + question)
        for story in range(stories * lanes)
        for question in range(questions)
    ]
    routes = some.route(batch)
    for story in range(stories * lanes):
        homes = {id(route.lane) for route in routes[story * questions : (story + 1) * questions]}
        assert len(homes) == 1
    assert len({lane.load for lane in some.lanes}) == 1


def test_equal_prompts_of_a_call_go_the_same_way_and_are_computed_once() -> None:
    some = router()
    story = blocks(*range(5))
    routes = some.route([story, blocks(9), story], extra=7)
    assert routes[0].lane is routes[2].lane
    assert (routes[0].cost, routes[2].cost) == (len(story) + 7, 7)


@given(sequences, st.integers(1, 6), st.integers(0, 3))
def test_cut_gives_whole_subtrees_as_small_as_asked_for_unless_that_is_no_gain(
    batch: list[Tokens], shares: int, extra: int
) -> None:
    parts = cut(batch, shares, extra)
    assert sorted(item for part in parts for item in part) == list(range(len(batch)))
    limit = (trie.size(batch) + extra * len(batch)) // shares
    for part in parts:
        members = [batch[item] for item in part]
        others = prefixes([tokens for item, tokens in enumerate(batch) if item not in part])
        own = prefixes(members) - others
        stem = set.intersection(*(prefixes([tokens]) for tokens in members)) - others
        tokens = len(own) + extra * len(part)
        assert len(part) == 1 or tokens <= limit or len(stem) >= tokens - len(stem)


def test_cut_keeps_siblings_together() -> None:
    stories = [(story,) * 5 + (question,) for story in range(4) for question in (7, 8)]
    assert cut(stories, 4, 0) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert cut([(1, 1, 1, 1, 2), (1, 1, 1, 1, 3)], 2, 0) == [[0, 1]]
    assert cut([], 2, 0) == []


def recorded(clients: int, pairs: int) -> list[Arrival]:
    """What a judge asks about the example pairs, one question at a time, by several clients at once."""
    engine = Engine("dummy:tiny-llama")
    judge = PairwiseJudge(engine)
    rows = [pair_of(row, number) for number, row in enumerate(read_rows(PAIRS), 1)][:pairs]
    asked = [[engine.tokenizer.prompt(prompt) for prompt in judge.prompts(pair)[0]] for pair in rows]
    waiting = [[prompt for pair in asked[client::clients] for prompt in pair] for client in range(clients)]
    dice = random.Random(0)
    arrivals: list[Arrival] = []
    while busy := [client for client in range(clients) if waiting[client]]:
        client = dice.choice(busy)
        arrivals.append((client, waiting[client].pop(0)))
    return arrivals


def hit_rate(arrivals: list[Arrival], choose: Callable[[int, Tokens], int], replicas: int, capacity: int) -> float:
    """The share of the prompts' tokens that the replicas' caches, of `capacity` tokens each, had already."""
    caches = [RadixCache(BlockPool(1 + capacity // BLOCK, BLOCK)) for _ in range(replicas)]
    for client, prompt in arrivals:
        cache = caches[choose(client, prompt)]
        leaf = cache.insert(prompt)
        for node in leaf.path():
            node.computed = len(node.tokens)
        cache.release(leaf, keep=len(prompt))
    hits = sum(cache.hit_tokens for cache in caches)
    return hits / (hits + sum(cache.missed_tokens for cache in caches))


def test_prefix_routing_beats_round_robin_on_a_recorded_trace() -> None:
    arrivals = recorded(clients=4, pairs=12)
    for replicas, capacity in itertools.product((2, 4), (6_000, 24_000)):
        turns = itertools.cycle(range(replicas))
        in_turn = hit_rate(arrivals, lambda client, prompt, turns=turns: next(turns), replicas, capacity)  # type: ignore[misc]
        some = router(replicas, capacity)
        under_way: dict[int, Route] = {}

        def by_prefix(client: int, prompt: Tokens, some: Router = some, under_way: dict[int, Route] = under_way) -> int:
            if client in under_way:
                under_way[client].leave()
            [under_way[client]] = some.route([prompt])
            return under_way[client].lane.replica

        routed = hit_rate(arrivals, by_prefix, replicas, capacity)
        print(f"{replicas} replicas, {capacity} tokens each: round-robin {in_turn:.3f}, by prefix {routed:.3f}")
        assert 1 - routed < 0.65 * (1 - in_turn)
