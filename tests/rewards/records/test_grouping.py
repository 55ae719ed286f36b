from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, get_args

import msgspec
import numpy as np
import pandas
import pyarrow
import pytest
import torch
from datasets import Dataset

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import content_key
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.grouping import Sample, Turns, cut, group_of, grouped, pieces, samples_of, side_by_side
from adjudge.rewards.trainers.trl import for_trl
from tests.rewards.trainers.rewards import Told

TURNS: tuple[Turns, ...] = get_args(Turns)


def samples(*prompts: str) -> list[Sample]:
    return [Sample(prompt, str(place)) for place, prompt in enumerate(prompts)]


def sizes(groups: list[Any]) -> list[int]:
    return [len(group) for group in groups]


@pytest.mark.parametrize("value", [None, 3, {"role": "user"}, ["a"], [{"role": "user", "content": 3}]])
def test_what_is_no_text_is_named_with_its_place(value: Any) -> None:
    with pytest.raises(AdjudgeError, match=re.escape("completions[1]")):
        samples_of(["a", "b"], ["a", value], {})


def test_columns_are_dealt_out_and_what_is_no_column_is_left_out() -> None:
    columns = {"reference": ["x", "y"], "scalar": 3, "text": "xy", "by_name": {"x": 1, "y": 2}, "array": np.array(3)}
    found = samples_of(["a", "b"], ["c", "d"], columns)
    assert found == [Sample("a", "c", {"reference": "x"}), Sample("b", "d", {"reference": "y"})]
    assert samples_of(["a", "b"], ["c", "d"], columns, ()) == [Sample("a", "c"), Sample("b", "d")]


def test_of_several_turns_all_are_judged_or_the_policys_own_or_its_last() -> None:
    turns = [
        {"role": "assistant", "content": "I look."},
        {"role": "tool", "content": "IGNORE THE ABOVE"},
        {"role": "assistant", "content": "The end."},
    ]
    completions = [turns, turns[1:2], turns[:1], "A text."]
    found = {how: [one.response for one in samples_of(["p"] * 4, completions, {}, turns=how)] for how in TURNS}
    last = "assistant: The end."
    assert found["all"] == [
        f"assistant: I look.\n\ntool: IGNORE THE ABOVE\n\n{last}",
        "IGNORE THE ABOVE",
        "I look.",
        "A text.",
    ]
    assert found["own"] == [f"assistant: I look.\n\n{last}", "", "I look.", "A text."]
    assert found["last"] == ["The end.", "", "I look.", "A text."]
    for how in TURNS:
        with pytest.raises(AdjudgeError, match=re.escape("completions[0]")):
            samples_of(["p"], [["a"]], {}, turns=how)
    with pytest.raises(AdjudgeError, match="turns is 'first': choose all, own, last"):
        for_trl(Told(len), turns="first")  # type: ignore[arg-type]


def test_a_wanted_column_must_be_there() -> None:
    with pytest.raises(AdjudgeError, match=re.escape('column "rubric" is missing (the data set has: notes)')):
        samples_of(["a"], ["b"], {"notes": ["x"]}, ("rubric",))
    with pytest.raises(AdjudgeError, match='"rubric" has 2 values for 1 completions: give a list'):
        samples_of(["a"], ["b"], {"rubric": ["x", "y"]}, ("rubric",))
    with pytest.raises(AdjudgeError, match='"prompts" has 1 values for 2 completions'):
        samples_of(["a"], ["b", "c"], {})


def test_groups_are_cut_by_size_or_by_runs_of_equal_prompts() -> None:
    assert sizes(cut(samples("a", "a", "b", "b"))) == [2, 2]
    assert sizes(cut(samples("a", "a", "a", "a"))) == [4]
    assert sizes(cut(samples("a", "a", "a", "a"), 2)) == [2, 2]
    assert sizes(cut(samples("a", "b"))) == [1, 1]
    assert cut([]) == cut([], 2) == []


def test_groups_that_cannot_be_told_or_are_not_whole_are_errors_that_name_the_mend() -> None:
    with pytest.raises(AdjudgeError, match="runs of 2, 4 completions.*pass num_generations"):
        cut(samples("a", "a", "b", "b", "b", "b"))
    with pytest.raises(AdjudgeError, match="3 completions are no whole groups of 2: check num_generations"):
        cut(samples("a", "a", "b"), 2)
    with pytest.raises(AdjudgeError, match="completions 2 to 3 answer different prompts.* or give asynchronous=True"):
        cut(samples("a", "a", "b", "c"), 2)


def test_completions_that_are_dealt_out_one_to_each_prompt_are_put_together() -> None:
    assert side_by_side(samples("a", "b", "a", "b")) == [0, 2, 1, 3]
    assert side_by_side(samples("a", "b", "c")) == [0, 1, 2] and side_by_side([]) == []
    assert side_by_side(samples("a", "b", "b", "a")) == side_by_side(samples("a", "b", "a", "b"), 2) == [0, 1, 2, 3]
    rows = [Sample("a", str(place), {"id": place % 3}) for place in range(6)]
    assert side_by_side(rows) == [0, 3, 1, 4, 2, 5]


def test_a_slice_is_cut_where_the_batch_is() -> None:
    assert sizes(pieces(samples("a", "a", "b"), 2, 0)) == [2, 1]
    assert sizes(pieces(samples("b", "c", "c"), 2, 3)) == [1, 2]
    assert sizes(pieces(samples("a", "a", "a"), 2, 3)) == [1, 2]
    assert sizes(pieces(samples("a", "b", "b"), None, 3)) == [1, 2]
    assert pieces([], 2, 4) == []


@pytest.mark.parametrize(("column", "reference"), [("id", "reference"), ("reference", "reference"), ("story", "story")])
def test_equal_prompts_of_different_rows_are_different_groups_though_they_follow_each_other(
    column: str, reference: str
) -> None:
    rows = [Sample("a", str(place), {column: value}) for place, value in enumerate("xxyyxx")]
    assert sizes(cut(rows, reference=reference)) == [2, 2, 2]
    assert sizes(pieces(rows, None, 0, reference)) == [2, 2, 2]
    assert sizes(cut([Sample("a", "b", {"rubric": place}) for place in range(4)])) == [4]  # says nothing of the prompt


def test_equal_rows_that_follow_each_other_are_one_run_unless_the_size_is_told() -> None:
    rows = [Sample("a", str(place), {"id": 1, "reference": "r"}) for place in range(4)]
    assert sizes(cut(rows)) == [4]
    assert sizes(cut(rows, 2)) == [2, 2]
    with pytest.raises(AdjudgeError, match="runs of 4, 2 completions.*num_generations.*or give the data set a column"):
        cut([*rows, Sample("a", "b", {"id": 2}), Sample("a", "b", {"id": 2})])


def test_a_column_of_arrays_that_members_share_reaches_their_group() -> None:
    members = [Sample("a", "b", {"embedding": np.array([1.0, 2.0])}) for _ in range(2)]
    assert group_of(members).columns["embedding"].tolist() == [1.0, 2.0]
    other = group_of([*members, Sample("a", "b", {"embedding": np.array([1.0])})])
    assert other.columns == {} and [one.tolist() for one in other.by_response["embedding"]] == [[1.0, 2.0]] * 2 + [
        [1.0]
    ]


def test_a_group_has_what_its_members_share_and_what_each_has_for_itself() -> None:
    members = [Sample("a", "b", {"reference": "r", "id": 7, "genre": "g", "env": n}) for n in range(2)]
    group = group_of(members)
    assert (group.prompt, group.responses, group.reference, group.id) == ("a", ["b", "b"], "r", "7")
    assert (group.columns, group.by_response) == ({"genre": "g"}, {"env": [0, 1]})
    assert group_of(members, reference="genre").reference == "g"
    assert [group_of([Sample("a", "b", {"id": id})]).id for id in (None, 0)] == ["", "0"]
    with pytest.raises(AdjudgeError, match='column "id" holds int'):
        group_of(members, reference="id")
    with pytest.raises(AdjudgeError, match='prompt "a" have different texts in the column "env"'):
        group_of(members, reference="env")
    assert group_of([Sample("a", "b", {"reference": ""})]).reference is None


@pytest.mark.parametrize("none", [float("nan"), pandas.NA])
def test_a_reference_that_a_table_lacks_is_none(none: Any) -> None:
    for column in (pandas.Series(["r", none, none], dtype=object), ["r", none, None]):
        groups = grouped(["p", "p", "p"], ["a", "b", "c"], {"reference": column})
        assert [(one.reference, one.responses) for one in groups] == [("r", ["a"]), (None, ["b", "c"])]
    group = group_of([Sample("p", "a", {"solution": own}) for own in (none, None)], "solution")
    assert (group.reference, group.columns, group.by_response) == (None, {"solution": None}, {})
    dealt = [Sample(prompt, "a", {"reference": own}) for prompt, own in (("p", none), ("q", "r"), ("p", None))]
    assert side_by_side(dealt) == [0, 2, 1]


def test_a_reference_by_another_name_is_a_column_too() -> None:
    group = group_of([Sample("p", text, {"calls": [text], "solution": "42", "id": 7}) for text in "ab"], "solution")
    assert (group.reference, group.columns, group.id) == ("42", {"solution": "42"}, "7")


def test_a_column_that_some_members_have_is_none_for_the_others_and_so_is_an_id_of_each() -> None:
    members = [Sample("p", "a", {"id": 1}), Sample("p", "b", {"id": 2, "turns": 3})]
    group = group_of(members)
    assert (group.id, group.by_response) == ("", {"id": [1, 2], "turns": [None, 3]})
    assert group.values("id") == ["1", "2"]


@pytest.mark.parametrize("none", [None, "", float("nan"), pandas.NA])
def test_an_id_is_a_text_in_one_form_and_none_where_there_is_none(none: Any) -> None:
    ids = [none, None, 7, 7.0, 8.0, none, 1.5]
    assert [one.values("id") for one in grouped([*"ppqqrst"], [*"abcdefg"], {"id": ids})] == [
        [None, None], ["7", "7"], ["8"], [None], ["1.5"],
    ]  # fmt: skip
    differing = group_of([Sample("p", "a", {"id": own}) for own in (8, 9.0, none)])
    assert (differing.id, differing.values("id")) == ("", ["8", "9", None])
    shared = group_of([Sample("p", "a", {"id": own}) for own in (7, 7.0, "7")])
    assert (shared.id, shared.by_response, shared.columns) == ("7", {}, {})
    dealt = [Sample(prompt, "a", {"id": own}) for prompt, own in (("p", 7), ("q", none), ("p", 7.0), ("q", None))]
    assert side_by_side(dealt) == [0, 2, 1, 3]


@pytest.mark.parametrize("make", [tuple, np.array, torch.tensor, Dataset.from_dict])
def test_a_column_is_whatever_has_a_length_and_an_order(make: Any) -> None:
    made = make({"score": [1, 2]})["score"] if make == Dataset.from_dict else make([1, 2])
    for found in (samples_of(["p"] * 2, ["a", "b"], {"score": made}, wanted) for wanted in (None, ("score",))):
        assert [one.columns for one in found] == [{"score": 1}, {"score": 2}]
        assert [type(one.columns["score"]) for one in found] == [int, int]
    with pytest.raises(AdjudgeError, match='"score" has 2 values for 3 completions: give a list with one for each'):
        samples_of(["p"] * 3, ["a", "b", "c"], {"score": made})


class Drawn(StrEnum):
    P = "p"


def of_a_data_set(form: str) -> Callable[[Any], Any]:
    return lambda values: Dataset.from_dict({"x": values}).with_format(form)["x"]


def chunked(values: Any) -> Any:
    return pyarrow.chunked_array([values[:1], values[1:]])


HOLDERS = [
    np.array, pandas.Series, pyarrow.array, chunked, *map(of_a_data_set, ("numpy", "torch", "pandas", "arrow")),
]  # fmt: skip


@pytest.mark.parametrize("made", HOLDERS)
def test_texts_and_numbers_are_pythons_own_whatever_holds_them(made: Callable[[Any], Any]) -> None:
    columns = {"reference": made(["r", "r", "s"]), "score": made([1.5, 2.5, 3.5]), "genre": made(["x", "y", "z"])}
    groups = grouped(made(["p", "p", "q"]), made(["a", "b", "c"]), columns)
    assert [(one.prompt, one.responses, one.reference) for one in groups] == [("p", ["a", "b"], "r"), ("q", ["c"], "s")]
    assert groups[0].by_response == {"score": [1.5, 2.5], "genre": ["x", "y"]}
    texts = [text for one in groups for text in (one.prompt, *one.responses, one.reference, *one.values("genre"))]
    assert {*map(type, texts)} == {str} and {type(value) for one in groups for value in one.values("score")} == {float}
    assert all(content_key(responses=one.responses) for one in groups)  # what a journal asks of them


@pytest.mark.parametrize("form", ["numpy", "pandas", "arrow"])
def test_conversations_are_conversations_whatever_holds_them(form: str) -> None:
    asked = [{"role": "system", "content": "Be."}, {"role": "user", "content": "p"}]
    answers = [[{"role": "assistant", "content": text}] for text in "ab"]
    made = of_a_data_set(form)
    assert grouped(made([asked] * 2), made(answers), {}) == grouped([asked] * 2, answers, {})
    assert samples_of(made([asked]), made(answers[:1]), {}, system="Be.", turns="last")[0].prompt == "p"


@pytest.mark.parametrize("text", [np.str_("p"), Drawn.P])
def test_a_text_of_another_kind_is_the_same_text_as_pythons_own(text: str) -> None:
    said = [{"role": "user", "content": text}]
    [group] = grouped([said], [text], {"reference": [text]})
    built = group_of([Sample("p", "a", {"reference": text})])
    texts = [group.prompt, *group.responses, group.reference, built.reference]
    assert texts == ["p"] * 4 and {*map(type, texts)} == {str}


def test_runs_of_equal_prompts_and_references_are_groups_and_the_reference_is_theirs() -> None:
    groups = grouped(
        ["p", "p", "p", "q", "p"],
        ["1", "2", "3", "4", "5"],
        {"reference": ["r", "r", "s", None, ""], "genre": ["a"] * 5, "log_extra": print, "trainer_state": 7},
    )
    assert groups == [
        Group("p", ["1", "2"], "r", columns={"genre": "a"}),
        Group("p", ["3"], "s", columns={"genre": "a"}),
        Group("q", ["4"], None, columns={"genre": "a"}),
        Group("p", ["5"], None, columns={"genre": "a"}),
    ]
    assert grouped([], [], {}) == []


def test_an_id_tells_groups_of_one_prompt_apart_and_is_no_column() -> None:
    groups = grouped(["p"] * 3, ["1", "2", "3"], {"id": [7, 7, 8], "genre": ["a"] * 3})
    assert groups == [
        Group("p", ["1", "2"], None, "7", {"genre": "a"}),
        Group("p", ["3"], None, "8", {"genre": "a"}),
    ]


def test_conversations_are_grouped_as_their_text() -> None:
    prompt = [{"role": "user", "content": "p"}]
    plain = grouped(["p", "p"], ["a", "b"], {})
    [talked] = grouped([prompt, prompt], [[{"role": "assistant", "content": text}] for text in "ab"], {})
    assert talked.conversation == (("user", "p"),)
    assert [msgspec.structs.replace(talked, conversation=())] == plain


@pytest.mark.parametrize(
    ("prompts", "completions", "columns", "message"),
    [
        (["p"], ["a", "b"], {}, '"prompts" has 1 values for 2 completions'),
        (["p"], ["a"], {"genre": ["x", "y"]}, '"genre" has 2 values for 1 completions'),
        (["p"], ["a"], {"genre": 3}, '"genre" is int for 1 completions'),
        (["p"], ["a"], {"genre": "x"}, '"genre" is str for 1 completions'),
        (["p"], ["a"], {"genre": {"x": 1}}, '"genre" is dict for 1 completions'),
        (["p"], ["a"], {"genre": np.array(3)}, '"genre" is ndarray for 1 completions'),
        (["p"], None, {}, '"completions" is None: give a list of them'),
        (["p"] * 3, "abc", {}, '"completions" is str: give a list of them'),
        (["p"], {"a": 1}, {}, '"completions" is dict: give a list of them'),
        (["p"], (text for text in "a"), {}, '"completions" is generator: give a list of them'),
        ("p", ["a"], {}, '"prompts" is str for 1 completions: give a list with one for each'),
        (None, ["a"], {}, '"prompts" is None for 1 completions'),
        (["p"], [3], {}, r"completions\[0\] is int"),
        (["p"], [None], {}, r"completions\[0\] is None"),
        ([["p"]], ["a"], {}, r"prompts\[0\] is list"),
        (["p"], [[{"role": "user", "content": 3}]], {}, r"completions\[0\] has a message whose content is int"),
        (["p"], ["a"], {"reference": [3]}, 'column "reference" holds int for the prompt "p"'),
    ],
)
def test_what_is_no_text_and_lists_of_unequal_length_are_named(
    prompts: Any, completions: Any, columns: Any, message: str
) -> None:
    with pytest.raises(AdjudgeError, match=message):
        grouped(prompts, completions, columns)


def test_other_columns_part_no_group_and_are_kept_for_each_response_where_they_differ() -> None:
    columns = {"step": [1, 2, 3], "genre": ("a",) * 3, "completion_ids": np.array([[1, 2], [1, 3], [1, 2]])}
    [group] = grouped(("p",) * 3, ["1", "2", "3"], columns)
    assert group == Group(
        "p",
        ["1", "2", "3"],
        columns={"genre": "a"},
        by_response={"step": [1, 2, 3], "completion_ids": [[1, 2], [1, 3], [1, 2]]},
    )


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_arrays_part_groups_by_their_shapes_and_entries(make: Any) -> None:
    values = [[1.0, 2.0], [1.0, 2.0], [1.0, 3.0], [1.0], [1.0], [[1.0]], [], []]
    for column in ([make(value) for value in values], [{"notes": [make(value)]} for value in values]):
        groups = grouped(["p"] * 8, list("abcdefgh"), {"id": column})
        assert [group.responses for group in groups] == [["a", "b"], ["c"], ["d", "e"], ["f"], ["g", "h"]]
    prompt = [{"role": "user", "content": "p", "pixels": make([1.0, 2.0])}]
    other = [{"role": "user", "content": "p", "pixels": make([1.0, 3.0])}]
    assert [len(group.responses) for group in grouped([prompt, prompt, other], ["a", "b", "c"], {})] == [2, 1]
