"""How the next token is chosen from the logits of a row.

On CPU rows are taken one at a time, so that nothing depends on the rest of the batch; `sampling_on_device` takes those
on a GPU together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from numbers import Integral, Real
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from msgspec.structs import force_setattr

from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import PromptError

MAX_ALTERNATIVES = 20
MAX_STOPS, MAX_STOP_LENGTH = 64, 1024
"""Stop strings are looked for after every token, between the steps of everybody's texts."""
ROUNDING = 1e-12
"""What `top_p` and `min_p` leave to the order of a sum: at a boundary of equal tokens it would decide, on a GPU by the
size of the batch."""
LISTS = ("stop", "choices", "allowed_token_ids")
PENALTIES = ("frequency_penalty", "presence_penalty")
MOST_PENALTY, MOST_BIAS = 2.0, 100.0
FORMS = ("json_schema", "choices", "regex")
MAX_FORM_LENGTH = 1_000_000
"""Characters of a schema, of choices or of a regular expression."""


class SamplingTensors(NamedTuple):
    """The tokens [B] of a logit bias and what is added to their logits [B] (float64), and the tokens [A] allowed."""

    biased_B: torch.Tensor
    bias_B: torch.Tensor
    allowed_A: torch.Tensor


class Sampling(msgspec.Struct, frozen=True, dict=True):
    """How to generate.

    `temperature` 0 takes the most probable token. `top_k` 0, `top_p` 1 and `min_p` 0 leave every token in; `min_p` is
    relative to the most probable one. `repetition_penalty` above 1 makes tokens of the prompt and the answer less
    likely (Keskar et al. 2019). `frequency_penalty` for each time that the answer has a token, and `presence_penalty`
    once, are taken from its logit; `logit_bias` adds to those of tokens by their ids, before all penalties. `stop`
    strings end the text before they appear in it. `seed` None draws fresh numbers.
    `n` answers are generated for a prompt. `allowed_token_ids` leaves no others. `logprobs` is how many alternatives to
    report at each place; `prompt_logprobs`, where it is not None, the same for the prompt's own tokens, which are read
    as well then, and computed for it though they stand in the cache. Log-probabilities are the model's own, before any
    of this. At most one of `json_schema` (a schema, or its text), `choices` and `regex` gives the text a form; one that
    is cut short ends with "length". A `stop` string ends a form where it stands: "stop" says then that the text had its
    form with that string, which is left out of it all the same.
    """

    max_tokens: int = 256
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: dict[int, float] | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    n: int = 1
    allowed_token_ids: tuple[int, ...] | None = None
    logprobs: int = 0
    prompt_logprobs: int | None = None
    ignore_eos: bool = False
    json_schema: str | None = None
    choices: tuple[str, ...] | None = None
    regex: str | None = None

    def __post_init__(self) -> None:
        self._take()
        self._check_types()
        self._join_surrogates()
        for name, good, what in (
            ("max_tokens", self.max_tokens >= 1, "at least 1"),
            ("temperature", 0 <= self.temperature < math.inf, "0 or more"),
            ("top_k", self.top_k >= 0, "0 (all) or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "between 0 and 1"),
            ("repetition_penalty", 0.01 <= self.repetition_penalty <= 100, "between 0.01 and 100"),
            *(
                (name, abs(getattr(self, name)) <= MOST_PENALTY, f"between {-MOST_PENALTY:g} and {MOST_PENALTY:g}")
                for name in PENALTIES
            ),
            ("n", self.n >= 1, "at least 1"),
            ("logprobs", 0 <= self.logprobs <= MAX_ALTERNATIVES, f"between 0 and {MAX_ALTERNATIVES}"),
            (
                "prompt_logprobs",
                0 <= (self.prompt_logprobs or 0) <= MAX_ALTERNATIVES,
                f"between 0 and {MAX_ALTERNATIVES}, or None",
            ),
        ):
            if not good:
                raise PromptError(f"{name} is {getattr(self, name)}: give {what}")
        if len(self.stop) > MAX_STOPS or any(len(stop) > MAX_STOP_LENGTH for stop in self.stop):
            raise PromptError(f"stop is too much: give at most {MAX_STOPS} strings of {MAX_STOP_LENGTH} characters")
        if any(not stop for stop in self.stop):
            raise PromptError("stop holds an empty string: every text would end before it begins")
        for name in FORMS:
            if (size := sum(map(len, getattr(self, name) or ""))) > MAX_FORM_LENGTH:
                raise PromptError(f"{name} has {size} characters: give at most {MAX_FORM_LENGTH}")
        for name in ("allowed_token_ids", "choices"):
            if getattr(self, name) == ():
                raise PromptError(f"{name} is empty: give at least one, or None for all")
        if len(given := [name for name in (*FORMS, "allowed_token_ids") if getattr(self, name) is not None]) > 1:
            raise PromptError(f"{' and '.join(given)} do not go together: give one of them")

    def _take(self) -> None:
        """Take a string for a list of one, any list for a tuple, a schema for its text, and biases as they are now."""
        stop: Any = self.stop
        schema: Any = self.json_schema
        if stop is None or isinstance(stop, str):
            force_setattr(self, "stop", () if stop is None else (stop,))
        if isinstance(schema, dict):
            force_setattr(self, "json_schema", json.dumps(schema, ensure_ascii=False))
        if isinstance(self.logit_bias, dict):
            force_setattr(self, "logit_bias", dict(self.logit_bias))
        for name in LISTS:
            if isinstance(value := getattr(self, name), list | np.ndarray):
                force_setattr(self, name, tuple(value))

    def _check_types(self) -> None:
        """What is of another kind would fail in a step, with the calls of others: numbers are Python's own there."""
        for kind, own, what, names in (
            (Integral, int, "a whole number", ("max_tokens", "top_k", "n", "logprobs")),
            (Real, float, "a number", ("temperature", "top_p", "min_p", "repetition_penalty", *PENALTIES)),
        ):
            for name in names:
                value = getattr(self, name)
                if not is_number(value, kind):
                    raise PromptError(f"{name} is {shown(value)}: give {what}")
                force_setattr(self, name, own(value))
        for name in ("seed", "prompt_logprobs"):
            value = getattr(self, name)
            if value is None:
                continue
            if not is_number(value, Integral):
                raise PromptError(f"{name} is {shown(value)}: give a whole number, or None")
            force_setattr(self, name, int(value))
        for name, good, what in (
            ("stop", _is_text, "strings"),
            ("choices", _is_text, "strings"),
            ("allowed_token_ids", _is_whole, "token ids"),
        ):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, tuple) and all(map(good, value))):
                raise PromptError(f"{name} is {shown(value)}: give a tuple of {what}")
        biases = self.logit_bias
        if biases is not None and not (isinstance(biases, dict) and all(map(_is_bias, biases.items()))):
            raise PromptError(
                f"logit_bias is {shown(biases)}: give a dict of token ids and numbers between {-MOST_BIAS:g} and"
                f" {MOST_BIAS:g}"
            )
        if biases:
            force_setattr(self, "logit_bias", {int(token): float(bias) for token, bias in biases.items()})
        for name in ("json_schema", "regex"):
            if not isinstance(value := getattr(self, name), str | None):
                raise PromptError(f"{name} is {type(value).__name__}: give a string")

    def _join_surrogates(self) -> None:
        """Take a surrogate pair for the character it is; raises PromptError for a lone one, which cannot be sent."""
        for name in ("stop", *FORMS):
            value = getattr(self, name)
            try:
                joined = tuple(map(_joined, value)) if isinstance(value, tuple) else value and _joined(value)
            except UnicodeDecodeError as error:
                raise PromptError(f"{name} has a lone surrogate, which no text has: leave it out") from error
            force_setattr(self, name, joined)

    @staticmethod
    def of(sampling: Sampling | None, options: dict[str, Any], vocabulary: int) -> Sampling:
        """What was asked for, as `sampling` or as its fields; raises PromptError where that makes no sense."""
        if sampling is not None and options:
            raise PromptError(f"give either sampling or its fields, not both ({', '.join(sorted(options))})")
        if unknown := sorted(options.keys() - set(Sampling.__struct_fields__)):
            fields = ", ".join(Sampling.__struct_fields__)
            raise PromptError(f"{unknown[0]} is no field of Sampling: choose from {fields}")
        sampling = sampling or Sampling(**options)
        if len(sampling.allowed_token_ids or ()) > vocabulary:
            raise PromptError(f"allowed_token_ids is longer than the vocabulary of {vocabulary}: give each token once")
        for name in ("allowed_token_ids", "logit_bias"):
            if bad := [token for token in getattr(sampling, name) or () if not 0 <= token < vocabulary]:
                raise PromptError(f"{name} holds {bad[0]}, outside the vocabulary of {vocabulary}")
        return sampling

    @property
    def heeds_before(self) -> bool:
        """Whether the next token depends on those before it by more than the model's logits."""
        return self.repetition_penalty != 1.0 or any(getattr(self, name) for name in PENALTIES)

    @cached_property
    def tensors_on(self) -> Callable[[torch.device], SamplingTensors]:
        """Its tokens and numbers as tensors there, made once: of a whole vocabulary they take longer than a token."""
        bias, allowed = self.logit_bias or {}, self.allowed_token_ids or ()

        @cache
        def tensors(device: torch.device) -> SamplingTensors:
            return SamplingTensors(
                torch.tensor(list(bias), dtype=torch.long, device=device),
                torch.tensor(list(bias.values()), dtype=torch.float64, device=device),
                torch.tensor(allowed, dtype=torch.long, device=device),
            )

        return tensors


def _joined(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return is_number(value, Integral)


def _is_bias(item: tuple[Any, Any]) -> bool:
    token, bias = item
    return _is_whole(token) and is_number(bias, Real) and abs(bias) <= MOST_BIAS


class Wish(NamedTuple):
    """What the next token is chosen by, `draw` being a uniform number in [0, 1).

    The tokens `before` it, each once or more, count where there is a repetition penalty; the last `own` of them, which
    are the answer's, for the other penalties. `allowed_V` (bool, on CPU) leaves out tokens besides what `sampling`
    says.
    """

    sampling: Sampling
    before: Sequence[int] | torch.Tensor
    draw: float
    allowed_V: torch.Tensor | None = None
    own: int = 0

    def left(self, logits_V: torch.Tensor) -> torch.Tensor:
        """Logits (float64, on CPU) after bias and penalties, -inf for what may not come; may change or be `logits_V`.

        `sampling_on_device` does this to many rows at once.
        """
        sampling = self.sampling
        self.add_bias(logits_V)
        if sampling.heeds_before and len(self.before):
            seen = torch.as_tensor(self.before)
            some, penalty = logits_V[seen], sampling.repetition_penalty
            logits_V[seen] = torch.where(some > 0, some / penalty, some * penalty)
            written = seen[len(seen) - self.own :]
            logits_V[written] = logits_V[written] - sampling.presence_penalty
            each = logits_V.new_full((1,), -sampling.frequency_penalty).expand(len(written))
            logits_V.index_add_(0, written, each)
        logits_V = self.of_allowed(logits_V)
        if self.allowed_V is not None:
            logits_V = logits_V.masked_fill(~self.allowed_V, -torch.inf)
        return logits_V

    def add_bias(self, logits_V: torch.Tensor) -> None:
        """Add what `logit_bias` says, in place."""
        if self.sampling.logit_bias:
            biased_B, bias_B, _ = self.sampling.tensors_on(logits_V.device)
            logits_V[biased_B] += bias_B

    def of_allowed(self, logits_V: torch.Tensor) -> torch.Tensor:
        """The logits of `allowed_token_ids`, -inf elsewhere; the same ones where all are allowed."""
        if self.sampling.allowed_token_ids is None:
            return logits_V
        allowed_A = self.sampling.tensors_on(logits_V.device).allowed_A
        return torch.full_like(logits_V, -torch.inf).index_copy_(0, allowed_A, logits_V[allowed_A])


def choose(logits_V: torch.Tensor, wish: Wish) -> int:
    """The next token, from the model's logits, float32 on CPU."""
    sampling, draw = wish.sampling, wish.draw
    logits = wish.left(logits_V.double())
    if sampling.temperature == 0:
        return int(logits.argmax())
    logits = (logits - logits.max()) / sampling.temperature  # at most 0: no temperature is too low
    if 0 < sampling.top_k < len(logits):
        logits = logits.masked_fill(logits < logits.topk(sampling.top_k).values[-1], -torch.inf)
    probs = torch.softmax(logits, 0)
    if sampling.top_p < 1:
        probs = _nucleus(probs, sampling.top_p)
    if sampling.min_p > 0:
        probs[probs < sampling.min_p * probs.max() * (1 - ROUNDING)] = 0
    reached = probs.cumsum(0)
    token = int(torch.searchsorted(reached, draw * reached[-1], right=True))
    return min(token, int(probs.nonzero()[-1]))  # a draw next to 1 may round to the whole


def _nucleus(probs_V: torch.Tensor, top_p: float) -> torch.Tensor:
    """The probabilities with those set to 0 that come after a mass of `top_p`; of equals the first in the vocabulary
    counts first.
    """
    # Tokens below this weigh less than half of 1 - top_p together, so the mass before each of them is enough without
    # putting them in order, which for a whole vocabulary takes longer than all the rest.
    places = (probs_V >= (1 - top_p) / (2 * len(probs_V))).nonzero().squeeze(1)
    ordered, order = probs_V[places].sort(descending=True, stable=True)
    kept = places[order[ordered.cumsum(0) - ordered < top_p * (1 - ROUNDING)]]
    return torch.zeros_like(probs_V).index_copy_(0, kept, probs_V[kept])


def uniform(seed: tuple[int, int], place: int) -> float:
    """The number in [0, 1) for the `place`-th token of a stream: a function of the two and of nothing else."""
    key = np.array(seed, dtype=np.uint64)
    return float(np.random.Generator(np.random.Philox(key=key, counter=place)).random())
