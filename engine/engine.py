"""`Engine`: prompts and labels in, scores out."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

import msgspec
import torch

from adjudge.engine import trie
from adjudge.engine.blocks import BlockPool
from adjudge.engine.errors import AdjudgeError, LabelError
from adjudge.engine.labels import CONTEXT_CHARACTERS, Labels, LabelSet, compile_labels
from adjudge.engine.prompt import Message, Prompt, Segment
from adjudge.engine.radix import RadixCache, Tokens
from adjudge.engine.runner import Runner
from adjudge.engine.scheduler import Scheduler
from adjudge.engine.score import Score
from adjudge.engine.sources import open_source, resolve
from adjudge.engine.step import Request, Step
from adjudge.engine.tokenizer import Tokenizer

GPU_BATCH_TOKENS = 8192
CPU_BATCH_TOKENS = 2048
"""Larger steps are no faster on a CPU: their temporaries leave its caches."""

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


class _Job(msgspec.Struct):
    """One prompt under way: its labels and the readings that have come in."""

    labels: LabelSet
    prompt_tokens: int
    readings: dict[int, Sequence[float]] = {}


Wanted = dict[Tokens, list[tuple[int, int]]]
"""Which readings (job, place in its label set) each token sequence is computed for."""


class Engine:
    """A model that scores prompts: one forward for all of them, every shared prefix computed once.

    `model` is an alias (`adjudge models` lists them), a folder, a hub id, a GGUF file or `dummy:<config>`. `device` and
    `dtype` "auto" mean CUDA if there is one, float32 on CPU and bfloat16 on GPU. `max_batch_tokens` bounds one step
    (default: 2048 on CPU, 8192 on GPU), `kv_cache_gb` the cache (4 GiB on CPU, most of the free memory on a GPU).

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
    ) -> None:
        device = _device(device)
        if max_batch_tokens is None:
            max_batch_tokens = CPU_BATCH_TOKENS if device.startswith("cpu") else GPU_BATCH_TOKENS
        if max_batch_tokens < 1:
            raise AdjudgeError(f"max_batch_tokens is {max_batch_tokens}: give at least 1")
        if dtype == "auto":
            dtype = "float32" if device.startswith("cpu") else "bfloat16"
        source = resolve(model)
        opened = open_source(source, dtype=_dtype(dtype), device=device)
        self.name = model
        self.fingerprint = source.fingerprint
        self.dtype = dtype
        self.tokenizer = Tokenizer(opened.tokenizer)
        self.runner = Runner(opened.model, kv_cache_gb)
        self.cache = RadixCache(BlockPool(self.runner.blocks, self.runner.block_size))
        self.scheduler = Scheduler(self.cache, max_batch_tokens)
        self.stats = Stats()
        self._compile_labels = lru_cache(maxsize=1024)(partial(compile_labels, tokenizer=self.tokenizer))

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that fits: the model's context or the KV cache, whichever is smaller."""
        return min(self.runner.max_context, self.cache.pool.usable * self.cache.pool.block_size)

    def score(self, prompts: Sequence[AnyPrompt], labels: AnyLabels | Sequence[AnyLabels]) -> list[Score]:
        """The distribution over `labels` (one set for all prompts, or one each) after each prompt.

        A plain string is untrusted as a whole: special-token strings in it are plain characters. A prompt that does
        not fit gives a score with reason "too_long", one whose hidden states overflow "non_finite".
        Raises LabelError and PromptError before anything is computed.
        """
        scores: list[Score | None] = [None] * len(prompts)
        for index, score in self.score_iter(prompts, labels):
            scores[index] = score
        return [score for score in scores if score is not None]

    def score_iter(
        self, prompts: Sequence[AnyPrompt], labels: AnyLabels | Sequence[AnyLabels]
    ) -> Iterator[tuple[int, Score]]:
        """Like `score`, but yields (index, score) as soon as each prompt is done."""
        if self.scheduler.has_work():
            raise AdjudgeError("this engine is in the middle of another score call: finish that one first")
        jobs: list[_Job] = []
        wanted: Wanted = {}
        too_long: list[int] = []
        for index, (prompt, label_set) in enumerate(self._pairs(prompts, labels)):
            tokens = self.tokenizer.prompt(prompt)
            job = _Job(self._compile(prompt, label_set), len(tokens))
            jobs.append(job)
            if len(tokens) + job.labels.depth > self.max_prompt_tokens:
                too_long.append(index)
                continue
            self.stats.prompts += 1
            self.stats.prompt_tokens += len(tokens)
            for place, read in enumerate(job.labels.reads):
                wanted.setdefault(tokens + read.path, []).append((index, place))
        sequences = list(wanted)
        for item, shared in trie.order(sequences):
            self.scheduler.add(Request(sequences[item], keep=shared))
        try:
            for index in too_long:
                yield index, Score.abstained(jobs[index].labels.labels, "too_long", jobs[index].prompt_tokens)
            while self.scheduler.has_work():
                step = self.scheduler.schedule()
                hidden = self.runner.forward(step)
                yield from self._answer(step, hidden, jobs, wanted)
        except GeneratorExit:  # the reader stopped, which it can only do between two steps
            self.scheduler.cancel()
            raise
        except BaseException:
            self.scheduler.abort()
            raise

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
        """The prompts, their untrusted segments shortened alike until each prompt fits; and whether any was.

        Every segment may keep the same number of tokens, the largest with which all prompts fit (less `reserve` for the
        labels); trusted segments and segments cut "never" stay whole. Where that is not enough, prompts come back too
        long.
        """
        limit = self.max_prompt_tokens - reserve
        lengths = [[len(self.tokenizer.segment(segment)) for segment in prompt.segments] for prompt in prompts]
        if all(sum(row) <= limit for row in lengths):
            return list(prompts), False

        def fits(cap: int) -> bool:
            return all(
                sum(min(n, cap) if _is_cuttable(s) else n for s, n in zip(prompt.segments, row, strict=True)) <= limit
                for prompt, row in zip(prompts, lengths, strict=True)
            )

        cap = bisect.bisect_left(range(1, limit + 1), True, key=lambda n: not fits(n))
        fitted = [Prompt(tuple(_limited(segment, cap) for segment in prompt.segments)) for prompt in prompts]
        cut = any(
            n > cap and _is_cuttable(s)
            for prompt, row in zip(prompts, lengths, strict=True)
            for s, n in zip(prompt.segments, row, strict=True)
        )
        return fitted, cut

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

    def _answer(
        self, step: Step, hidden: torch.Tensor, jobs: list[_Job], wanted: Wanted
    ) -> Iterator[tuple[int, Score]]:
        """Read the label distributions at the step's answered rows, and yield the scores that are complete."""
        self.stats.steps += 1
        self.stats.tokens_computed += step.size
        reads = [
            (row, index, place)
            for row, (request, _) in enumerate(step.finished)
            for index, place in wanted.pop(request.tokens)
        ]
        token_ids = [jobs[index].labels.reads[place].token_ids for _, index, place in reads]
        logprobs = self.runner.head.logprobs(hidden[[row for row, _, _ in reads]], token_ids)
        done: list[int] = []
        for (_, index, place), reading in zip(reads, logprobs, strict=True):
            jobs[index].readings[place] = reading
            if len(jobs[index].readings) == len(jobs[index].labels.reads):
                done.append(index)
        self.scheduler.complete(step)
        for index in sorted(done):
            job = jobs[index]
            readings = [job.readings.pop(place) for place in range(len(job.labels.reads))]
            yield index, job.labels.score(readings, job.prompt_tokens)


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError:
        kind = ""
    if kind not in ("cpu", "cuda"):
        raise AdjudgeError(f'device is "{name}": choose auto, cpu, cuda or cuda:N')
    if kind == "cuda" and not torch.cuda.is_available():
        raise AdjudgeError(
            f'device is "{name}" but this torch sees no CUDA device: choose cpu, or install a CUDA build'
        )
    return name


def _dtype(name: str) -> torch.dtype:
    if name not in ("float32", "bfloat16", "float16"):
        raise AdjudgeError(f'dtype is "{name}": choose auto, float32, bfloat16 or float16')
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def _is_cuttable(segment: Segment) -> bool:
    return not segment.trusted and segment.cut != "never"


def _limited(segment: Segment, cap: int) -> Segment:
    return msgspec.structs.replace(segment, limit=cap) if _is_cuttable(segment) else segment
