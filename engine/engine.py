"""`Engine`: prompts in, scores and texts out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache, partial
from typing import Any

import msgspec
import torch

from adjudge.engine import trie
from adjudge.engine.answers import AnswerFormat, find_answers
from adjudge.engine.blocks import BlockPool
from adjudge.engine.call import Call
from adjudge.engine.completion import Completion
from adjudge.engine.devices import choose_device, choose_dtype
from adjudge.engine.errors import AdjudgeError, LabelError, PromptError
from adjudge.engine.fitting import fit
from adjudge.engine.grammar import Grammars
from adjudge.engine.labels import CONTEXT_CHARACTERS, Labels, LabelSet, compile_labels
from adjudge.engine.prompt import Message, Prompt
from adjudge.engine.radix import RadixCache, Tokens
from adjudge.engine.reading import Reader, ScoreJob
from adjudge.engine.runner import Runner
from adjudge.engine.sampling import Sampling
from adjudge.engine.scheduler import Scheduler
from adjudge.engine.score import Score
from adjudge.engine.sources import open_source, resolve
from adjudge.engine.step import Step
from adjudge.engine.token_bytes import byte_table
from adjudge.engine.tokenizer import Tokenizer
from adjudge.engine.writing import Writer, writers

GPU_BATCH_TOKENS = 8192
CPU_BATCH_TOKENS = 2048
"""Larger steps are no faster on a CPU: their temporaries leave its caches."""
ROWS_OF_LOGITS = 64
"""Rows whose logits over the vocabulary are in memory at once."""

AnyPrompt = Prompt | str | Sequence[int]
AnyLabels = Labels | Sequence[str]


class Stats(msgspec.Struct):
    """Counters since the engine opened. `prompt_tokens` is what one prompt at a time would have computed."""

    prompts: int = 0
    prompt_tokens: int = 0
    tokens_computed: int = 0
    steps: int = 0

    @property
    def sharing(self) -> float:
        """How many times more tokens were asked for than computed."""
        return self.prompt_tokens / self.tokens_computed if self.tokens_computed else 1.0


class Engine:
    """A model that scores prompts and continues them, all calls in one batch, every shared prefix computed once.

    `model` is an alias (`adjudge models` lists them), a folder, a hub id, a GGUF file or `dummy:<config>`. `device` and
    `dtype` "auto" mean CUDA if there is one, float32 on CPU and bfloat16 on GPU. `max_batch_tokens` bounds one step
    (default: 2048 on CPU, 8192 on GPU), `kv_cache_gb` the cache (4 GiB on CPU, most of the free memory on a GPU),
    `max_queue` how many requests may wait (default: any number); a call that would exceed it raises QueueFull.

    On CPU results do not depend, bit for bit, on what else is in a call, on its order, on `max_batch_tokens`, or on
    what is cached (`engine.runner.batch_invariant` says whether a probe at load confirmed it for this model).
    """

    def __init__(
        self,
        model: str = "smollm2-135m",
        *,
        device: str = "auto",
        dtype: str = "auto",
        max_batch_tokens: int | None = None,
        kv_cache_gb: float | None = None,
        max_queue: int | None = None,
    ) -> None:
        where = choose_device(device)
        number_type = choose_dtype(dtype, where)
        if max_batch_tokens is None:
            max_batch_tokens = CPU_BATCH_TOKENS if where.type == "cpu" else GPU_BATCH_TOKENS
        if max_batch_tokens < 1:
            raise AdjudgeError(f"max_batch_tokens is {max_batch_tokens}: give at least 1")
        source = resolve(model)
        opened = open_source(source, dtype=number_type, device=str(where))
        self.name = model
        self.fingerprint = source.fingerprint
        self.dtype = str(number_type).removeprefix("torch.")
        self.tokenizer = Tokenizer(opened.tokenizer)
        self.runner = Runner(opened.model, kv_cache_gb)
        self.cache = RadixCache(BlockPool(self.runner.blocks, self.runner.block_size))
        self.scheduler = Scheduler(self.cache, max_batch_tokens, max_queue)
        self.stats = Stats()
        self._compile_labels = lru_cache(maxsize=1024)(partial(compile_labels, tokenizer=self.tokenizer))
        self._grammars = Grammars(opened.tokenizer, self.runner.head.weight.shape[0], self.runner.end_ids)
        self._byte_table = cache(lambda: byte_table(opened.tokenizer, self.tokenizer.vocab_size))

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that fits: the model's context or the KV cache, whichever is smaller."""
        # A text that grows from inside a block has its own copy of that block.
        return min(self.runner.max_context, max(1, self.cache.pool.usable - 1) * self.cache.pool.block_size)

    def score(
        self,
        prompts: Sequence[AnyPrompt],
        labels: AnyLabels | Sequence[AnyLabels],
        *,
        priority: int = 0,
        timeout: float | None = None,
    ) -> list[Score]:
        """The distribution over `labels` (one set for all prompts, or one each) after each prompt.

        A plain string is untrusted as a whole: special-token strings in it are plain characters. A prompt that does
        not fit gives a score with reason "too_long", one whose hidden states overflow "non_finite", one that is not
        scored within `timeout` seconds "timeout". Lower `priority` comes first where several calls are under way.
        Raises LabelError, PromptError and QueueFull before anything is computed.
        """
        scores: list[Score | None] = [None] * len(prompts)
        for index, score in self.score_iter(prompts, labels, priority=priority, timeout=timeout):
            scores[index] = score
        return [score for score in scores if score is not None]

    def score_iter(
        self,
        prompts: Sequence[AnyPrompt],
        labels: AnyLabels | Sequence[AnyLabels],
        *,
        priority: int = 0,
        timeout: float | None = None,
    ) -> Iterator[tuple[int, Score]]:
        """Like `score`, but yields (index, score) as soon as each prompt is done."""
        call = Call()
        readers: dict[Tokens, Reader] = {}
        for place, (prompt, label_set) in enumerate(self._pairs(prompts, labels)):
            tokens = self.tokenizer.prompt(prompt)
            job = ScoreJob(call, place, self._compile(prompt, label_set), len(tokens))
            call.open += 1
            if len(tokens) + job.labels.depth > self.max_prompt_tokens:
                call.answer(place, Score.abstained(job.labels.labels, "too_long", len(tokens)))
                continue
            self._count(tokens)
            for number, read in enumerate(job.labels.reads):
                path = tokens + read.path
                readers.setdefault(path, Reader(path, keep=0)).reads.append((job, number))
        call.requests += self._ordered(list(readers.values()))
        yield from self._answers(call, priority, timeout)

    def generate(
        self,
        prompts: Sequence[AnyPrompt],
        sampling: Sampling | None = None,
        *,
        seeds: Sequence[int] | None = None,
        priority: int = 0,
        timeout: float | None = None,
        **options: Any,
    ) -> list[Completion]:
        """Continue each prompt: `sampling`, or its fields as options (`max_tokens=…, temperature=…, stop=…`).

        Returns `n` completions for each prompt, those of a prompt together. `seeds` gives each prompt its own seed;
        with one `seed` for all, equal prompts get equal texts. A completion does not depend on what else is in the
        call. A prompt that leaves no room for a token gives one that ended "too_long"; a text that is not done within
        `timeout` seconds ends there, with "timeout". Raises PromptError and QueueFull before anything is computed.
        """
        how: dict[str, Any] = {"seeds": seeds, "priority": priority, "timeout": timeout}
        completions = sorted(self.generate_iter(prompts, sampling, **how, **options), key=lambda pair: pair[0])
        return [completion for _, completion in completions]

    def generate_iter(
        self,
        prompts: Sequence[AnyPrompt],
        sampling: Sampling | None = None,
        *,
        seeds: Sequence[int] | None = None,
        priority: int = 0,
        timeout: float | None = None,
        **options: Any,
    ) -> Iterator[tuple[int, Completion]]:
        """Like `generate`, but yields (place in the list, completion) as soon as each text ends."""
        sampling = Sampling.of(sampling, options, self.tokenizer.vocab_size)
        if seeds is not None and len(seeds) != len(prompts):
            raise PromptError(f"{len(seeds)} seeds for {len(prompts)} prompts: give one for each")
        call = Call()
        tokens = [self.tokenizer.prompt(prompt) for prompt in prompts]
        end_ids, decode = self.runner.end_ids, self.tokenizer.decode
        for writer in writers(call, tokens, sampling, seeds, end_ids, decode, self._grammars):
            writer.room = min(writer.room, self.max_prompt_tokens - writer.prompt_tokens)
            if writer.room < 1:
                writer.finish("too_long")
            else:
                self._count(writer.tokens)
                call.requests.append(writer)
        yield from self._answers(call, priority, timeout)

    def read_answers(
        self,
        prompts: Sequence[AnyPrompt],
        completions: Sequence[Completion],
        labels: AnyLabels,
        form: AnswerFormat | None = None,
    ) -> list[Score]:
        """The distribution over `labels` where each completion wrote its score: read there, not from what was drawn.

        `prompts` are those that `generate` was given. A completion without a readable score gives one with reason
        "unparsable"; see `AnswerFormat` for how a score is written.
        """
        label_set = Labels.of(labels)
        table = self._byte_table()
        before = find_answers(completions, label_set.labels, form or AnswerFormat(), table)
        places = [place for place, tokens in enumerate(before) if tokens is not None]
        wanted = [self.tokenizer.prompt(prompts[completions[place].prompt]) + (before[place] or ()) for place in places]
        scores = dict(zip(places, self.score(wanted, label_set), strict=True))
        return [
            scores.get(place) or Score.abstained(label_set.labels, "unparsable", completion.prompt_tokens)
            for place, completion in enumerate(completions)
        ]

    def step(self) -> None:
        """One step of continuous batching: what comes next of all calls under way is computed and answered."""
        step = self.scheduler.schedule()
        for request in step.expired:
            request.give_up()
        if step.size:
            self._answer(step, self.runner.forward(step))

    def _answers(self, call: Call, priority: int, timeout: float | None) -> Iterator[tuple[int, Any]]:
        """Run the call's requests, among those of other calls, and yield its answers as they come in."""
        deadline = math.inf if timeout is None else self.scheduler.clock() + timeout
        for request in call.requests:
            request.priority, request.deadline = priority, deadline
        self.scheduler.add(*call.requests)
        try:
            while call.open or call.answers:
                while call.answers:
                    yield call.answers.popleft()
                if call.open and not self.scheduler.has_work():
                    raise AdjudgeError("a step of another call on this engine failed and took this one with it")
                if call.open:
                    self.step()
        except GeneratorExit:  # the reader stopped, which it can only do between two steps
            self.scheduler.cancel(call.requests)
            raise
        except BaseException:
            self.scheduler.abort()
            raise

    def _ordered(self, readers: list[Reader]) -> list[Reader]:
        """Those that share a prefix as neighbours; what several share will stay in the cache."""
        places = trie.order([reader.tokens for reader in readers])
        for item, shared in places:
            readers[item].keep = shared
        return [readers[item] for item, _ in places]

    def _count(self, tokens: Tokens) -> None:
        self.stats.prompts += 1
        self.stats.prompt_tokens += len(tokens)

    def label_ids(self, prompt: AnyPrompt, labels: AnyLabels) -> list[int]:
        """The token ids of labels of one token each at the end of a prompt; raises LabelError for longer ones."""
        compiled = self._compile(prompt, Labels.of(labels))
        if len(compiled.reads) > 1 or len(compiled.spellings) != len(compiled.labels):
            raise LabelError("these labels are not one token each here")
        return list(compiled.reads[0].token_ids)

    def chat(self, messages: Sequence[Message], answer: str = "") -> Prompt:
        """The model's chat template around messages, ending at the answer slot after `answer`; see `Tokenizer.chat`."""
        return self.tokenizer.chat(messages, answer)

    def fit(self, prompts: Sequence[Prompt], reserve: int = 16) -> tuple[list[Prompt], bool]:
        """The prompts, shortened alike to what fits less `reserve` for the labels, and whether any was: see `fit`."""
        return fit(prompts, self.tokenizer, self.max_prompt_tokens - reserve)

    def _pairs(
        self, prompts: Sequence[AnyPrompt], labels: AnyLabels | Sequence[AnyLabels]
    ) -> Iterator[tuple[AnyPrompt, Labels]]:
        """Every prompt with its labels."""
        if isinstance(labels, (Labels, str)) or all(isinstance(label, str) for label in labels):
            shared = Labels.of(labels)  # type: ignore[arg-type]
            return zip(prompts, [shared] * len(prompts), strict=True)
        if len(labels) != len(prompts):
            raise LabelError(
                f"{len(labels)} label sets for {len(prompts)} prompts: give one set, or one for each prompt"
            )
        return zip(prompts, map(Labels.of, labels), strict=True)

    def _compile(self, prompt: AnyPrompt, labels: Labels) -> LabelSet:
        """Labels in the context of the prompt's last characters, compiled once for each such context."""
        if isinstance(prompt, Prompt):
            text, trusted = prompt.tail.text, prompt.tail.trusted
        elif isinstance(prompt, str):
            text, trusted = prompt, False
        else:
            text, trusted = self.tokenizer.decode(list(prompt)[-16:]), True
        return self._compile_labels(labels, text[-CONTEXT_CHARACTERS:], trusted)

    def _answer(self, step: Step, hidden: torch.Tensor) -> None:
        """Read label distributions and write tokens at the step's answered rows."""
        self.stats.steps += 1
        self.stats.tokens_computed += step.size
        reads: list[tuple[int, ScoreJob, int]] = []
        writes: list[tuple[int, Writer]] = []
        for row, (request, _) in enumerate(step.finished):
            if isinstance(request, Reader):
                reads += [(row, job, number) for job, number in request.reads]
            elif isinstance(request, Writer):
                writes.append((row, request))
        token_ids = [job.labels.reads[number].token_ids for _, job, number in reads]
        readings = self.runner.head.logprobs(hidden[[row for row, _, _ in reads]], token_ids)
        for (_, job, number), reading in zip(reads, readings, strict=True):
            job.read(number, reading)
        for some in _chunks(writes, ROWS_OF_LOGITS):
            logits_NV = self.runner.head.vocabulary_logits(hidden[[row for row, _ in some]]).cpu()
            for (_, writer), logits_V in zip(some, logits_NV, strict=True):
                writer.write(logits_V)
        self.scheduler.complete(step)


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))
