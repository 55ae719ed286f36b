"""Calls of many tasks and threads on one engine: equal to the engine's own, each answered once, none left behind."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from adjudge.engine.async_engine import Answers, AsyncEngine, in_order
from adjudge.engine.batching.writing import Writer
from adjudge.engine.completion import Completion, TokenLogprob
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, CallTooLarge, LabelError, NotServing, PromptError, QueueFull
from adjudge.engine.sampling import Sampling
from adjudge.engine.text import grammar
from adjudge.engine.text.growing_text import GrowingText
from adjudge.engine.text.prompt import Prompt
from adjudge.engine.threads.worker import Piece, Ticket, Worker
from adjudge.engine.threads.worker_engine import SharedEngine
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.records.verdict import Pair
from tests.engine.reward_models import save_reward_model
from tests.engine.tiny import TINY, plain_prompts

LABELS = ["1", "2", "3"]
WRITING: dict[str, Any] = {"max_tokens": 16, "ignore_eos": True, "temperature": 0.8}


def fresh(**how: Any) -> Engine:
    return Engine(TINY, kv_cache_gb=0.05, **how)


@pytest.fixture(scope="module")
def plain() -> Engine:
    """What results are compared with."""
    return fresh()


def is_idle(engine: Engine) -> bool:
    """Nothing runs or waits, and only the cache holds blocks."""
    engine.cache.clear()
    return not engine.scheduler.has_work() and engine.cache.pool.free == engine.cache.pool.usable


def test_calls_of_many_tasks_share_steps_and_equal_those_of_one(plain: Engine) -> None:
    calls = [plain_prompts(4, seed) for seed in range(8)]
    seeds = [1, 2, 3, 4]

    async def run(engine: AsyncEngine) -> list[Any]:
        async with engine:
            return await asyncio.gather(
                *(engine.score(prompts, LABELS) for prompts in calls),
                *(engine.generate(prompts, seeds=seeds, **WRITING) for prompts in calls),
            )

    engine = fresh()
    expected = [
        *(plain.score(prompts, LABELS) for prompts in calls),
        *(plain.generate(prompts, seeds=seeds, **WRITING) for prompts in calls),
    ]
    steps = plain.stats.steps
    assert asyncio.run(run(AsyncEngine(engine))) == expected
    assert engine.stats.steps < steps / 4
    assert is_idle(engine)


def test_threads_judge_beside_tasks_that_write(plain: Engine) -> None:
    pairs = [Pair(prompt="Write.", a=f"A lamp, {n} years dark.", b=f"{n} moths.") for n in range(4)]
    expected = PairwiseJudge(plain).compare(pairs)
    text = plain.generate(["Once"], seed=5, **WRITING)

    async def run(engine: AsyncEngine) -> None:
        judge = PairwiseJudge(engine.face)
        async with engine:
            with ThreadPoolExecutor() as pool:
                verdicts = [pool.submit(judge.compare, [pair]) for pair in pairs]
                assert await engine.generate(["Once"], seed=5, **WRITING) == text
                assert [await asyncio.wrap_future(verdict) for verdict in verdicts] == [[v] for v in expected]

    asyncio.run(run(AsyncEngine(fresh())))


def pieces_of(engine: Engine, prompt: Any, **how: Any) -> tuple[list[Piece], Completion]:
    async def run() -> tuple[list[Piece], Completion]:
        async with AsyncEngine(engine) as face:
            found = [event async for event in await face.open_generate([prompt], pieces=True, **how)]
            assert all(isinstance(event, Piece) for event in found[:-1])
            return found[:-1], found[-1][1]  # type: ignore[return-value, index]

    return asyncio.run(run())


@pytest.mark.parametrize("seed", range(4))
def test_pieces_make_up_the_text_and_none_is_taken_back(seed: int) -> None:
    """The tiny model writes random bytes: broken characters throughout."""
    pieces, completion = pieces_of(fresh(), "Once", seed=seed, max_tokens=60, ignore_eos=True)
    assert "".join(piece.text for piece in pieces) == completion.text
    assert [token for piece in pieces for token in piece.tokens] == list(completion.logprobs)
    assert len(pieces) > 10


def test_pieces_hold_back_what_a_stop_string_may_take_away(smollm2_engine: Engine) -> None:
    prompt = Prompt.template("Count: one, two, three, four,")
    whole = smollm2_engine.generate([prompt], temperature=0.0, max_tokens=12)[0].text
    assert "seven" in whole
    stop = ("seven", "sevenfold")
    pieces, completion = pieces_of(smollm2_engine, prompt, temperature=0.0, max_tokens=12, stop=stop)
    assert "".join(piece.text for piece in pieces) == completion.text == whole[: whole.index("seven")]
    assert len([piece for piece in pieces if piece.text]) > 2


@pytest.mark.parametrize("stop", [("AAA",), ("AAAB", "AAA"), ("BA", "AAA")])
def test_a_stop_string_of_several_tokens_leaves_no_beginning_of_it_in_the_pieces(stop: tuple[str, ...]) -> None:
    how: dict[str, Any] = {"allowed_token_ids": [65], "max_tokens": 9, "stop": stop}
    pieces, completion = pieces_of(fresh(), "Once", **how)
    assert "".join(piece.text for piece in pieces) == completion.text == ""
    assert completion.token_ids == (65, 65, 65) and completion.finish_reason == "stop"
    assert [token for piece in pieces for token in piece.tokens] == list(completion.logprobs)


def test_leaving_a_call_frees_what_it_held(plain: Engine) -> None:
    async def run(engine: AsyncEngine) -> None:
        long: dict[str, Any] = {**WRITING, "max_tokens": 1500, "seed": 1}
        left = await engine.open_generate(["Once"], pieces=True, **long)
        async for _ in left:
            break
        left.close()
        task = asyncio.create_task(engine.generate(["Twice"], **long))
        await engine.score(["Between"], LABELS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await engine.score(["After"], LABELS) == plain.score(["After"], LABELS)
        await engine.update_weights(adapter=None)  # which wants an idle engine
        await engine.close()

    engine = fresh()
    asyncio.run(run(AsyncEngine(engine)))
    assert is_idle(engine)


def test_a_call_that_has_ended_is_empty_when_it_is_asked_again() -> None:
    async def run(engine: AsyncEngine) -> list[int]:
        async with engine, asyncio.timeout(60):
            call = await engine.open_score(["Once", "Twice"], LABELS)
            return [len([answer async for answer in call]) for _ in range(3)]

    assert asyncio.run(run(AsyncEngine(fresh()))) == [2, 0, 0]


def test_a_call_that_has_failed_or_was_left_ends_when_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fresh()
    gate = Gate(engine, monkeypatch, failing=True)
    gate.opened.set()

    async def run(face: AsyncEngine) -> None:
        async with face, asyncio.timeout(60):
            failed = await face.open_score(["Once"], LABELS)
            with pytest.raises(RuntimeError):
                await in_order(failed)
            left = await face.open_score(["Once"], LABELS)
            asking = asyncio.create_task(in_order(left))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])
            assert await in_order(failed) == [] and len(await in_order(left)) <= 1

    asyncio.run(run(AsyncEngine(engine)))


def test_mistakes_reach_the_call_that_made_them(plain: Engine) -> None:
    async def run(engine: AsyncEngine) -> None:
        async with engine:
            good = asyncio.create_task(engine.score(["Once"], LABELS))
            for error, call in (
                (PromptError, engine.generate([[99999]])),
                (PromptError, engine.generate(["Once"], max_tokens=0)),
                (LabelError, engine.score(["Once"], ["1", "1"])),
                (CallTooLarge, engine.score(plain_prompts(9), LABELS)),
            ):
                with pytest.raises(error):
                    await call
            with pytest.raises(CallTooLarge):
                await asyncio.to_thread(engine.face.score, plain_prompts(9), LABELS)
            assert await good == plain.score(["Once"], LABELS)

    asyncio.run(run(AsyncEngine(fresh(max_queue=8))))


def test_a_call_that_the_garbage_collector_ends_does_not_lock_out_the_one_it_began_in(
    plain: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, scores = Worker(fresh()), []
    face, begin = SharedEngine(worker), worker.start
    left = [face.score_iter(plain_prompts(2), LABELS)]
    next(left[0])

    def start(*how: Any) -> Callable[[], None]:
        left.clear()  # as the collector may, wherever objects are made
        return begin(*how)

    monkeypatch.setattr(worker, "start", start)
    caller = threading.Thread(target=lambda: scores.extend(face.score(["Once"], LABELS)), daemon=True)
    caller.start()
    caller.join(30)
    assert scores == plain.score(["Once"], LABELS)
    worker.close()


def test_a_text_waits_for_its_form_no_longer_than_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, few = threading.Event(), ThreadPoolExecutor(1)
    monkeypatch.setattr(grammar.THREADS, "here", few)

    async def run(engine: AsyncEngine) -> None:
        async with engine:
            few.submit(opened.wait, 60)
            with pytest.raises(QueueFull, match="^regex was not prepared in time"):
                await engine.generate(["Once"], regex="a", timeout=0.05)
            [chosen] = await engine.generate(["Once"], choices=["a", "b"], timeout=60.0)  # waits for nobody's form
            assert chosen.text in ("a", "b")
            opened.set()
            [formed] = await engine.generate(["Once"], regex="a", timeout=60.0)
            assert formed.text == "a"

    asyncio.run(run(AsyncEngine(fresh())))


class Recording(AsyncEngine):
    """Notes of each call when it is to be done."""

    deadline = math.inf

    def _begin(self, call: Any, priority: int, timeout: float | None, pieces: bool = False) -> Answers:
        self.deadline = call.terms.deadline(timeout, call.begun)
        return super()._begin(call, priority, timeout, pieces)


@pytest.mark.parametrize("verb", ["score", "generate", "embed", "reward"])
def test_time_counts_from_when_a_call_is_asked_and_not_from_when_a_thread_is_free(verb: str, tmp_path: Path) -> None:
    if verb == "reward":
        save_reward_model(tmp_path)
    what = {"score": [LABELS], "generate": [Sampling(max_tokens=1)]}.get(verb, [])

    async def run(engine: Recording) -> tuple[float, float]:
        async with engine:
            opened, few = threading.Event(), ThreadPoolExecutor(1)
            asyncio.get_running_loop().set_default_executor(few)
            few.submit(opened.wait, 60)
            asking = asyncio.create_task(getattr(engine, verb)([[65]], *what, timeout=60.0))
            await asyncio.sleep(0)
            asked = time.monotonic()
            opened.set()
            [answer] = await asking
            assert getattr(answer, "reason", None) is None
            return asked, engine.deadline

    engine = Engine(str(tmp_path), kv_cache_gb=0.05) if verb == "reward" else fresh()
    asked, deadline = asyncio.run(run(Recording(engine)))
    assert deadline <= asked + 60.0


class Gate:
    """Holds an engine's next step until it is opened, then lets it fail or go on."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch, failing: bool) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        forward: Callable[..., torch.Tensor] = engine.runner.forward

        def held(step: Any) -> torch.Tensor:
            self.reached.set()
            assert self.opened.wait(60)
            monkeypatch.setattr(engine.runner, "forward", forward)
            if failing:
                raise RuntimeError("the device is gone")
            return forward(step)

        monkeypatch.setattr(engine.runner, "forward", held)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[AsyncEngine, Gate]]:
    engine = fresh()
    gate = Gate(engine, monkeypatch, failing=False)
    yield AsyncEngine(engine), gate
    gate.opened.set()


def test_a_step_that_fails_ends_the_calls_under_way_and_no_later_one(
    plain: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = fresh()
    gate = Gate(engine, monkeypatch, failing=True)

    async def run(face: AsyncEngine) -> None:
        async with face:
            calls = [asyncio.create_task(face.score([prompt], LABELS)) for prompt in ("One", "Two")]
            await asyncio.to_thread(gate.reached.wait, 60)
            gate.opened.set()
            failed = await asyncio.gather(*calls, return_exceptions=True)
            assert any(isinstance(error, RuntimeError) for error in failed)
            assert await face.score(["Once"], LABELS) == plain.score(["Once"], LABELS)

    asyncio.run(run(AsyncEngine(engine)))
    assert is_idle(engine)


@pytest.mark.parametrize("drain", [True, False])
def test_closing_lets_calls_end_or_fail_and_takes_no_new_ones(
    held: tuple[AsyncEngine, Gate], drain: bool, plain: Engine
) -> None:
    face, gate = held

    async def run() -> None:
        early = asyncio.create_task(face.generate(["Once"], seed=3, **WRITING))
        await asyncio.to_thread(gate.reached.wait, 60)
        closing = asyncio.create_task(face.close(drain))
        while face.worker._inbox.empty():  # until it has asked
            await asyncio.sleep(0)
        gate.opened.set()
        if drain:
            assert await early == plain.generate(["Once"], seed=3, **WRITING)
        else:
            with pytest.raises(AdjudgeError, match="closed"):
                await early
        await closing

    asyncio.run(run())
    assert is_idle(face.engine)


def test_a_change_nobody_waits_for_any_more_is_not_made(held: tuple[AsyncEngine, Gate], plain: Engine) -> None:
    face, gate = held

    async def run() -> None:
        early = asyncio.create_task(face.score(["Once"], LABELS))
        await asyncio.to_thread(gate.reached.wait, 60)
        change = asyncio.create_task(face.sleep())
        while face.worker._inbox.empty():
            await asyncio.sleep(0)
        change.cancel()
        with pytest.raises(asyncio.CancelledError):
            await change
        gate.opened.set()
        assert await early == plain.score(["Once"], LABELS) == await face.score(["Once"], LABELS)
        await face.close()

    asyncio.run(run())
    assert not face.engine.asleep


def test_who_comes_after_the_end_is_refused_and_does_not_wait() -> None:
    async def run(face: AsyncEngine) -> None:
        await face.close()
        for call in (face.score(["Once"], LABELS), face.generate(["Once"]), face.wake()):
            with pytest.raises(NotServing, match="closed"):
                await call
        with pytest.raises(NotServing):
            face.face.score(["Once"], LABELS)
        for nothing in (face.score([], LABELS), asyncio.to_thread(face.face.score, [], LABELS)):
            with pytest.raises(NotServing):
                await nothing
        await face.close()

    asyncio.run(run(AsyncEngine(fresh())))


def test_what_stood_in_the_cache_is_counted() -> None:
    prompts = plain_prompts(6)

    async def run(face: AsyncEngine) -> tuple[int, int]:
        async with face:
            await face.score(prompts, LABELS)
            answers = await face.open_score([[*prompts[0], 7]], LABELS)
            async for _ in answers:
                pass
            return answers.prompt_tokens, answers.cached_tokens

    asked, cached = asyncio.run(run(AsyncEngine(fresh())))
    shared = max(sum(1 for _ in iter_common(prompts[0], other)) for other in prompts[1:])
    assert (asked, cached) == (len(prompts[0]) + 1, shared)


def iter_common(left: list[int], right: list[int]) -> Iterator[int]:
    for a, b in zip(left, right, strict=False):
        if a != b:
            return
        yield a


def test_a_text_is_certain_only_as_far_as_no_stop_string_may_begin(plain: Engine) -> None:
    call = plain.generate_call(["Once"], stop=("</A>", "aab"))
    [writer] = call.requests
    assert isinstance(writer, Writer)
    for text, certain in (("x<", "x"), ("x</A", "x"), ("x</B", "x</B"), ("aa", ""), ("aaa", "a"), ("é\ufffd", "é")):
        writer.written = GrowingText(lambda codes: "".join(map(chr, codes)))
        for character in text:
            writer.written.add(ord(character))
        assert writer.settled_text() == certain


def test_all_of_a_text_has_come_in_pieces_when_its_answer_does(plain: Engine) -> None:
    call = plain.generate_call(["Once"], stop=("</A>",))
    [writer] = call.requests
    assert isinstance(writer, Writer)
    writer.written = GrowingText(lambda codes: "".join(map(chr, codes)))
    events: list[Any] = []
    ticket = Ticket(call, events.append, pieces=True)
    for character in "x</":
        writer.take(TokenLogprob(ord(character), -1.0))
        ticket.forward()
    writer.give_up()  # no token comes, and what was held back is not the beginning of a stop string
    ticket.forward()
    *pieces, (place, answer), end = events
    assert [piece.text for piece in pieces] == ["x", "", "", "</"] and (place, end) == (0, None)
    assert answer.text == "x</" and answer.logprobs == tuple(one for piece in pieces for one in piece.tokens)


def test_what_a_step_answered_before_it_failed_comes_before_the_error(
    plain: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = fresh()
    step = engine.step

    def answers_and_fails() -> None:
        step()
        raise RuntimeError("no")

    monkeypatch.setattr(engine, "step", answers_and_fails)

    async def run(face: AsyncEngine) -> list[tuple[int, Any]]:
        given = []
        async with face:
            with pytest.raises(RuntimeError, match="no"):
                async for event in await face.open_score([[1, 2], [3, 4, 5, 6, 7, 8]], LABELS):
                    given.append(event)
        return given

    engine.scheduler.max_batch_tokens = 4  # the first prompt, and a part of the second
    assert asyncio.run(run(AsyncEngine(engine))) == [(0, plain.score([[1, 2]], LABELS)[0])]


def test_answers_that_nobody_holds_are_no_longer_computed() -> None:
    async def run() -> None:
        async with AsyncEngine(Engine("dummy:tiny-llama", kv_cache_gb=0.01)) as face:
            await face.open_generate([[1, 2]], max_tokens=400, ignore_eos=True, pieces=True)
            await face.sleep()  # refused while a call is under way

    asyncio.run(run())


def test_a_shared_engine_says_so_in_a_process_that_was_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedEngine(Worker(Engine("dummy:tiny-llama", kv_cache_gb=0.01)))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(AdjudgeError, match="this process was forked"):
        shared.score(["a"], ["1", "2"])


def test_what_stands_before_an_engine_makes_no_tables_of_its_own() -> None:
    engine = Engine("dummy:tiny-llama", kv_cache_gb=0.01)
    assert SharedEngine(Worker(engine)).byte_table() is engine.byte_table()


@pytest.mark.parametrize("engine", ["house", None])
def test_the_name_of_an_engine_is_no_engine(engine: Any) -> None:
    before = threading.active_count()
    with pytest.raises(AdjudgeError, match=r"engine is .*: give an open one, as AsyncEngine\(Engine\(name\)\)"):
        AsyncEngine(engine)
    assert threading.active_count() == before
