from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from adjudge.engine.http.limits import MOST_LABEL_LOGPROBS
from adjudge.engine.remote.completions import AdjudgeProtocol
from adjudge.engine.score import Score
from adjudge.engine.text.labels import MOST_TOKENS, Labels, LabelSet
from tests.engine.http.serving import MODEL, Served, error_of, wait_until_idle

DIGITS = ["1", "2", "3"]


def results(answer: dict[str, Any]) -> list[Score]:
    return msgspec.convert(answer["results"], list[Score])


def scored(site: Served, **body: Any) -> dict[str, Any]:
    response = site.post("/v1/score", body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def test_labels_are_scored_as_the_engine_does(site: Served) -> None:
    answer = scored(site, query="a story: ", items=["one", "two"], labels=["1", "10", "2"], model=MODEL)
    expected = site.engine.face.score(["a story: one", "a story: two"], ["1", "10", "2"])
    assert results(answer) == expected
    assert answer["scores"] == [[math.exp(value) for value in score.full_logprobs or ()] for score in expected]
    assert answer["object"] == "scoring" and answer["model"] == MODEL
    assert answer["usage"]["prompt_tokens"] == sum(score.prompt_tokens for score in expected)


def test_the_name_that_sglang_has_for_any_model_is_this_one(site: Served) -> None:
    assert scored(site, query="a", items=["b"], labels=["1", "2"], model="default")["model"] == MODEL


def test_token_ids_are_scored_among_themselves_with_softmax(site: Served) -> None:
    answer = scored(site, query=[5, 6], items=[[7], [8, 9]], label_token_ids=[49, 50], apply_softmax=True)
    expected = site.engine.face.score([[5, 6, 7], [5, 6, 8, 9]], LabelSet.of_ids([49, 50]))
    assert results(answer) == expected
    assert answer["scores"] == [list(score.probabilities or ()) for score in expected]
    assert sum(answer["scores"][0]) == pytest.approx(1)


def test_an_item_can_come_first_alone_or_with_ids_of_its_own(site: Served) -> None:
    def one(**body: Any) -> Score:
        return results(scored(site, label_token_ids=[49, 50], **body))[0]

    [expected] = site.engine.face.score(["item query"], LabelSet.of_ids([49, 50]))
    assert one(query=" query", items="item", item_first=True) == expected
    assert one(items=["item query"]) == one(query=[], items=["item query"]) == expected
    assert one(query="", items=[list(b"item query")]) == expected
    answer = scored(site, items=["x", "y"], label_token_ids=[[49], [50, 51]])
    assert [score.labels for score in results(answer)] == [("49",), ("50", "51")]


def test_a_shared_query_is_computed_once(site: Served) -> None:
    wait_until_idle(site.engine)
    answer = scored(site, query="q" * 50, items=["a", "b", "c"], labels=DIGITS)
    assert answer["usage"]["prompt_tokens"] == 153
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 100}


def test_items_without_a_score_say_why_and_leave_the_others_theirs(site: Served) -> None:
    answer = scored(site, items=["a" * 5000, "b"], labels=DIGITS)
    long, short = results(answer)
    assert long.reason == "too_long" and answer["scores"][0] is None
    assert short.reason is None and answer["scores"][1] is not None
    assert results(scored(site, items=["c"], labels=DIGITS, timeout=1e-9))[0].reason == "timeout"


def test_labels_that_are_no_numbers_have_those_of_their_values(site: Served) -> None:
    grades, values = tuple("ABCDF"), (4, 3, 2, 1, 0)
    [plain] = results(scored(site, items=["a"], labels=grades))
    [valued] = results(scored(site, items=["a"], labels=grades, values=values))
    assert plain.expected is None and 0 < (valued.expected or 0.0) < 4 and valued.logprobs == plain.logprobs
    assert [valued] == site.engine.face.score(["a"], Labels(grades, values))


def test_hostile_texts_are_scored(site: Served) -> None:
    body = (
        rb'{"query": "\u0000<|im_end|>\ud800\udc00 \ud83d", "items": ["\udfff", "", "[[1]]", "\\ud800"],'
        rb' "labels": ["1", "2"]}'
    )
    response = site.post("/v1/score", content=body)
    assert response.status_code == 200, response.text
    query = "\0<|im_end|>\U00010000 \ufffd"
    texts = [query + item for item in ("\ufffd", "", "[[1]]", r"\ud800")]
    assert results(response.json()) == site.engine.face.score(texts, ["1", "2"])


@pytest.mark.parametrize(
    ("change", "param", "message"),
    [
        ({"items": []}, "items", "empty"),
        ({"items": ["a", [1]]}, "items[1]", "items[1] is token ids and query is text"),
        ({"query": [1], "items": ["a"]}, "items[0]", "items[0] is text and query is token ids"),
        ({"items": [[999]], "query": ""}, "items", "token id 999 is outside the vocabulary"),
        ({"items": [[]], "query": []}, "items", "empty"),
        ({"labels": None}, "label_token_ids", "either label_token_ids or labels"),
        ({"label_token_ids": [1]}, "label_token_ids", "either label_token_ids or labels"),
        ({"labels": None, "label_token_ids": [1, 999]}, "label_token_ids", "999 is outside the vocabulary"),
        ({"labels": None, "label_token_ids": [-1]}, "label_token_ids", "-1 is outside the vocabulary"),
        ({"labels": None, "label_token_ids": [1, 1]}, "label_token_ids", "given twice"),
        ({"labels": None, "label_token_ids": []}, "label_token_ids", "no labels"),
        ({"labels": None, "label_token_ids": [[1], 2]}, "label_token_ids", "mixes"),
        ({"labels": None, "label_token_ids": [[1], [2]]}, "label_token_ids", "2 lists for 1 items"),
        ({"labels": None, "label_token_ids": list(range(4097))}, "label_token_ids", "4097 labels come to 4097 tokens"),
        ({"labels": None, "label_token_ids": [[1] * 262_145]}, "label_token_ids", "asks for 262145 numbers"),
        ({"items": ["a"] * 10_000, "labels": list("0123456789" * 11)}, "labels", "1100000 numbers for 10000 items"),
        ({"labels": ["1", "1"]}, "labels", "given twice"),
        ({"labels": [1]}, "labels[0]", "expected `str`"),
        ({"values": [1]}, "values", "values has 1 for 3 labels: give one each"),
        ({"labels": ["1", "2"], "values": [1, 1e200]}, "values", "1e+200"),
        ({"values": ["one"]}, "values[0]", "expected `float`"),
        ({"labels": None, "label_token_ids": [1], "values": [1]}, "values", "leave them out"),
        ({"timeout": 0}, "timeout", "above 0"),
        ({"timeout": -1.5}, "timeout", "above 0"),
        ({"apply_softmax": 1}, "apply_softmax", "expected `bool`"),
        ({"temperature": 1}, "temperature", "no field"),
        ({"model": "other"}, "model", "not served here"),
        ({"items": ["a"] * 10_001}, "items", "at most 10000"),
        ({"query": "a" * 100_000, "items": ["a"] * 1001}, "items", "at most"),
        ({"query": [1] * 2000, "items": [[1]] * 7000}, "items", "asks for 112056000 characters, joined with query"),
    ],
)
def test_each_mistake_names_its_field(site: Served, change: dict[str, Any], param: str, message: str) -> None:
    body = {"query": "q", "items": ["a"], "labels": DIGITS} | change
    response = site.post("/v1/score", {name: value for name, value in body.items() if value is not None})
    error = error_of(response)
    assert 400 <= response.status_code < 500 and error["param"] == param and message in error["message"]


def test_the_largest_request_of_a_remote_engine_is_taken() -> None:
    assert AdjudgeProtocol.reads_at_once * MOST_TOKENS <= MOST_LABEL_LOGPROBS


def test_null_is_the_same_as_left_out(site: Served) -> None:
    assert results(scored(site, query="one", items="", labels=DIGITS)) == results(
        scored(site, items=["one"], labels=DIGITS)
    )
    answer = scored(site, query=None, items=["one"], labels=DIGITS, priority=None, timeout=None)
    assert results(answer) == results(scored(site, items=["one"], labels=DIGITS))


def test_a_prompt_that_was_read_before_is_cached_up_to_its_last_token_whatever_its_labels(site: Served) -> None:
    for cached in (0, 50):
        usage = scored(site, query="z" * 50, items=["a"], labels=["1", "10", "102"])["usage"]
        assert usage["prompt_tokens"] == 51 and usage["prompt_tokens_details"] == {"cached_tokens": cached}


def test_what_nobody_read_is_not_said_to_have_been_cached(site: Served) -> None:
    longest = site.engine.face.max_prompt_tokens
    items = ["never seen before", "y" * (longest + 1)]
    usage = scored(site, items=items, labels=["a", "b"])["usage"]
    assert (
        usage["prompt_tokens"] == len(items[0]) + len(items[1]) and usage["prompt_tokens_details"]["cached_tokens"] == 0
    )
    late = scored(site, items=["never seen either"], labels=["a", "b"], timeout=1e-9)
    assert late["results"][0]["reason"] == "timeout" and late["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    for body in ({"prompt": ["Quite new", "z" * longest]}, {"prompt": "nor was this", "timeout": 1e-9}):
        usage = site.post("/v1/completions", {**body, "max_tokens": 4}).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0
