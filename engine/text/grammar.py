"""Texts that must have a form: a JSON schema, one of some choices, or a regular expression; by llguidance."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import torch

from adjudge.engine.errors import PromptError
from adjudge.engine.sampling import FORMS, Sampling
from adjudge.engine.text import grammar_trial
from adjudge.engine.text.signs import ids_of, without_signs
from adjudge.engine.threads.forked import Renewed

log = logging.getLogger("adjudge")

TRIED = ("json_schema", "regex")
"""What may take long to compile; choices are no longer than what they come to."""

SPACE = r"\n? {0,16}"
"""What may stand between two pieces of JSON: enough to indent it. Small models given more lose themselves in it."""

MOST_SAID = 300
"""Characters of what the library says of a form."""

WAIT = 60.0
"""Seconds after which a compilation has taken too much on the busiest machine."""

THREADS = Renewed(partial(ThreadPoolExecutor, 2, thread_name_prefix="adjudge-forms"))
"""Where a server has forms prepared: those that take long hold up forms, and nothing else."""


class Form:
    """What may come next in one text; `first` [V] are the tokens with which it may begin, where they are known.

    `spoilt` is called where a text has come to the library's limits, which the copies of a form share.
    """

    def __init__(
        self, matcher: Any, size: int, first: torch.Tensor | None = None, spoilt: Callable[[], None] = lambda: None
    ) -> None:
        self._matcher, self._size, self._first, self._spoilt = matcher, size, first, spoilt

    def copy(self) -> Form:
        """The same for another text."""
        return Form(self._matcher.deep_copy(), self._size, self._first, self._spoilt)

    def allowed(self) -> torch.Tensor:
        """[V] bool: the tokens with which the text can still come to its form."""
        if self._first is not None:
            return self._first
        return torch.frombuffer(bytearray(self._matcher.compute_logit_bias()), dtype=torch.uint8)[: self._size] > 0

    def take(self, token: int) -> bool:
        """Go on by a token; whether nothing may follow."""
        self._first = None
        self._matcher.consume_token(token)
        return bool(self._matcher.is_stopped())

    @property
    def error(self) -> str:
        """Why no text can come to the form, "" where one can."""
        return str(self._matcher.get_error()) if self._matcher.is_error() else ""

    @property
    def complete(self) -> bool:
        """Whether the text has its form; one that cannot come to it any more has not."""
        if error := self.error:
            log.warning("a text ends before it has its form: %s", error.strip().splitlines()[0])
            if self._matcher.stop_reason() in ("InternalError", "LexerTooComplex", "ParserTooComplex"):
                self._spoilt()
            return False
        return bool(self._matcher.is_accepting())


class Grammars:
    """Forms for texts of one tokenizer; `size` is the width of the model's head."""

    def __init__(self, tokenizer: Any, size: int, end_ids: frozenset[int]) -> None:
        self._inner, self._size, self._end_ids = tokenizer, size, end_ids
        self._compiled = lru_cache(maxsize=64)(self._compile)
        self._spoilt: Counter[int] = Counter()  # how often each grammar was; what was compiled of it before is not used

    def form(self, sampling: Sampling) -> Form | None:
        """A fresh form of the kind asked for, None for none; raises PromptError for one that makes no sense."""
        if (grammar := _grammar(sampling)) is None:
            return None
        field = next(name for name in FORMS if getattr(sampling, name) is not None)
        form, problem = self._compiled(grammar, field, self._spoilt[hash(grammar)])
        if problem:
            raise PromptError(f"{field} cannot be followed: {problem}")
        return form.copy()

    @cached_property
    def _tokenizer(self) -> Any:
        from llguidance import LLTokenizer

        most = max(self._size, ids_of(self._inner))  # a tokenizer may know more tokens than its model
        return LLTokenizer(without_signs(self._inner), n_vocab=most, eos_token=sorted(self._end_ids) or None)

    def _compile(self, grammar: str, field: str, spoilt: int) -> tuple[Form, str]:
        """The form, and what keeps any text from it; how its texts may begin is worked out here, outside the steps.

        `spoilt` only tells it from those that were compiled before.
        """
        from llguidance import LLMatcher

        if field in TRIED and _takes_too_much(grammar):
            raise PromptError(
                f"{field} takes more than {grammar_trial.SECONDS} s or {grammar_trial.BYTES >> 30} GiB to compile: ask"
                " for less, patterns that must all hold and multiples above all"
            )
        form = Form(LLMatcher(self._tokenizer, grammar, log_level=0), self._size)
        if form.error:
            return form, _said(form.error)
        tried = form.copy()
        begun = Form(form._matcher, self._size, tried.allowed(), lambda: self._spoilt.update([hash(grammar)]))
        if not tried.error and (begins := begun.allowed().nonzero()).numel():
            tried.take(int(begins[0]))  # a large object fails, and takes its time, at what follows its bracket
            tried.allowed()
        return begun, _said(tried.error)


def _said(error: str) -> str:
    """What the library says of a form that cannot be, in one line; "" where it says nothing."""
    told = " ".join(error.partition("<state>")[0].split())[:MOST_SAID]
    return "no text has it" if told == "NoExtensionBias" else told


@lru_cache(maxsize=64)
def _takes_too_much(grammar: str) -> bool:
    """Whether a grammar would take too much to compile: see `grammar_trial`."""
    command = [sys.executable, "-P", str(Path(grammar_trial.__file__))]
    try:
        done = subprocess.run(command, input=grammar.encode(), capture_output=True, timeout=WAIT)
    except subprocess.TimeoutExpired:
        return True
    except OSError as error:
        log.warning("a form is compiled untried, as no process could be begun (%s)", error)
        return False
    if done.returncode > 0 and done.returncode != grammar_trial.TOO_MUCH:
        log.warning("a form is compiled untried: %s", done.stderr.decode(errors="replace").strip()[-200:])
        return False
    return done.returncode != 0


def _grammar(sampling: Sampling) -> str | None:
    from llguidance import LLMatcher

    if sampling.json_schema is not None:
        try:
            return LLMatcher.grammar_from_json_schema(sampling.json_schema, defaults={"whitespace_pattern": SPACE})
        except ValueError as error:
            raise PromptError(f"json_schema is no JSON schema ({error})") from error
    if sampling.choices is not None:
        # One terminal, not a rule: of a rule's alternatives llguidance follows no more than 2,000.
        return LLMatcher.grammar_from_lark("start: CHOICE\nCHOICE: " + " | ".join(map(json.dumps, sampling.choices)))
    return None if sampling.regex is None else LLMatcher.grammar_from_regex(sampling.regex)
