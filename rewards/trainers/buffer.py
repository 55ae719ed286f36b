"""`Buffer`: samples that arrive one by one, put together into their groups."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from numbers import Real
from threading import TIMEOUT_MAX, Condition, Thread
from typing import Any

from adjudge.engine.checking import at_least, is_number, shown
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.parts.layer import learning
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.grouping import Sample, group_of
from adjudge.rewards.reward import GroupReward
from adjudge.rewards.trainers.filling import Filling, LoneAbstention, Member
from adjudge.rewards.trainers.scoring import Scorer

REMEMBERED = 4096
"""Members of groups that are done, kept for samples that come again."""


_log = logging.getLogger("adjudge")


class Buffer:
    """Waits for the `size` members of a group, then scores them as one; any thread may `put`.

    A group that is not whole `patience` seconds after its first member came is scored as it is, with a warning; time in
    which the reward is busy does not count. Groups that are ready while the reward is busy are scored together, one
    step to guards and length trends; a mistake in one of them is raised to its own members.

    A sample that comes again, by its identity, counts once: it gets what it got, also for `patience` seconds after its
    group is done, and its text is the later one where the group still waits. Samples without an identity are all
    different; a whole group under one identity is a mistake, raised to it.

    A sample that is alone and abstains gets `fill`; without that number LoneAbstention is raised to it: see `filled`.
    What a group without any reward gets is said by `Filling`: there is one for groups that learn, one for the others.
    `most` is how many samples the trainer has waiting at a time: when as many wait for others of their groups, all are
    told by an AdjudgeError that these cannot come.
    """

    def __init__(
        self,
        scorer: Scorer,
        size: int,
        patience: float = 300.0,
        fill: float | None = None,
        most: int | None = None,
    ) -> None:
        at_least(1, num_generations=size)
        if not (is_number(patience, Real) and 0 <= patience <= TIMEOUT_MAX):
            raise AdjudgeError(f"patience is {shown(patience)}: give the seconds that a group waits for its members")
        self.scorer, self.size, self.patience = scorer, size, patience
        if most is not None:
            at_least(1, most=most)
        self.fill, self.most = fill, most
        self._filling = {learns: Filling(fill) for learns in (True, False)}
        self._changed = Condition()
        self._waiting: dict[Hashable, _Waiting] = {}
        self._done: OrderedDict[tuple[Hashable, Hashable], tuple[str, Future[Member], _Waiting]] = OrderedDict()
        self._thread: Thread | None = None

    def __getstate__(self) -> tuple[Any, ...]:
        return self.scorer, self.size, self.patience, self.fill, self.most

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    @property
    def together(self) -> AbstractContextManager[Any]:
        """A block in which all that is put becomes whole at one time, and is scored in one call if it can be."""
        return self._changed

    def put(
        self,
        group: Hashable,
        sample: Sample,
        identity: Hashable = None,
        size: int | None = None,
        learns: bool = True,
    ) -> Future[Member]:
        """What the sample gets, once its group is scored; `group` tells which samples belong together.

        `size` is the group's, where it is not the one of all; guards and length trends see nothing of a group that does
        not `learns` (in an evaluation).
        """
        with self._changed:
            whole = self.size if size is None else size
            if (known := self._again(group, sample, identity, whole)) is not None:
                return known
            waiting = self._waiting.get(group)
            if waiting is None:
                waiting = self._waiting[group] = _Waiting(time.monotonic() + self.patience, learns)
            future = waiting.add(sample, identity)
            if len(waiting.samples) >= whole:
                del self._waiting[group]
                self._waiting[object()] = waiting  # the next sample begins another group
                waiting.until = 0.0
            if identity is not None:
                self._remember((group, identity), sample.response, future, waiting)
            self._check_room()
            if self._thread is None or not self._thread.is_alive():  # it stays behind where a process forks
                self._thread = Thread(target=self._run, name="adjudge-buffer", daemon=True)
                self._thread.start()
            self._changed.notify()
            return future

    def _again(self, group: Hashable, sample: Sample, identity: Hashable, whole: int) -> Future[Member] | None:
        """What a sample that has come before gets; the text of one whose group still waits is the new one."""
        if identity is None:
            return None
        waiting = self._waiting.get(group)
        if waiting is not None and (future := waiting.replace(sample, identity)) is not None:
            self._remember((group, identity), sample.response, future, waiting)
            if len(waiting.samples) == 1 and 2 < whole <= waiting.texts:  # of two, one may have come again
                del self._waiting[group]
                waiting.fail(_one_name(identity, waiting.texts))
            return future
        if (found := self._done.get((group, identity))) is None:
            return None
        response, known, its_group = found
        if response != sample.response or time.monotonic() > its_group.ended + self.patience:
            return None
        return None if known.cancelled() or (known.done() and known.exception() is not None) else known

    def _check_room(self) -> None:
        """Fail all groups that wait for members where these find no room to come in."""
        if self.most is None:
            return
        wanting = [key for key, waiting in self._waiting.items() if waiting.until]
        if sum(len(self._waiting[key].samples) for key in wanting) >= self.most:
            error = AdjudgeError(
                f"{self.most} samples wait for others of their groups, which is as many as the trainer has waiting at a"
                " time: the others cannot come; train on fewer prompts at a time, or raise what it lets in and say so"
            )
            for key in wanting:
                self._waiting.pop(key).fail(error)

    def _remember(
        self, key: tuple[Hashable, Hashable], response: str, future: Future[Member], waiting: _Waiting
    ) -> None:
        self._done[key] = (response, future, waiting)
        while len(self._done) > REMEMBERED:
            self._done.popitem(last=False)

    def _run(self) -> None:
        """Score what is ready until nothing waits."""
        while ready := self._ready():
            began = time.monotonic()
            self._score(ready)
            self._wait_longer(began)

    def _wait_longer(self, began: float) -> None:
        """Give groups that are not whole the time back in which the reward was busy, since they or it began."""
        with self._changed:
            ended = time.monotonic()
            for waiting in self._waiting.values():
                if waiting.until:
                    waiting.until += ended - max(began, waiting.until - self.patience)

    def _ready(self) -> list[_Waiting]:
        with self._changed:
            while self._waiting:
                now = time.monotonic()
                ready = [key for key, waiting in self._waiting.items() if waiting.until <= now]
                if ready:
                    learns = self._waiting[ready[0]].learns
                    return [self._taken(key) for key in ready if self._waiting[key].learns == learns]
                self._changed.wait(min(waiting.until for waiting in self._waiting.values()) - now)
            self._thread = None
            return []

    def _taken(self, key: Hashable) -> _Waiting:
        waiting = self._waiting.pop(key)
        if waiting.until:
            _log.warning(
                'reward "%s": a group is scored with %d members, as no more came within %g s (prompt "%s"): check'
                " num_generations, and that all its samples are sent to one process",
                self.scorer.name, len(waiting.samples), self.patience, waiting.samples[0].prompt[:40],
            )  # fmt: skip
        return waiting

    def _score(self, ready: Sequence[_Waiting]) -> None:
        """Score the groups at one go; a mistake in one of them is told to its own members only."""
        whole: list[tuple[_Waiting, Group]] = []
        for waiting in ready:
            try:
                whole.append((waiting, group_of(waiting.samples)))
            except Exception as error:  # also of an id that cannot be read
                waiting.fail(error)
        try:
            with learning(ready[0].learns):
                answers = self.scorer.score_apart([group for _, group in whole])
        except BaseException as error:
            for waiting, _ in whole:
                waiting.fail(error)
        else:
            filling = self._filling[ready[0].learns]
            filling.note(answer for answer in answers if isinstance(answer, GroupReward))
            for (waiting, _), answer in zip(whole, answers, strict=True):
                if isinstance(answer, AdjudgeError):
                    waiting.fail(answer)
                else:
                    waiting.settle(answer, filling)


async def waited(put: Future[Member]) -> Member:
    """What `Buffer.put` promised, for event loops; a caller that is cancelled leaves its sample in the group."""
    return await asyncio.shield(asyncio.wrap_future(put))


def _one_name(identity: Hashable, texts: int) -> AdjudgeError:
    return AdjudgeError(
        f"{texts} different samples of a group came as {str(identity)[:40]!r}: give an identity that tells the samples"
        " of one prompt apart, which a column of the data set does not, or none"
    )


class _Waiting:
    """A group whose members are coming in, until all are there or `until` has passed; `texts` counts different ones.

    `ended` is when it was answered: not yet. `learns` says whether guards and length trends see it.
    """

    def __init__(self, until: float, learns: bool) -> None:
        self.until, self.ended, self.learns = until, math.inf, learns
        self.samples: list[Sample] = []
        self._futures: list[Future[Member]] = []
        self._places: dict[Hashable, int] = {}
        self.texts = 0

    def add(self, sample: Sample, identity: Hashable) -> Future[Member]:
        future: Future[Member] = Future()
        if identity is not None:
            self._places[identity] = len(self.samples)
        self.texts += 1
        self.samples.append(sample)
        self._futures.append(future)
        return future

    def replace(self, sample: Sample, identity: Hashable) -> Future[Member] | None:
        if (place := self._places.get(identity)) is None:
            return None
        self.texts += self.samples[place].response != sample.response
        self.samples[place] = sample
        return self._futures[place]

    def settle(self, reward: GroupReward, filling: Filling) -> None:
        try:
            members = filling.members(reward)
        except LoneAbstention as error:
            return self.fail(error)
        self.ended = time.monotonic()
        for future, member in zip(self._futures, members, strict=True):
            if future.set_running_or_notify_cancel():
                future.set_result(member)

    def fail(self, error: BaseException) -> None:
        self.ended = time.monotonic()
        for future in self._futures:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
