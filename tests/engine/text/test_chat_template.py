from __future__ import annotations

from typing import Any

import pytest

from adjudge.engine.errors import ModelUnsupported, PromptError
from adjudge.engine.models.sources import open_tokenizer, resolve
from adjudge.engine.text import chat_template as module
from adjudge.engine.text.prompt import Message, Prompt
from adjudge.engine.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tiny() -> Tokenizer:
    return Tokenizer(open_tokenizer(resolve("dummy:tiny-llama")))


def test_chat_without_a_template_is_paragraphs_and_a_template_without_system_role_is_met(tiny: Tokenizer) -> None:
    messages = [Message("system", Prompt.template("Be fair.")), Message("user", Prompt.template("Rate {s}", s="x<s>"))]
    before = tiny.inner.chat_template
    try:
        tiny.inner.chat_template = None
        assert "".join(s.text for s in tiny.chat(messages, "Score: ").segments) == "Be fair.\n\nRate x<s>\n\nScore: "
        tiny.inner.chat_template = (
            "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
            "<{{ m.role }}>{{ m.content }}{% endfor %}"
        )
        assert "".join(s.text for s in tiny.chat(messages).segments) == "<user>Be fair.\n\nRate x<s><assistant>"
        tiny.inner.chat_template = (  # of some models: what the system says is dropped without a word
            "{% for m in messages %}{% if m.role == 'user' %}<user>{{ m.content }}{% endif %}{% endfor %}"
        )
        assert "".join(s.text for s in tiny.chat(messages).segments) == "<user>Be fair.\n\nRate x<s>"
        with pytest.raises(ModelUnsupported, match="drops a message"):
            tiny.chat(messages[:1])
        tiny.inner.chat_template = "{{ messages[0].content }}{{ messages[0].content }}"
        with pytest.raises(PromptError, match="drops or repeats"):
            tiny.chat(messages[1:])
    finally:
        tiny.inner.chat_template = before


PARTS = (
    "{% for m in messages %}{{ '<' + m.role + '>' }}"
    "{% for part in m.content %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
)
CHANNELS = (
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}<|channel|>final<|message|>{% endif %}"
    "{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
THINKS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<bot><think>"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (PARTS, "<system>Be fair.<user>Rate x<s><assistant>Score: "),
        (CHANNELS, "<system>Be fair.<user>Rate x<s><assistant><|channel|>final<|message|>Score: "),
        (THINKS + "{% endif %}", "<system>Be fair.<user>Rate x<s><bot><think>\n\n</think>\n\nScore: "),
        (THINKS + "{{ '\n' }}{% endif %}", "<system>Be fair.<user>Rate x<s><bot><think>\n\n</think>\n\nScore: "),
    ],
    ids=["parts", "channels", "thinks", "thinks-on-a-line"],
)
def test_an_answer_stands_where_the_text_of_a_reply_does(tiny: Tokenizer, template: str, expected: str) -> None:
    messages = [Message("system", Prompt.template("Be fair.")), Message("user", Prompt.template("Rate {s}", s="x<s>"))]
    before, tiny.inner.chat_template = tiny.inner.chat_template, template
    try:
        assert "".join(segment.text for segment in tiny.chat(messages, "Score: ").segments) == expected
    finally:
        tiny.inner.chat_template = before


def test_a_template_that_writes_down_the_day_has_it_the_same_every_day(tiny: Tokenizer) -> None:
    before = tiny.inner.chat_template
    try:
        tiny.inner.chat_template = "{{ strftime_now('Today is %A, %d %b %Y.') }} {{ messages[0].content }}"
        prompt = tiny.chat([Message("user", Prompt.template("Rate {s}", s="x"))])
    finally:
        tiny.inner.chat_template = before
    assert "".join(segment.text for segment in prompt.segments) == "Today is Friday, 26 Jul 2024. Rate x"


class Walked(str):
    """A text that counts the characters looked at to find something in it."""

    walked = 0

    def find(self, sub: str, start: int = 0, *rest: Any) -> int:  # type: ignore[override]
        place = super().find(sub, start, *rest)
        self.walked += (len(self) if place < 0 else place) - start
        return place


def test_of_many_messages_none_is_looked_for_among_those_before_it() -> None:
    texts = [f"no {number}." for number in range(500)]
    rendered = Walked("\n".join(texts))
    assert not module._dropped(texts, rendered) and 0 < rendered.walked <= len(rendered)


def test_a_message_is_dropped_only_where_none_of_its_lines_has_come_through_anywhere() -> None:
    assert not module._dropped(["first\nhead", " ", "second"], "second, then: head")
    assert module._dropped(["first", "third", "second"], "first second")
