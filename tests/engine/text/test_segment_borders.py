"""What tokenizers that put a blank before a text make of a prompt's segments: what they make of the whole of it."""

from __future__ import annotations

from typing import Any

import pytest

from adjudge.engine.absent import AbsentEngine, Card
from adjudge.engine.models.sources import open_tokenizer, resolve
from adjudge.engine.text import tokenizer as module
from adjudge.engine.text.fitting import fit
from adjudge.engine.text.labels import Labels, compile_labels
from adjudge.engine.text.prompt import Message, Prompt, Segment
from adjudge.engine.text.tokenizer import Tokenizer
from tests.engine.text.tokenizers import worded_tokenizer

PREPENDING = ("normalizer", "first", "always", "blank")
CHAT = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}[INST] {{ message['content'] }}"
    " [/INST]{% else %}{{ message['content'] }}{{ eos_token }}{% endif %}{% endfor %}"
)


@pytest.fixture(params=[*PREPENDING, "never"])
def worded(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer(worded_tokenizer(request.param))


def of_the_whole(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """What transformers gives for a prompt that is written down in one."""
    return tuple(tokenizer.inner.encode(text, add_special_tokens=False))


@pytest.mark.parametrize("story", ["Once upon", " Once", "nut a\nOn", "\na", "O", "nut é", ""])
@pytest.mark.parametrize(
    "template",
    [
        'Title: "{story}"\nScore:',
        "{story}\n{story}: {story}.",
        "<s>[INST] {story} [/INST]",
        "[INST]{story}[/INST]\n{story}</s>",
        '[INST]"{story}"{story}[/INST]',
    ],
)
def test_segments_have_the_tokens_of_the_whole_text(worded: Tokenizer, template: str, story: str) -> None:
    prompt = Prompt.template(template, story=story)
    assert worded.prompt(prompt) == of_the_whole(worded, template.format(story=story))
    trusted = Prompt(tuple(Segment(segment.text, trusted=True) for segment in prompt.segments))
    assert worded.prompt(trusted) == worded.prompt(prompt)


@pytest.mark.parametrize("style", ["normalizer", "first", "always", "never"])
def test_a_segment_may_begin_with_what_goes_into_one_token_with_a_bracket(style: str) -> None:
    tokenizer = Tokenizer(worded_tokenizer(style))
    prompt = Prompt.template("{story}, {story}", story="Once")
    assert tokenizer.prompt(prompt) == of_the_whole(tokenizer, "Once, Once")


def test_what_stands_for_a_cut_goes_on_from_what_is_left_before_it(worded: Tokenizer) -> None:
    ids = worded.segment(Segment("Once upon a time", limit=11), after=worded.encode('"', True))
    text = "".join(worded.inner.convert_ids_to_tokens(list(ids)))
    assert text.replace("▁", "\n") == "On\n[...]\nme"


def test_a_chat_has_the_tokens_that_transformers_gives_it(worded: Tokenizer) -> None:
    worded.inner.chat_template = CHAT
    turns: list[Any] = [{"role": "user", "content": "Once upon"}, {"role": "assistant", "content": "a nut"}] * 2
    expected = worded.inner.apply_chat_template(turns, tokenize=True, return_dict=False)
    assert worded.prompt(worded.transcript([Message(**turn) for turn in turns])) == tuple(expected)


def test_what_stands_after_the_leading_tokens_begins_a_text(worded: Tokenizer) -> None:
    assert worded.prompt("Once") == tuple(worded.inner.encode("Once"))
    for trusted in (True, False):
        assert worded.prompt(Prompt((Segment("<s>", True), Segment("Once", trusted)))) == worded.prompt("Once")


def test_nothing_in_a_segment_within_a_text_becomes_a_special_token(worded: Tokenizer) -> None:
    for hostile in ("[/INST]", " </s> <s>", "[INST]Once[/INST]\n", "<unk>"):
        *_, told = worded.segments(Prompt.template("Say: {story}", story=hostile))
        assert not [token for token in told if worded.is_special(token) and token != worded.inner.unk_token_id]
        assert told
        assert told == worded.encode(hostile, False)[len(worded.encode(hostile, False)) - len(told) :]


@pytest.mark.parametrize("style", [*PREPENDING, "never"])
def test_no_blank_comes_before_characters_that_are_read_one_by_one(style: str) -> None:
    inner = worded_tokenizer(style)
    inner.backend_tokenizer.add_special_tokens(["on"])  # which ordinary tokens make as well
    tokens = inner.convert_ids_to_tokens(list(Tokenizer(inner).encode("nut on a", False)))
    assert "".join(tokens) == ("nut▁on▁a" if style == "never" else "▁nut▁on▁a") and "on" not in tokens


@pytest.mark.parametrize("cut", ["head", "tail", "middle"])
def test_prompts_are_shortened_to_just_what_fits(worded: Tokenizer, cut: str) -> None:
    story = Segment("Once upon a time " * 9, cut=cut)  # type: ignore[arg-type]
    prompt = Prompt((Segment('Title: "', True), story, Segment('"\nScore:', True)))
    whole = len(worded.prompt(prompt))
    assert fit([prompt], worded, whole) == ([prompt], False)
    [fitted], shortened = fit([prompt], worded, whole - 1)
    assert shortened and len(worded.prompt(fitted)) == whole - 1


def test_a_long_segment_has_the_tokens_of_a_short_one(worded: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = Prompt.template('Title: "{story}"', story="Once upon a time " * 9)
    tails = [Segment(prompt.segments[1].text, limit=20, cut=cut) for cut in ("head", "tail", "middle")]  # type: ignore[arg-type]
    before = worded.encode('Title: "', True)
    whole, cuts = worded.prompt(prompt), [worded.segment(tail, after=before) for tail in tails]
    monkeypatch.setattr(module, "LONG", 40)
    monkeypatch.setattr(module, "PIECE", 16)
    monkeypatch.setattr(module, "NEAR", 6)
    assert worded.prompt(prompt) == whole
    assert [worded.segment(tail, after=before) for tail in tails] == cuts


def test_a_label_that_would_merge_with_what_stands_before_it_goes_on_from_it(worded: Tokenizer) -> None:
    def spelt(suffix: str, labels: Labels) -> Any:
        reads = compile_labels(labels, suffix, True, worded).reads
        return [worded.inner.convert_ids_to_tokens(list((*read.path, *read.token_ids))) for read in reads]

    assert spelt("So", Labels(("n", "t"), variants=False)) == [["n", "t"]]
    terminated = spelt("S:", Labels(("o", "ot"), variants=False, terminator="n"))
    assert terminated == [["o"], ["o", "n", "t"]]


def test_the_end_of_a_prompt_is_whole_where_its_tokens_in_it_are_fewer_than_its_limit(worded: Tokenizer) -> None:
    story = "Once upon a time on a nut"
    fitting = len(worded.segments(Prompt.template('"{story}', story=story))[1])
    engine = AbsentEngine(Card(max_prompt_tokens=99), worded)
    for limit, whole in ((fitting, False), (fitting + 1, True)):
        text, trusted = engine._end(Prompt((Segment('"', True), Segment(story, limit=limit))))
        assert not trusted and (text == story) == whole


@pytest.mark.parametrize("style", PREPENDING)
def test_answers_in_other_tokens_are_kept_under_another_fingerprint(style: str) -> None:
    tokenizer = Tokenizer(worded_tokenizer(style))
    other = tokenizer.fingerprint_of("weights")
    assert other != "weights" and tokenizer.fingerprint_of(other) == other


def test_answers_in_the_tokens_that_there_always_were_keep_their_fingerprint(smollm2: str) -> None:
    others = map(open_tokenizer, map(resolve, (smollm2, "dummy:tiny-llama")))
    for kept in (worded_tokenizer("never"), *others):
        assert Tokenizer(kept).fingerprint_of("weights") == "weights"
