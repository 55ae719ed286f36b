"""`ClusterEngine`: one engine for its callers, several replicas of it behind them."""

from __future__ import annotations

import atexit
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import EllipsisType, TracebackType
from typing import Any, ClassVar

from adjudge.engine.checking import at_least, draws
from adjudge.engine.cluster.order import Order, Query
from adjudge.engine.cluster.ray_session import RaySession
from adjudge.engine.cluster.replica import Heads, Replica
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import AnyLabels, AnyPrompt, EngineFace
from adjudge.engine.models.fingerprints import digest
from adjudge.engine.models.reward_head import RewardHead
from adjudge.engine.models.sources import open_tokenizer, resolve
from adjudge.engine.paths import expanded
from adjudge.engine.sampling import Sampling
from adjudge.engine.text.grammar import Grammars
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.engine.threads.worker import answers_of


class ClusterEngine(EngineFace):
    """`replicas` engines in processes of their own, on Ray; every prompt goes where its beginning is cached.

    with ClusterEngine("smollm2-135m", replicas=2) as engine:
        scores = engine.score(prompts, ["1", "2", "3"])

    Answers are those of one `Engine` with the same `engine_options`, to the bit where that is batch-invariant. Any
    thread may call. What a lost replica has not answered is asked of another; a request with which three are lost is
    given up with the reason "cancelled". A replica that hangs past a deadline, or for more than a minute, counts as
    lost, and so does one whose engine fails; what two of them fail at alike is raised.
    `address` names a running Ray cluster (default: the one this process is connected to, $RAY_ADDRESS, or one of its
    own, which ends with this engine). A replica takes `num_gpus_per_replica` (default: one where there are any and
    `device` allows it) and `num_cpus_per_replica` (default: its share of those that are left, one at least), and as
    many threads.
    """

    replica: ClassVar[type[Replica]] = Replica

    def __init__(
        self,
        model: str | Path = "smollm2-135m",
        replicas: int = 2,
        *,
        address: str | None = None,
        num_gpus_per_replica: float | None = None,
        num_cpus_per_replica: float | None = None,
        device: str = "auto",
        seed: int | None = 0,
        **engine_options: Any,
    ) -> None:
        at_least(1, replicas=replicas)
        self._random = draws(seed)
        source = resolve(model)
        super().__init__(Tokenizer(open_tokenizer(source)))
        self.name, self.fingerprint = source.name, self.tokenizer.fingerprint_of(source.fingerprint)
        options = {**engine_options, "device": device}
        if options.get("adapter") is not None:
            options["adapter"] = _absolute(options["adapter"])
        place = _absolute(source.name) if source.kind in ("folder", "gguf") else source.name
        share = {"CPU": num_cpus_per_replica, "GPU": 0.0 if device == "cpu" else num_gpus_per_replica}
        with ExitStack() as begun:
            session = RaySession(address)
            begun.callback(session.close)
            self.actors = session.start(self.replica, (place, options), replicas, share)
            from adjudge.engine.cluster.dispatch import Dispatcher  # imports Ray

            self.dispatcher = Dispatcher(self.actors)
            begun.callback(self.dispatcher.close, drain=False)
            opened = self.dispatcher.open()
            if {each.fingerprint for each in opened} != {self.fingerprint}:
                raise AdjudgeError(f"the machines of the cluster have other weights under {model}: give all the same")
            self._session = begun.pop_all()
        atexit.register(self.close, drain=False)  # before Ray ends, which the dispatcher's thread would not survive
        self._heads: Heads = opened[0].heads
        self.dtype = opened[0].dtype
        self.stats = self.dispatcher.stats
        self._max_prompt_tokens = min(each.max_prompt_tokens for each in opened)
        self._grammars = Grammars(self.tokenizer.inner, opened[0].vocabulary, opened[0].end_ids)

    @property
    def adapter(self) -> str | None:  # type: ignore[override]
        """That of every replica."""
        return self._heads.adapter

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that fits every replica."""
        return self._max_prompt_tokens

    @property
    def reward_head(self) -> RewardHead | None:
        """That of every replica; it reads here what they hand out."""
        return self._heads.reward_head

    def score_call(self, prompts: Sequence[AnyPrompt], labels: AnyLabels | Sequence[AnyLabels]) -> Order:
        """What `score` would start; any thread may prepare it. Raises LabelError and PromptError."""
        order = Order()
        compiled = self.compiled(prompts, labels)
        order.queries = [Query(number, tokens, label_set, {0}) for number, (tokens, label_set) in enumerate(compiled)]
        return order

    def generate_call(
        self,
        prompts: Sequence[AnyPrompt],
        sampling: Sampling | None = None,
        seeds: Sequence[int] | None = None,
        **options: Any,
    ) -> Order:
        """What `generate` would start; any thread may prepare it. Raises PromptError."""
        order = Order()
        tokens, order.sampling = self.sampled(prompts, sampling, seeds, options)
        self._grammars.form(order.sampling)  # refused here, before anything is sent
        if seeds is None:
            given = order.sampling.seed
            seeds = [self._random.getrandbits(64) if given is None else given for _ in prompts]
        order.queries = [
            Query(number, prompt, None, set(range(order.samples)), seed)
            for number, (prompt, seed) in enumerate(zip(tokens, seeds, strict=True))
        ]
        return order

    def embed_call(self, prompts: Sequence[AnyPrompt]) -> Order:
        """What `embed` would start; any thread may prepare it. Raises PromptError."""
        order = Order()
        read = self.read(prompts, ended=True)
        order.queries = [Query(number, tokens, None, {0}) for number, tokens in enumerate(read)]
        return order

    def update_weights(
        self, weights: str | Path | None = None, *, adapter: str | Path | EllipsisType | None = ...
    ) -> None:
        """`Engine.update_weights` in every replica, from folders that all of them can read.

        `weights` is a folder of all the model's weights: a replica that is lost and comes back takes only the last one.
        """
        changes: dict[str, Any] = {}
        if weights is not None:
            changes["weights"] = _absolute(weights)
        if not isinstance(adapter, EllipsisType):
            changes["adapter"] = None if adapter is None else _absolute(adapter)
        self._heads = self.dispatcher.change("update_weights", **changes)
        if weights is not None:
            self.fingerprint = digest(self.fingerprint, "updated", secrets.token_hex(16))

    def sleep(self) -> None:
        """`Engine.sleep` in every replica."""
        self.dispatcher.change("sleep", asleep=True)

    def wake(self) -> None:
        """`Engine.wake` in every replica."""
        self.dispatcher.change("wake", asleep=False)

    def close(self, drain: bool = True) -> None:
        """Take no more calls, let those under way end (or, without `drain`, fail), and end the replicas.

        In a process that was forked it does nothing: they are its parent's.
        """
        if os.getpid() != self.dispatcher.loop.process:
            return
        atexit.unregister(self.close)
        self.dispatcher.close(drain)
        self._session.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(drain=error is None)

    def _answers(self, order: Order, priority: int, timeout: float | None) -> Iterator[tuple[int, Any]]:
        order.begin(priority, timeout)
        return answers_of(lambda deliver: self.dispatcher.start(order, deliver).cancel, order.terms)


def _absolute(path: str | Path) -> str:
    """A path as the replicas find it, which may run in another folder."""
    return str(expanded(path).absolute())
