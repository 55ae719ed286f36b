"""Texts that must have a form."""

from __future__ import annotations

import io
import json
import re
import runpy
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLMatcher
from llguidance.hf import from_tokenizer
from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerFast

from adjudge.engine.engine import Engine
from adjudge.engine.errors import PromptError
from adjudge.engine.models import dummy
from adjudge.engine.models.dummy import tiny_config
from adjudge.engine.sampling import Sampling
from adjudge.engine.text import grammar_trial
from adjudge.engine.text.grammar import Grammars, _takes_too_much
from adjudge.engine.text.prompt import Message, Prompt
from adjudge.engine.text.signs import SIGN
from tests.engine.text.schemas import IMPOSSIBLE
from tests.engine.tiny import TINY, message


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(TINY, kv_cache_gb=0.05)


SCHEMA = {
    "type": "object",
    "properties": {
        "reason": {"type": "string", "maxLength": 30},
        "score": {"type": "integer", "minimum": 1, "maximum": 5},
    },
    "required": ["reason", "score"],
    "additionalProperties": False,
}


def test_a_text_follows_its_json_schema_and_says_when_it_was_cut_short(smollm2_engine: Engine) -> None:
    chat = smollm2_engine.chat(
        [message("Rate this story from 1 to 5, as JSON with a reason and a score: It was a dog.")]
    )
    how: dict[str, Any] = {"max_tokens": 60, "temperature": 1.2, "seed": 1, "json_schema": SCHEMA}
    for completion in smollm2_engine.generate([chat], n=3, **how):
        assert completion.finish_reason == "stop"
        answer = json.loads(completion.text)
        assert answer.keys() == {"reason", "score"} and answer["score"] in range(1, 6) and len(answer["reason"]) <= 30
    [short] = smollm2_engine.generate([chat], max_tokens=4, temperature=0.0, json_schema=SCHEMA)
    assert short.finish_reason == "length"
    with pytest.raises(json.JSONDecodeError):
        json.loads(short.text)


def test_between_the_pieces_of_json_stands_no_more_than_indents_them(engine: Engine) -> None:
    flags = {"type": "array", "items": {"type": "boolean"}, "minItems": 3, "maxItems": 3}
    for completion in engine.generate(
        ["Three flags:"], n=16, max_tokens=200, temperature=50.0, seed=0, json_schema=flags
    ):
        assert completion.finish_reason == "stop" and len(json.loads(completion.text)) == 3
        assert not re.search(r"\s{18}|\n\s*\n", completion.text)


def test_a_text_is_one_of_the_choices_or_matches_its_expression(smollm2_engine: Engine) -> None:
    choices = ['say "A"', "B\\", "C [x]|y"]
    completions = smollm2_engine.generate(["Answer:"], n=6, temperature=2.0, seed=2, choices=choices)
    assert {completion.text for completion in completions} <= set(choices)
    assert all(completion.finish_reason == "stop" for completion in completions)
    [number] = smollm2_engine.generate(["How many?"], temperature=1.0, seed=3, regex="[1-9][0-9]{2} (cats|dogs)")
    assert re.fullmatch("[1-9][0-9]{2} (cats|dogs)", number.text)


def test_a_form_that_a_text_has_spoilt_is_not_kept_for_others(smollm2_engine: Engine) -> None:
    how: dict[str, Any] = {"temperature": 1.0, "seeds": [3], "regex": "(.*[a-m].{30}b)"}
    [spoilt], [other] = (smollm2_engine.generate(["Write:"], max_tokens=most, **how) for most in (60, 5))
    assert 5 < len(spoilt.token_ids) < 60 and other.token_ids == spoilt.token_ids[:5]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"regex": "("}, "cannot be followed: .*unclosed group"),
        ({"json_schema": {"$ref": "#"}}, "json_schema cannot be followed: no text has it$"),
        ({"regex": "[^\\x00-\U0010ffff]"}, "regex cannot be followed: no text has it$"),
        ({"json_schema": {"type": "object", "properties": {f"p{n}": {} for n in range(700)}}}, "max is 2000"),
        ({"json_schema": "{"}, "json_schema is no JSON schema|cannot be followed"),
        ({"json_schema": {"type": "story"}}, "cannot be followed"),
        ({"choices": []}, "choices is empty"),
        ({"regex": "\ud800"}, "regex has a lone surrogate"),
        ({"json_schema": {"enum": ["\ud800"]}}, "json_schema has a lone surrogate"),
        ({"choices": ["a" * 500_000, "b" * 500_001]}, "choices has 1000001 characters: give at most 1000000"),
        ({"json_schema": "{}" + " " * 1_000_000}, "json_schema has 1000002 characters"),
        ({"regex": "a" * 1_000_001}, "regex has 1000001 characters"),
        ({"regex": "a", "choices": ["a"]}, "choices and regex do not go together"),
    ],
)
def test_a_form_that_makes_no_sense_is_one_sentence(engine: Engine, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(PromptError, match=reason):
        engine.generate([[1, 2]], **options)
    assert not engine.scheduler.has_work()


def test_how_texts_of_a_form_may_begin_is_worked_out_once(engine: Engine) -> None:
    form = engine._grammars.form(Sampling(regex="ab?"))
    assert form is not None and form.copy().allowed() is form.allowed()
    other, [begins] = form.copy(), form.allowed().nonzero().flatten().tolist()
    other.take(begins)
    assert other.allowed() is not form.allowed() and other.allowed().sum() > 1
    assert form.copy().allowed().nonzero().flatten().tolist() == [begins]


def test_a_form_that_would_take_hours_or_all_memory_is_refused(engine: Engine) -> None:
    schema = {"allOf": [{"type": "string", "pattern": f".*{letter}.*"} for letter in "abcdefghijklmnopqrstuvwxyz"]}
    began = time.monotonic()
    with pytest.raises(PromptError, match="^json_schema takes more than 5 s or 2 GiB to compile: ask for less"):
        engine.generate(["a"], json_schema=schema)
    with pytest.raises(PromptError, match="to compile"):
        engine.generate(["a"], json_schema=schema)
    assert _takes_too_much.cache_info().hits > 0 and time.monotonic() - began < 90  # tried once


def test_a_form_is_tried_where_the_platform_has_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    grammar = io.BytesIO(LLMatcher.grammar_from_regex("ab?").encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(grammar))
    runpy.run_path(grammar_trial.__file__, run_name="__main__")
    assert not grammar.read()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"choices": ["<|im_end|>"]}, r"<\|im_end\|>"),
        ({"choices": ["see <|im_start|> here", "see <|endoftext|>"]}, r"see <\|(im_start\|> here|endoftext\|>)"),
        ({"json_schema": {"const": "so <|im_end|>."}}, r'"so <\|im_end\|>\."'),
        ({"json_schema": {"enum": ["<|im_end|>"]}}, r'"<\|im_end\|>"'),
        (
            {
                "json_schema": {
                    "type": "object",
                    "properties": {"<|im_end|>": {"type": "boolean"}},
                    "required": ["<|im_end|>"],
                    "additionalProperties": False,
                }
            },
            r'\{\s*"<\|im_end\|>"\s*:\s*(true|false)\s*\}',
        ),
        ({"regex": r"a<\|im_start\|>b"}, r"a<\|im_start\|>b"),
    ],
)
def test_what_a_form_prescribes_never_becomes_a_special_token(
    engine: Engine, options: dict[str, Any], text: str
) -> None:
    for completion in engine.generate(["x"], n=4, max_tokens=150, temperature=1.0, seed=0, **options):
        assert re.fullmatch(text, completion.text) and completion.finish_reason == "stop"
        assert not any(engine.tokenizer.is_special(token) for token in completion.token_ids)


def test_ordinary_forms_are_those_of_the_tokenizer_as_it_is(engine: Engine) -> None:
    plain = Engine(TINY, kv_cache_gb=0.05)
    vars(plain._grammars)["_tokenizer"] = from_tokenizer(plain.tokenizer.inner, n_vocab=272, eos_token=[258])
    for form in (
        {"json_schema": SCHEMA},
        {"regex": "[ab]{1,3}(é|\U0001f600 x)?[^<]*"},
        {"choices": ["yes", "yes and"]},
    ):
        one, other = (
            each.generate(["x"], n=3, max_tokens=60, temperature=2.0, seed=3, **form) for each in (engine, plain)
        )
        assert one == other


@pytest.mark.parametrize("named", [None, []])
def test_a_model_that_names_no_end_of_texts_has_its_tokenizers(
    engine: Engine, named: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    forms: list[dict[str, Any]] = [{"regex": "[ab]{2,9}"}, {"choices": ["yes", "yes and no"]}]
    forms.append({"json_schema": {"type": "integer", "minimum": 0, "maximum": 99999}})

    def written(engine: Engine) -> list[Any]:
        return [engine.generate(["x"], n=8, temperature=3.0, seed=1, max_tokens=20, **form) for form in forms]

    monkeypatch.setattr(dummy, "tiny_config", lambda spec: ending(tiny_config(spec), named))
    silent = Engine(TINY, kv_cache_gb=0.05)
    assert silent.runner.config.eos_token_id == named
    assert written(silent) == written(engine)
    assert any(text.token_ids[-1] == 258 for texts in written(silent) for text in texts)
    [text] = silent.generate(["x"], max_tokens=5, logit_bias={258: 100.0})
    assert (text.text, text.token_ids, text.finish_reason) == ("", (258,), "stop")


def test_a_text_ends_at_the_tokenizers_end_where_the_model_names_another_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dummy, "tiny_config", lambda spec: ending(tiny_config(spec), 256))  # as many a base model does
    engine = Engine(TINY, kv_cache_gb=0.05)
    for end in (256, 258):
        [text] = engine.generate(["x"], max_tokens=5, logit_bias={end: 100.0})
        assert (text.text, text.token_ids, text.finish_reason) == ("", (end,), "stop")


def ending(config: Any, ends: Any) -> Any:
    config.eos_token_id = ends
    return config


def piecewise(kind: str, special: Sequence[str]) -> Any:
    """A tokenizer without bytes for its pieces, of either kind of sentencepiece's, in which `special` are tokens."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"abens!</>#", "##", "###", "an"]
    model: Any
    if kind == "bpe":
        vocabulary = {piece: token for token, piece in enumerate(pieces)}
        merges = [("#", "#"), ("##", "#"), ("a", "n")]
        model = models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, ignore_merges=True)
    else:
        model = models.Unigram([(piece, -1.0) for piece in pieces], unk_id=0, byte_fallback=True)
    backend = Backend(model)
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    backend.add_tokens([AddedToken("</b>", special=False, normalized=False)])  # as Qwen has <think>
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_forms_know_special_tokens_of_any_vocabulary_by_no_name_that_a_text_has(kind: str) -> None:
    inner = piecewise(kind, ["<unk>", "<s>", "</s>", "<b>", "##"])  # of the last an ordinary token is made
    inner.backend_tokenizer.enable_truncation(1)  # as some were saved
    grammars = Grammars(inner, len(inner), frozenset({2}))
    for text in ("a</s>b", "<s>", "<b>an</b>", "<unk>"):
        form, tokens = grammars.form(Sampling(choices=(text,))), []
        assert form is not None
        while not tokens or not form.take(tokens[-1]):
            tokens.append(int(form.allowed().nonzero()[-1]))
        assert (
            form.complete
            and inner.decode(tokens) == text
            and not {*tokens} & {0, 1, 2, inner.vocab["<b>"], inner.vocab["</b>"]}
        )
    for pattern in ("[0-9a-f-]*", ".*"):  # neither by its name nor by the one that it has meanwhile
        begun = grammars.form(Sampling(regex=pattern))
        assert begun is not None and not begun.allowed()[[0, 1, inner.vocab["<b>"], inner.vocab["</b>"]]].any()
    begun = grammars.form(Sampling(regex="a?"))
    assert begun is not None and begun.allowed().nonzero().flatten().tolist() == [2, 3 + ord("a"), inner.vocab["a"]]


def test_a_form_is_followed_to_its_end(engine: Engine) -> None:
    [good] = engine.generate(["x"], regex="ab?", max_tokens=5, seed=1)
    assert good.finish_reason == "stop" and re.fullmatch("ab?", good.text)


def test_there_may_be_thousands_of_choices(engine: Engine) -> None:
    for choices in ([f"{n:04d}" for n in range(5000)], ["", "a"], ["1", "10"], ['q"\\', "a\nb", "\U0001f600\0é"]):
        for completion in engine.generate(["x"], n=4, max_tokens=40, temperature=1.0, seed=0, choices=choices):
            assert completion.text in choices and completion.finish_reason == "stop"


def test_a_stop_string_at_the_end_of_a_form_stays_out_of_the_text(engine: Engine) -> None:
    [choice] = engine.generate(["x"], choices=["a."], stop=["."], max_tokens=5)
    assert (choice.text, choice.finish_reason, choice.token_ids) == ("a", "stop", (97, 46))


def test_a_stop_string_that_a_form_needs_leaves_the_text_without_its_form(engine: Engine) -> None:
    flag = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    for text in engine.generate(["x"], n=4, json_schema=flag, stop=["}"], max_tokens=90, temperature=1.0, seed=1):
        assert text.finish_reason == "stop" and text.token_ids[-1] == ord("}")
        with pytest.raises(json.JSONDecodeError):
            json.loads(text.text)
        assert json.loads(text.text + "}").keys() == {"a"}


def test_a_stop_string_before_a_text_has_its_form_cuts_it_short(engine: Engine) -> None:
    [choice] = engine.generate(["x"], choices=["a.b"], stop=["."], max_tokens=5)
    assert (choice.text, choice.finish_reason, choice.token_ids) == ("a", "length", (97, 46))


def test_a_form_is_built_once_for_all_texts_of_a_call(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Sampling] = []
    grammars = engine._grammars
    form = grammars.form
    monkeypatch.setattr(grammars, "form", lambda sampling: (built.append(sampling), form(sampling))[1])
    texts = engine.generate(["x", "y"], n=3, choices=["no", "yes"], seed=0, max_tokens=5)
    assert len(built) == 1 and {text.text for text in texts} <= {"no", "yes"} and len(texts) == 6


def test_a_form_that_proves_impossible_ends_the_text_without_a_sign_of_the_models_own(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    [completion] = engine.generate(["x"], max_tokens=60, temperature=0.0, json_schema=IMPOSSIBLE)
    assert completion.finish_reason == "length" and completion.text.split() and '"a"' in completion.text
    assert "a text ends before it has its form" in caplog.text


def test_ids_that_a_tokenizer_leaves_out_are_no_tokens_of_a_form_and_those_beyond_are(tmp_path: Path) -> None:
    """As some tokenizers' ids go on beyond a gap, and so beyond their number of tokens."""
    layout = json.loads(dummy.tiny_tokenizer().backend_tokenizer.to_str())
    last = max(layout["model"]["vocab"].values())
    chatml = {"<|im_start|>": last + 20, "<|im_end|>": last + 21}
    layout["added_tokens"] = [{**SIGN, "id": token, "content": sign} for sign, token in chatml.items()]
    layout["model"]["vocab"] |= chatml
    config = tiny_config("llama")
    config.vocab_size, config.eos_token_id = last + 40, last + 21
    config.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(layout))
    how = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": dummy.CHATML}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(how))
    engine = Engine(f"dummy:{tmp_path}/config.json", kv_cache_gb=0.01)
    assert engine.tokenizer.vocab_size == last + 22 > len(engine.tokenizer.inner)
    chat = engine.chat([Message("user", Prompt.template("Hi"))])
    assert last + 20 in engine.tokenizer.prompt(chat) and engine.score([chat], ["1", "2"])[0].best
    bias = dict.fromkeys(range(last + 1, last + 20), 100.0)  # what stands for nothing is as likely as can be
    [text] = engine.generate([chat], max_tokens=40, json_schema=SCHEMA, logit_bias=bias, seed=1)
    assert not {*text.token_ids} & bias.keys() and text.text.startswith("{")
    [ended] = engine.generate([chat], max_tokens=9, allowed_token_ids=(last + 21,))
    assert ended.finish_reason == "stop"
