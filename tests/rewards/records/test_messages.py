from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import torch

from adjudge.rewards.records.messages import same, text_of


def test_conversations_are_their_text() -> None:
    assert text_of([{"role": "user", "content": "Tell."}], "x") == "Tell."
    assert text_of([{"role": "system", "content": "Be."}, {"role": "user", "content": "Tell."}], "x") == (
        "system: Be.\n\nuser: Tell."
    )
    assert text_of([{"role": "assistant", "content": None}], "x") == ""
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert text_of([{"role": "user", "content": parts}], "x") == "ab"
    assert text_of([], "x") == ""


def test_values_of_columns_are_equal_where_they_say_the_same() -> None:
    nan = float("nan")
    alike: list[tuple[Any, Any]] = [
        (nan, float("nan")), (np.array([1.0, nan]), np.array([1.0, nan])), (1, 1.0), (np.float32(2), 2.0), ("a", "a"),
        ({"a": [1, nan]}, {"a": [1, float("nan")]}), (None, None), (np.array(["a", None]), np.array(["a", None])),
        (np.array([]), np.array([])),
    ]  # fmt: skip
    assert all(same(a, b) for a, b in alike)

    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ValueError("not to be compared")

    different: list[tuple[Any, Any]] = [
        (np.array([1, 2]), np.array([1, 2, 3])), (np.array([1]), np.array([1, 1])), (torch.ones(2), torch.ones(3)),
        ([1], (1,)), ([1], [1, 2]), ({"a": 1}, {"b": 1}), ("1", 1), (None, 0.0), (nan, 0.0), (Odd(), Odd()),
        (np.array(["a"]), np.array([1])), (torch.ones(1), None), ({}, []), ("ab", ["a", "b"]),
    ]  # fmt: skip
    assert not any(same(a, b) or same(b, a) for a, b in different)


def test_values_nested_too_deep_to_be_compared_are_different() -> None:
    def nested(wrap: Callable[[Any], Any]) -> Any:
        return reduce(lambda inner, _: wrap(inner), range(3000), None)

    for wrap in (lambda inner: [inner], lambda inner: {"a": inner}):
        deep: Any = nested(wrap)
        assert same(deep, deep) and not same(deep, nested(wrap))
