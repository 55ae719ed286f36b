"""The fleet's life cycle, with processes that are lost, late or unavailable at the worst moments."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs the extra cluster")

from ray.exceptions import ActorUnavailableError, RayActorError

from adjudge.engine.cluster import dispatch, fleet, replica
from adjudge.engine.cluster.dispatch import Dispatcher
from adjudge.engine.cluster.fleet import Fleet
from adjudge.engine.cluster.order import Order
from adjudge.engine.cluster.replica import Heads, Opened, State
from adjudge.engine.errors import AdjudgeError, CallTooLarge, EngineFailed, NotServing, QueueFull
from adjudge.engine.sampling import Sampling
from tests.engine.cluster.actors import FOLDERS, Actor, Method, Weights


@pytest.fixture(autouse=True)
def killing(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(actor: Actor, no_restart: bool) -> None:
        actor.kills += 1
        actor.die()

    monkeypatch.setattr(fleet.ray, "kill", kill)
    monkeypatch.setattr(fleet.ray, "cancel", lambda stream: None)
    monkeypatch.setattr(replica, "folder_fingerprint", lambda folder: FOLDERS.get(str(folder), ""))
    FOLDERS.clear()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hangs is found out soon."""
    monkeypatch.setattr(fleet, "HANGS_SECONDS", 0.1)
    monkeypatch.setattr(dispatch, "HANGS_SECONDS", 0.1)
    monkeypatch.setattr(dispatch, "GRACE_SECONDS", 0.1)


async def opened(*actors: Actor) -> Fleet:
    found = Fleet(actors)
    await found.open()
    return found


def lose(one: Fleet, replica: int) -> None:
    """Lose a replica as the dispatcher notices it."""
    actor: Any = one.actors[replica]
    actor.die()
    one.lose(next(lane for lane in one.router.lanes if lane.replica == replica), RayActorError())


async def all_there(one: Fleet) -> list[Any]:
    """The weights of every replica, once each has its lane."""
    async with asyncio.timeout(20):
        while len(one.router.lanes) < len(one.actors):
            await asyncio.sleep(0.01)
    return [actor.weights for actor in one.actors]


def test_a_replica_that_comes_back_during_an_update_has_the_new_weights() -> None:
    async def run() -> None:
        one = await opened(Actor(changing=0.2), Actor(changing=0.2))
        lose(one, 1)  # back in 0.05 s, in the midst of the update
        await one.change(weights="new")
        assert await all_there(one) == ["new", "new"]

    asyncio.run(run())


def write(what: str, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write to the folder `what` what replicas open or take from now on."""
    if what == "adapter":
        monkeypatch.setattr(Weights, "adapter", content)
    FOLDERS[what] = content


async def all_settled(one: Fleet) -> None:
    """Return when each replica has a lane, or waits for an update."""
    async with asyncio.timeout(20):
        while len(one.router.lanes) + len(one._strange) < len(one.actors):
            await asyncio.sleep(0.01)


WAYS = [("adapter", {"adapter": "adapter"}), ("weights", {"weights": "weights"}), ("model", {"weights": "model"})]


@pytest.mark.parametrize(("what", "update"), WAYS)
def test_a_replica_that_comes_back_to_a_rewritten_folder_answers_only_after_the_next_update(
    what: str, update: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        write(what, "step 1", monkeypatch)
        one = await opened(Actor(), Actor())
        if what != "model":
            await one.change(**update)
        lose(one, 1)
        assert len(await all_there(one)) == 2 and not one._strange
        write(what, "step 2", monkeypatch)  # which is not taken by anybody
        lose(one, 1)
        await all_settled(one)
        said = "another adapter" if what == "adapter" else "other weights"
        assert [lane.replica for lane in one.router.lanes] == [0] and f"1 came back with {said}" in caplog.text
        await one.change(asleep=False)
        await all_settled(one)
        assert [lane.replica for lane in one.router.lanes] == [0]  # nothing has changed about that
        heads = await one.change(**update)
        assert len(await all_there(one)) == 2 and "step 2" in (heads.weights, heads.adapter)
        assert one.actors[1].kills == 0 and one.actors[1].process.loads == 3

    asyncio.run(run())


@pytest.mark.parametrize(("what", "update"), WAYS)
def test_when_all_came_back_to_a_rewritten_folder_calls_say_to_update_and_an_update_brings_all_back(
    what: str, update: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        write(what, "step 1", monkeypatch)
        one = await opened(Actor(), Actor())
        if what != "model":
            await one.change(**update)
        write(what, "step 2", monkeypatch)
        lose(one, 0)
        lose(one, 1)
        for _ in range(2):
            async with asyncio.timeout(20):
                with pytest.raises(NotServing, match="update_weights again"):
                    await one.wait()
            with pytest.raises(AdjudgeError, match="holds no weights"):
                await one.change(weights="none there")
            await one.change(asleep=False)  # which makes nothing of it good
        await one.change(**update)
        await one.wait()
        assert len(await all_there(one)) == 2 and not one._strange

    asyncio.run(run())


def test_a_replica_that_waits_for_an_update_and_hangs_is_started_again(
    impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        write("model", "step 1", monkeypatch)
        one = await opened(first := Actor())
        write("model", "step 2", monkeypatch)
        lose(one, 0)
        await all_settled(one)
        first.process.hangs = True
        await one.change(weights="model")
        assert len(await all_there(one)) == 1 and first.kills == 1

    asyncio.run(run())


def test_a_replica_comes_back_though_updates_are_faster_than_it_loads() -> None:
    async def run() -> None:
        first, second = Actor(), Actor(loading=0.1)
        one = await opened(first, second)
        lose(one, 1)
        for step in range(20):
            await asyncio.sleep(0.03)
            await one.change(weights=f"step {step}")
        assert await all_there(one) == ["step 19"] * 2
        assert second.process.loads == 2 and not second.kills

    asyncio.run(run())


def test_replicas_that_were_lost_while_nobody_asked_are_waited_for() -> None:
    async def run() -> None:
        one = await opened(Actor(), Actor())
        for actor in one.actors:
            actor.die()
        await one.change(weights="new")
        assert await all_there(one) == ["new", "new"]

    asyncio.run(run())


def test_a_replica_that_was_unavailable_for_a_moment_is_brought_up_to_date() -> None:
    async def run() -> None:
        first, second = Actor(), Actor()
        one = await opened(first, second)
        become = second.become.call

        async def unavailable(state: State) -> Heads:
            second.become.call = become
            raise ActorUnavailableError("", None)

        second.become.call = unavailable
        await one.change(weights="new")
        assert await all_there(one) == ["new", "new"] and not second.kills

    asyncio.run(run())


def test_what_all_refuse_changes_nothing_and_what_one_refuses_starts_it_again() -> None:
    async def run() -> None:
        first, second = Actor(), Actor()
        one = await opened(first, second)
        with pytest.raises(AdjudgeError, match="holds no weights"):
            await one.change(weights="none there")
        await one.change(asleep=True)
        assert all(actor.process._engine.asleep for actor in (first, second))
        second.process._engine.wake = None  # type: ignore[union-attr,assignment]
        await one.change(asleep=False)
        assert await all_there(one) == [None, None]
        assert (first.kills, second.kills, second.process.loads) == (0, 1, 2)
        assert not second.process._engine.asleep  # type: ignore[union-attr]

    asyncio.run(run())


def test_a_replica_that_hangs_does_not_hold_up_an_update(impatient: None, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        first, second = Actor(), Actor()
        one = await opened(first, second)
        second.process.hangs = True
        await one.change(weights="new")
        assert await all_there(one) == ["new", "new"]
        assert (first.kills, second.kills) == (0, 1)

    asyncio.run(run())
    assert caplog.messages == ["replica 1 was lost (it hangs): what it owes is asked of others"]


def test_a_call_that_hangs_ends_at_its_deadline_and_its_replica_is_started_again(impatient: None) -> None:
    found = Dispatcher([actor := Actor(hangs=True)])
    found.open()
    events: list[Any] = []
    found.start(Order([dispatch.Query(0, (1,), None, {0})], deadline=time.monotonic() + 0.1), events.append).result(20)
    assert [events[0][1].reason, *events[1:]] == ["timeout", None] and actor.kills == 0  # nobody waits for that
    found.change("sleep", asleep=True)  # by the replica that is back
    assert (actor.kills, actor.process.loads) == (1, 2)
    found.close(drain=True)


def asked(found: Dispatcher, **how: Any) -> list[Any]:
    """What comes of one prompt."""
    events: list[Any] = []
    found.start(Order([dispatch.Query(0, (1,), None, {0})], **how), events.append).result(20)
    return events


def begun_change(found: Dispatcher, what: str, **changes: Any) -> Future[Any]:
    return found.loop.start(found._until_closed, what, partial(found._change, what, **changes))


def test_a_replica_whose_engine_fails_is_lost_though_its_process_lives(impatient: None) -> None:
    found = Dispatcher([first := Actor(), second := Actor()])
    found.open()
    first.process.fails = [RuntimeError("device-side assert triggered")] * 99
    for _ in range(4):
        assert asked(found)[0][1].values.tolist() == [1.0]
    assert (first.kills, second.kills) == (1, 0) and not first.process.fails
    found.close(drain=True)


def test_a_replica_without_memory_is_no_mistake_of_the_call(impatient: None) -> None:
    found = Dispatcher([first := Actor(), second := Actor()])
    found.open()
    first.process.fails = [EngineFailed("no memory left for a step")] * 99
    for _ in range(4):
        assert asked(found)[0][1].values.tolist() == [1.0]
    assert (first.kills, second.kills) == (1, 0)
    found.close(drain=True)


def test_what_two_engines_fail_at_alike_is_told_to_its_caller(
    impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    found = Dispatcher(actors := [Actor(), Actor()])
    found.open()
    for actor in actors:
        actor.process.fails = [RuntimeError("no such kernel")] * 99
    with pytest.raises(RuntimeError, match="no such kernel"):
        raise asked(found)[0]
    assert sum(actor.kills for actor in actors) == 1 and "RuntimeError: no such kernel" in caplog.text
    for actor in actors:
        actor.process.fails = [AdjudgeError("no such label")]
    with pytest.raises(AdjudgeError, match="no such label"):
        raise asked(found)[0]  # what the caller did wrong costs no replica
    assert sum(actor.kills for actor in actors) == 1
    found.close(drain=True)


def test_what_moves_to_a_full_queue_waits_for_places(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "FULL_SECONDS", 0.01)
    found = Dispatcher([first := Actor(loading=0.01), second := Actor()])
    found.open()
    first.times = (1.0, 0.01)  # it comes back late
    full = [QueueFull("14 requests wait"), CallTooLarge("this call needs 40 places")]
    first.process.fails, second.process.fails = [RuntimeError("gone")], full * 2
    assert asked(found)[0][1].values.tolist() == [1.0] and not second.process.fails
    second.process.fails = full[:1]
    assert isinstance(asked(found)[0], QueueFull)  # a call that was not admitted yet is told so
    found.close(drain=False)


def test_a_replica_that_is_lost_again_and_again_comes_back_later_each_time() -> None:
    some = Fleet([])
    assert [some._pause(0) for _ in range(13)] == [0.0] * 5 + [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert some._pause(1) == 0.0


def test_a_call_without_a_deadline_does_not_wait_for_a_replica_that_hangs(
    impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "ASKED_EVERY_SECONDS", 0.1)
    monkeypatch.setattr(fleet, "BUSY_SECONDS", 0.5)
    found = Dispatcher([first := Actor(hangs=True), second := Actor(hangs=True)])
    found.open()
    events: list[Any] = []
    found.start(Order([dispatch.Query(0, (1,), None, {0})]), events.append).result(20)
    assert [events[0][1].values.tolist(), *events[1:]] == [[1.0], None]
    assert first.kills + second.kills >= 1
    found.close(drain=True)


def test_closing_does_not_wait_for_a_replica_that_hangs(impatient: None) -> None:
    found = Dispatcher([Actor(hangs=True)])
    found.open()
    events: list[Any] = []
    calling = found.start(Order([dispatch.Query(0, (1,), None, {0})]), events.append)
    found.close(drain=False)
    assert isinstance(events[0], NotServing) and calling.done()


@pytest.mark.parametrize("busy", [0.0, 0.2])
def test_closing_ends_a_change_that_does_not_end(busy: float) -> None:
    found = Dispatcher([Actor(changing=1000.0)])
    found.open()
    found.loop._loop.call_soon_threadsafe(time.sleep, busy)  # both then come to the loop at once
    changing = begun_change(found, "update_weights", weights="new")
    found.close(drain=False)
    with pytest.raises(NotServing, match="closed before update_weights was done"):
        changing.result(20)
    found.close(drain=True)


def test_a_dispatcher_says_so_in_a_process_that_was_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Dispatcher([Actor()])
    found.open()
    with monkeypatch.context() as there:
        there.setattr(found.loop, "process", -1)
        for ask in (lambda: asked(found), lambda: found.change("sleep", asleep=True)):
            with pytest.raises(AdjudgeError, match="this process was forked"):
                ask()
    found.close(drain=True)


def test_an_order_that_waits_for_a_change_keeps_its_deadline() -> None:
    found = Dispatcher([Actor(changing=1000.0)])
    found.open()
    changing = begun_change(found, "sleep", asleep=True)
    order = Order([dispatch.Query(0, (1,), None, {0})], deadline=time.monotonic() + 0.1)
    events: list[Any] = []
    found.start(order, events.append).result(20)
    assert not changing.done() and events[0][1].reason == "timeout" and events[-1] is None
    assert (order.prompt_tokens, order.cached_tokens) == (1, 0)  # as computed, for nobody found it in a cache
    found.close(drain=False)


def test_a_replica_is_opened_by_one_at_a_time() -> None:
    async def run() -> None:
        first, second = Actor(), Actor()
        one = await opened(first, second)
        call, states = first.open.call, list[State]()

        async def late(state: State) -> Opened:
            states.append(state)
            if len(states) == 1:
                await asyncio.sleep(0.3)  # it would come with the old state to a replica that has a new one
            opened: Opened = await call(state)
            return opened

        first.open = Method(late)
        one.lose(next(lane for lane in one.router.lanes if lane.replica == 0), TimeoutError(), kill=True)
        await asyncio.sleep(0.05)
        await one.open()
        await one.change(weights="new")
        await asyncio.sleep(0.5)
        assert first.kills == 1 and await all_there(one) == ["new", "new"]

    asyncio.run(run())


def test_a_prompt_is_counted_for_each_of_its_texts_that_is_given_up() -> None:
    order = Order([dispatch.Query(0, (1, 2, 3, 4), None, {0, 2})], Sampling(n=3))
    order.give_up(order.queries, "timeout")
    assert order.prompt_tokens == 8  # as an engine counts them; the other text was counted with its answer
