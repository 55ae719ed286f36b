"""Judge prompts: jinja files whose data slots are untrusted by construction."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import jinja2
from jinja2.sandbox import SandboxedEnvironment

from adjudge.engine.checking import shown
from adjudge.engine.errors import PromptError
from adjudge.engine.text.prompt import Cut, Message, Segment, mark, place_marks

FOLDER = Path(__file__).parent / "prompts"

Layout = Literal["shared", "paper"]
"""The order of a prompt's parts: "shared" has what siblings share first, "paper" is the order of the paper."""


Data = str | Sequence["Data"]
"""A text that is data, or a list of such: a prompt file loops over it."""


def _text(value: Any) -> Any:
    """What a prompt file prints; raises PromptError for a list, whose marks would not be found again."""
    if isinstance(value, (list, tuple)):
        raise PromptError("a list stands where the prompt file has one text: give a string")
    return value


class Template:
    """A prompt file with the blocks `system`, `user` and `answer`; its `hash` is the version that journals record."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.hash = hashlib.sha256(self.source.encode()).hexdigest()[:16]
        environment = SandboxedEnvironment(undefined=jinja2.StrictUndefined, autoescape=False, finalize=_text)
        self._template = environment.from_string(self.source)

    def render(self, *, data: Mapping[str, Data], cut: Cut = "middle", **trusted: Any) -> tuple[list[Message], str]:
        """The messages and the beginning of the answer; `data` become untrusted segments, `trusted` template text.

        Raises PromptError for a variable that the file uses and nobody gave, and data of another form than it uses.
        """
        if any("\ue000" in text or "\ue001" in text for text in trusted.values() if isinstance(text, str)):
            raise PromptError(
                "an aspect or instruction holds U+E000 or U+E001, which mark the places of data: remove them"
            )
        segments: list[Segment] = []

        def marked(value: Data) -> str | list[Any]:
            if isinstance(value, (list, tuple)):
                return [marked(part) for part in value]
            if not isinstance(value, str):
                raise PromptError(f"{shown(value)} stands where a prompt has a text: give a string")
            segments.append(Segment(value, cut=cut))
            return mark(len(segments) - 1)

        marks = {name: marked(value) for name, value in data.items()}
        context = self._template.new_context({**trusted, **marks})
        try:
            texts = {name: "".join(block(context)) for name, block in self._template.blocks.items()}
        except jinja2.UndefinedError as error:
            raise PromptError(f"the prompt file needs what was not given ({error.message}): add it") from error
        messages = [
            Message("system", place_marks(texts["system"], segments)),
            Message("user", place_marks(texts["user"], segments)),
        ]
        return messages, texts["answer"]


def load(judge: str, language: str = "en", folder: Path = FOLDER) -> Template:
    """The prompt file of a judge, or of another `folder`'s; raises PromptError naming the languages there are."""
    known = {file.stem: file for file in (folder / judge).glob("*.jinja")}
    if language not in known:  # a name, never a path: it may come from afar
        raise PromptError(
            f'no {judge} prompt in language "{language[:40]}": choose from {", ".join(sorted(known)) or "none"}'
        )
    return _read(known[language])


@cache
def _read(path: Path) -> Template:
    return Template(path.read_text(encoding="utf-8"))
