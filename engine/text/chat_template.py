"""A model's chat template: what stands around messages, and what a reply begins with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from adjudge.engine.errors import ModelUnsupported, reason

DAY = datetime(2024, 7, 26)
"""Today, for chat templates that write it into every prompt: the day that Llama's take where nobody gives one."""
SAME_DAY = (
    "{%- macro strftime_now(form) -%}{{ form"
    + "".join(f"|replace('%{sign}', '{DAY.strftime(f'%{sign}')}')" for sign in "aAbBdmyYHMSpj")
    + " }}{%- endmacro -%}"
)
"""Stands before such a template, in the place of the function that transformers gives it."""

THOUGHT, THOUGHT_END = "<think>", "\n\n</think>\n\n"


class ChatTemplate:
    """That of a transformers tokenizer; where it has none, messages are paragraphs after the `leading` text."""

    def __init__(self, tokenizer: Any, leading: str) -> None:
        self._tokenizer = tokenizer
        self._leading = leading
        self._openings: dict[str, str] = {}  # of replies, by template

    def opened(self, roles: Sequence[str], texts: Sequence[str], *, thinks: bool = False) -> str:
        """Messages by roles and texts, up to where the text of a reply begins, or with `thinks` its thought.

        Raises ModelUnsupported where the template does not take them.
        """
        if not self._tokenizer.chat_template:
            return self._leading + "\n\n".join(texts) + "\n\n"
        template = self._tokenizer.get_chat_template()
        rendered = self._rendered(template, roles, texts, True, thinks)
        return rendered if thinks else rendered + self._reply_opening(template)

    def closed(self, roles: Sequence[str], texts: Sequence[str]) -> str:
        """The same, the last of them closed as the template closes it; raises ModelUnsupported without one."""
        if not self._tokenizer.chat_template:
            raise ModelUnsupported(
                "the model has no chat template: save the one it was trained with as chat_template.jinja in its folder"
            )
        return self._rendered(self._tokenizer.get_chat_template(), roles, texts, False)

    def _rendered(
        self, template: str, roles: Sequence[str], texts: Sequence[str], reply: bool, thinks: bool = False
    ) -> str:
        problem = ""
        for turns in _wordings(roles, texts):
            try:
                rendered = self._apply(template, turns, reply, thinks)
            except Exception as error:  # each template has its own way to refuse
                problem = f"does not take these messages ({reason(error)})"
                continue
            if not _dropped(texts, rendered):
                return rendered
            problem = "drops a message: use a model with another template"
        raise ModelUnsupported(f"the model's chat template {problem}")

    def _apply(self, template: str, turns: list[dict[str, Any]], reply: bool, thinks: bool = False) -> str:
        if "strftime_now" in template:
            template = SAME_DAY + template
        rendered = self._tokenizer.apply_chat_template(
            turns, chat_template=template, tokenize=False, add_generation_prompt=reply, enable_thinking=thinks
        )
        return str(rendered)

    def _reply_opening(self, template: str) -> str:
        """What stands before the text of a reply beyond what the template begins one with.

        Some templates begin a thought whatever they are told: it is closed, empty. Others begin no channel, and write
        its name before the text of a reply that is there.
        """
        if template not in self._openings:
            self._openings[template] = self._found_opening(template)
        return self._openings[template]

    def _found_opening(self, template: str) -> str:
        mark = "\ue000"
        for ways in zip(
            *(_wordings(("user", "assistant")[:count], ("a", mark)[:count]) for count in (1, 2)), strict=True
        ):
            try:
                begun, whole = (self._apply(template, turns, len(turns) == 1) for turns in ways)
            except Exception:  # it takes no such messages
                continue
            if begun.rstrip().endswith(THOUGHT):
                return THOUGHT_END[begun.endswith("\n") :]
            before, found, _ = whole.partition(mark)
            if found:
                opening = before[len(begun) :] if before.startswith(begun) else ""
                return opening if opening.strip() else ""
        return ""


def _wordings(roles: Sequence[str], texts: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Messages in the ways that chat templates take them: as they are, or with the system's in the user's first.

    Last with each text as a part of its message: a template that knows no parts has refused or dropped it before.
    """
    ways = [(roles, texts)]
    if list(roles[:2]) == ["system", "user"]:
        ways.append((roles[1:], [f"{texts[0]}\n\n{texts[1]}", *texts[2:]]))
    yield from (_turns(*way) for way in ways)
    yield from (_turns(few, [[{"type": "text", "text": text}] for text in whole]) for few, whole in ways)


def _turns(roles: Sequence[str], contents: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]


def _dropped(texts: Sequence[str], rendered: str) -> bool:
    """Whether nothing of one of the texts has come through a template; some change what stands at its ends."""
    at = 0  # one stands behind the other, as a rule: to look from the first sign for each would take long
    for text in texts:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        places = (rendered.find(line, start) for start in (at, 0) for line in lines)
        place = next((place for place in places if place >= 0), None)
        if lines and place is None:
            return True
        at = max(at, place or 0)
    return False
