from __future__ import annotations

from hypothesis import given

from adjudge.engine import trie
from tests.engine.tries import prefixes, sequences


@given(sequences)
def test_size_counts_every_prefix_once(batch: list[tuple[int, ...]]) -> None:
    assert trie.size(batch) == len(prefixes(batch))


@given(sequences)
def test_order_is_depth_first_so_that_each_prefix_is_met_in_one_run(batch: list[tuple[int, ...]]) -> None:
    visited = [batch[place.item] for place in trie.order(batch)]
    assert sorted(visited) == sorted(batch)
    for prefix in prefixes(batch):
        met = [tokens[: len(prefix)] == prefix for tokens in visited]
        first, last = met.index(True), len(met) - met[::-1].index(True)
        assert all(met[first:last])


@given(sequences)
def test_order_tells_how_much_of_each_sequence_others_share(batch: list[tuple[int, ...]]) -> None:
    for index, shared in trie.order(batch):
        others = prefixes(batch[:index] + batch[index + 1 :])
        mine = prefixes([batch[index]])
        assert shared == len(mine & others)


def test_order_keeps_the_order_of_first_appearance() -> None:
    batch = [(5, 1), (2, 9), (5, 0), (2, 1)]
    assert [place.item for place in trie.order(batch)] == [0, 2, 1, 3]
