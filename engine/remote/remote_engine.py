"""`RemoteEngine`: the verbs of an engine whose model runs on a server."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from adjudge.engine.batching.call import Call
from adjudge.engine.checking import at_least, shown
from adjudge.engine.completion import Completion
from adjudge.engine.errors import AdjudgeError, RemoteError
from adjudge.engine.face import AnyLabels, AnyPrompt, EngineFace, Stats
from adjudge.engine.model_reward import ModelReward
from adjudge.engine.models.fingerprints import digest
from adjudge.engine.models.sources import tokenizer_named
from adjudge.engine.remote.address import server_of
from adjudge.engine.remote.asker import Asker
from adjudge.engine.remote.card import Kind, ModelCard, read_card
from adjudge.engine.remote.completions import AdjudgeProtocol, OpenAIProtocol, VllmProtocol
from adjudge.engine.remote.pooling import EMBEDDINGS, REWARDS, Pooling
from adjudge.engine.remote.protocols import Ask, Protocol, TextAsk
from adjudge.engine.remote.questions import Question, ReadJob, batches, pool_question, read_question, text_question
from adjudge.engine.remote.sglang import SglangProtocol
from adjudge.engine.remote.transport import Transport, mend
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Score
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.engine.tokens import Tokens
from adjudge.engine.waiting import too_late

PROTOCOLS: dict[Kind, type[Protocol]] = {
    "adjudge": AdjudgeProtocol,
    "vllm": VllmProtocol,
    "sglang": SglangProtocol,
    "openai": OpenAIProtocol,
}

Asked = tuple[Call, Sequence[Question]]
"""A call that is prepared, with its questions."""


class RemoteEngine(EngineFace):
    """A model on a server: `adjudge serve`, vLLM, SGLang, or any other with OpenAI's /v1/completions (`api`).

    Prompts are tokenised here and sent as token ids, so that no text gains power on the server. `tokenizer` names the
    model they are for (an alias, a folder, a hub id; by default the server's model id) or is a transformers tokenizer;
    a wrong one gives wrong scores. `model` is needed where the server has several, `max_context` (tokens) where it does
    not say its own. The fingerprint is the weights' own with `adjudge serve`, and an answer of other weights or another
    adapter than it opened with a RemoteError; elsewhere it stands for address and model id, whatever is behind them. A
    `tokenizer` that is named goes into it.

    Scores are exact over the full vocabulary with `adjudge serve`, SGLang, and vLLM from mid-2026 on. An older vLLM and
    other servers report the `top_logprobs` most probable tokens; a prompt with a label that is not among them abstains
    ("unsupported"), and an unreported variant of a label is left out where it can change no label's log-probability by
    more than 0.001. No number is made up.

    An attempt may take `timeout` seconds and is made again `retries` times, of at most `max_concurrency` at once; see
    `Transport`. What gets no answer abstains with "timeout", what the server refuses with "unsupported", which
    includes what is too long for it and not for the stated context ("too_long", which is not sent); where it refuses
    every request of a call, or the key, or has no such model, that is a RemoteError, raised once what was answered has
    been yielded. Lower `priority` comes first on `adjudge serve` and on vLLM, if it schedules by priority; other
    servers know none. A generation that runs out of time has no text.

    Embeddings and rewards are the server's own: a reward, and the direction of an embedding, equal those of an `Engine`
    to the bit with `adjudge serve`. vLLM and SGLang give them only where they were started for that, and rewards at a
    prompt's last token, padding or not; other servers have no form for rewards, and may scale embeddings to length 1.
    `require_embeddings` and `require_rewards` ask the server whether it can.
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
        if not isinstance(base_url, str):
            raise RemoteError(f"the address of the server is {shown(base_url)}: give it as text")
        at_least(1, max_concurrency=max_concurrency)
        at_least(0, retries=retries, top_logprobs=top_logprobs)
        if max_context is not None:
            at_least(1, max_context=max_context)
        if not (isinstance(timeout, int | float) and timeout > 0):
            raise RemoteError(f"timeout is {shown(timeout)}: give more than 0 seconds")
        self.transport = Transport(
            server_of(base_url), api_key=api_key, timeout=timeout, max_concurrency=max_concurrency, retries=retries
        )
        stats = Stats()
        self._asker = Asker(self.transport, stats)
        try:
            card = self._asker.loop.run(read_card, self.transport, model)
            super().__init__(Tokenizer(_tokenizer(card, tokenizer)))
            self.stats = stats
            self._meet(card, card.kind if api == "auto" else api, max_context, top_logprobs)
        except BaseException:
            self.close()
            raise
        if tokenizer is not None:
            self.fingerprint = digest(self.fingerprint, self.tokenizer.fingerprint)
        self.fingerprint = self.tokenizer.fingerprint_of(self.fingerprint)
        self._able: set[Pooling] = set()

    def _meet(self, card: ModelCard, kind: Kind, max_context: int | None, top_logprobs: int) -> None:
        """Be the model of a card on such a server; raises RemoteError where nobody says how long prompts may be."""
        context = max_context or card.max_model_len
        if context is None:
            raise RemoteError(
                f"{self.transport.base_url} does not say how long prompts may be: pass max_context= (--max-context)"
            )
        self.protocol = PROTOCOLS[kind](card.id, self.tokenizer, top_logprobs)
        self.name = card.id
        self.fingerprint = card.fingerprint or digest("remote", self.transport.base_url, card.id)
        self.adapter = card.adapter
        self.dtype = card.dtype or "remote"
        self._window = context - self.protocol.margin
        self._most = card.max_answers or sys.maxsize
        self._embeddings = EMBEDDINGS[kind](card.id)
        self._rewards = REWARDS[kind](card.id) if kind in REWARDS else None

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that fits, with the token that a server must write in order to read."""
        return self._window - self.protocol.written_per_read

    def score_call(self, prompts: Sequence[AnyPrompt], labels: AnyLabels | Sequence[AnyLabels]) -> Asked:
        """What `score` would ask; raises LabelError and PromptError."""
        call = Call(self.transport.clock())
        asks: dict[Ask, list[tuple[ReadJob, int]]] = {}
        for place, (tokens, label_set) in enumerate(self.compiled(prompts, labels)):
            job = ReadJob(call, place, label_set, len(tokens))
            call.open += 1
            if len(tokens) + label_set.depth > self.max_prompt_tokens:
                job.answer(Score.abstained(label_set.labels, "too_long", len(tokens)))
                continue
            call.asks(tokens, label_set.tokens)
            for number, read in enumerate(label_set.reads):
                asks.setdefault(Ask(tokens + read.path, read.token_ids), []).append((job, number))
        by_tokens: dict[Tokens, list[Ask]] = {}
        for ask in asks:
            by_tokens.setdefault(ask.tokens, []).append(ask)
        questions = [
            read_question(self.protocol, {ask: asks[ask] for ask in together})
            for together in batches(
                by_tokens, min(self.protocol.reads_at_once, self._most), lambda ask: len(ask.token_ids)
            )
        ]
        self.protocol.make_ready()
        return call, questions

    def generate_call(
        self,
        prompts: Sequence[AnyPrompt],
        sampling: Sampling | None = None,
        seeds: Sequence[int] | None = None,
        **options: Any,
    ) -> Asked:
        """What `generate` would ask; raises PromptError, and RemoteError for what this kind of server does not honour.

        The tokens' own log-probabilities are there for all but "openai" servers, and SGLang's at temperatures other
        than 0 and 1.
        """
        call = Call(self.transport.clock())
        all_tokens, sampling = self.sampled(prompts, sampling, seeds, options)
        self.protocol.check(sampling, seeds is not None)
        questions: list[Question] = []
        for place, tokens in enumerate(all_tokens):
            seed = sampling.seed if seeds is None else seeds[place]
            room = min(sampling.max_tokens, self._window - len(tokens))
            question = text_question(self.protocol, call, place, TextAsk(tokens, sampling, seed, room))
            call.open += sampling.n
            if room < 1:
                question.give_up("too_long")
            else:
                call.asks(tokens)
                questions.append(question)
        return call, questions

    def embed_call(self, prompts: Sequence[AnyPrompt]) -> Asked:
        """What `embed` would ask; raises PromptError."""
        return self._pool_call(self._embeddings, prompts)

    def reward_iter(
        self, prompts: Sequence[AnyPrompt], *, priority: int = 0, timeout: float | None = None
    ) -> Iterator[tuple[int, ModelReward]]:
        """Like `reward`, but yields (index, reward) as soon as each prompt is done."""
        if self._rewards is None:
            self.require_rewards()
        elif too_late():
            yield from enumerate(ModelReward(None, "timeout") for _ in prompts)
        else:
            yield from self._answers(self._pool_call(self._rewards, prompts), priority, timeout)

    def require_embeddings(self) -> None:
        """Ask the server for one, once; raises RemoteError where it gives none."""
        self._require(self._embeddings)

    def require_rewards(self) -> None:
        """Ask the server for one, once; raises RemoteError where it gives none."""
        if self._rewards is None:
            raise RemoteError(
                f"{self.transport.base_url} is no server whose rewards can be read (api openai): {mend('/classify')}"
            )
        self._require(self._rewards)

    def close(self) -> None:
        """End what is under way, which is cancelled, and close the connections."""
        self._asker.close()

    def _answers(self, asked: Asked, priority: int, timeout: float | None) -> Iterator[tuple[int, Any]]:
        for place, answer in self._asker.answers(*asked, priority, timeout):
            if isinstance(answer, Completion):
                self._asker.count(tokens_written=len(answer.token_ids))
            yield place, answer

    def _pool_call(self, pooling: Pooling, prompts: Sequence[AnyPrompt]) -> Asked:
        """What would ask for one answer to each prompt."""
        call = Call(self.transport.clock())
        places: dict[Tokens, list[int]] = {}
        for place, tokens in enumerate(self.read(prompts, ended=True)):
            call.open += 1
            if len(tokens) > self.max_prompt_tokens:
                call.answer(place, pooling.abstained("too_long", tokens))
                continue
            call.asks(tokens)
            places.setdefault(tokens, []).append(place)
        questions = [
            pool_question(pooling, call, {tokens: places[tokens] for tokens in together})
            for together in batches({tokens: [tokens] for tokens in places}, min(pooling.at_once, self._most))
        ]
        return call, questions

    def _require(self, pooling: Pooling) -> None:
        """Ask for one answer, and raise RemoteError where there is none; that the server is slow is no refusal."""
        if pooling in self._able:
            return
        [(_, answer)] = self._answers(self._pool_call(pooling, ["?"]), 0, None)
        if answer.reason == "unsupported":
            raise RemoteError(
                f"{self.transport.base_url}{pooling.path} answers what cannot be read: {mend(pooling.path)}"
            )
        if answer.reason is None:
            self._able.add(pooling)


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
