from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.tree_nodes import (
    CONTENT,
    FORMAT,
    LEAST_SUM,
    TREE,
    applying,
    checked_weights,
    checked_without,
    counts,
    equal_edges,
    imputed,
    labels_of,
    node_score,
    parse_weights,
    rescaled,
    root_score,
)

NONE: frozenset[str] = frozenset()
FIVE = dict(zip(TREE["content"], (0.1, 0.3, 0.1, 0.4, 0.1), strict=True))


def test_a_completion_has_no_format_and_genres_leave_out_what_makes_no_sense_for_them() -> None:
    assert applying("open", None) == applying(None, "speech") == applying("guide", "议论文") == TREE
    assert list(applying("completion", None)) == ["content", "impression"]
    assert "content/instances" not in applying("open", "Fiction ")["content"]
    poem = applying(None, "诗歌")
    assert "content/instances" not in poem["content"] and "format/formatting" not in poem["format"]
    assert applying("open", "fiction", form="parity") == TREE
    assert list(applying("completion", "poem", form="parity")) == ["content", "impression"]


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(AdjudgeError, match='task of a text is "essay": choose completion, guide, open'):
        applying("essay", None)


def test_nodes_and_leaves_are_left_out_by_name_or_path() -> None:
    assert checked_without(["format", "emotion"]) == {*TREE["format"], "content/emotion"}
    assert checked_without(["content/emotion"]) == checked_without(["emotion"])
    assert list(applying(None, None, checked_without(["content", "format"]))) == ["impression"]
    with pytest.raises(AdjudgeError, match='no "plot" to leave out: choose from content, .*emotion'):
        checked_without(["plot"])
    with pytest.raises(AdjudgeError, match="nothing of the tree is left"):
        checked_without(TREE)
    with pytest.raises(AdjudgeError, match="give a list"):
        checked_without("emotion")


def test_parity_counts_are_the_authors_constants() -> None:
    nodes = {"content": 6.2, "format": 4.5, "impression": 7.0}
    assert root_score(nodes, counts(TREE, "parity")) == pytest.approx((5 * 6.2 + 3 * 4.5 + 7.0) / 9, abs=1e-12)
    assert root_score(nodes, counts(TREE, "parity")) == pytest.approx(5.722222222, abs=1e-6)
    completion = applying("completion", None, NONE, "parity")
    del nodes["format"]
    assert root_score(nodes, counts(completion, "parity")) == pytest.approx(6.333333333, abs=1e-6)  # (31 + 7) / 6


def test_fixed_counts_are_the_leaves_that_apply() -> None:
    poem = applying("open", "poem", checked_without(["emotion"]))
    assert counts(poem, "fixed") == pytest.approx({"content": 3 / 6, "format": 2 / 6, "impression": 1 / 6})
    assert counts(poem, "parity") == pytest.approx({"content": 5 / 9, "format": 3 / 9, "impression": 1 / 9})


def test_a_node_is_the_sum_of_its_leaves_by_their_weights() -> None:
    scores = dict(zip(TREE["content"], (6.0, 7.0, 5.0, 8.0, 4.0), strict=True))
    assert node_score(TREE["content"], scores, FIVE) == pytest.approx(6.8, abs=1e-12)  # .6 + 2.1 + .5 + 3.2 + .4
    assert node_score(TREE["content"], scores, equal_edges(TREE["content"])) == pytest.approx(6.0, abs=1e-12)


def test_the_fifth_weight_is_what_the_four_leave() -> None:
    four = {path: weight for path, weight in FIVE.items() if path != "content/instances"}
    assert imputed(four) == pytest.approx(FIVE, abs=1e-12)
    assert imputed(dict.fromkeys(four, 0.25))["content/instances"] == 0
    assert imputed(dict.fromkeys(four, 1.0))["content/instances"] == -3
    assert list(imputed(four)) == list(TREE["content"])


def test_weights_are_rescaled_to_one_or_refused_near_nothing() -> None:
    assert rescaled({"a": 1, "b": 3, "c": 9}, ("a", "b")) == {"a": 0.25, "b": 0.75}
    assert rescaled({"a": 1.0, "b": -0.5}, ("a", "b")) == {"a": 2.0, "b": -1.0}
    for weights in ({"a": 1.0, "b": -1.0}, {"a": 1.0, "b": -0.9}, {"a": -1.0, "b": 0.2}, {"a": 0.0, "b": 0.0}):
        assert rescaled(weights, ("a", "b")) is None


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=5))
def test_rescaled_weights_sum_to_one_and_stay_within_reason(weights: list[float]) -> None:
    named = {str(place): weight for place, weight in enumerate(weights)}
    if (edges := rescaled(named, list(named))) is not None:
        assert math.fsum(edges.values()) == pytest.approx(1)
        assert math.fsum(map(abs, edges.values())) <= 1 / LEAST_SUM + 1e-9


@given(st.data())
def test_raising_a_leaf_never_lowers_a_fixed_score_unless_it_weighs_less_than_nothing(data: st.DataObject) -> None:
    task = data.draw(st.sampled_from([None, "completion", "guide", "open"]))
    tree = applying(task, data.draw(st.sampled_from([None, "poem", "fiction", "speech"])))
    edges: dict[str, float] = {}
    for paths in tree.values():
        given_weights = {path: data.draw(st.floats(-1, 1)) for path in paths}
        edges |= rescaled(given_weights, paths) or equal_edges(paths)
    leaves = [path for paths in tree.values() for path in paths]
    scores = {path: data.draw(st.floats(0, 10)) for path in leaves}
    raised = data.draw(st.sampled_from(leaves))
    higher = scores | {raised: data.draw(st.floats(scores[raised], 10))}

    def root(leaf_scores: dict[str, float]) -> float:
        nodes = {node: node_score(paths, leaf_scores, edges) for node, paths in tree.items()}
        return root_score(nodes, counts(tree, "fixed"))

    gain = root(higher) - root(scores)
    assert gain >= -1e-9 if edges[raised] >= 0 else gain <= 1e-9


def test_a_users_weights_are_read_by_name_or_path() -> None:
    weights = dict(zip(CONTENT, (1, 2, 3, 4, 5), strict=True))
    assert checked_weights(weights, NONE) == dict(zip(TREE["content"], (1, 2, 3, 4, 5), strict=True))
    assert checked_weights({f"format/{name}": 1.5 for name in FORMAT}, NONE) == dict.fromkeys(TREE["format"], 1.5)
    some = {name: 1.0 for name in CONTENT if name != "emotion"}
    assert "content/emotion" not in checked_weights(some, checked_without(["emotion"]))


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        ({"plot": 1}, 'weights name "plot", which is no leaf: choose from opening'),
        ({"impression": 1}, 'weights name "impression", which'),
        ({"emotion": 1}, 'weights of content lack "opening & ending"'),
        ({"emotion": math.nan}, 'weight of "emotion" is nan'),
        ({"emotion": "much"}, "weight of \"emotion\" is 'much'"),
        ([1.0], r"weights is \[1.0\]: choose equal or generated"),
        ({"emotion": True}, 'weight of "emotion" is True'),
        ({"emotion": 1, "content/emotion": 1}, 'weights give "content/emotion" twice'),
        (dict.fromkeys(CONTENT, 0), "content sum to nothing"),
        (dict(zip(FORMAT, (1, -0.5, -0.49), strict=True)), "format sum to nothing"),
        (dict(zip(FORMAT, (0.1, 1, -0.1), strict=True)), "format sum to nothing"),  # for a poem, without formatting
        (dict.fromkeys(FORMAT, -1), "format sum to nothing"),
    ],
)
def test_weights_that_make_no_sense_are_refused_at_once(weights: Any, reason: str) -> None:
    with pytest.raises(AdjudgeError, match=reason):
        checked_weights(weights, NONE)


def test_weights_on_the_command_line() -> None:
    assert parse_weights("equal") == "equal" and parse_weights("generated") == "generated"
    text = "plots & structure=2, formatting=1,paragraphing = 1"
    assert parse_weights(text) == dict(zip(TREE["format"], (2, 1, 1), strict=True))
    for bad, reason in (("", "empty"), ("even", "even"), ("emotion=x", "emotion=x"), ("emotion=1,emotion=2", "twice")):
        with pytest.raises(AdjudgeError, match=reason):
            parse_weights(bad)


def test_paragraphs_are_scored_one_to_three_as_nothing_five_and_ten() -> None:
    assert labels_of("format/paragraphing").numbers == (0.0, 5.0, 10.0)
    assert labels_of("impression").numbers == tuple(map(float, range(1, 11)))
