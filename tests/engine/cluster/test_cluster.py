"""Two replicas on Ray, on this machine: the answers of one engine, also when a replica is killed in mid-run."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from adjudge import AdjudgeError, ClusterEngine, Engine, Labels, Pair, PairwiseJudge
from adjudge.cli import app
from adjudge.engine.batching.call import Call
from adjudge.engine.cluster import fleet
from adjudge.engine.cluster.async_cluster import AsyncClusterEngine
from adjudge.engine.cluster.ray_session import RaySession
from adjudge.engine.cluster.replica import Replica, State
from adjudge.engine.completion import Completion
from adjudge.engine.errors import NotServing, PromptError
from adjudge.engine.model_reward import ModelReward
from adjudge.engine.threads.worker import Piece
from adjudge.engine.waiting import wanted
from tests.engine.reward_models import save_reward_model
from tests.engine.tiny import TINY
from tests.jsonl import write_lines

ray = pytest.importorskip("ray")

PROMPTS = [f"Story {n % 5}: it was {'very ' * (n % 7)}dark. Question {n}." for n in range(40)]
NUMBERS = Labels(("1", "2", "10"), terminator="]]")
HALF: dict[str, Any] = {"num_cpus_per_replica": 0.5}  # room for a second cluster beside the first


POISON = "\N{SKULL AND CROSSBONES}"


class Fragile(Replica):
    """A replica that one text kills."""

    def load(self, state: State) -> Engine:
        engine = super().load(state)
        poison = engine.tokenizer.encode(POISON, False)
        prepare = engine.score_call

        def score_call(prompts: Any, labels: Any) -> Call:
            if any(prompt[-len(poison) :] == poison for prompt in prompts):
                os._exit(1)
            return prepare(prompts, labels)

        engine.score_call = score_call  # type: ignore[method-assign]
        return engine


class FragileCluster(ClusterEngine):
    replica = Fragile


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterEngine]:
    """The cluster of all tests that need no other, for replicas take seconds to start: each leaves both there."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the actors do not know this file
    with FragileCluster(Path(TINY), 2, max_queue=200, **HALF) as engine:
        yield engine


@pytest.fixture(scope="module")
def one() -> Engine:
    return Engine(TINY)


def inside(engine: ClusterEngine, replica: int, what: Any) -> Any:
    """What a function of the `Replica` gives in its own process."""
    return ray.get(engine.actors[replica].__ray_call__.remote(what))


def kill(engine: ClusterEngine, replica: int) -> None:
    os.kill(inside(engine, replica, lambda it: os.getpid()), signal.SIGKILL)


def is_busy(engine: ClusterEngine, replica: int) -> bool:
    return bool(inside(engine, replica, lambda it: it._engine.engine.scheduler.has_work()))


def test_scores_and_texts_are_those_of_one_engine_to_the_bit(cluster: ClusterEngine) -> None:
    alone = Engine(TINY)
    assert cluster.score(PROMPTS, NUMBERS) == alone.score(PROMPTS, NUMBERS)
    sets = [["yes", "no"], ["A", "B", "C"]] * 20
    assert cluster.score(PROMPTS, sets) == alone.score(PROMPTS, sets)
    how: dict[str, Any] = {"n": 2, "max_tokens": 6, "temperature": 0.9, "logprobs": 2, "prompt_logprobs": 1}
    assert cluster.generate(PROMPTS, **how) == alone.generate(PROMPTS, **how)  # the seeds are drawn alike
    assert cluster.generate(PROMPTS[:9], seeds=range(9), **how) == alone.generate(PROMPTS[:9], seeds=range(9), **how)
    form: dict[str, Any] = {
        "max_tokens": 16,
        "json_schema": {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]},
    }
    assert cluster.generate(PROMPTS[:3], **form) == alone.generate(PROMPTS[:3], **form)
    too_long = ["x" * 5000, "short"]
    assert cluster.score(too_long, NUMBERS) == alone.score(too_long, NUMBERS)
    assert cluster.generate(too_long, max_tokens=3) == alone.generate(too_long, max_tokens=3)
    assert (cluster.stats.prompts, cluster.stats.prompt_tokens) == (alone.stats.prompts, alone.stats.prompt_tokens)
    assert 0 < cluster.stats.tokens_computed < cluster.stats.prompt_tokens
    assert cluster.stats.tokens_written == alone.stats.tokens_written > 0
    assert all(inside(cluster, replica, lambda it: it._engine.engine.stats.steps) for replica in (0, 1))


def test_replicas_are_as_urgent_as_who_asks_them(cluster: ClusterEngine) -> None:
    assert inside(cluster, 0, lambda it: os.nice(0)) == os.nice(0)


def test_a_cluster_that_is_opened_by_a_path_has_its_name_as_a_text(cluster: ClusterEngine) -> None:
    assert cluster.name == TINY


def test_a_judge_gives_the_verdicts_of_one_engine(cluster: ClusterEngine, one: Engine) -> None:
    pairs = [Pair(prompt="Tell one.", a=f"A story. {n}", b="Another.") for n in range(3)]
    assert PairwiseJudge(cluster).compare(pairs) == PairwiseJudge(one).compare(pairs)
    assert PairwiseJudge(cluster).key(pairs[0]) == PairwiseJudge(one).key(pairs[0])


def test_calls_of_many_threads_get_their_own_answers(cluster: ClusterEngine, one: Engine) -> None:
    def ask(number: int) -> bool:
        some = PROMPTS[number::8]
        return cluster.score(some, ["1", "2"]) == expected[number::8]

    expected = one.score(PROMPTS, ["1", "2"])
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))


def test_what_is_wrong_with_a_call_is_said_before_it_is_sent(cluster: ClusterEngine) -> None:
    with pytest.raises(PromptError, match="regex cannot be followed"):
        cluster.generate_call(["a"], regex="(")
    with pytest.raises(PromptError, match="empty"):
        cluster.score_call([""], NUMBERS)
    assert cluster.score([], NUMBERS) == []


def test_hidden_states_are_those_of_one_engine_to_the_bit(cluster: ClusterEngine, one: Engine) -> None:
    prompts = [*PROMPTS[:12], "x" * 5000]
    expected = one.embed(prompts)
    found = asyncio.run(AsyncClusterEngine(cluster).embed(prompts))
    for embeddings in (cluster.embed(prompts), found):
        assert embeddings[-1].reason == "too_long" and embeddings[-1].values is None
        for embedding, other in zip(embeddings[:-1], expected[:-1], strict=True):
            assert other.values is not None and np.array_equal(embedding.values, other.values)
    assert {embedding.reason for embedding in cluster.embed(PROMPTS, timeout=0.0)} == {"timeout"}
    cluster.require_embeddings()
    with pytest.raises(AdjudgeError, match="no reward head here"):
        cluster.reward(PROMPTS[:1])


def test_a_plain_string_is_sent_with_the_token_that_its_tokenizer_ends_a_text_with(
    cluster: ClusterEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.tokenizer, "_end", (258,))
    ended, whole = cluster.embed(["ab", [97, 98, 258]])
    assert np.array_equal(ended.values, whole.values) and ended.prompt_tokens == 3


def test_a_reward_model_can_be_a_replica_and_hands_out_its_head(tmp_path: Path) -> None:
    save_reward_model(tmp_path / "first")
    save_reward_model(tmp_path / "second", seed=1)
    one = Engine(str(tmp_path / "first"), kv_cache_gb=0.05)

    async def run() -> None:
        replica = Replica(str(tmp_path / "first"), {"kv_cache_gb": 0.05})
        opened = await replica.open(State())
        assert opened.heads.reward_head == one.reward_head is not None
        assert opened.vocabulary == one.runner.vocabulary
        messages = [message async for message in replica.ask("embed", [(65, 66)])]
        [[(_, embedding)], _] = messages
        assert ModelReward.of(embedding) == one.reward([[65, 66]])[0]
        second = State().changed(weights=str(tmp_path / "second"))
        heads = await replica.become(second)
        one.update_weights(tmp_path / "second")
        assert heads.reward_head == one.reward_head != opened.heads.reward_head
        another = Replica(str(tmp_path / "first"), {"kv_cache_gb": 0.05})
        assert (await another.open(second)).heads == heads  # those that come back have what the others have
        assert heads.weights != opened.heads.weights
        await replica._opened.close()
        await another._opened.close()

    asyncio.run(run())


def test_a_deadline_is_kept_in_the_replicas(cluster: ClusterEngine) -> None:
    assert {score.reason for score in cluster.score(PROMPTS, NUMBERS, timeout=0.0)} == {"timeout"}
    assert {text.finish_reason for text in cluster.generate(PROMPTS[:4], timeout=0.0)} == {"timeout"}


def test_leaving_a_call_early_cancels_it_in_the_replicas(cluster: ClusterEngine) -> None:
    texts = cluster.generate_iter(PROMPTS[:8] * 8, max_tokens=1900, ignore_eos=True, stop="q")
    next(texts)
    assert is_busy(cluster, 0) or is_busy(cluster, 1)
    texts.close()  # type: ignore[attr-defined]
    cluster.sleep()  # refused while a call is under way; to their ends the texts would take minutes
    cluster.wake()
    assert not is_busy(cluster, 0) and not is_busy(cluster, 1)


def test_a_call_that_nobody_waits_for_ends_and_is_cancelled_in_the_replicas(cluster: ClusterEngine) -> None:
    with wanted() as given_up:
        texts = cluster.generate_iter([[65] * 2047, "Once"], max_tokens=1500, ignore_eos=True)
        assert next(texts)[0] == 0
        given_up.cancel()
        with pytest.raises(NotServing, match="the request that this is read for has ended"):
            next(texts)
    cluster.sleep()  # refused while a call is under way
    cluster.wake()
    assert not is_busy(cluster, 0) and not is_busy(cluster, 1)


def test_a_killed_replica_takes_nothing_with_it_and_no_answer_comes_twice(
    cluster: ClusterEngine, one: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    how: dict[str, Any] = {"n": 2, "max_tokens": 120, "seed": 5}
    expected = one.generate(PROMPTS[:12], **how)
    texts = cluster.generate_iter(PROMPTS[:12], **how)
    found = dict([next(texts)])
    with caplog.at_level(logging.WARNING, "adjudge"):
        kill(cluster, 0)
        for place, text in texts:
            assert place not in found
            found[place] = text
    assert [found[place] for place in range(24)] == expected
    assert "replica 0 was lost" in caplog.text
    cluster.dispatcher.open()  # until it is back
    assert cluster.score(PROMPTS, NUMBERS) == one.score(PROMPTS, NUMBERS)


def test_a_text_in_pieces_goes_on_where_its_replica_was_killed(
    cluster: ClusterEngine, one: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    how: dict[str, Any] = {"max_tokens": 200, "ignore_eos": True, "seed": 3}
    [expected] = one.generate(PROMPTS[:1], **how)

    async def stream() -> tuple[list[Piece], list[Completion], int]:
        engine = AsyncClusterEngine(cluster)
        answers = await engine.open_generate(PROMPTS[:1], pieces=True, **how)
        pieces: list[Piece] = []
        completions: list[Completion] = []
        async for event in answers:
            if not isinstance(event, Piece):
                completions.append(event[1])
                continue
            pieces.append(event)
            if len(pieces) == 3:
                assert engine.counters()["tokens_waiting"] > 0
                [busy] = [replica for replica in (0, 1) if await asyncio.to_thread(is_busy, cluster, replica)]
                await asyncio.to_thread(kill, cluster, busy)
        return pieces, completions, answers.prompt_tokens

    with caplog.at_level(logging.WARNING, "adjudge"):
        pieces, completions, prompt_tokens = asyncio.run(stream())
    assert "was lost" in caplog.text
    assert completions == [expected]
    assert "".join(piece.text for piece in pieces) == expected.text
    assert tuple(token for piece in pieces for token in piece.tokens) == expected.logprobs
    assert prompt_tokens == expected.prompt_tokens
    cluster.dispatcher.open()


def test_a_replica_that_hangs_costs_a_call_no_more_than_its_time_and_is_started_again(
    cluster: ClusterEngine, one: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "ASKED_EVERY_SECONDS", 0.5)
    monkeypatch.setattr(fleet, "BUSY_SECONDS", 5.0)
    expected = one.score(PROMPTS, NUMBERS)
    hung = inside(cluster, 0, lambda it: os.getpid())
    os.kill(hung, signal.SIGSTOP)
    with caplog.at_level(logging.WARNING, "adjudge"):
        found = list(cluster.score_iter(PROMPTS, NUMBERS, timeout=1.0))
        assert sorted(place for place, _ in found) == list(range(40))
        assert {score.reason for place, score in found if score != expected[place]} == {"timeout"}
        assert "was lost" not in caplog.text  # nobody waits for that any more
        assert cluster.score(PROMPTS, NUMBERS) == expected
    assert "replica 0 was lost" in caplog.text
    cluster.dispatcher.open()
    assert inside(cluster, 0, lambda it: os.getpid()) != hung


def test_replicas_are_told_paths_in_full(
    cluster: ClusterEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_reward_model(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    told: list[Any] = []
    monkeypatch.setattr(RaySession, "start", lambda self, kind, arguments, *_: told.append(arguments) or 1 / 0)
    for model in ("model", TINY):
        with pytest.raises(ZeroDivisionError):
            ClusterEngine(model, adapter=Path("lora"))
    full = {"adapter": str(tmp_path / "lora"), "device": "auto"}
    assert told == [(str(tmp_path / "model"), full), (TINY, full)]


def test_event_loops_get_the_same_answers_and_what_was_cached(cluster: ClusterEngine, one: Engine) -> None:
    async def ask() -> tuple[list[Any], int, int]:
        engine = AsyncClusterEngine(cluster)
        assert engine.face is cluster
        await engine.score(PROMPTS, NUMBERS)
        answers = await engine.open_score(PROMPTS, NUMBERS)
        scores = [event async for event in answers]
        assert engine.counters()["replicas"] == 2 and engine.counters()["tokens_waiting"] == 0
        return scores, answers.prompt_tokens, answers.cached_tokens

    scores, prompt_tokens, cached_tokens = asyncio.run(ask())
    expected = one.score(PROMPTS, NUMBERS)
    assert sorted(scores, key=lambda pair: pair[0]) == list(enumerate(expected))
    assert prompt_tokens == sum(score.prompt_tokens for score in expected)
    assert 0 < cached_tokens <= prompt_tokens  # all of it, where each prompt comes to the replica that read it


def test_new_weights_reach_every_replica_and_those_that_come_back(
    cluster: ClusterEngine, one: Engine, tmp_path: Path
) -> None:
    from safetensors.torch import save_file

    before = one.score(PROMPTS, NUMBERS)
    old = {name: tensor.clone() for name, tensor in one.runner.model.state_dict().items()}
    changed = Engine(TINY)
    for folder, factor in ((tmp_path / "new", 0.5), (tmp_path / "old", 1.0)):
        folder.mkdir()
        save_file({name: tensor * factor for name, tensor in old.items()}, folder / "model.safetensors")
    changed.update_weights(tmp_path / "new")
    after = changed.score(PROMPTS, NUMBERS)
    assert after != before
    fingerprint = cluster.fingerprint
    cluster.update_weights(tmp_path / "new")
    assert cluster.fingerprint != fingerprint
    assert cluster.score(PROMPTS, NUMBERS) == after
    kill(cluster, 0)
    assert cluster.score(PROMPTS, NUMBERS) == after
    cluster.dispatcher.open()
    assert cluster.score(PROMPTS, NUMBERS) == after
    assert inside(cluster, 0, lambda it: it._engine.engine.stats.steps)
    with pytest.raises(AdjudgeError, match="holds no weights"):
        cluster.update_weights(tmp_path)
    texts = cluster.generate_iter(PROMPTS[:4], max_tokens=1900, ignore_eos=True, stop="q")
    next(texts)
    with pytest.raises(AdjudgeError, match="under way"):
        cluster.update_weights(tmp_path / "old")
    texts.close()  # type: ignore[attr-defined]
    cluster.update_weights(tmp_path / "old")
    assert cluster.score(PROMPTS, NUMBERS) == before


def test_sleeping_replicas_say_so(cluster: ClusterEngine, one: Engine) -> None:
    asyncio.run(AsyncClusterEngine(cluster).sleep())
    with pytest.raises(AdjudgeError, match="asleep"):
        cluster.score(PROMPTS, NUMBERS)
    asyncio.run(AsyncClusterEngine(cluster).wake())
    assert cluster.score(PROMPTS, NUMBERS) == one.score(PROMPTS, NUMBERS)


def test_a_sleeping_cluster_wakes_beside_those_who_ask_it_and_one_that_is_awake_stays_so(
    cluster: ClusterEngine, one: Engine
) -> None:
    expected, stop = one.score(PROMPTS, NUMBERS), Event()

    def ask() -> int:
        answered = 0
        while not stop.is_set():
            try:
                answered += cluster.score(PROMPTS, NUMBERS) == expected
            except NotServing:
                answered = 0
        return answered

    cluster.sleep()
    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(ask) for _ in range(3)]
        for _ in range(5):
            cluster.wake()
        time.sleep(1)
        stop.set()
        assert all(one.result() for one in asking)


def test_a_text_that_kills_replicas_is_given_up_and_its_neighbours_are_answered(
    cluster: ClusterEngine, one: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "adjudge"):
        [*scores, last] = cluster.score([*PROMPTS[:7], POISON], ["1", "2"])
    assert scores == one.score(PROMPTS[:7], ["1", "2"])
    assert (last.reason, last.logprobs) == ("cancelled", None)
    assert "given up" in caplog.text
    cluster.dispatcher.open()


def test_a_call_for_which_no_queue_has_places_says_so(cluster: ClusterEngine) -> None:
    with pytest.raises(AdjudgeError, match="places in a queue of 200"):
        cluster.score([f"Prompt {n}." for n in range(440)], ["1", "2"])


def test_a_cluster_whose_replicas_are_started_no_more_says_so(cluster: ClusterEngine) -> None:
    with ClusterEngine(TINY, 1, **HALF) as lost:
        texts = lost.generate_iter(PROMPTS[:4], max_tokens=1900, ignore_eos=True)
        ray.kill(lost.actors[0])
        with pytest.raises(NotServing, match="every replica was lost and could not be started again"):
            next(texts)
    with pytest.raises(NotServing, match="closed"):
        lost.score(PROMPTS, NUMBERS)
    assert ray.is_initialized()  # which the other cluster began


def test_clusters_of_one_process_share_what_is_there_and_ray_ends_with_the_last(cluster: ClusterEngine) -> None:
    left = int(ray.cluster_resources()["CPU"]) - 1
    with pytest.raises(AdjudgeError, match=rf"and the cluster has {left} left: ask for fewer"):
        ClusterEngine(TINY, left + 1)  # Ray would wait for the first to end
    second = RaySession(None)
    second.close()
    second.close()
    assert ray.is_initialized() and cluster.score(PROMPTS[:2], NUMBERS)


def test_a_cluster_that_cannot_be_opened_says_why(cluster: ClusterEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AdjudgeError, match="64 replicas with 1 CPU each need 64 CPU"):
        ClusterEngine(TINY, 64)
    with pytest.raises(AdjudgeError, match="max_batch_tokens is 0"):
        ClusterEngine(TINY, 1, max_batch_tokens=0, **HALF)
    with pytest.raises(AdjudgeError, match="replicas is 0"):
        ClusterEngine(TINY, 0)
    with pytest.raises(AdjudgeError, match=r"seed is \[1\]: give a whole number, or None"):
        ClusterEngine(TINY, seed=[1])  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(AdjudgeError, match=r"pip install 'adjudge\[cluster\]'"):
        ClusterEngine(TINY)


def test_judge_with_replicas_writes_the_same_bytes(tmp_path: Path) -> None:
    rows = [{"prompt": "Tell one.", "story_a": f"Story {n}. " * 9, "story_b": "Another.", "id": n} for n in range(3)]
    write_lines(tmp_path / "pairs.jsonl", *rows)
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    arguments = ["judge", str(tmp_path / "pairs.jsonl"), "--model", TINY, "--aspects", "coherence"]
    assert CliRunner().invoke(app, [*arguments, "-o", str(one)]).exit_code == 0
    command = [sys.executable, "-m", "adjudge", *arguments, "-o", str(two), "--replicas", "2"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert two.read_bytes() == one.read_bytes()
    said = (result.stdout + result.stderr).lower().splitlines()
    assert "computed" in result.stdout
    assert not [line for line in said if "ray" in line and "waiting for ray to start" not in line]  # slow machines wait


TOLD_TO_END = f"""
import atexit, os, signal
from adjudge import ClusterEngine

atexit.register(lambda: print(cluster.dispatcher.loop._thread.is_alive()))  # after what is registered later
cluster = ClusterEngine({TINY!r}, 1)
cluster.score(["once"], ["1", "2"])
os.kill(os.getpid(), signal.SIGTERM)
signal.pause()
"""


def test_a_program_that_is_told_to_end_closes_its_cluster_before_ray_ends() -> None:
    result = subprocess.run([sys.executable, "-c", TOLD_TO_END], capture_output=True, text=True)
    assert result.stdout == "False\n", result.stderr  # Ray's own end may be SIGTERM's or SIGABRT's
