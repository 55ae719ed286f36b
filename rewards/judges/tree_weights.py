"""J_W of Tree of Writing: a model writes, once for an instruction, how much each leaf counts."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from adjudge.engine.checking import at_least
from adjudge.engine.face import EngineFace
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import UNKEPT, Reason
from adjudge.engine.text.prompt import Prompt
from adjudge.rewards.journal import Journal, content_key

SAMPLING = Sampling(max_tokens=200, temperature=0.7)
"""How weights are written: a JSON object of five numbers has about 60 tokens."""
ROUNDING = 0.005
"""By how much a weight of two decimals may be off."""

Yielded = TypeVar("Yielded")
Wish = tuple[str, tuple[str, ...]]
"""An instruction, and the names to weigh."""


class Weights(msgspec.Struct, frozen=True):
    """What was written for one instruction: a number for each name, or why there is none.

    `truncated` says that the instruction was shortened to fit.
    """

    values: dict[str, float] | None = None
    abstained: Reason | None = None
    truncated: bool = False


class Weighing:
    """Weights of an instruction by the names that are weighed, each asked for once.

    What was written is kept here and, if there is one, in the `journal`. `word` makes the prompt from an instruction
    and the names, `conditions` say what else decides an answer, now. With `whole` the weights must sum to 1. A text
    that holds no such weights is written again with another seed, `attempts` times in all; then "unparsable". Seeds are
    drawn from `seed` and the prompt, so that equal instructions get equal weights in whatever company. Raises
    AdjudgeError for no attempts.
    """

    def __init__(
        self,
        engine: EngineFace,
        journal: Journal | None,
        word: Callable[[str, Sequence[str]], Prompt],
        conditions: Callable[[], Mapping[str, Any]],
        *,
        whole: bool = True,
        attempts: int = 3,
        seed: int = 0,
    ) -> None:
        at_least(1, attempts=attempts)
        self.engine, self.journal, self.word, self.conditions = engine, journal, word, conditions
        self.whole, self.attempts, self.seed = whole, attempts, seed
        self.content = {"sampling": SAMPLING, "whole": whole, "attempts": attempts, "seed": seed}
        self._known: dict[str, Weights] = {}

    def key(self, instruction: str, names: Sequence[str]) -> str:
        """The journal's key of these weights."""
        return content_key(judge="tree weights", prompt=instruction, names=names, **self.content, **self.conditions())

    def known(self, key: str) -> Weights | None:
        """What was written, if anything was."""
        return self._known.get(key)

    def weigh(self, wanted: Mapping[str, Wish]) -> Iterator[None]:
        """Have those weights written that are not known, by their keys; yields as each text is there.

        What is known is settled when this is called, before the first text is asked for.
        """
        self._recall(wanted)
        return self._written(wanted)

    def _written(self, wanted: Mapping[str, Wish]) -> Iterator[None]:
        asked = {key: wish for key, wish in wanted.items() if key not in self._known}
        prompts = {key: self.engine.fit([self.word(*wish)], SAMPLING.max_tokens) for key, wish in asked.items()}
        for attempt in range(self.attempts):
            texts = [
                self._write(names, asked, prompts, attempt) for names in dict.fromkeys(n for _, n in asked.values())
            ]
            for key, found in interleaved(*texts):
                if found.abstained != "unparsable" or attempt == self.attempts - 1:
                    self._keep(key, msgspec.structs.replace(found, truncated=prompts[key][1]))
                    del asked[key]
                yield

    def _write(
        self,
        names: tuple[str, ...],
        asked: Mapping[str, Wish],
        prompts: Mapping[str, tuple[list[Prompt], bool]],
        attempt: int,
    ) -> Iterator[tuple[str, Weights]]:
        """One text for each of those asked for that weighs these names: one call has one schema."""
        keys = [key for key, wish in asked.items() if wish[1] == names]
        shown = [prompts[key][0][0] for key in keys]
        sampling = msgspec.structs.replace(SAMPLING, json_schema=schema(names))
        seeds = [int(content_key(seed=self.seed, prompt=prompt, attempt=attempt)[:16], 16) for prompt in shown]
        for place, completion in self.engine.generate_iter(shown, sampling, seeds=seeds):
            values = None if completion.missing else read_weights(completion.text, names, whole=self.whole)
            yield keys[place], Weights(values, None if values else completion.missing or "unparsable")

    def _recall(self, keys: Collection[str]) -> None:
        """Forget what another time may go well, and read what the journal has."""
        for key in keys:
            if key in self._known and self._known[key].abstained in UNKEPT:
                del self._known[key]
        if self.journal is not None and (absent := [key for key in keys if key not in self._known]):
            for key, raw in self.journal.get(absent).items():
                self._known[key] = self.journal.decoded(raw, Weights)

    def _keep(self, key: str, weights: Weights) -> None:
        if self.journal is not None and weights.abstained not in UNKEPT:  # of processes that share it one is first
            weights = self.journal.decoded(self.journal.put(key, msgspec.json.encode(weights)), Weights)
        self._known[key] = weights


def schema(names: Sequence[str]) -> str:
    """The JSON schema of weights by name. Two decimals and the sum are beyond a schema: see `read_weights`."""
    number = {"type": "number", "minimum": -1, "maximum": 1}
    return json.dumps(
        {
            "type": "object",
            "properties": dict.fromkeys(names, number),
            "required": list(names),
            "additionalProperties": False,
        }
    )


def read_weights(text: str, names: Sequence[str], *, whole: bool = True) -> dict[str, float] | None:
    """The weights of a JSON object, or None where it does not hold each name with a number in [-1, 1] of two decimals.

    With `whole` they must sum to 1 but for their rounding (half a hundredth each), and are made to sum to 1 exactly.
    """
    try:
        values = msgspec.json.decode(text, type=dict[str, float])
    except (msgspec.DecodeError, ValueError):
        return None
    if values.keys() != set(names) or not all(-1 <= value <= 1 for value in values.values()):
        return None
    if any(abs(100 * value - round(100 * value)) > 1e-6 for value in values.values()):
        return None
    total = math.fsum(values.values())
    if not whole:
        return {name: values[name] for name in names}
    if abs(total - 1) > ROUNDING * len(names) + 1e-9:
        return None
    return {name: values[name] / total for name in names}


def interleaved(*streams: Iterator[Yielded]) -> Iterator[Yielded]:
    """What the streams yield, by turns, so that an engine works on all of them at once.

    An engine's call begins when its first answer is asked for, and goes on while that of any other call is waited for.
    """
    waiting = deque(streams)
    while waiting:
        stream = waiting.popleft()
        for answer in stream:
            yield answer
            waiting.append(stream)
            break
