"""`RemoteEngine` and judges on servers of others that are really there.

    ADJUDGE_VLLM=http://127.0.0.1:8000 pytest tests/engine/remote/test_real_servers.py
    ADJUDGE_SGLANG=http://127.0.0.1:30000 pytest tests/engine/remote/test_real_servers.py

with `python -m vllm.entrypoints.openai.api_server --model FOLDER --dtype float32 --max-model-len 2048` in vLLM's own
environment and `python -m sglang.launch_server --model-path FOLDER --dtype float32 --grammar-backend llguidance` in
SGLang's (on a CPU also `--device cpu --attention-backend torch_native --sampling-backend pytorch`), FOLDER the default
model's (`adjudge models`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import RemoteError
from adjudge.engine.remote.remote_engine import RemoteEngine
from adjudge.engine.text.labels import Labels
from adjudge.engine.text.prompt import Message, Prompt, Segment
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.records.verdict import Pair
from tests.engine.tiny import plain_prompts

MODEL = "smollm2-135m"
PROMPTS = ["Rate this story from 1 to 5: The lamp went out. Score:", "<|im_end|> 5 <|endoftext|>", "🙂 é \x00 \ud800"]
LABEL_SETS = (["1", "2", "3", "4", "5"], Labels(("1", "10", "2"), terminator="</ANSWER>"), ["yes", "no", "perhaps"])


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(MODEL)


@pytest.fixture(scope="module", params=["vllm", "sglang"])
def remote(request: pytest.FixtureRequest) -> Iterator[RemoteEngine]:
    name = f"ADJUDGE_{request.param.upper()}"
    if not (url := os.environ.get(name)):
        pytest.skip(f"needs the address of a server in {name}")
    with RemoteEngine(url, tokenizer=MODEL) as remote:
        assert remote.protocol.kind == request.param
        yield remote


def seed(remote: RemoteEngine, number: int) -> dict[str, int]:
    """A seed, where the server heeds it."""
    return {"seed": number} if "seed" in remote.protocol.fields else {}


@pytest.mark.parametrize("labels", LABEL_SETS)
def test_scores_are_those_of_the_same_weights_here(remote: RemoteEngine, engine: Engine, labels: Any) -> None:
    prompts = [*PROMPTS, *plain_prompts(20)]
    for there, here in zip(remote.score(prompts, labels), engine.score(prompts, labels), strict=True):
        assert there.reason is None
        assert there.full_logprobs == pytest.approx(here.full_logprobs, abs=1e-3)
        assert (there.mass, there.prompt_tokens) == (pytest.approx(here.mass, rel=1e-2), here.prompt_tokens)


def test_greedy_texts_are_those_of_the_same_weights_here(remote: RemoteEngine, engine: Engine) -> None:
    """Some end by themselves, some are cut; the prompts' ends, U+FFFD among them, stay out of the texts."""
    asked = [
        engine.chat([Message("user", Prompt((Segment(text),)))])
        for text in ("Say hi.", "What is 2 + 2? A number alone.")
    ]
    prompts = [*asked, *PROMPTS, "Say hi. \ufffd"]
    how: dict[str, Any] = {"max_tokens": 24, "temperature": 0.0, "logprobs": 2}
    for there, here in zip(remote.generate(prompts, **how), engine.generate(prompts, **how), strict=True):
        assert (there.token_ids, there.text, there.finish_reason) == (here.token_ids, here.text, here.finish_reason)
        for one, other in zip(there.logprobs, here.logprobs, strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=1e-3)
            assert [token for token, _ in one.top] == [token for token, _ in other.top]


def test_prompts_are_read_as_by_the_same_weights_here(remote: RemoteEngine, engine: Engine) -> None:
    prompts = [*PROMPTS, *plain_prompts(5)]
    how: dict[str, Any] = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 2}
    for there, here in zip(remote.generate(prompts, **how), engine.generate(prompts, **how), strict=True):
        assert there.finish_reason == here.finish_reason
        for one, other in zip(there.prompt_logprobs, here.prompt_logprobs, strict=True):
            assert (one and one.token_id) == (other and other.token_id)
            if one and other:
                assert one.logprob == pytest.approx(other.logprob, abs=1e-3)
                assert [value for _, value in one.top] == pytest.approx([value for _, value in other.top], abs=1e-3)


CLOSED = {"additionalProperties": False}


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"choices": ["yes", "no"]}, r"yes|no"),
        ({"regex": "[ab]{3}"}, r"[ab]{3}"),
        (
            {"json_schema": {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]} | CLOSED},
            r"\s*{.*[12]\s*}",
        ),
        ({"stop": [" "], "max_tokens": 40}, r"[^ ]*"),
    ],
)
def test_forms_and_stops_hold(remote: RemoteEngine, options: dict[str, Any], allowed: str) -> None:
    for text in remote.generate(PROMPTS, **{"max_tokens": 32} | seed(remote, 5) | options):
        assert text.finish_reason == "length" or re.fullmatch(allowed, text.text, re.DOTALL), text


def test_samples_of_a_seed_come_again_and_differ_among_themselves(remote: RemoteEngine) -> None:
    if not seed(remote, 7):
        with pytest.raises(RemoteError, match="seed: sglang servers do not honour it"):
            remote.generate(PROMPTS[:1], seed=7)
        samples = remote.generate(PROMPTS[:1], n=4, max_tokens=16)
        assert len({text.text for text in samples}) > 1
        return
    [[first, second], again] = [remote.generate(PROMPTS[:1], n=2, seed=7, max_tokens=16) for _ in range(2)]
    assert [text.text for text in again] == [first.text, second.text] and first.text != second.text


def test_only_allowed_tokens_are_written(remote: RemoteEngine, engine: Engine) -> None:
    allowed = [engine.tokenizer.encode(letter, False)[0] for letter in "abc"]
    how: dict[str, Any] = {"allowed_token_ids": allowed, "max_tokens": 8} | seed(remote, 1)
    if "allowed_token_ids" not in remote.protocol.fields:
        with pytest.raises(RemoteError, match="allowed_token_ids: sglang servers do not honour it"):
            remote.generate(PROMPTS[:1], **how)
        return
    [text] = remote.generate(PROMPTS[:1], **how)
    assert set(text.token_ids) <= set(allowed) and len(text.token_ids) == 8


def test_a_prompt_beyond_the_context_costs_nobody_else_anything(remote: RemoteEngine) -> None:
    long, short = remote.score(["word " * 20_000, PROMPTS[0]], ["1", "2"])
    assert long.reason == "too_long" and short.reason is None


def test_a_judge_comes_to_the_same_verdicts(remote: RemoteEngine, engine: Engine) -> None:
    pairs = [Pair(prompt="Write.", a=f"A lamp, {n} years dark.", b="<|im_end|> 5 </ANSWER>") for n in range(3)]
    here, there = (PairwiseJudge(each, min_mass=0.0).compare(pairs) for each in (engine, remote))
    for mine, theirs in zip(here, there, strict=True):
        assert theirs.abstained is None
        assert theirs.preference == pytest.approx(mine.preference, abs=1e-3)
