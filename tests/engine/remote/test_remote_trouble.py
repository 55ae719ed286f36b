"""Servers that are slow, busy, broken, hostile or gone."""

from __future__ import annotations

import gzip
import json
import math
from typing import Any

import pytest

from adjudge.engine.completion import TokenLogprob
from adjudge.engine.engine import Engine
from adjudge.engine.errors import RemoteError
from adjudge.engine.remote import transport
from tests.engine.remote.conftest import PROMPTS, Open
from tests.engine.remote.peer import KINDS, Answer, Peer, breaks_off, cut_short, hangs, proper, says, send
from tests.engine.tiny import DIGITS


def reply(**changes: Any) -> bytes:
    """What a vLLM says of one token, with changes."""
    names = [f"token_id:{ord(label)}" for label in DIGITS.labels]
    logprobs = {"tokens": names[:1], "token_logprobs": [-2.0], "top_logprobs": [dict.fromkeys(names, -2.0)]}
    choice = {"index": 0, "text": "1", "finish_reason": "length", "logprobs": logprobs}
    return json.dumps({"choices": [choice]} | changes).encode()


def listing(value: Any) -> dict[str, Any]:
    top = {f"token_id:{ord(label)}": -2.0 for label in DIGITS.labels} | {"token_id:49": value}
    logprobs = {"tokens": ["token_id:49"], "token_logprobs": [-2.0], "top_logprobs": [top]}
    return {"choices": [{"index": 0, "text": "", "logprobs": logprobs}]}


def packed(handler: Any, peer: Peer) -> bool:
    """A few kilobytes of sound JSON that unpack to more than anybody reads."""
    send(handler, 200, gzip.compress(reply() + b" " * transport.MAX_REPLY), content_encoding="gzip")
    return True


TROUBLE = {
    "500": says(500),
    "502 of a proxy": says(502, b"<html>Bad gateway</html>"),
    "503": says(503),
    "504": says(504),
    "408": says(408),
    "429": says(429, retry_after="0"),
    "reset": breaks_off,
    "cut short": cut_short,
    "no JSON": says(200, b'{"choices": ['),
    "no UTF-8": says(200, b'{"choices": [{"text": "\xff\xfe"}]}'),
    "nothing": says(200, b""),
    "another type": says(200, b"[1, 2]"),
    "nested": says(200, b'{"choices": ' + b"[" * 100_000),
    "nested aside": says(200, b'{"aside": ' + b"[" * 100_000),
    "no choice": says(200, reply(choices=[])),
    "two choices": says(200, reply(choices=[{"text": "", "index": 0}, {"text": "", "index": 1}])),
    "a choice of another number": says(200, reply(choices=[{"text": "", "index": 3}])),
    "numbers as text": says(200, listing("-2.0")),
    "NaN": says(200, json.dumps(listing(float("nan"))).encode()),
    "infinity": says(200, json.dumps(listing(float("inf"))).encode()),
    "no log-probability": says(200, listing(0.5)),
    "packed": packed,
}


@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE)
def test_what_goes_wrong_once_is_asked_again(
    open_remote: Open, engine: Engine, waits: list[float], trouble: Answer
) -> None:
    remote, server = open_remote("vllm", trouble)
    [score] = remote.score(PROMPTS[:1], DIGITS)
    assert score.full_logprobs == pytest.approx(engine.score(PROMPTS[:1], DIGITS)[0].full_logprobs, abs=1e-5)
    assert len(server.bodies) == 2 and len(waits) == 1


@pytest.mark.parametrize(("name", "reason"), [("500", "timeout"), ("reset", "timeout"), ("NaN", "unsupported")])
def test_what_stays_wrong_abstains_is_logged_once_and_costs_the_others_nothing(
    open_remote: Open, engine: Engine, name: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    remote, _ = open_remote("vllm", proper, TROUBLE[name], retries=0, max_concurrency=1)
    own = engine.score(PROMPTS[:3], DIGITS)
    for place, score in enumerate(remote.score(PROMPTS[:3], DIGITS)):
        if place == 1:
            assert (score.reason, score.full_logprobs, score.labels) == (reason, None, DIGITS.labels)
        else:
            assert score.full_logprobs == pytest.approx(own[place].full_logprobs, abs=1e-5)
        assert score.prompt_tokens == own[place].prompt_tokens
    [line] = [record.message for record in caplog.records if "got no answer" in record.message]
    assert line.startswith("1 requests to a server got no answer: http://")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("adjudge", {"results": []}),
        ("adjudge", {"results": [{"full_logprobs": [-1.0]}]}),
        ("adjudge", {"results": [{}]}),
        ("adjudge", {"results": [{"reason": "tired"}]}),
        ("adjudge", {"results": [{"full_logprobs": [-1.0, -1.0, -1.0, -1.0, 3.0]}]}),
        ("sglang", []),
        ("sglang", {"text": "", "meta_info": {"output_token_ids_logprobs": [[[-1.0, 49, None]]]}}),
        ("sglang", {"text": "", "meta_info": {"finish_reason": {"type": "abort", "message": "no memory"}}}),
        ("openai", {"choices": [{"text": "", "logprobs": {"top_logprobs": [{"1": 7}]}}]}),
    ],
)
def test_a_reply_that_promises_something_else_is_no_score(open_remote: Open, kind: str, body: Any) -> None:
    remote, server = open_remote(kind, *[says(200, body)] * 2, retries=1)
    assert [score.reason for score in remote.score(["a"], DIGITS)] == ["unsupported"]
    assert len(server.bodies) == 2


@pytest.mark.parametrize("reason", ["too_long", "timeout", "non_finite", "cancelled"])
def test_our_own_servers_reasons_are_handed_on(open_remote: Open, reason: str) -> None:
    remote, _ = open_remote("adjudge", says(200, {"results": [{"reason": reason}, {"full_logprobs": [None] * 5}]}))
    assert [score.reason for score in remote.score(["a", "b"], DIGITS)] == [reason, "low_mass"]


def test_minus_infinity_is_a_log_probability(open_remote: Open) -> None:
    for least in (None, -9999.0):
        remote, _ = open_remote("vllm", says(200, listing(least)))
        [score] = remote.score(["a"], DIGITS)
        assert score.full_logprobs == (float("-inf"), -2.0, -2.0, -2.0, -2.0)


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [{"text": "a", "finish_reason": "length"}]},
        {"choices": [{"text": "a", "finish_reason": "bored", "token_ids": [97]}]},
        {"choices": [{"text": "a", "finish_reason": None, "token_ids": [97]}]},
        {"choices": [{"text": "a", "finish_reason": "stop", "token_ids": [-1], "logprobs": {"token_logprobs": [0]}}]},
        {"choices": [{"text": "a", "finish_reason": "stop", "token_ids": [97], "logprobs": {}}]},
        {"choices": [{"text": "a", "finish_reason": "stop", "token_ids": [97]}] * 2},
    ],
)
def test_a_text_without_what_was_asked_for_is_none(open_remote: Open, body: Any) -> None:
    remote, _ = open_remote("vllm", *[says(200, body)] * 2, retries=1)
    [text] = remote.generate(["a"], logprobs=1)
    assert (text.finish_reason, text.text, text.token_ids) == ("cancelled", "", ())


@pytest.mark.parametrize(
    ("kind", "listed"),
    [
        ("vllm", {}),
        ("vllm", {"prompt_logprobs": [None]}),
        ("vllm", {"prompt_logprobs": [None, None]}),
        ("vllm", {"prompt_logprobs": [None, {"99": {"logprob": -1.0}}]}),
        ("vllm", {"prompt_logprobs": [None, {"98": {"logprob": 1.0}}]}),
        ("vllm", {"prompt_logprobs": [None, {"b": {"logprob": -1.0}}]}),
        ("vllm", {"prompt_logprobs": [None, {"-1": {"logprob": -1.0}, "98": {"logprob": -1.0}}]}),
        ("vllm", {"prompt_logprobs": {"98": -1.0}}),
        ("adjudge", {"prompt_logprobs": []}),
        ("sglang", {}),
        ("sglang", {"input_token_logprobs": [[None, 97, None], [-1.0, 99, None]]}),
        ("sglang", {"input_token_logprobs": [[None, 97, None], [-1.0, 98, None]]}),
        ("sglang", {"input_token_logprobs": [[None, 97, None], [-1.0, 98, None]], "input_top_logprobs": [None]}),
    ],
)
def test_a_prompt_that_was_not_read_is_no_certainty(open_remote: Open, kind: str, listed: dict[str, Any]) -> None:
    if kind == "sglang":
        meta = {"finish_reason": {"type": "length"}, "output_token_logprobs": [[-1.0, 97, None]]}
        body: dict[str, Any] = {"text": "a", "meta_info": meta | listed}
    else:
        body = {"choices": [{"text": "a", "finish_reason": "length", "token_ids": [97]} | listed]}
    remote, server = open_remote(kind, *[says(200, body)] * 2, proper, retries=1)
    [text] = remote.generate(["ab"], max_tokens=2, temperature=1.0, prompt_logprobs=1)
    assert (text.finish_reason, text.prompt_logprobs, len(server.bodies)) == ("cancelled", (), 2)
    [text] = remote.generate(["ab"], max_tokens=2, temperature=1.0, prompt_logprobs=1)
    assert [one and one.token_id for one in text.prompt_logprobs] == [None, 98]


def test_a_place_with_fewer_alternatives_than_were_asked_for_is_not_read(open_remote: Open) -> None:
    choice = {"text": "a", "finish_reason": "length", "token_ids": [97]}
    listed = [None, {"98": {"logprob": -9.0}, "97": {"logprob": -1.0}}]
    for count, read in ((2, True), (3, False)):
        remote, _ = open_remote("vllm", says(200, {"choices": [choice | {"prompt_logprobs": listed}]}), retries=0)
        [text] = remote.generate(["ab"], prompt_logprobs=count)
        assert bool(text.prompt_logprobs) == read


def test_alternatives_that_vllm_lost_to_a_score_beside_the_text_are_asked_for_again(open_remote: Open) -> None:
    def written(top: dict[str, float]) -> Answer:
        listed = {"token_logprobs": [-1.83], "top_logprobs": [top]}
        choice = {"text": "a", "finish_reason": "length", "token_ids": [97], "logprobs": listed}
        return says(200, {"choices": [choice]})

    lost = written({"token_id:97": -1.83, "token_id:0": -9999.0})
    for count, top in ((1, {97: -1.83}), (2, {97: -1.83, 98: -2.0}), (3, {97: -1.83, 98: -2.0, 99: -2.5})):
        whole = written({f"token_id:{token}": value for token, value in top.items()})
        remote, server = open_remote("vllm", lost, whole, retries=1)
        [text] = remote.generate(["a"], logprobs=count)
        assert (text.logprobs, len(server.bodies)) == ((TokenLogprob(97, -1.83, tuple(top.items())),), 2)


def test_a_text_may_have_fewer_alternatives_where_no_other_token_is_possible(open_remote: Open) -> None:
    listed = {"token_logprobs": [0.0], "top_logprobs": [{"token_id:97": 0.0, "token_id:98": -9999.0}]}
    choice = {"text": "a", "finish_reason": "length", "token_ids": [97], "logprobs": listed}
    remote, _ = open_remote("vllm", says(200, {"choices": [choice]}))
    [text] = remote.generate(["a"], logprobs=2)
    assert text.logprobs == (TokenLogprob(97, 0.0, ((97, 0.0), (98, -math.inf))),)


def test_a_prompts_token_may_have_no_number_or_be_impossible(open_remote: Open) -> None:
    places = [None, *({str(token): {"logprob": value}} for token, value in ((98, None), (99, -9999.0)))]
    choice = {"text": "a", "finish_reason": "length", "token_ids": [97], "prompt_logprobs": places}
    remote, _ = open_remote("vllm", says(200, {"choices": [choice]}))
    [text] = remote.generate(["abc"], prompt_logprobs=0)
    _, first, second = text.prompt_logprobs
    assert first is not None and second is not None
    assert math.isnan(first.logprob) and second.logprob == -math.inf


def test_what_was_not_asked_for_may_have_any_form(open_remote: Open) -> None:
    choice = {"text": "a", "finish_reason": "length", "token_ids": [97], "prompt_logprobs": "none"}
    remote, _ = open_remote("vllm", says(200, {"choices": [choice]}))
    assert [text.finish_reason for text in remote.generate(["ab"])] == ["length"]


def test_the_last_token_of_the_vocabulary_is_read_though_sglang_calls_it_0(open_remote: Open, engine: Engine) -> None:
    last = engine.tokenizer.vocab_size - 1
    meta = {
        "finish_reason": {"type": "length"},
        "output_token_logprobs": [[-1.0, 97, None]],
        "input_token_logprobs": [[None, 97, None], [-7.0, 0, None]],
    }
    remote, _ = open_remote("sglang", says(200, {"text": "a", "meta_info": meta}))
    [text] = remote.generate([[97, last]], temperature=1.0, prompt_logprobs=0)
    assert text.prompt_logprobs == (None, TokenLogprob(last, -7.0))


def test_a_text_that_ran_out_of_time_has_no_read_prompt(open_remote: Open) -> None:
    choice = {"text": "a", "finish_reason": "timeout", "token_ids": [97], "prompt_logprobs": None}
    remote, _ = open_remote("adjudge", says(200, {"choices": [choice]}))
    [text] = remote.generate(["ab"], prompt_logprobs=1)
    assert (text.finish_reason, text.text, text.prompt_logprobs) == ("timeout", "a", ())


def test_an_unknown_token_leaves_a_text_unparsable(open_remote: Open) -> None:
    choice = {"text": "<ANSWER>1</ANSWER>", "finish_reason": "stop", "token_ids": [1 << 70]}
    remote, _ = open_remote(
        "vllm", says(200, {"choices": [choice]}), says(200, {"choices": [choice | {"token_ids": [10**9]}]})
    )
    texts = remote.generate(["a"])
    assert [score.reason for score in remote.read_answers(["a"], texts, DIGITS)] == ["unparsable"]


CONTEXT = {"error": {"message": "This model's maximum context length is 20 tokens. However, you requested 21."}}


@pytest.mark.parametrize(
    "too_long",
    [
        says(400, CONTEXT),
        says(400, {"error": {"message": "The input (21 tokens) is longer than the model's context length (20)."}}),
        says(400, {"error": {"message": "no room", "code": "context_length_exceeded"}}),
        says(413, b""),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_that_the_server_finds_too_long_abstains_alone_for_a_reason_that_is_not_kept(
    open_remote: Open, kind: str, too_long: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    remote, server = open_remote(kind, too_long, max_concurrency=1)
    first, second = remote.generate(PROMPTS[:2], max_tokens=1, temperature=0)
    assert (first.finish_reason, second.finish_reason) == ("cancelled", "length")
    assert len(server.bodies) == 2 and "finds the prompt too long" in caplog.text
    server.script.append(too_long)
    assert [score.reason for score in remote.score(PROMPTS[:1], DIGITS)] == ["unsupported"]


def test_sglangs_way_to_find_a_prompt_too_long(open_remote: Open, caplog: pytest.LogCaptureFixture) -> None:
    finish = {"type": "abort", "message": "Input length (21) exceeds the maximum allowed length (20)"}
    body = {"text": "", "meta_info": {"finish_reason": finish}}
    remote, _ = open_remote("sglang", says(200, body), says(200, body))
    assert remote.score(["a"], DIGITS)[0].reason == "unsupported"
    assert remote.generate(["a"])[0].finish_reason == "cancelled"
    assert caplog.text.count("finds the prompt too long (Input length (21)") == 2


def test_one_refused_request_costs_only_its_own_prompt_and_why_is_logged(
    open_remote: Open, caplog: pytest.LogCaptureFixture
) -> None:
    remote, _ = open_remote("vllm", proper, says(400), max_concurrency=1)
    assert [score.reason for score in remote.score(PROMPTS[:3], DIGITS)] == [None, "unsupported", None]
    [record] = caplog.records
    assert "1 requests to a server got no answer" in record.getMessage() and "(400: trouble)" in record.getMessage()


def test_a_mistake_in_every_request_is_one_sentence(open_remote: Open) -> None:
    said = "Value error, Requested sample \x1b[2J\nlogprobs of 20, which is greater than max allowed: 5"
    remote, _ = open_remote("vllm", *[says(400, {"error": {"message": said}})] * 3)
    with pytest.raises(RemoteError, match=r"refuses /v1/completions \(400: Requested sample \[2J logprobs of 20"):
        remote.score(PROMPTS[:3], DIGITS)


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "wants another key.*api_key="), (403, "api_key="), (404, "no /v1/completions.*chat alone is not enough")],
)
def test_a_mistake_on_the_way_is_raised_after_what_was_scored(open_remote: Open, status: int, message: str) -> None:
    remote, _ = open_remote("vllm", proper, proper, says(status), hangs, max_concurrency=1)
    found: list[Any] = []
    with pytest.raises(RemoteError, match=message):
        found.extend(remote.score_iter(PROMPTS, DIGITS))  # keeps what came before the error
    assert [score.reason for _, score in found] == [None, None]


@pytest.mark.parametrize(
    ("location", "where"),
    [
        ("http://elsewhere/", "http://elsewhere/"),
        ("https://me:pw@elsewhere:1/proxy/v1/completions", "https://elsewhere:1/proxy"),
        ("//elsewhere/v1/completions", "http://elsewhere"),
        ("/proxy/v1/completions", r"http://127\.0\.0\.1:\d+/proxy"),
    ],
)
def test_a_redirect_is_not_followed_but_said_as_the_address_to_pass(
    open_remote: Open, location: str, where: str
) -> None:
    remote, _ = open_remote("vllm", says(307, location=location))
    with pytest.raises(RemoteError, match=f" sends its callers to {where}: pass that address$"):
        remote.score(["a"], DIGITS)


@pytest.mark.parametrize("location", ["/v1/completions", "completions", "http://{}/v1/completions"])
def test_a_redirect_to_itself_is_said_to_go_on_for_ever(open_remote: Open, location: str) -> None:
    def answer(handler: Any, peer: Peer) -> bool:
        return says(308, b"", location=location.format(handler.headers["host"]))(handler, peer)

    remote, peer = open_remote("vllm", answer)
    with pytest.raises(RemoteError, match=rf"^{peer.url}/v1/completions redirects to itself for ever \(308\): mend"):
        remote.score(["a"], DIGITS)


@pytest.mark.parametrize("answer", [says(304, b""), says(302, b""), says(302, b"", location="http://a:b")])
def test_a_redirect_to_nowhere_is_a_sentence_of_its_own(open_remote: Open, answer: Answer) -> None:
    remote, _ = open_remote("vllm", answer)
    with pytest.raises(RemoteError, match=r"answers /v1/completions with 30\d and no address: correct its own$"):
        remote.score(["a"], DIGITS)


def test_what_is_cut_off_or_another_page_may_come_another_time_and_what_lacks_the_numbers_may_not(
    open_remote: Open,
) -> None:
    passing, lasting = ("no JSON", "nothing"), ("no UTF-8", "no choice", "another type", "NaN", "packed")
    for name, reason in (*((one, "timeout") for one in passing), *((one, "unsupported") for one in lasting)):
        remote, _ = open_remote("vllm", *[TROUBLE[name]] * 2, retries=1)
        assert [score.reason for score in remote.score(["a"], DIGITS)] == [reason], name


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_that_sum_to_more_than_one_are_no_score(open_remote: Open, kind: str) -> None:
    near = {value: {"adjudge": {"results": [{"full_logprobs": [value] * 5}]},
                    "vllm": {"choices": [{"text": "", "logprobs": {"top_logprobs": [
                        {f"token_id:{ord(label)}": value for label in DIGITS.labels}]}}]},
                    "openai": {"choices": [{"text": "", "logprobs": {"top_logprobs": [
                        dict.fromkeys(DIGITS.labels, value)]}}]},
                    "sglang": {"text": "", "meta_info": {"output_token_ids_logprobs": [
                        [[value, ord(label), None] for label in DIGITS.labels]]}}}[kind]
            for value in (0.0, -0.5, math.log(0.2005))}  # fmt: skip
    for value, reason in ((0.0, "unsupported"), (-0.5, "unsupported"), (math.log(0.2005), None)):
        remote, _ = open_remote(kind, *[says(200, near[value])] * 2, retries=1)
        assert [score.reason for score in remote.score(["a"], DIGITS)] == [reason]


def test_sglangs_null_for_all_labels_is_no_number(open_remote: Open) -> None:
    values = [[None, ord(label), None] for label in DIGITS.labels]
    remote, _ = open_remote("sglang", says(200, {"text": "", "meta_info": {"output_token_ids_logprobs": [values]}}))
    assert [score.reason for score in remote.score(["a"], DIGITS)] == ["non_finite"]
