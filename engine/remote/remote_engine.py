"""`RemoteEngine`: the two verbs of an engine whose model runs on a server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from threading import Lock
from typing import Any, Literal

from adjudge.engine import trie
from adjudge.engine.call import Call
from adjudge.engine.completion import Completion
from adjudge.engine.errors import AdjudgeError, RemoteError
from adjudge.engine.face import AnyLabels, AnyPrompt, EngineFace
from adjudge.engine.fingerprints import digest
from adjudge.engine.remote.card import Kind, ModelCard, read_card
from adjudge.engine.remote.completions import AdjudgeProtocol, OpenAIProtocol, VllmProtocol
from adjudge.engine.remote.loop_thread import LoopThread
from adjudge.engine.remote.protocols import Ask, Protocol
from adjudge.engine.remote.questions import Question, ReadJob, ReadQuestion, TextQuestion
from adjudge.engine.remote.sglang import SglangProtocol
from adjudge.engine.remote.transport import NoAnswer, Refused, Transport
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Reason, Score
from adjudge.engine.sources import tokenizer_named
from adjudge.engine.tokenizer import Tokenizer

PROTOCOLS: dict[Kind, type[Protocol]] = {
    "adjudge": AdjudgeProtocol,
    "vllm": VllmProtocol,
    "sglang": SglangProtocol,
    "openai": OpenAIProtocol,
}
TOKENS_AT_ONCE = 1 << 17
"""Prompt tokens in one request, about: so many make less than a megabyte of JSON."""


class RemoteEngine(EngineFace):
    """A model on a server: `adjudge serve`, vLLM, SGLang, or any other with OpenAI's /v1/completions (`api`).

    Prompts are tokenised here and sent as token ids, so that no text gains power on the server. `tokenizer` names the
    model they are for (an alias, a folder, a hub id; by default the server's model id) or is a transformers tokenizer;
    a wrong one gives wrong scores. `model` is needed where the server has several, `max_context` (tokens) where it does
    not say its own. The fingerprint is the weights' own with `adjudge serve`; elsewhere it stands for address and model
    id, whatever weights are behind them.

    Scores are exact over the full vocabulary with `adjudge serve`, SGLang, and vLLM from mid-2026 on. An older vLLM and
    other servers report the `top_logprobs` most probable tokens; a prompt with a label that is not among them abstains
    ("unsupported"), and an unreported variant of a label is left out where it can change no label's log-probability by
    more than 0.001. No number is made up.

    An attempt may take `timeout` seconds and is made again `retries` times, of at most `max_concurrency` at once; see
    `Transport`. What gets no answer abstains with "timeout", what the server refuses with "unsupported" or "too_long";
    where it refuses every request of a call, or the key, or has no such model, that is a RemoteError, raised once what
    was answered has been yielded. Lower `priority` comes first on `adjudge serve` and on vLLM, if it schedules by
    priority; other servers know none. A generation that runs out of time has no text.
    Hidden states are asked of no server: `embed` abstains with "unsupported".
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        *,
        tokenizer: Any = None,
        api: Literal["auto"] | Kind = "auto",
        api_key: str | None = None,
        max_context: int | None = None,
        timeout: float = 120.0,
        max_concurrency: int = 16,
        retries: int = 4,
        top_logprobs: int = 20,
    ) -> None:
        if api != "auto" and api not in PROTOCOLS:
            raise RemoteError(f'api is "{api}": choose auto, {", ".join(PROTOCOLS)}')
        for name, value, least in (("max_concurrency", max_concurrency, 1), ("retries", retries, 0)):
            if value < least:
                raise RemoteError(f"{name} is {value}: give at least {least}")
        if not timeout > 0:
            raise RemoteError(f"timeout is {timeout}: give more than 0 seconds")
        self.transport = Transport(
            base_url.rstrip("/").removesuffix("/v1"),
            api_key=api_key,
            timeout=timeout,
            max_concurrency=max_concurrency,
            retries=retries,
        )
        self._loop = LoopThread("adjudge-remote")
        self._closed, self._beginning = False, Lock()
        try:
            card = self._loop.run(read_card(self.transport, model))
            kind: Kind = card.kind if api == "auto" else api
            super().__init__(Tokenizer(_tokenizer(card, tokenizer)))
            context = max_context or card.max_model_len
            if context is None:
                raise RemoteError(f"{self.transport.base_url} does not say how long prompts may be: pass max_context=")
        except BaseException:
            self.close()
            raise
        self.protocol = PROTOCOLS[kind](card.id, self.tokenizer, top_logprobs)
        self.name = card.id
        self.fingerprint = card.fingerprint or digest("remote", self.transport.base_url, card.id)
        self.adapter = card.adapter
        self.dtype = card.dtype or "remote"
        self._window = context - self.protocol.margin

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that fits, with the token that a server must write in order to read."""
        return self._window - self.protocol.written_per_read

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
        asks: dict[Ask, list[tuple[ReadJob, int]]] = {}
        for place, (tokens, label_set) in enumerate(self.compiled(prompts, labels)):
            job = ReadJob(call, place, label_set, len(tokens))
            call.open += 1
            if len(tokens) + label_set.depth > self.max_prompt_tokens:
                job.answer(Score.abstained(label_set.labels, "too_long", len(tokens)))
                continue
            call.asks(tokens)
            for number, read in enumerate(label_set.reads):
                asks.setdefault(Ask(tokens + read.path, read.token_ids), []).append((job, number))
        yield from self._answers(call, list(self._read_questions(asks, priority)), timeout)

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
        """Like `generate`, but yields (place in the list, completion) as soon as each text ends.

        Raises RemoteError for a field of Sampling that this kind of server does not honour. The tokens' own
        log-probabilities are there for all but "openai" servers, and SGLang's at temperatures other than 0 and 1.
        """
        all_tokens, sampling = self.sampled(prompts, sampling, seeds, options)
        self.protocol.check(sampling, seeds is not None)
        call = Call()
        questions: list[Question] = []
        for place, tokens in enumerate(all_tokens):
            seed = sampling.seed if seeds is None else seeds[place]
            room = min(sampling.max_tokens, self._window - len(tokens))
            question = TextQuestion(self.protocol, priority, call, place, tokens, sampling, seed, room)
            call.open += sampling.n
            if room < 1:
                question.give_up("too_long")
            else:
                call.asks(tokens)
                questions.append(question)
        yield from self._answers(call, questions, timeout)

    def close(self) -> None:
        """End what is under way, which is cancelled, and close the connections."""
        with self._beginning:  # whatever has begun is cancelled, nothing begins afterwards
            if self._closed:
                return
            self._closed = True
        self._loop.cancel_all()
        self._loop.run(self.transport.close())
        self._loop.close()

    def __enter__(self) -> RemoteEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_questions(self, asks: dict[Ask, list[tuple[ReadJob, int]]], priority: int) -> Iterator[Question]:
        """Neighbours in the prefix tree go into one request, or one after the other."""
        by_tokens: dict[trie.Tokens, list[Ask]] = {}
        for ask in asks:
            by_tokens.setdefault(ask.tokens, []).append(ask)
        sequences = list(by_tokens)
        together: dict[Ask, list[tuple[ReadJob, int]]] = {}
        size = 0
        for place in trie.order(sequences):
            for ask in by_tokens[sequences[place.item]]:
                full = len(together) >= self.protocol.reads_at_once or size + len(ask.tokens) > TOKENS_AT_ONCE
                if together and full:
                    yield ReadQuestion(self.protocol, priority, together)
                    together, size = {}, 0
                together[ask] = asks[ask]
                size += len(ask.tokens)
        if together:
            yield ReadQuestion(self.protocol, priority, together)

    def _answers(self, call: Call, questions: list[Question], timeout: float | None) -> Iterator[tuple[int, Any]]:
        """Ask, and yield the call's answers as they come in."""
        outcomes: SimpleQueue[tuple[Question | None, Any]] = SimpleQueue()
        with self._beginning:
            if self._closed:
                raise AdjudgeError("the engine is closed: open another RemoteEngine")
            asking = self._loop.start(self._ask_all(questions, timeout, outcomes))
        self.stats.prompts += call.prompts
        self.stats.prompt_tokens += call.prompt_tokens
        asking.add_done_callback(lambda _: outcomes.put((None, None)))
        waiting = set(questions)
        refused: list[tuple[Question, Refused]] = []
        error: Exception | None = None
        try:
            while True:
                while call.answers:
                    yield call.answers.popleft()
                question, outcome = outcomes.get()
                if question is None:
                    break
                waiting.discard(question)
                if isinstance(outcome, Refused):
                    refused.append((question, outcome))
                elif isinstance(outcome, NoAnswer):
                    question.give_up(outcome.reason)
                elif isinstance(outcome, Exception):
                    error = error or outcome
                    asking.cancel()
                else:
                    reply, computed = outcome
                    question.take(reply)
                    self.stats.tokens_computed += computed
            if refused and len(refused) == len(questions):
                error = RemoteError(str(refused[0][1]))
            if error is not None:
                raise error
            for question, _ in refused:
                question.give_up("unsupported")
            for question in waiting:
                question.give_up("cancelled" if asking.cancelled() else asking.result())
            while call.answers:
                yield call.answers.popleft()
        finally:
            asking.cancel()

    async def _ask_all(
        self, questions: Sequence[Question], timeout: float | None, outcomes: SimpleQueue[tuple[Question | None, Any]]
    ) -> Reason:
        """Ask everything, as fast as the transport lets it, and put every outcome; why there are no more of them."""

        async def ask(question: Question) -> None:
            try:
                outcomes.put((question, await self.transport.post(question.path, question.body(), question.decode)))
            except Exception as error:
                outcomes.put((question, error))

        asking = [asyncio.create_task(ask(question)) for question in questions]

        async def stop() -> None:
            if timeout is not None:
                await self.transport.sleep(timeout)
                for task in asking:
                    task.cancel()

        alarm = asyncio.create_task(stop())
        try:
            await asyncio.gather(*asking, return_exceptions=True)
        finally:
            alarm.cancel()
        return "timeout"


def _tokenizer(card: ModelCard, given: Any) -> Any:
    """The tokenizer that the user names, or the one under the model's own name."""
    if given is not None:
        return tokenizer_named(given) if isinstance(given, str) else given
    try:
        return tokenizer_named(card.id)
    except AdjudgeError as error:
        raise RemoteError(
            f"there is no tokenizer here for the server's model {card.id!r} ({error}): pass tokenizer= with its name, "
            "or a folder that holds it"
        ) from error
