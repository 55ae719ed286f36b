"""Texts that a model goes on with from where they begin: what small models write, the worse the more freely."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.prompt import Prompt, Segment
from adjudge.rewards.wire import Row
from adjudge.training.stages import Passed, Texts, Unusable, passed
from adjudge.training.writing.passages import sentences
from adjudge.training.writing.texts import Source

FEWEST = 2
"""Sentences of the shortest continuation that is one."""
_NAME = re.compile(r"continued at (\d+(?:\.\d+)?)")
_END = re.compile(r"""[.!?…]["'”’)*]*$""")


def beginnings(rows: Sequence[Row]) -> list[Source]:
    """Rows with a text and the `prompt` that it begins with; raises AdjudgeError for one without."""
    sources = [Source.of(row, number, "continuations") for number, row in enumerate(rows, 1)]
    for row, source in zip(rows, sources, strict=True):
        if not row.text("prompt", "continuations").strip():
            raise AdjudgeError(f'{row.place}: "prompt" is empty: there is nothing to go on from')
        if not isinstance(source.columns.get("worse", {}), dict):
            raise AdjudgeError(f'{row.place}: "worse" must be an object of names and texts')
    return sources


def go_on(sources: Sequence[Source], texts: Texts) -> Passed[dict[str, Any]]:
    """Every row, with what a model makes of its prompt in `worse`, by the temperature: "continued at 0.6".

    It is as many sentences as the text has, or what is whole of fewer; below two it is written again. The prompt goes
    to the model as it is, without a chat.
    """
    name = continued_at(texts.sampling.temperature)
    prompts = [texts.fitted(Prompt((Segment(source.columns["prompt"].strip()),))) for source in sources]
    reads = [_whole(len(sentences(source.text).parts)) for source in sources]
    found = (
        (place, text if isinstance(text, Unusable) else _with(sources[place], name, text))
        for place, text in texts.write(prompts, reads)
    )
    return passed("continue", [source.columns for source in sources], found)


def continued_at(temperature: float) -> str:
    """What a continuation goes by."""
    return f"continued at {temperature:g}"


def temperature_of(name: str) -> float | None:
    """The temperature of a continuation; None where the name is another's."""
    found = _NAME.fullmatch(name)
    return None if found is None else float(found[1])


def _whole(count: int) -> Callable[[str], str]:
    """A reader of the first `count` sentences that came to their end, in one paragraph."""

    def read(text: str) -> str:
        parts = [part for part in sentences(text).parts if _END.search(part)][:count]
        if len(parts) < FEWEST:
            raise Unusable("too_short")
        return " ".join(parts)

    return read


def _with(source: Source, name: str, text: str) -> dict[str, Any]:
    return {**source.columns, "worse": {**source.columns.get("worse", {}), name: text}}
