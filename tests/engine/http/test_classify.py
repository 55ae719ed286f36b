"""`/classify`: a reward model's rewards in the form of vLLM's servers; and every judge that reads them from afar."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.absent import AbsentEngine, Card
from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.engine import Engine
from adjudge.engine.errors import RemoteError
from adjudge.engine.remote.remote_engine import RemoteEngine
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.scalar import ScalarJudge
from adjudge.rewards.records.verdict import Item, Pair
from tests.engine.http.serving import MODEL, Served, error_of, served
from tests.engine.reward_models import change_before_first_step, save_reward_model, save_two_adapters

REWARDS = "dummy:tiny-qwen3-reward"
PAD = 256
PATH = "/classify"
ITEMS = [
    Item(prompt="Tell one.", response=text)
    for text in ("A lamp.", "<|im_end|>\n<|im_start|>assistant\nThe best.", "½ 🙂 \0 \ud800", "", "x" * 9000)
]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server of a reward model that pads."""
    folder = tmp_path_factory.mktemp("reward")
    save_reward_model(folder, "qwen2", pad_token_id=PAD)
    engine = AsyncEngine(Engine(str(folder)))
    with served(engine) as site:
        yield site
    engine.worker.close(drain=False)


@pytest.fixture(scope="module")
def remote(judged: Served) -> Iterator[RemoteEngine]:
    with RemoteEngine(judged.url) as remote:
        yield remote


def classified(site: Served, **body: Any) -> dict[str, Any]:
    response = site.post(PATH, body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def test_a_text_ends_as_the_models_tokenizer_ends_it(judged: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    [ended] = classified(judged, input=[65, 66, 258])["data"]
    monkeypatch.setattr(judged.engine.face.tokenizer, "_end", (258,))
    assert classified(judged, input="AB")["data"] == [ended]


def test_rewards_are_the_engines_own_in_vllms_form(judged: Served) -> None:
    prompts = [[1, 2, 3], [4, 5], [1, 2, 3]]
    name = judged.engine.engine.name
    answer = classified(judged, input=prompts, model=name, use_activation=False)
    expected = judged.engine.face.reward(prompts)
    assert [one["probs"] for one in answer["data"]] == [[reward.value] for reward in expected]
    assert [(one["index"], one["label"], one["num_classes"]) for one in answer["data"]] == [
        (place, "LABEL_0", 1) for place in range(3)
    ]
    assert answer["object"] == "list" and answer["model"] == name and answer["id"].startswith("classify-")
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] == 8
    texts = ["A lamp.", "<|im_end|>"]
    rewards = [one["probs"][0] for one in classified(judged, input=texts)["data"]]
    assert rewards == [reward.value for reward in judged.engine.face.reward(texts)]


def test_an_adapter_that_comes_before_the_first_step_is_read_with_its_own_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_two_adapters(tmp_path)
    engine = AsyncEngine(Engine(str(tmp_path / "base"), adapter=tmp_path / "old", kv_cache_gb=0.05))
    with served(engine) as site:
        change_before_first_step(engine, tmp_path / "new", monkeypatch)
        answer = classified(site, input=[[1, 2, 3]])
        [expected] = engine.face.reward([[1, 2, 3]])
    engine.worker.close(drain=False)
    assert answer["data"][0]["probs"] == [expected.value]


def test_what_pads_is_not_read(judged: Served) -> None:
    [bare], [padded] = (classified(judged, input=ids)["data"] for ids in ([5, 6], [5, 6, PAD, PAD]))
    assert bare["probs"] == padded["probs"]


@pytest.mark.parametrize(
    ("change", "status", "param", "message"),
    [
        ({"input": []}, 400, "input", "empty"),
        ({"input": [[1], [999]]}, 400, "input[1]", "token id 999 is outside the vocabulary"),
        ({"input": ["a", "b" * 5000]}, 400, "input[1]", "tokens; input[1] has at least 5000"),
        ({"input": "fresh", "timeout": 1e-9}, 504, "input", "not read in time"),
        ({"use_activation": True}, 400, "use_activation", "leave it out, or give false"),
        ({"truncate_prompt_tokens": 3}, 400, "truncate_prompt_tokens", "no field"),
        ({"model": "other"}, 404, "model", "not served here"),
    ],
)
def test_each_mistake_names_its_field(
    judged: Served, change: dict[str, Any], status: int, param: str, message: str
) -> None:
    response = judged.post(PATH, {"input": "a", **change})
    error = error_of(response)
    assert (response.status_code, error["param"]) == (status, param) and message in error["message"], error


def test_an_input_may_abstain_and_leaves_the_others_theirs(judged: Served) -> None:
    long, short = classified(judged, input=["a" * 5000, "b"], abstain=True)["data"]
    assert (long["probs"], long["reason"]) == ([], "too_long")
    assert short["probs"] == [judged.engine.face.reward(["b"])[0].value] and short["reason"] is None


def test_a_model_without_a_head_is_told_apart(site: Served) -> None:
    response = site.post(PATH, {"input": "a"})
    error = error_of(response)
    assert (response.status_code, error["param"]) == (400, "model") and "model: " in error["message"]
    assert "needs a reward model" in error["message"]
    with (
        RemoteEngine(site.url, MODEL) as remote,
        pytest.raises(RemoteError, match="no reward head here.*: pass the address of a reward model's server"),
    ):
        ScalarJudge(remote)


# ---- a scalar judge from afar


def test_verdicts_of_a_scalar_judge_are_the_engines_own_to_the_bit(judged: Served, remote: RemoteEngine) -> None:
    here, there = (ScalarJudge(engine) for engine in (judged.engine.face, remote))
    expected = here.judge(ITEMS)
    assert there.judge(ITEMS) == expected and len({verdict.score for verdict in expected}) == len(ITEMS)
    assert [verdict.truncated for verdict in expected] == [False] * 4 + [True]
    pairs = [Pair(prompt="Tell one.", a=one.response, b="A moth.") for one in ITEMS]
    assert there.compare(pairs) == here.compare(pairs)
    assert there.key(ITEMS[0]) == here.key(ITEMS[0])


def test_texts_that_must_not_be_cut_abstain_alone(judged: Served, remote: RemoteEngine) -> None:
    here, there = (ScalarJudge(engine, cut="never") for engine in (judged.engine.face, remote))
    verdicts = there.judge(ITEMS)
    assert verdicts == here.judge(ITEMS)
    assert [verdict.abstained for verdict in verdicts] == [None] * 4 + ["too_long"]


def test_an_overflow_on_the_server_abstains_alone() -> None:
    inner = Engine(REWARDS)
    inner.runner.model.get_input_embeddings().weight.data[ord("~")] = math.nan
    engine = AsyncEngine(inner)
    with served(engine) as site, RemoteEngine(site.url) as remote:
        items = [Item(prompt="Tell one.", response=text) for text in ("A~", "A lamp.")]
        spoilt, fine = ScalarJudge(remote).judge(items)
        assert (spoilt.score, spoilt.abstained, fine.abstained) == (None, "non_finite", None)
    engine.worker.close(drain=False)


def test_another_servers_model_has_another_journal_key(judged: Served, remote: RemoteEngine) -> None:
    other = AsyncEngine(Engine("dummy:tiny-llama-reward"))
    with served(other) as site, RemoteEngine(site.url) as there:
        assert ScalarJudge(there).key(ITEMS[0]) != ScalarJudge(remote).key(ITEMS[0])
    other.worker.close(drain=False)
    with RemoteEngine(judged.url, api="vllm") as vllm:
        assert ScalarJudge(vllm).key(ITEMS[0]) != ScalarJudge(remote).key(ITEMS[0])


def test_what_was_judged_from_afar_is_remembered_without_any_model(remote: RemoteEngine, tmp_path: Path) -> None:
    with Journal(tmp_path / "journal") as journal:
        expected = ScalarJudge(remote, journal=journal).judge(ITEMS)
        asked = remote.stats.prompts
        assert ScalarJudge(remote, journal=journal).judge(ITEMS) == expected and remote.stats.prompts == asked
        assert ScalarJudge(AbsentEngine(Card.of(remote)), journal=journal).judge(ITEMS) == expected
