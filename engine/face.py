"""`EngineFace`: what a judge asks of an engine, wherever its model runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence, Sized
from functools import cache, lru_cache, partial
from numbers import Integral
from operator import itemgetter
from types import TracebackType
from typing import Any, Never, Self, cast

import msgspec

from adjudge.engine.checking import is_number, shown
from adjudge.engine.completion import Completion
from adjudge.engine.embedding import Embedding
from adjudge.engine.errors import AdjudgeError, LabelError, ModelUnsupported, PromptError
from adjudge.engine.model_reward import ModelReward
from adjudge.engine.models.reward_head import RewardHead
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Score
from adjudge.engine.text.fitting import fit
from adjudge.engine.text.labels import CONTEXT_CHARACTERS, Labels, LabelSet, check_values, compile_labels
from adjudge.engine.text.prompt import Message, Prompt, checked_messages
from adjudge.engine.text.token_bytes import byte_table
from adjudge.engine.text.tokenizer import Tokenizer
from adjudge.engine.text.written_scores import AnswerFormat, find_answers
from adjudge.engine.tokens import Tokens
from adjudge.engine.waiting import too_late

AnyPrompt = Prompt | str | Sequence[int]
AnyLabels = Labels | LabelSet | Sequence[str]


class Stats(msgspec.Struct):
    """Counters since the engine opened. `prompt_tokens` is what one prompt at a time would have computed.

    With it count the tokens of labels that have to be read behind a prompt. `tokens_written` are those of texts; all
    but each text's last are among `tokens_computed` as well.
    """

    prompts: int = 0
    prompt_tokens: int = 0
    tokens_computed: int = 0
    tokens_written: int = 0
    steps: int = 0

    @property
    def sharing(self) -> float:
        """How many times more tokens were asked for than computed."""
        return self.prompt_tokens / self.tokens_computed if self.tokens_computed else 1.0


class EngineFace(ABC):
    """The verbs `score`, `generate`, `embed` and `reward`, and what words a prompt for the model behind them.

    An engine has `score_call`, `generate_call` and `embed_call`, which prepare a whole request, and runs what they make
    in `_answers`; or it has verbs of its own, as `score_iter`. Where it is `too_late`, no prompt is read.

    `name` is what the user called the model, `fingerprint` which weights it has, `adapter` which adapter lies over them
    (None: none), `dtype` in what it computes; `tokenizer` is the model's own.
    """

    name: str
    fingerprint: str
    adapter: str | None = None
    dtype: str
    score_call: Callable[..., Any]
    generate_call: Callable[..., Any]
    embed_call: Callable[..., Any]

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.stats = Stats()
        self._compile_labels = lru_cache(maxsize=256)(partial(compile_labels, tokenizer=tokenizer))
        self.byte_table = cache(lambda: byte_table(tokenizer.inner, self.tokenizer.vocab_size))

    def __getstate__(self) -> Never:
        raise AdjudgeError(
            "an open engine cannot be copied or pickled, nor what holds one: give an EngineSpec or JudgeSpec, which is"
            " opened where it is used"
        )

    @property
    @abstractmethod
    def max_prompt_tokens(self) -> int:
        """The longest prompt that fits."""

    @property
    def identity(self) -> tuple[str, str | None, str, int]:
        """All of the engine that decides an answer: whatever is kept of one goes under it."""
        return self.fingerprint, self.adapter, self.dtype, self.max_prompt_tokens

    @property
    def content(self) -> dict[str, str | None]:
        """The same but for how much it reads, by the names that the keys of journals have."""
        return {"model": self.fingerprint, "adapter": self.adapter, "dtype": self.dtype}

    @property
    def reward_head(self) -> RewardHead | None:
        """What reads a reward off the model's hidden states, where it is here; None for a model without."""
        return None

    def require_embeddings(self) -> None:  # noqa: B027 (most engines can)
        """Raise AdjudgeError, with the mend, where `embed` could give nothing but "unsupported"."""

    def require_rewards(self) -> None:
        """Raise ModelUnsupported where the model is no reward model, with the mend."""
        if self.reward_head is None:
            raise ModelUnsupported(
                f"{self.name} has no reward head here: a scalar judge needs a reward model (a checkpoint for"
                " sequence classification with num_labels 1, or an adapter with such a head) on an engine of its own"
            )

    def _answers(self, call: Any, priority: int, timeout: float | None) -> Iterator[tuple[int, Any]]:
        """Run a call that is prepared, and yield its answers as they come in."""
        raise NotImplementedError

    def score_iter(
        self,
        prompts: Sequence[AnyPrompt],
        labels: AnyLabels | Sequence[AnyLabels],
        *,
        priority: int = 0,
        timeout: float | None = None,
    ) -> Iterator[tuple[int, Score]]:
        """Like `score`, but yields (index, score) as soon as each prompt is done."""
        if too_late():
            yield from enumerate(Score.abstained(names_in(one), "timeout") for one in sets_of(prompts, labels))
        else:
            yield from self._answers(self.score_call(prompts, labels), priority, timeout)

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
        if too_late():
            n = options.get("n", 1) if sampling is None else sampling.n
            yield from enumerate(Completion(at // n, at % n, "", (), "timeout") for at in range(len(prompts) * n))
        else:
            yield from self._answers(self.generate_call(prompts, sampling, seeds, **options), priority, timeout)

    def embed_iter(
        self, prompts: Sequence[AnyPrompt], *, priority: int = 0, timeout: float | None = None
    ) -> Iterator[tuple[int, Embedding]]:
        """Like `embed`, but yields (index, embedding) as soon as each prompt is done."""
        if too_late():
            yield from enumerate(Embedding(None, "timeout") for _ in prompts)
        else:
            yield from self._answers(self.embed_call(prompts), priority, timeout)

    def reward_iter(
        self, prompts: Sequence[AnyPrompt], *, priority: int = 0, timeout: float | None = None
    ) -> Iterator[tuple[int, ModelReward]]:
        """Like `reward`, but yields (index, reward) as soon as each prompt is done."""
        if too_late():
            yield from enumerate(ModelReward(None, "timeout") for _ in prompts)
        else:
            embeddings = self.embed_iter(self.read_for_rewards(prompts), priority=priority, timeout=timeout)
            yield from ((place, ModelReward.of(embedding)) for place, embedding in embeddings)

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
        scores = sorted(self.score_iter(prompts, labels, priority=priority, timeout=timeout), key=itemgetter(0))
        return [score for _, score in scores]

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
        completions = sorted(self.generate_iter(prompts, sampling, **how, **options), key=itemgetter(0))
        return [completion for _, completion in completions]

    def embed(
        self, prompts: Sequence[AnyPrompt], *, priority: int = 0, timeout: float | None = None
    ) -> list[Embedding]:
        """The hidden state, after the model's final norm, of each prompt's last token.

        A plain string stands as the model's tokenizer has it by default, with what that puts before it and behind it.
        What does not fit has the reason "too_long", an overflow "non_finite", what is not done within `timeout` seconds
        "timeout"; on an engine that cannot read hidden states every prompt has the reason "unsupported". Raises
        PromptError and QueueFull before anything is computed.
        """
        embeddings = sorted(self.embed_iter(prompts, priority=priority, timeout=timeout), key=itemgetter(0))
        return [embedding for _, embedding in embeddings]

    def reward(
        self, prompts: Sequence[AnyPrompt], *, priority: int = 0, timeout: float | None = None
    ) -> list[ModelReward]:
        """The reward that the model gives to each prompt, at the last token that its head reads.

        Reasons for having none are those of `embed`. Raises AdjudgeError for a model that is no reward model, and
        PromptError and QueueFull, before anything is computed.
        """
        rewards = sorted(self.reward_iter(prompts, priority=priority, timeout=timeout), key=itemgetter(0))
        return [reward for _, reward in rewards]

    def read_answers(
        self,
        prompts: Sequence[AnyPrompt],
        completions: Sequence[Completion],
        labels: Labels | Sequence[str],
        form: AnswerFormat | Sequence[AnswerFormat] | None = None,
    ) -> list[Score]:
        """The distribution over `labels` where each completion wrote its score: read there, not from what was drawn.

        `prompts` are those that `generate` was given. A completion without a readable score gives one with reason
        "unparsable"; see `AnswerFormat` for how a score is written (one form for all completions, or one each). Raises
        LabelError, and PromptError for too few prompts or forms.
        """
        label_set = Labels.of(labels)
        forms = list(form) if isinstance(form, Sequence) else [form or AnswerFormat()] * len(completions)
        if len(forms) != len(completions):
            given = f"form has {len(forms)} for {len(completions)} completions"
            raise PromptError(f"{given}: give one for all, or one each")
        if (count := 1 + max((one.prompt for one in completions), default=-1)) > len(prompts):
            raise PromptError(f"the completions are of {count} prompts, and {len(prompts)} given: give all of them")
        found = find_answers(completions, label_set.labels, forms, self.byte_table())
        before = {place: answer[0] for place, answer in enumerate(found) if answer is not None}
        places = list(before)
        wanted = [self.tokenizer.prompt(prompts[completions[place].prompt]) + before[place] for place in places]
        scores = dict(zip(places, self.score(wanted, label_set), strict=True))
        return [
            scores.get(place) or Score.abstained(label_set.labels, "unparsable", completion.prompt_tokens)
            for place, completion in enumerate(completions)
        ]

    def close(self) -> None:  # noqa: B027 (what is loaded here goes with the last reference to it)
        """End what is under way elsewhere, and let go of it: connections, replicas."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def label_ids(self, prompt: AnyPrompt, labels: AnyLabels) -> list[int]:
        """The token ids of labels of one token each at the end of a prompt; raises LabelError for longer ones."""
        [(_, compiled)] = self.compiled([prompt], labels)
        if len(compiled.reads) > 1 or len(compiled.spellings) != len(compiled.labels):
            raise LabelError("these labels are not one token each here")
        return list(compiled.reads[0].token_ids)

    def chat(self, messages: Sequence[Message], answer: str = "", *, thinks: bool = False) -> Prompt:
        """The model's chat template around messages, ending at the answer slot after `answer`; see `Tokenizer.chat`.

        With `thinks` a thinking model begins with a thought, which else is closed before it begins.
        """
        return self.tokenizer.chat(checked_messages(messages), answer, thinks=thinks)

    def transcript(self, messages: Sequence[Message]) -> Prompt:
        """The model's chat template around messages that are all written; see `Tokenizer.transcript`."""
        return self.tokenizer.transcript(checked_messages(messages))

    def fit(self, prompts: Sequence[Prompt], reserve: int = 16) -> tuple[list[Prompt], bool]:
        """The prompts, shortened alike to what fits less `reserve` for the labels, and whether any was: see `fit`.

        They come back as they are where it is too late to ask about them.
        """
        if too_late():
            return list(prompts), False
        return fit(prompts, self.tokenizer, self.max_prompt_tokens - reserve)

    def compiled(
        self, prompts: Sequence[AnyPrompt], labels: AnyLabels | Sequence[AnyLabels]
    ) -> list[tuple[Tokens, LabelSet]]:
        """Every prompt as tokens, with its labels as tokens; raises PromptError and LabelError."""
        tokens, sets = self.read(prompts), sets_of(prompts, labels)
        return [
            (ids, self._compile(prompt if isinstance(prompt, str | Prompt) else ids, one))
            for ids, prompt, one in zip(tokens, prompts, sets, strict=True)
        ]

    def read(self, prompts: Sequence[AnyPrompt], *, ended: bool = False) -> list[Tokens]:
        """Every prompt as tokens, one that is certainly too long only in part; raises PromptError with its place.

        With `ended` a plain string ends as the model's tokenizer ends a text, for what is read at its last token.
        """
        if isinstance(prompts, str | Prompt):
            raise PromptError("one prompt is given for a list of them: put it in brackets, [prompt]")
        if not isinstance(prompts, Sized):
            raise PromptError(f"prompts is a {type(prompts).__name__}: give a list of them")
        tokens = []
        for place, prompt in enumerate(prompts):
            try:
                tokens.append(self.tokenizer.prompt(prompt, self.max_prompt_tokens, ended=ended))
            except PromptError as error:
                error.place = place if len(prompts) > 1 else None
                raise
        return tokens

    def sampled(
        self,
        prompts: Sequence[AnyPrompt],
        sampling: Sampling | None,
        seeds: Sequence[int] | None,
        options: dict[str, Any],
    ) -> tuple[list[Tokens], Sampling]:
        """Every prompt as tokens, and how to sample, checked; raises PromptError."""
        if not isinstance(seeds, Sized | None):
            raise PromptError(f"seeds is {shown(seeds)}: give a whole number for each prompt")
        if seeds is not None and len(seeds) != len(prompts):
            raise PromptError(f"{len(seeds)} seeds for {len(prompts)} prompts: give one for each")
        for seed in () if seeds is None else seeds:
            if not is_number(seed, Integral):
                raise PromptError(f"seeds holds {shown(seed)}: give a whole number for each prompt")
        sampling = Sampling.of(sampling, options, self.tokenizer.vocab_size)
        return self.read(prompts), sampling

    def read_for_rewards(self, prompts: Sequence[AnyPrompt]) -> list[Tokens]:
        """Of every prompt the tokens that the reward head reads; raises AdjudgeError and PromptError."""
        self.require_rewards()
        head = self.reward_head
        assert head is not None
        return [head.read_part(tokens) for tokens in self.read(prompts, ended=True)]

    def _compile(self, prompt: AnyPrompt, labels: AnyLabels) -> LabelSet:
        """Labels in the context of the prompt's last characters, compiled once for each such context."""
        if isinstance(labels, LabelSet):
            return self._known(labels)
        if isinstance(prompt, Prompt):
            text, trusted = self._end(prompt)
        elif isinstance(prompt, str):
            text, trusted = prompt, False
        else:
            text, trusted = self.tokenizer.decode(list(prompt)[-16:]), True
        return self._known(self._compile_labels(Labels.of(labels), text[-CONTEXT_CHARACTERS:], trusted))

    def _end(self, prompt: Prompt) -> tuple[str, bool]:
        """The text that the tokens of a prompt end with, as far as one segment goes, and whether it is trusted."""
        read: list[Tokens] | None = None
        for place, segment in reversed(list(enumerate(prompt.segments))):
            if segment.text and (segment.trusted or segment.limit is None):
                return segment.text, segment.trusted
            read = self.tokenizer.segments(prompt, self.max_prompt_tokens) if read is None else read
            if ids := read[place]:
                whole = len(ids) < (segment.limit or 0)
                return segment.text if whole else self.tokenizer.decode(list(ids)[-16:]), segment.trusted
        return "", True

    def _known(self, labels: LabelSet) -> LabelSet:
        """The labels, if all their tokens are in the vocabulary: an id outside it would end the step for everybody.

        A tokenizer may know more tokens than its model.
        """
        ids = (token for read in labels.reads for token in (*read.path, *read.token_ids))
        if (bad := next((token for token in ids if not 0 <= token < self.tokenizer.vocab_size), None)) is not None:
            raise LabelError(f"label token id {bad} is outside the vocabulary of {self.tokenizer.vocab_size}")
        check_values(labels.values)
        return labels


def sets_of(prompts: Sequence[AnyPrompt], labels: AnyLabels | Sequence[AnyLabels]) -> Sequence[AnyLabels]:
    """A label set for each prompt, of one for all or one for each; raises LabelError where these are others."""
    given: Any = labels
    if isinstance(given, Iterator):  # which is read only once
        given = list(given)
    if not (_is_set(given) or isinstance(given, str)):
        raise LabelError(f"labels is {shown(given)}: give a list of strings, or one for each prompt")
    if isinstance(given, Labels | LabelSet | str) or not any(map(_is_set, given)):
        return [given] * len(prompts)
    if len(given) != len(prompts):
        raise LabelError(f"{len(given)} label sets for {len(prompts)} prompts: give one set, or one for each prompt")
    return cast(Sequence[AnyLabels], given)


def names_in(labels: AnyLabels) -> tuple[str, ...]:
    """The labels of one set, compiled or not."""
    return labels.labels if isinstance(labels, LabelSet) else Labels.of(labels).labels


def checked_engine(engine: EngineFace) -> EngineFace:
    """The same; raises AdjudgeError for what is no open engine."""
    if not isinstance(engine, EngineFace):
        raise AdjudgeError(
            f"engine is {shown(engine)}: give an open one, as Engine(name) or the face of an AsyncEngine"
        )
    return engine


def _is_set(labels: Any) -> bool:
    """Whether it is no single label, were it one that is no string."""
    return not isinstance(labels, str) and isinstance(labels, Labels | LabelSet | Collection)
