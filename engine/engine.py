"""`Engine`: prompts in, scores, texts and hidden states out."""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import EllipsisType
from typing import Any

import torch

from adjudge.engine import trie
from adjudge.engine.batching.call import Call
from adjudge.engine.batching.prompt_reading import PromptReading
from adjudge.engine.batching.reading import HiddenReader, Reader, ScoreJob
from adjudge.engine.batching.scheduler import Scheduler
from adjudge.engine.batching.step import Request, Step
from adjudge.engine.batching.step_answers import answer
from adjudge.engine.batching.writing import Writer, writers
from adjudge.engine.checking import at_least, draws
from adjudge.engine.devices import choose_device, choose_dtype
from adjudge.engine.embedding import Embedding
from adjudge.engine.errors import AdjudgeError, EngineFailed, NotServing
from adjudge.engine.face import AnyLabels, AnyPrompt, EngineFace
from adjudge.engine.kv_cache.blocks import BlockPool
from adjudge.engine.kv_cache.radix import RadixCache
from adjudge.engine.models.adapters import Base, check_base
from adjudge.engine.models.config import end_ids
from adjudge.engine.models.fingerprints import digest
from adjudge.engine.models.lent import Lent
from adjudge.engine.models.reward_head import RewardHead
from adjudge.engine.models.sources import OpenModel, open_source, resolve
from adjudge.engine.running.decode_graphs import check_recordable
from adjudge.engine.running.runner import Runner
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Score
from adjudge.engine.text.grammar import Grammars
from adjudge.engine.text.labels import LabelSet
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.engine.threads.at_exit import step_under_way
from adjudge.engine.threads.forked import require_helpers
from adjudge.engine.threads.turns import Turns
from adjudge.engine.tokens import Tokens
from adjudge.kernels.surroundings import undisturbed

GPU_BATCH_TOKENS = 8192
CPU_BATCH_TOKENS = 2048
"""Larger steps are no faster on a CPU: their temporaries leave its caches."""

_log = logging.getLogger("adjudge")


class Engine(EngineFace):
    """A model that scores, continues and embeds prompts, all calls in one batch, every shared prefix computed once.

    `model` is an alias (`adjudge models` lists them), a folder, a hub id, a GGUF file or `dummy:<config>`, `adapter` a
    PEFT folder of a LoRA adapter for it. A model saved without a language-model head (a reward model, a bare decoder)
    can only embed. A `Lent` model is one in training, whose base weights are used and not copied; it is where it is,
    and what it is, and sleeping gives back the cache alone. `device` and `dtype` "auto" mean CUDA if there is one,
    float32 on CPU and bfloat16 on GPU (float16 on one that has none). `max_batch_tokens` bounds one step (default: 2048
    on CPU, 8192 on GPU), `kv_cache_gb` the cache (up to 4 GiB on CPU, most of the memory that is free on a GPU). The
    cache is made when the engine opens, once weights and adapter are on the device, and anew when it wakes;
    ModelUnsupported says that it does not fit. `max_queue` bounds how many requests may wait (default: any number); a
    call that would exceed it raises QueueFull, one that always would CallTooLarge. `seed` draws the seeds of texts that
    are given none (None: other ones in each run). `cuda_graphs` records decode steps on a GPU once for each size, and
    plays them from then on: the fewer tokens a step has, the more of its time are launches; it wants attention by our
    Triton kernel. `batch_invariant` has results on a GPU not depend on the batch either, by dense layers, norms and
    attention of our own, and opens no model of which a probe finds otherwise (on an H200 scores took 1.7 x as long
    with it, texts 2.2 x). `torch_compile` fuses what lies between attention and dense layers, which takes a minute
    when the engine opens.

    Threads may share an engine: their calls then share its steps. On CPU results do not depend, bit for bit, on what
    else is in a call, on its order, on `max_batch_tokens`, or on what is cached (`engine.runner.batch_invariant` says
    whether a probe at load confirmed it for this model).
    """

    @undisturbed
    def __init__(
        self,
        model: str | Path | Lent = "smollm2-135m",
        *,
        adapter: str | Path | None = None,
        device: str = "auto",
        dtype: str = "auto",
        max_batch_tokens: int | None = None,
        kv_cache_gb: float | None = None,
        max_queue: int | None = None,
        seed: int | None = 0,
        batch_invariant: bool = False,
        cuda_graphs: bool = False,
        torch_compile: bool = False,
    ) -> None:
        require_helpers()
        if batch_invariant and torch_compile:
            raise AdjudgeError("batch_invariant and torch_compile do not go together: leave one out")
        if cuda_graphs:
            check_recordable(choose_device(device), isinstance(model, Lent))
        self._random = draws(seed)
        sizes = {"max_batch_tokens": max_batch_tokens, "max_queue": max_queue}
        at_least(1, **{name: size for name, size in sizes.items() if size is not None})
        opened, where, name, fingerprint = _opened(model, device, dtype)
        if max_batch_tokens is None:
            max_batch_tokens = CPU_BATCH_TOKENS if where.type == "cpu" else GPU_BATCH_TOKENS
        super().__init__(Tokenizer(opened.tokenizer, opened.model.get_input_embeddings().num_embeddings))
        self.name, self.fingerprint = name, self.tokenizer.fingerprint_of(fingerprint)
        self._base = Base(name, fingerprint)
        self.dtype = str(opened.model.dtype).removeprefix("torch.")
        self.end_ids = end_ids(opened.model, opened.tokenizer)
        self._lent = model if isinstance(model, Lent) else None
        if adapter is not None:
            self._check_adapter(adapter)
        self.runner = Runner(
            opened.model,
            kv_cache_gb,
            adapter=adapter,
            lent=self._lent is not None,
            batch_invariant=batch_invariant,
            cuda_graphs=cuda_graphs,
            torch_compile=torch_compile,
        )
        self.adapter = self.runner.adapter
        self.cache = RadixCache(BlockPool(self.runner.blocks, self.runner.block_size))
        self.scheduler = Scheduler(self.cache, max_batch_tokens, max_queue)
        self.asleep = False
        self._longest = self._room()
        self._grammars = Grammars(opened.tokenizer, self.runner.vocabulary, self.end_ids)
        self._turns = Turns()
        self._left: deque[Call] = deque()  # calls that nobody waits for any more

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that fits: the model's context or the KV cache it opened with, whichever is smaller.

        Waking to another cache does not change it, so that texts are shortened alike in all of a run.
        """
        return self._longest

    def _room(self) -> int:
        """The longest prompt that fits the cache there is now."""
        # A text that grows from inside a block has its own copy of that block.
        return min(self.runner.max_context, max(1, self.cache.pool.usable - 1) * self.cache.pool.block_size)

    @property
    def reward_head(self) -> RewardHead | None:
        """That of the adapter, or the model's own."""
        return self.runner.reward_head

    def score_call(self, prompts: Sequence[AnyPrompt], labels: AnyLabels | Sequence[AnyLabels]) -> Call:
        """What `score` would start; any thread may prepare it. Raises LabelError and PromptError."""
        self.runner.require_head()
        call = Call(self.scheduler.clock())
        readers: dict[Tokens, dict[Tokens, Reader]] = {}
        compiled = self.compiled(prompts, labels)
        self._check_readings(compiled)
        for place, (tokens, label_set) in enumerate(compiled):
            job = ScoreJob(call, place, label_set, len(tokens))
            call.open += 1
            if not self._fits(tokens, label_set):
                call.answer(place, Score.abstained(label_set.labels, "too_long", len(tokens)))
                continue
            call.asks(tokens, label_set.tokens)
            behind = readers.setdefault(tokens, {})
            for number, read in enumerate(label_set.reads):
                reader = behind.setdefault(read.path, Reader(tokens, keep=0, path=read.path))
                reader.reads.append((job, number))
        call.requests += _ordered(readers)
        return call

    def _fits(self, tokens: Tokens, label_set: LabelSet) -> bool:
        return len(tokens) + label_set.depth <= self.max_prompt_tokens

    def _check_readings(self, compiled: Sequence[tuple[Tokens, LabelSet]]) -> None:
        """Refuse more readings than ever fit in the queue, before each of them becomes a request.

        Label sets of one prompt may share some, so that it has at least as many as its largest set.
        """
        least: dict[Tokens, int] = {}
        for tokens, label_set in compiled:
            if self._fits(tokens, label_set):
                least[tokens] = max(least.get(tokens, 0), len(label_set.reads))
        self.scheduler.check_room(sum(least.values()))

    def generate_call(
        self,
        prompts: Sequence[AnyPrompt],
        sampling: Sampling | None = None,
        seeds: Sequence[int] | None = None,
        **options: Any,
    ) -> Call:
        """What `generate` would start; any thread may prepare it. Raises PromptError."""
        self.runner.require_head()
        call = Call(self.scheduler.clock())
        tokens, sampling = self.sampled(prompts, sampling, seeds, options)
        self.scheduler.check_room(sampling.n * sum(len(one) < self.max_prompt_tokens for one in tokens))
        if seeds is None:
            seeds = [self._random.getrandbits(64) if sampling.seed is None else sampling.seed for _ in prompts]
        for writer in writers(call, tokens, sampling, seeds, self.end_ids, self.tokenizer, self._grammars):
            writer.room = min(writer.room, self.max_prompt_tokens - writer.prompt_tokens)
            if writer.room < 1:
                writer.finish("too_long")
                continue
            if sampling.prompt_logprobs is not None:
                if writer.sample == 0:
                    reading = PromptReading(writer.tokens, sampling.prompt_logprobs)
                    call.requests += reading.spans(self.scheduler.max_batch_tokens)
                writer.reading = reading
            call.asks(writer.tokens)
            call.requests.append(writer)
        return call

    def embed_call(self, prompts: Sequence[AnyPrompt]) -> Call:
        """What `embed` would start; any thread may prepare it. Raises PromptError."""
        call = Call(self.scheduler.clock())
        readers: dict[Tokens, HiddenReader] = {}
        for place, tokens in enumerate(self.read(prompts, ended=True)):
            call.open += 1
            if len(tokens) > self.max_prompt_tokens:
                call.answer(place, Embedding(None, "too_long", len(tokens)))
                continue
            call.asks(tokens)
            readers.setdefault(tokens, HiddenReader(tokens, keep=0, call=call)).places.append(place)
        call.requests += _ordered({tokens: {(): reader} for tokens, reader in readers.items()})
        return call

    def start(self, call: Call, priority: int = 0, timeout: float | None = None) -> None:
        """Queue a call's requests, to be answered by the steps to come.

        Raises PromptError for a priority or a timeout that is no number, QueueFull, and AdjudgeError for what the
        engine woke to too little memory for; then it queues none.
        """
        priority = call.terms.urgency(priority)
        self._drop_left()
        self._be_awake()
        if self._lent is not None:
            self._lent.check()
            if self._lent.is_changed():
                self._be_idle("other weights")
                self.cache.clear()
                self.fingerprint = digest(self.fingerprint, self._lent.take_changes())
        room = self._room()
        for request in call.requests:
            if isinstance(request, Writer) and request.most >= self.max_prompt_tokens and request.prompt_tokens < room:
                request.room = min(request.room, room - request.prompt_tokens)  # there may be less room by now
        longest = max((request.most for request in call.requests), default=0)
        if longest > room:
            raise AdjudgeError(
                f"{self.name} woke with room for {room} tokens, and this needs {longest}: leave it more memory on its"
                " device, or set kv_cache_gb"
            )
        deadline = call.terms.deadline(timeout, call.begun)
        for request in call.requests:
            request.priority, request.deadline = priority, deadline
        self.scheduler.add(*call.requests)
        self.stats.prompts += call.prompts
        self.stats.prompt_tokens += call.prompt_tokens + call.label_tokens

    def step(self) -> None:
        """One step of continuous batching: what comes next of all calls under way is computed and answered."""
        self._drop_left()
        step = self.scheduler.schedule()
        for request in step.expired:
            request.give_up()
        if step.size:
            began = self.scheduler.clock()
            with step_under_way():  # nothing of torch is asked outside it
                self._compute(step)
            self.scheduler.took(step, self.scheduler.clock() - began)
            self.scheduler.complete(step)

    @undisturbed
    def _compute(self, step: Step) -> None:
        require_helpers()
        with self.runner.on_device():
            answer(step, self.runner.forward(step), self.runner, self.stats)

    def cancel(self, call: Call) -> None:
        """Drop a call between two steps; the answers it still waits for never come."""
        self.scheduler.cancel(call.requests)

    @undisturbed
    def update_weights(
        self,
        weights: Mapping[str, torch.Tensor] | str | Path | None = None,
        *,
        adapter: str | Path | EllipsisType | None = ...,
    ) -> None:
        """Take new weights, an adapter, or both; empties the cache.

        `weights` are tensors by the names of the model's `state_dict`, all or some, or a folder of them
        (*.safetensors); with them the engine gets a fingerprint that no other has. A folder in which transformers gave
        some other names (it does so for many mixtures of experts and models that read images) has to hold all of them,
        and takes the host's memory twice for a while. `adapter` is a PEFT folder, or None for the bare model; left out,
        the adapter stays. Raises AdjudgeError, and changes nothing, where they do not fit the model or a call is under
        way.
        """
        self._check_adapter(adapter)
        with self._turn():
            self._be_awake()
            self._be_idle("update_weights")
            new = {} if weights is None else self.runner.weights.checked(weights)
            self.cache.clear()
            if not isinstance(adapter, EllipsisType):
                self.runner.set_adapter(adapter, new)
                self.adapter = self.runner.adapter
            if new:
                self.fingerprint = digest(self.fingerprint, "updated", secrets.token_hex(16))
                self.runner.weights.update(new)

    def _check_adapter(self, adapter: str | Path | EllipsisType | None) -> None:
        """Raise AdjudgeError where weights are not this engine's to change, or the adapter is of another base."""
        if self._lent is not None:
            raise AdjudgeError(
                f"the weights of this engine are lent by {self.name}: open one of its own to change them"
            )
        if isinstance(adapter, str | Path):
            check_base(adapter, self._base)

    def sleep(self) -> None:
        """Give the device's memory back to its driver: the weights wait on the host, the cache is emptied."""
        with self._turn():
            self._be_idle("sleep")
            if not self.asleep:
                self.cache.clear()
                self.runner.sleep()
                self.asleep = True

    def wake(self) -> None:
        """Bring the weights back to the device, and make a cache of the size that there is memory for now.

        Where longer prompts fitted when it opened, a warning says so, and a call that needs more room is refused. Where
        weights or cache do not fit, it sleeps on, and raises what torch says of the weights, ModelUnsupported of the
        cache.
        """
        with self._turn():
            if not self.asleep:
                return
            try:
                self.runner.wake()
            except BaseException:
                self.runner.sleep()  # half awake, it would keep what memory it got
                raise
            self.cache.resize(self.runner.blocks)
            self.asleep = False
            if (room := self._room()) < self._longest:
                _log.warning("%s wakes with room for prompts of %d tokens, not %d", self.name, room, self._longest)

    def _be_awake(self) -> None:
        if self.asleep:
            raise NotServing("the engine is asleep: call wake() first")

    def _be_idle(self, what: str) -> None:
        if self.scheduler.has_work():
            raise AdjudgeError(f"{what} while a call is under way would change it half-way: let it end first")

    def _answers(self, call: Call, priority: int, timeout: float | None) -> Iterator[tuple[int, Any]]:
        """Run the call's requests, among those of other calls and threads, and yield its answers as they come in."""
        try:
            with self._turn():
                self.start(call, priority, timeout)
                aborted = self.scheduler.aborted
            while call.open or call.answers:
                while call.answers:
                    yield call.answers.popleft()
                failure: Exception | None = None
                with self._turn(lambda: call.open and not call.answers) as mine:
                    if mine and call.open and self.scheduler.aborted != aborted:
                        failure = EngineFailed("a step of another call on this engine failed and took this one with it")
                    elif mine and call.open and not call.answers:
                        try:
                            self.step()
                        except BaseException as error:
                            self.scheduler.abort()
                            if not isinstance(error, Exception):
                                raise
                            failure = error
                if failure is not None:
                    while call.answers:  # what was done before is not lost
                        yield call.answers.popleft()
                    raise failure
        finally:
            if call.open:
                self._left.append(call)  # without a turn: the garbage collector may end this in the midst of a step

    @contextmanager
    def _turn(self, wanted: Callable[[], object] = lambda: True) -> Iterator[bool]:
        """A block that no other thread's comes between, once what nobody waits for is dropped; False without it."""
        with self._turns.turn(wanted) as mine:
            if mine:
                self._drop_left()
            yield mine

    def _drop_left(self) -> None:
        while self._left:
            self.cancel(self._left.popleft())


def _opened(model: str | Path | Lent, device: str, dtype: str) -> tuple[OpenModel, torch.device, str, str]:
    """The model with its device, name and fingerprint."""
    if isinstance(model, Lent):
        if (device, dtype) != ("auto", "auto"):
            raise AdjudgeError(f"the weights of {model.name} are lent: leave device and dtype to it")
        opened = model.open()
        return opened, opened.model.device, model.name, model.fingerprint
    where = choose_device(device)
    number_type, source = choose_dtype(dtype, where), resolve(model)
    opened = open_source(source, dtype=number_type, device=str(where))
    return opened, where, source.name, source.fingerprint


def _ordered(requests: Mapping[Tokens, Mapping[Tokens, Request]]) -> list[Request]:
    """By prompt and by what follows it: those that share a prefix as neighbours.

    What several share stays in the cache, and the whole of a single one.
    """
    ordered: list[Request] = []
    prompts = list(requests)
    for item, shared in trie.order(prompts):
        prompt, behind = prompts[item], requests[prompts[item]]
        paths = list(behind)
        for place, further in trie.order(paths):
            request = behind[paths[place]]
            request.keep = len(prompt) + further if len(paths) > 1 else shared
            ordered.append(request)
    if len(ordered) == 1:
        ordered[0].keep = ordered[0].length
    return ordered
