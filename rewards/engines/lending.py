"""A policy in training whose base weights judge it: the engine of a specification that says `model="policy"`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import RLock
from typing import TYPE_CHECKING, Any

from adjudge.engine.errors import AdjudgeError

if TYPE_CHECKING:
    from adjudge.engine.engine import Engine
    from adjudge.rewards.engines.specification import EngineSpec

POLICY = "policy"
"""The name of the model that is the policy's own base weights."""


class PolicyWeights:
    """The base weights of a policy that is trained with a LoRA adapter, as the model of judges (see `Lent`).

    `model` is the transformers model or PEFT's, wrapped or not; the trainer may wrap it later. Without a `tokenizer` it
    is the one saved with the model; without a `fingerprint` the weights' content is hashed, once. Engines are opened
    when they are first wanted, one for each specification, and held as long as this is.
    """

    def __init__(self, model: Any, tokenizer: Any = None, *, name: str = "", fingerprint: str = "") -> None:
        self.model, self.tokenizer = model, tokenizer
        self.name, self.fingerprint = name, fingerprint
        self._engines: dict[EngineSpec, Engine] = {}
        self._opening = RLock()

    def engine(self, spec: EngineSpec) -> Engine:
        """The engine of a specification, open."""
        from adjudge.engine.engine import Engine

        with self._opening:
            if spec not in self._engines:
                self._engines[spec] = Engine(self._lent(), **spec.given)
            return self._engines[spec]

    def _lent(self) -> Any:
        from adjudge.engine.models.fingerprints import content_fingerprint
        from adjudge.engine.models.lent import Lent, unwrapped
        from adjudge.engine.models.sources import tokenizer_named

        base = unwrapped(self.model)
        name = str(base.config.name_or_path)
        if self.tokenizer is None:
            if not name:
                raise AdjudgeError("the policy was not saved with a tokenizer: give it to PolicyWeights")
            self.tokenizer = tokenizer_named(name)
        self.fingerprint = self.fingerprint or content_fingerprint(base, self.tokenizer)
        return Lent(self.model, self.tokenizer, self.name or name or POLICY, self.fingerprint)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Within the block (of this thread or task) they are the model that specifications call the policy."""
        token = _LENT.set(self)
        try:
            yield
        finally:
            _LENT.reset(token)

    def __getstate__(self) -> object:
        raise AdjudgeError("a reward on a policy's weights cannot be pickled: put during_training on where they are")


_LENT: ContextVar[PolicyWeights | None] = ContextVar("adjudge_policy", default=None)


def policy_engine(spec: EngineSpec) -> Engine:
    """The engine of a specification on the weights that are lent here; raises AdjudgeError where none are."""
    weights = _LENT.get()
    if weights is None:
        raise AdjudgeError(
            'the judge\'s model is "policy", but no policy lends its weights here: use'
            " reward.during_training(policy=model)"
        )
    return weights.engine(spec)
