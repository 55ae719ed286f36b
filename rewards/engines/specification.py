"""What engines and judges are made of: small records that pickle, from which they are opened where they are needed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from adjudge.engine.checking import shown
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.aliases import HOUSE, SMOLLM2
from adjudge.engine.remote.address import without_secrets
from adjudge.engine.threads.forked import Renewed
from adjudge.rewards.engines.engine_choice import EngineChoice
from adjudge.rewards.engines.lending import policy_engine
from adjudge.rewards.imported import is_own
from adjudge.rewards.judges.kinds import KINDS, kind_name, kind_of, misfit, of_pairs, prepare
from adjudge.rewards.judges.options import options_by_name

if TYPE_CHECKING:
    from adjudge.engine.face import EngineFace
    from adjudge.rewards.judges.judge import Judge


_log = logging.getLogger("adjudge")
Opened = TypeVar("Opened")


class EngineSpec(EngineChoice, frozen=True):
    """Which model is opened, and how: in this process (see `Engine`), or behind a server at `url` (see `RemoteEngine`).

    Without `model` it is "house", under an `adapter` "smollm2-135m", and of a server the one it serves; `tokenizer`
    names whose tokenizer that has, where it is not found under the model's own name, `max_context` how many tokens it
    takes, where it does not say, `max_concurrency` how many requests to it are under way at most, `timeout` how many
    seconds an attempt may take and `retries` how often it is made again; its key is read from the variable
    ADJUDGE_API_KEY. The model "policy" is the one in training, its base weights without the adapter and no copy of
    them: see `Reward.during_training`. Raises AdjudgeError for what does not go together.
    """

    def __post_init__(self) -> None:
        self.check_together()
        if self.url is None and self.model is None:
            msgspec.structs.force_setattr(self, "model", SMOLLM2.name if self.adapter else HOUSE.name)
        if self.of_policy and (self.adapter, self.device, self.dtype) != (None, "auto", "auto"):
            raise AdjudgeError('the model "policy" is where the policy is, bare: leave out adapter, device and dtype')

    def check(self) -> None:
        """Raise what `open` would of a model or adapter that is not there; no weights are read, and no server asked."""
        from adjudge.engine.models.adapters import read_adapter
        from adjudge.engine.models.sources import resolve

        if self.url is None and not self.of_policy and self.model is not None:
            resolve(self.model)
            if self.adapter is not None:
                read_adapter(self.adapter)

    def open(self) -> EngineFace:
        """The engine; equal specifications share one for as long as anybody in the process holds it."""
        if (stand_ins := _STAND_INS.get()) is not None:
            if self not in stand_ins:
                name = self.model or without_secrets(self.url or "")
                raise AdjudgeError(f"no judge was {name} in this run: name the models that it used")
            return stand_ins[self]
        with _OPENING if self.url is None else _SERVERS.setdefault(self, RLock()):
            engine = policy_engine(self) if self.of_policy else _ENGINES.get(self)
            if engine is None:
                engine = _ENGINES[self] = self.open_anew()
            _SPECS[engine] = self
            return awake(engine)


_ENGINES: WeakValueDictionary[EngineSpec, EngineFace] = WeakValueDictionary()
_SPECS: WeakKeyDictionary[EngineFace, EngineSpec] = WeakKeyDictionary()
_OPENING = RLock()
"""Held while a model is opened or woken: no two threads load one twice, or two at once."""
_SERVERS: dict[EngineSpec, RLock] = {}
"""Held while a server is asked what it serves: one that is silent holds up nobody who wants another."""
_STAND_INS: ContextVar[Mapping[EngineSpec, EngineFace] | None] = ContextVar("adjudge_stand_ins", default=None)


def _begin_anew() -> None:
    """After a fork nothing is open here: engines, connections and a lock that another thread held are the parent's."""
    global _ENGINES, _SPECS, _OPENING, _SERVERS
    _ENGINES, _SPECS, _OPENING, _SERVERS = WeakValueDictionary(), WeakKeyDictionary(), RLock(), {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


class OpenedHere(Generic[Opened]):
    """What was given open, or what this process has opened: of a fork it is the parent's.

    Where it is unpickled nobody has opened it; what was given open does not pickle: AdjudgeError.
    """

    def __init__(self, given: Opened | None = None) -> None:
        self._given = self._opened = given
        self._process = 0
        self._opening = Renewed(RLock)

    @property
    def opened(self) -> Opened | None:
        """It, if it is open."""
        return self._opened if self._process == os.getpid() else self._given

    def or_open(self, open_it: Callable[[], Opened]) -> Opened:
        """It, opened so where it is not open yet."""
        if (opened := self.opened) is not None:
            return opened
        with self._opening.here:
            if (opened := self.opened) is None:
                opened = self._opened = open_it()
                self._process = os.getpid()
            return opened

    def __reduce__(self) -> tuple[type[OpenedHere[Opened]], tuple[()]]:
        if self._given is not None:
            raise AdjudgeError(
                f"what was made from an open {type(self._given).__name__} cannot be pickled: make it from its JudgeSpec"
                " or EngineSpec, by which it is opened where it is used"
            )
        return type(self), ()


def awake(engine: EngineFace) -> EngineFace:
    """The engine, woken where another reward that shares its specification has put it to sleep."""
    if getattr(engine, "asleep", False):
        with _OPENING:
            if engine.asleep:  # type: ignore[attr-defined]
                engine.wake()  # type: ignore[attr-defined]
    return engine


@contextmanager
def without_models(stand_ins: Mapping[EngineSpec, EngineFace]) -> Iterator[None]:
    """Within the block (of this thread or task) specifications open no model, but what stands in for it.

    With an `AbsentEngine` by the model's card verdicts then come from a journal, or ModelNeeded is raised.
    """
    token = _STAND_INS.set(stand_ins)
    try:
        yield
    finally:
        _STAND_INS.reset(token)


def engines_open_here() -> list[EngineFace]:
    """All that this process holds and that were opened from a specification; none is waited for that is being opened.

    Hence references, which are listed at once: engines one by one could change in number meanwhile.
    """
    return [engine for reference in _ENGINES.valuerefs() if (engine := reference()) is not None]


def engines_open(engines: Iterable[EngineFace]) -> dict[EngineSpec, EngineFace]:
    """Those of the engines that were opened from a specification, by it."""
    return {_SPECS[engine]: engine for engine in engines if engine in _SPECS}


class JudgeSpec(msgspec.Struct, frozen=True):
    """A judge by its name (`KINDS`), with the options that `adjudge judge` has for it, its engine and its journal.

    The engine is by default that of `house`. `options` may give `aspects` as `Aspect`s and `rubric` as a `Rubric` too.
    A judge of one's own is "package.module:name", a class that is opened as `name(engine, journal=…, **options)`; its
    module is imported here, and in each process that the specification is sent to.
    Raises AdjudgeError for a judge that nobody knows, for options that it does not take, where `house` would have to
    write, and for a scalar judge on a model with a short name, none of which is a reward model; the log warns where
    `house` was not trained for that judge.
    """

    judge: str
    options: dict[str, Any] = {}
    engine: EngineSpec = EngineSpec()
    journal: str | None = None

    @property
    def of_pairs(self) -> JudgeSpec:
        """The same for pairs, where the judge has a form for these."""
        return msgspec.structs.replace(self, judge=of_pairs(self.judge))

    def __post_init__(self) -> None:
        if not isinstance(self.engine, EngineSpec):
            raise AdjudgeError(
                f"engine is {without_secrets(str(self.engine))!r:.60}: give an EngineSpec, or open the judge yourself"
            )
        if not isinstance(self.options, dict):
            raise AdjudgeError(f"options are {str(self.options)!r:.60}: give a dict of them, and an engine as engine=…")
        given: Any = self.judge
        if not isinstance(given, str):
            name = f"{given.__module__}:{given.__qualname__}" if isinstance(given, type) else "pointwise"
            raise AdjudgeError(f'the judge is {shown(given)}: give its name, as JudgeSpec("{name}")')
        if kind_of(self.judge).gather is not None:
            raise AdjudgeError(f"{self.judge} judges the texts of a file beside each other: choose another judge")
        with options_by_name():
            prepare(self.judge, self.options)
        misfit(self._model, self.judge, self.options)

    @property
    def _model(self) -> str | None:
        """The model that is opened here as it comes."""
        return self.engine.model if self.engine.url is None and self.engine.adapter is None else None

    def open(self) -> Judge[Any, Any]:
        """The judge, on the engine that its specification shares."""
        from adjudge.rewards.journal import AS_IT_WAS, Journal

        if warning := misfit(self._model, self.judge, self.options):
            _log.warning(warning)
        engine = self.engine.open()
        journal = None if self.journal is None else Journal(self.journal, mend=AS_IT_WAS)  # which makes the file
        return prepare(self.judge, self.options)(engine, journal)


class JudgeSource:
    """A judge that is there already, or is opened when it is first wanted, in each process. It pickles as its spec."""

    def __init__(self, judge: Judge[Any, Any] | JudgeSpec) -> None:
        if isinstance(judge, str):
            name = without_secrets(judge)[:40]
            raise AdjudgeError(f'the judge is "{name}", a text: give JudgeSpec("{name}"), or an open judge')
        if not isinstance(judge, JudgeSpec):
            _check_open(judge)
        self.spec = judge if isinstance(judge, JudgeSpec) else None
        self._here: OpenedHere[Judge[Any, Any]] = OpenedHere(None if isinstance(judge, JudgeSpec) else judge)

    @property
    def judge(self) -> Judge[Any, Any]:
        """The judge, open; one from a specification with its engine awake."""
        judge = self._here.or_open(self._open)
        for engine in () if self.spec is None else self.engines:
            awake(engine)
        return judge

    def _open(self) -> Judge[Any, Any]:
        assert self.spec is not None
        return self.spec.open()

    @property
    def kind(self) -> str | None:
        """Its name among KINDS; None for a judge of the user's own making."""
        return kind_name(self.known) if self.spec is None or is_own(self.spec.judge) else self.spec.judge

    @property
    def known(self) -> Judge[Any, Any] | type[Judge[Any, Any]] | None:
        """What is known of it without opening one by name: an open judge, or the class of one of the user's own."""
        if self.spec is None:
            return self.judge
        from adjudge.rewards.judges.own import own_class

        return own_class(self.spec.judge) if is_own(self.spec.judge) else None

    @property
    def of_pairs(self) -> bool:
        """Whether it judges pairs."""
        from adjudge.rewards.records.verdict import PairVerdict

        if self.kind is not None:
            return KINDS[self.kind].what == "pairs"
        return issubclass(getattr(self.known, "verdict_type", object), PairVerdict)

    @property
    def engines(self) -> tuple[EngineFace, ...]:
        """Its engine, if the judge is open and has one."""
        engine = getattr(self._here.opened, "engine", None)
        return () if engine is None else (engine,)


def _check_open(judge: object) -> None:
    """Raise AdjudgeError for what is no open judge."""
    from adjudge.engine.face import EngineFace
    from adjudge.rewards.judges.judge import Judge

    if isinstance(judge, Judge):
        return
    mend = "derive its class from OwnJudge, or give FunctionReward(function)"
    if isinstance(judge, type) and issubclass(judge, Judge):
        mend = f"open it, as {judge.__name__}(engine)"
    elif isinstance(judge, EngineFace):
        mend = "give a judge on it, as PointwiseJudge(engine)"
    raise AdjudgeError(f"the judge is {shown(judge)}, which is no open judge: {mend}")
