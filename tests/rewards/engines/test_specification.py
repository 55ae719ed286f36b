"""What engines are made of: what a server is told, and what it is not."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from typing import Any

import pytest

from adjudge.engine.absent import AbsentEngine
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.engine.remote import remote_engine
from adjudge.rewards.engines import specification
from adjudge.rewards.engines.specification import (
    EngineSpec,
    JudgeSource,
    JudgeSpec,
    engines_open_here,
    without_models,
)
from adjudge.rewards.judge_rewards.judge_reward import JudgeReward
from adjudge.rewards.judges.kinds import misfit
from adjudge.rewards.judges.pointwise import PointwiseJudge
from tests.engine.remote.peer import Peer

URL = "http://localhost:1"


def test_a_server_is_opened_with_what_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    class Remote:
        def __init__(self, *server: Any, **how: Any) -> None:
            opened.append((*server, how))

    monkeypatch.setattr(remote_engine, "RemoteEngine", Remote)
    monkeypatch.delenv("ADJUDGE_API_KEY", raising=False)
    told = {"tokenizer": "dummy:tiny-llama", "max_context": 512, "max_concurrency": 2, "timeout": 9.0, "retries": 0}
    for given in ({}, told):
        EngineSpec("m", url=URL, **given).open()  # type: ignore[arg-type]
    assert opened == [(URL, "m", {"api_key": None}), (URL, "m", {"api_key": None} | told)]


@pytest.mark.parametrize("own", [{"device": "cpu"}, {"dtype": "float32"}, {"adapter": "a", "kv_cache_gb": 1.0}])
def test_what_is_a_servers_own_matter_is_refused(own: dict[str, Any]) -> None:
    with pytest.raises(AdjudgeError, match=rf"a server, {URL} \(url\): leave out {' and '.join(own)}, which it"):
        EngineSpec("m", url=URL, **own)


def test_the_password_of_an_address_is_in_no_error() -> None:
    url = "http://me:secret@localhost:1"
    for make in (
        lambda: EngineSpec(url=url, adapter="a"),
        lambda: JudgeSpec("pointwise", engine=url),  # type: ignore[arg-type]
        lambda: JudgeSource(url),  # type: ignore[arg-type]
    ):
        with pytest.raises(AdjudgeError, match="http://localhost:1") as refused:
            make()
        assert "secret" not in str(refused.value)
    with without_models({}), pytest.raises(AdjudgeError, match="no judge was http://localhost:1 in this run"):
        EngineSpec(url=url).open()


def test_a_model_that_is_opened_here_has_its_own_tokenizer() -> None:
    with pytest.raises(AdjudgeError, match=r"tokenizer is for a server \(url\): a model here has its own"):
        EngineSpec("m", tokenizer="t")


@pytest.mark.parametrize(
    "judge", [("debate", {}), ("pointwise", {"mode": "reasoned"}), ("tree", {"weights": "generated"})]
)
def test_the_house_judge_is_not_asked_to_write(judge: tuple[str, dict[str, Any]]) -> None:
    with pytest.raises(AdjudgeError, match="house was trained to score, not to write: name another model"):
        JudgeSpec(*judge)
    JudgeSpec(*judge, EngineSpec("house", url=URL))  # another model may well be called so elsewhere
    JudgeSpec(*judge, EngineSpec("dummy:tiny-llama"))


@pytest.mark.parametrize("model", ["house", "smollm2-135m"])
def test_a_model_without_a_reward_head_is_no_scalar_judge(model: str) -> None:
    with pytest.raises(AdjudgeError, match=f"{model} has no reward head, .*: name a reward model"):
        JudgeSpec("scalar", engine=EngineSpec(model))
    JudgeSpec("scalar", engine=EngineSpec(model, adapter="head"))  # which may bring one
    JudgeSpec("scalar", engine=EngineSpec(model, url=URL))


def test_what_the_house_judge_was_not_trained_for_is_said_once_it_is_opened(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tiny = EngineSpec("dummy:tiny-llama", kv_cache_gb=0.05).open()
    monkeypatch.setattr(EngineSpec, "open", lambda spec: tiny)
    untrained, trained = JudgeSpec("principle"), JudgeSpec("pointwise")
    assert not caplog.text
    assert untrained.open().engine is trained.open().engine is tiny
    assert [record.getMessage() for record in caplog.records] == [
        "house was not trained for principle: its scores may mean nothing"
    ]


@pytest.mark.parametrize(
    ("judge", "options", "message"),
    [
        ("personal", {"k": "3"}, "k is '3': expected `int`, got `str`"),
        ("tree", {"form": "exact"}, "form is 'exact': choose fixed, parity"),
        ("tree", {"weights": {"emotion": 1.0}}, "weights is {'emotion': 1.0}: expected"),
        ("pointwise", {"mode": "direkt"}, "mode is 'direkt': choose direct, reasoned"),
        ("pointwise", {"cut": "centre"}, "cut is 'centre': choose middle, head, tail, never"),
        ("pointwise", {"aspects": [3]}, "'3' is no aspect"),
        ("principle", {"min_mass": "x"}, "min_mass is 'x': expected `float`"),
        ("debate", {"override": "x"}, "override is 'x'"),
        ("pairwise", {"orders": "ba"}, "orders is 'ba': choose both, ab"),
        ("tree", {"min_masses": 1}, "min_masses is no option of tree: choose from weights, "),
        ("tree", {"orders": "ab"}, "orders is for judge pairwise, "),
        ("tree", {"max_tokens": 9}, "max_tokens is for judges that write: add mode reasoned"),
    ],
)
def test_a_value_of_another_kind_is_named_before_anything_is_opened(
    judge: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(AdjudgeError, match="^" + re.escape(message)):
        JudgeSpec(judge, options, engine=EngineSpec("dummy:tiny-llama"))


def test_names_may_be_a_list_as_a_recipe_has_them() -> None:
    engine = EngineSpec("dummy:tiny-llama")
    tree = JudgeSpec("tree", {"without": ["formatting", "emotion"]}, engine=engine).open()
    assert tree.without == JudgeSpec("tree", {"without": "formatting, emotion"}, engine=engine).open().without  # type: ignore[attr-defined]
    one, two = (
        JudgeSpec("pointwise", {"aspects": a}, engine=engine).open()
        for a in (["style*2", {"wit": "Is it?"}], "style*2,wit=Is it?")
    )
    assert JudgeSpec("pointwise", {"aspects": {"wit": "Is it?"}}, engine).open().aspects == two.aspects[1:]  # type: ignore[attr-defined]
    assert one.aspects == two.aspects  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("aspects", "warns"),
    [
        ("coherence,ending", ""),
        ("hanna", ""),
        ("wit=Is it funny?", 'the aspect "wit",'),
        ("coherence,wit=Is it funny?,tone=Is it kind?", 'the aspects "wit", "tone", and'),
    ],
)
def test_house_says_that_it_was_not_trained_for_ones_own_aspects(aspects: str, warns: str) -> None:
    said = misfit("house", "pointwise", {"aspects": aspects})
    assert bool(said) == bool(warns) and warns in str(said)
    assert misfit("smollm2-135m", "pointwise", {"aspects": aspects}) is None


@pytest.mark.parametrize("weights", ["generated", " generated", ["generated "]])
def test_house_writes_no_weights_of_leaves(weights: Any) -> None:
    with pytest.raises(AdjudgeError, match="house"):
        misfit("house", "tree", {"weights": weights})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork_rewards_and_specifications_open_engines_of_their_own() -> None:
    peer = Peer("vllm", Engine("dummy:tiny-llama", kv_cache_gb=0.05))
    spec = EngineSpec(url=peer.url, tokenizer="dummy:tiny-llama")
    engine, reward = spec.open(), JudgeReward(JudgeSpec("pointwise", {"min_mass": 0.0}, engine=spec))
    values = reward(["Write."], ["A lamp."])
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            assert not engines_open_here() and not reward.engines
            assert reward(["Write."], ["A lamp."]) == values
            assert spec.open() is not engine
            os.write(write, b"done")
        finally:
            os._exit(0)
    os.close(write)
    assert os.read(read, 4) == b"done"
    os.waitpid(child, 0)
    assert spec.open() is engine and reward(["Write."], ["Two lamps."]) and reward.engines == (engine,)
    peer.close()


def test_what_is_open_already_waits_for_nothing_that_is_being_opened() -> None:
    judge = PointwiseJudge(AbsentEngine())
    source = JudgeSource(judge)
    named = JudgeSource(JudgeSpec("pointwise", engine=EngineSpec("dummy:tiny-llama", kv_cache_gb=0.05)))
    opened = named.judge
    held, let_go = Event(), Event()

    def opening() -> None:
        with specification._OPENING:
            held.set()
            let_go.wait(60)

    thread = Thread(target=opening)
    thread.start()
    held.wait(60)
    with ThreadPoolExecutor(1) as pool:
        try:
            assert pool.submit(lambda: source.judge).result(20) is judge
            assert pool.submit(lambda: named.judge).result(20) is opened
            assert named.engines[0] in pool.submit(engines_open_here).result(20)
        finally:
            let_go.set()
    thread.join()


def test_a_server_that_is_silent_when_it_is_opened_holds_up_no_other_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, let_go = Event(), Event()
    open_anew = EngineSpec.open_anew

    def patient(spec: EngineSpec) -> EngineFace:
        if spec.url is not None:
            asked.set()
            let_go.wait(60)
        return open_anew(spec if spec.url is None else EngineSpec("dummy:tiny-gpt2", kv_cache_gb=0.01))

    monkeypatch.setattr(EngineSpec, "open_anew", patient)
    silent, other = (
        JudgeSource(JudgeSpec("pointwise", engine=engine))
        for engine in (EngineSpec(url="http://127.0.0.1:9"), EngineSpec("dummy:tiny-qwen2", kv_cache_gb=0.01))
    )
    with ThreadPoolExecutor(3) as pool:
        try:
            waiting = [pool.submit(lambda: silent.judge) for _ in range(2)]
            assert asked.wait(60)
            assert pool.submit(lambda: other.judge).result(30) is other.judge
            assert not any(one.done() for one in waiting)
        finally:
            let_go.set()
        assert len({id(one.result(60)) for one in waiting}) == 1
