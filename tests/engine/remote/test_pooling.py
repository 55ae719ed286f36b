"""Embeddings and rewards from servers of each kind: the engine's own, or a typed word why not."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import RemoteError
from adjudge.rewards.judges.debate import DebateJudge
from adjudge.rewards.judges.retrieval import EngineEmbedder, Index
from adjudge.rewards.judges.scalar import ScalarJudge
from adjudge.rewards.records.verdict import Example, Item
from tests.engine.remote.conftest import Open
from tests.engine.remote.peer import KINDS, breaks_off, hangs, says

PROMPTS = ["Rate this.", "Rate that.", "Rate this.", "<|im_end|> Rate", "🙂 é \x00 \ud800"]
ITEMS = [Item(prompt="Tell one.", response=text) for text in ("A lamp.", "<|im_end|>", "x" * 5000)]


@pytest.fixture(scope="module")
def judging() -> Engine:
    return Engine("dummy:tiny-llama-reward", kv_cache_gb=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_embeddings_of_every_server_point_where_the_engines_do(open_remote: Open, engine: Engine, kind: str) -> None:
    remote, server = open_remote(kind)
    remote.require_embeddings()
    server.bodies.clear()
    found = remote.embed(PROMPTS)
    for embedding, expected in zip(found, engine.embed(PROMPTS), strict=True):
        assert embedding.values is not None and expected.values is not None
        assert embedding.prompt_tokens == expected.prompt_tokens and embedding.values.dtype == np.float32
        scale = np.linalg.norm(expected.values) if kind == "sglang" else 1.0
        np.testing.assert_allclose(embedding.values * scale, expected.values, rtol=1e-6 if kind == "sglang" else 0)
    assert len(server.bodies) == (1 if kind == "adjudge" else 4)  # equal prompts are asked for once
    assert all(isinstance(tokens, list) for body in server.bodies for tokens in body["input"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_plain_string_is_sent_with_the_token_that_its_tokenizer_ends_a_text_with(
    open_remote: Open, judging: Engine, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, server = open_remote(kind, served=judging)
    monkeypatch.setattr(remote.tokenizer, "_end", (258,))
    remote.embed(["ab"])
    if kind != "openai":
        remote.reward(["ab"])
    asked = [tokens for body in server.bodies for tokens in body.get("input") or body["input_ids"]]
    assert asked == [[97, 98, 258]] * (1 if kind == "openai" else 2)


@pytest.mark.parametrize("kind", ["adjudge", "vllm", "sglang"])
def test_a_scalar_judge_gives_the_engines_verdicts_over_every_server_that_has_rewards(
    open_remote: Open, judging: Engine, kind: str
) -> None:
    remote, server = open_remote(kind, served=judging)
    judge = ScalarJudge(remote)
    verdicts, expected = judge.judge(ITEMS), ScalarJudge(judging).judge(ITEMS)
    assert [verdict.score for verdict in verdicts[:2]] == [verdict.score for verdict in expected[:2]]
    assert [verdict.abstained for verdict in verdicts] == [None] * 3 and verdicts[2].truncated
    assert (judge.key(ITEMS[0]) == ScalarJudge(judging).key(ITEMS[0])) == (kind == "adjudge")
    asked = len(server.bodies)
    ScalarJudge(remote)
    assert len(server.bodies) == asked  # that it can is asked once


def test_a_plain_server_has_no_form_for_rewards(open_remote: Open, judging: Engine) -> None:
    remote, server = open_remote("openai", served=judging)
    for ask in (lambda: ScalarJudge(remote), lambda: remote.reward(PROMPTS)):
        with pytest.raises(RemoteError, match="no server whose rewards can be read.*: pass the address of a reward"):
            ask()
    assert not server.bodies


@pytest.mark.parametrize("kind", ["adjudge", "vllm", "sglang"])
def test_a_server_that_has_no_such_route_is_told_with_the_mend_before_anything_is_judged(
    open_remote: Open, kind: str
) -> None:
    """An older `adjudge serve`, a vLLM or SGLang that writes: 404."""
    remote, _ = open_remote(kind, peer={"embeds": False})
    with pytest.raises(RemoteError, match="has no /classify for this model.*: pass the address of a reward model's"):
        ScalarJudge(remote)
    with pytest.raises(RemoteError, match="has no /v1/embeddings for this model.*, or leave the examples out"):
        DebateJudge(remote, [Example("Wish.", "Sleep well.")])
    with pytest.raises(RemoteError, match="has no /v1/embeddings"):
        remote.embed(PROMPTS)


@pytest.mark.parametrize("status", [400, 422])
def test_a_server_that_refuses_is_told_with_its_own_words_and_the_mend(open_remote: Open, status: int) -> None:
    """SGLang's way to say that it only writes, and an older vLLM's that it takes no token ids."""
    said = says(status, {"error": {"message": "not an embedding model"}})
    remote, server = open_remote("sglang", said, said, retries=2)
    for require, route in ((remote.require_embeddings, "/v1/embeddings"), (remote.require_rewards, "/classify")):
        with pytest.raises(RemoteError, match=f"refuses {route} .*not an embedding model.*: .* server"):
            require()
    assert len(server.bodies) == 2


def test_that_a_server_is_busy_is_no_refusal(open_remote: Open) -> None:
    remote, server = open_remote("vllm", *[says(503)] * 3, retries=2)
    remote.require_embeddings()
    assert len(server.bodies) == 3
    remote.require_embeddings()
    assert len(server.bodies) == 4  # asked again, and answered
    server.script.extend([breaks_off] * 3)
    assert [embedding.reason for embedding in remote.embed(PROMPTS[:1])] == ["timeout"]
    server.script.append(hangs)
    assert [embedding.reason for embedding in remote.embed(PROMPTS[:1], timeout=0.0)] == ["timeout"]


def embedding_reply(*embeddings: Any, **changes: Any) -> bytes:
    return json.dumps(
        {"data": [{"embedding": one, "index": place} | changes for place, one in enumerate(embeddings)]}
    ).encode()


def reward_reply(*numbers: Any, **changes: Any) -> bytes:
    return json.dumps({"data": [{"probs": list(numbers), "index": 0} | changes]}).encode()


SOUND = base64.b64encode(np.ones(64, "<f4").tobytes()).decode()


UNREADABLE = [
    b"",
    b"[]",
    b'{"data": [{"embedding": [NaN]}]}',
    b'{"data": [{"embedding": [1e999]}]}',
    b'{"data": ' + b"[" * 100_000,
    embedding_reply(),
    embedding_reply(SOUND, SOUND),
    embedding_reply(SOUND, index=1),
    embedding_reply([]),
    embedding_reply(""),
    embedding_reply(None),
    embedding_reply("?" * 8),
    embedding_reply(SOUND[:8]),
    embedding_reply(["1.0"]),
    embedding_reply([1.0] * 3),  # another length than before
]


def test_embeddings_that_cannot_be_read_are_asked_for_again_and_then_abstain(open_remote: Open) -> None:
    remote, server = open_remote("vllm", retries=2)
    [sound] = remote.embed(PROMPTS[:1])
    for reply in UNREADABLE:
        server.script.append(says(200, reply))
        [again] = remote.embed(PROMPTS[:1])
        assert sound.values is not None and np.array_equal(sound.values, again.values), reply[:80]
        server.script.extend([says(200, reply)] * 3)
        [given_up] = remote.embed(PROMPTS[:1])
        assert given_up.reason == ("unsupported" if reply[-1:] in (b"}", b"]") else "timeout"), reply[:80]


def test_rewards_that_cannot_be_read_are_no_rewards(open_remote: Open, judging: Engine) -> None:
    remote, server = open_remote("vllm", served=judging, retries=2)
    wrong = [reward_reply("1"), reward_reply(1.0, index=2), b'{"data": [{"probs": [NaN]}]}']
    for reply in (b"{}", reward_reply(), *wrong):
        server.script.extend([says(200, reply)] * 3)
        assert [reward.reason for reward in remote.reward(PROMPTS[:1])] == ["unsupported"], reply
    server.script.extend([says(200, b"{}")] * 3)
    with pytest.raises(RemoteError, match="/classify answers what cannot be read: pass the address"):
        remote.require_rewards()


def test_numbers_that_are_not_finite_abstain(open_remote: Open, judging: Engine) -> None:
    spoilt = np.ones(64, "<f4")
    spoilt[3] = np.nan
    packed = base64.b64encode(spoilt.tobytes()).decode()
    replies = [embedding_reply(packed), embedding_reply([None] * 64), embedding_reply([1e300] * 64)]
    remote, _ = open_remote("vllm", *[says(200, reply) for reply in replies], says(200, reward_reply(None)), retries=2)
    assert [remote.embed(["a"])[0].reason for _ in replies] == ["non_finite"] * 3
    assert remote.reward(["a"])[0].reason == "non_finite"


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_classifier_of_several_labels_is_no_reward_model(open_remote: Open, kind: str) -> None:
    reply = reward_reply(0.2, 0.8) if kind == "vllm" else json.dumps([{"embedding": [0.1] * 64}]).encode()
    remote, server = open_remote(kind, says(200, reply), retries=2)
    with pytest.raises(RemoteError, match=r"gives (2|64) numbers for a text: it is a classifier"):
        ScalarJudge(remote)
    assert len(server.bodies) == 1


def test_a_prompt_that_the_server_finds_too_long_takes_no_other_with_it(open_remote: Open, engine: Engine) -> None:
    said = {"error": {"message": "This model's maximum context length is 8 tokens."}}
    remote, _ = open_remote("vllm", says(400, said))
    reasons = [embedding.reason for embedding in remote.embed(["one", "two", "three"])]
    assert sorted(map(str, reasons)) == ["None", "None", "unsupported"]


def test_an_index_on_one_server_serves_a_judge_on_another(open_remote: Open, engine: Engine) -> None:
    """vLLM either writes or embeds: two servers do both."""
    writing, _ = open_remote("vllm", peer={"embeds": False})
    embedding, _ = open_remote("vllm")
    examples = [Example(f"Wish {n}.", f"Sleep well, {n}.") for n in range(5)]
    there = Index(examples, EngineEmbedder(embedding)).nearest(["Wish 3."], [""], 2)
    assert there == Index(examples, EngineEmbedder(engine)).nearest(["Wish 3."], [""], 2)
    assert DebateJudge(writing, Index(examples, EngineEmbedder(embedding))).index is not None
