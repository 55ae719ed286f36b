"""What a call asks of the texts that it wants: `choosing` follows it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache, cached_property
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import force_setattr

from adjudge.engine.checking import is_number, shown
from adjudge.engine.errors import PromptError

if TYPE_CHECKING:
    import torch

MAX_ALTERNATIVES = 20
MAX_STOPS, MAX_STOP_LENGTH = 64, 1024
"""Stop strings are looked for after every token, between the steps of everybody's texts."""
PENALTIES = ("frequency_penalty", "presence_penalty")
MOST_PENALTY, MOST_BIAS = 2.0, 100.0
FORMS = ("json_schema", "choices", "regex")
MAX_FORM_LENGTH = 1_000_000
"""Characters of a schema, of choices or of a regular expression."""

NUMBERS: tuple[tuple[str, type, Callable[[Any], bool], str], ...] = (
    ("max_tokens", Integral, lambda value: value >= 1, "at least 1"),
    ("temperature", Real, lambda value: 0 <= value < math.inf, "0 or more"),
    ("top_k", Integral, lambda value: value >= 0, "0 (all) or more"),
    ("top_p", Real, lambda value: 0 < value <= 1, "above 0 and at most 1"),
    ("min_p", Real, lambda value: 0 <= value <= 1, "between 0 and 1"),
    ("repetition_penalty", Real, lambda value: 0.01 <= value <= 100, "between 0.01 and 100"),
    *(
        (name, Real, lambda value: abs(value) <= MOST_PENALTY, f"between {-MOST_PENALTY:g} and {MOST_PENALTY:g}")
        for name in PENALTIES
    ),
    ("n", Integral, lambda value: value >= 1, "at least 1"),
    *(
        (name, Integral, lambda value: 0 <= value <= MAX_ALTERNATIVES, f"between 0 and {MAX_ALTERNATIVES}")
        for name in ("logprobs", "prompt_logprobs")
    ),
    ("seed", Integral, lambda value: True, ""),
)
"""The numbers of a `Sampling`: their kind, which are good, and what to give for others."""
OWN: dict[type, tuple[type, str]] = {Integral: (int, "a whole number"), Real: (float, "a number")}
"""Of each kind what Python has of its own, which is what a step computes with."""
OR_NONE = {"prompt_logprobs": ", or None", "seed": ", or None"}


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
    `n` answers are generated for a prompt. `allowed_token_ids` leaves no others; where the model gives all of them no
    probability the text ends with "length". `logprobs` is how many alternatives to report at each place;
    `prompt_logprobs`, where it is not None, the same for the prompt's own tokens, which are read as well then, and
    computed for it though they stand in the cache. Log-probabilities are the model's own, before any of this. At most
    one of `json_schema` (a schema, or its text), `choices` and `regex` gives the text a form; one that is cut short
    ends with "length". A `stop` string ends a form where it stands: "stop" says then that the text had its form with
    that string, which is left out of it all the same.
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
        self._take_numbers()
        self._take_lists()
        self._take_biases()
        self._take_texts()
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

    def _take_numbers(self) -> None:
        """What is of another kind, here as below, would fail in a step, with the calls of others."""
        for name, kind, good, mend in NUMBERS:
            (own, what), or_none = OWN[kind], OR_NONE.get(name, "")
            value = getattr(self, name)
            if value is None and or_none:
                continue
            if not is_number(value, kind):
                raise PromptError(f"{name} is {shown(value)}: give {what}{or_none}")
            force_setattr(self, name, value := own(value))
            if not good(value):
                raise PromptError(f"{name} is {value}: give {mend}{or_none}")

    def _take_lists(self) -> None:
        """Take any list for a tuple, and a stop string for a list of one."""
        stop: Any = self.stop
        if stop is None or isinstance(stop, str):
            force_setattr(self, "stop", () if stop is None else (stop,))
        for name, good, what in (
            ("stop", _is_text, "strings"),
            ("choices", _is_text, "strings"),
            ("allowed_token_ids", _is_whole, "token ids"),
        ):
            value = getattr(self, name)
            if isinstance(value, list | np.ndarray):
                force_setattr(self, name, value := tuple(value))
            if value is not None and not (isinstance(value, tuple) and all(map(good, value))):
                raise PromptError(f"{name} is {shown(value)}: give a tuple of {what}")

    def _take_biases(self) -> None:
        """Take them as they are now: a dict may change."""
        biases = self.logit_bias
        if biases is None:
            return
        if not (isinstance(biases, dict) and all(map(_is_bias, biases.items()))):
            raise PromptError(
                f"logit_bias is {shown(biases)}: give a dict of token ids and numbers between {-MOST_BIAS:g} and"
                f" {MOST_BIAS:g}"
            )
        force_setattr(self, "logit_bias", {int(token): float(bias) for token, bias in biases.items()})

    def _take_texts(self) -> None:
        """Take a schema for its text, and a surrogate pair for the character it is; a lone one cannot be sent."""
        schema: Any = self.json_schema
        if isinstance(schema, dict):
            force_setattr(self, "json_schema", json.dumps(schema, ensure_ascii=False))
        for name in ("stop", *FORMS):
            value = getattr(self, name)
            if name in ("json_schema", "regex") and not isinstance(value, str | None):
                raise PromptError(f"{name} is {type(value).__name__}: give a string")
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
        if not isinstance(sampling, Sampling | None):
            raise PromptError(f"sampling is {shown(sampling)}: give a Sampling, or its fields as options")
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
        import torch

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
