"""Scores read where a text has written them."""

from __future__ import annotations

import random

import msgspec
import pytest
import torch

from adjudge.engine.completion import Completion
from adjudge.engine.engine import Engine
from adjudge.engine.errors import PromptError
from adjudge.engine.text.written_scores import AnswerFormat, bytes_themselves, find_answers, written_answers
from tests.engine.reference import open_reference
from tests.engine.tiny import DIGITS, TINY


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(TINY, kv_cache_gb=0.05)


def written(engine: Engine, prompt: int, text: str) -> Completion:
    """A completion as if the model had written `text`."""
    return Completion(prompt, 0, text, engine.tokenizer.encode(text, True), "stop")


def test_a_written_score_is_read_as_a_distribution_at_its_place(smollm2: str, smollm2_engine: Engine) -> None:
    engine = smollm2_engine
    reference = open_reference(smollm2)
    prompt = "Rate the story from 1 to 5."
    texts = [
        " It is dull. <ANSWER> 2 </ANSWER>",
        " First <ANSWER>3</ANSWER>, no, <ANSWER> 4 </ANSWER>",
        " <ANSWER> good </ANSWER>",
        " <ANSWER> 4",
        " no score at all",
        " <ANSWER> 45 </ANSWER>",
    ]
    completions = [written(engine, 0, text) for text in texts]
    scores = engine.read_answers([prompt], completions, DIGITS)
    assert [score.reason for score in scores] == [None, None, *["unparsable"] * 4]
    for score, completion, drawn in zip(scores, completions, ("2", "4"), strict=False):
        ids = list(completion.token_ids)
        place = max(i for i, token in enumerate(ids) if engine.tokenizer.decode([token]).strip() == drawn)
        context = list(engine.tokenizer.prompt(prompt)) + ids[:place]
        with torch.inference_mode():
            logprobs = reference(torch.tensor([context]), use_cache=False).logits[0, -1].double().log_softmax(0)
        variants = [[engine.tokenizer.encode(v + label, True) for v in ("", " ")] for label in DIGITS.labels]
        expected = [torch.stack([logprobs[v[0]] for v in vs if len(v) == 1]).logsumexp(0) for vs in variants]
        assert score.full_logprobs == pytest.approx([float(value) for value in expected], abs=1e-4)


def test_a_closing_that_stopped_the_text_is_its_closing_all_the_same(engine: Engine) -> None:
    forms = ("<ANSWER> 3 </ANSWER>", "<ANSWER> 3 </ANSWER")
    ended = [engine.generate(["why"], regex=form, stop="</ANSWER>", max_tokens=60)[0] for form in forms]
    assert [one.text for one in ended] == ["<ANSWER> 3 ", "<ANSWER> 3 </ANSWER"]
    scores = engine.read_answers(["why"], ended, DIGITS, AnswerFormat(at_end=True))
    assert [score.reason for score in scores] == [None, "unparsable"]


def test_completions_of_other_prompts_and_too_few_forms_are_one_sentence(engine: Engine) -> None:
    texts = engine.generate(["a", "b"], max_tokens=1)
    with pytest.raises(PromptError, match="completions are of 2 prompts, and 1 given"):
        engine.read_answers(["a"], texts, DIGITS)
    with pytest.raises(PromptError, match="form has 1 for 2 completions: give one for all, or one each"):
        engine.read_answers(["a", "b"], texts, DIGITS, [AnswerFormat()])


def test_reading_a_score_computes_little_of_what_was_written_again(engine: Engine) -> None:
    prompt = [7, 8, 9] * 30
    [completion] = engine.generate([prompt], max_tokens=40, temperature=0.0, ignore_eos=True)
    before = engine.stats.tokens_computed
    engine.score([prompt + list(completion.token_ids[:35])], DIGITS)
    assert engine.stats.tokens_computed - before <= 1


# ---- texts with a form


def test_a_text_with_a_token_beyond_the_tokenizer_is_unparsable_and_its_neighbours_are_not() -> None:
    engine = Engine(TINY, kv_cache_gb=0.05)
    good = written(engine, 0, "<ANSWER>2</ANSWER>")
    odd = [msgspec.structs.replace(good, token_ids=(*good.token_ids, token)) for token in (271, -1, 1 << 70)]
    scores = engine.read_answers(["a"], [odd[0], good, *odd[1:]], DIGITS)
    assert [score.reason for score in scores] == ["unparsable", None, "unparsable", "unparsable"]


TWO = AnswerFormat(("<ANSWER>", "<Answer>"), ("</ANSWER>",), count=2, at_end=True)


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("So. <ANSWER> 2 </ANSWER> | <Answer>**3**:</ANSWER>.", ["2", "3"]),
        ("<ANSWER> 2 </ANSWER> and <ANSWER> 3 </ANSWER>", None),
        ("<ANSWER> 2 </ANSWER> <ANSWER> 3 </ANSWER> Well.", None),
        ("<ANSWER> 2 </ANSWER> <ANSWER> 3", None),
        ("<ANSWER> 2 </ANSWER> <ANSWER> 3.5 </ANSWER>", None),
        ("<ANSWER> 2 </ANSWER> <ANSWER>" + 17 * " " + "3 </ANSWER>", None),
        ("<ANSWER> 2 </ANSWER>" * 3, None),
    ],
)
def test_a_text_alone_tells_the_answers_that_its_tokens_tell(
    engine: Engine, text: str, labels: list[str] | None
) -> None:
    found = written_answers(text, DIGITS.labels, TWO)
    assert (None if found is None else [answer.label for answer in found]) == labels
    made = Completion(0, 0, text, engine.tokenizer.encode(text, False), "stop")
    [place] = find_answers([made], DIGITS.labels, [TWO], engine.byte_table())
    assert (None if place is None else place[1]) == (None if labels is None else labels[-1])


BRACKETS = AnswerFormat(("[[",), ("]]",))
BARE = AnswerFormat(("Score:",), ())
PIECES = {
    TWO: [
        "<ANSWER> 2 </ANSWER>",
        "<Answer>**3**</ANSWER>",
        *TWO.openings,
        *TWO.closings,
        "2",
        "3",
        "3.5",
        " ",
        "*",
        ":",
        "\n",
        "a",
        "é",
        "<",
        "\u3000",
    ],
    BRACKETS: ["[[3", "[[10]]", "[[", "]]", "[", "]", "3", "10", "1", " ", "a", "—"],
    BARE: ["Score:", "3", "10", "1", " ", ".", "a", "’"],
}


@pytest.mark.parametrize("form", PIECES, ids=["tags", "brackets", "bare"])
def test_a_text_alone_is_read_as_its_tokens_are(form: AnswerFormat) -> None:
    source, labels, readable = random.Random(0), ["1", "2", "3", "10"], 0
    for _ in range(3000):
        text = "".join(source.choices(PIECES[form], k=source.randint(1, 7)))
        ids = tuple(text.encode())
        [expected] = find_answers([Completion(0, 0, text, ids, "stop")], labels, [form], bytes_themselves())
        found = written_answers(text, labels, form)
        assert (found is None) == (expected is None), text
        if found and expected:
            readable += 1
            meant = found[form.which]
            assert (text[: meant.start].encode(), meant.label) == (bytes(expected[0]), expected[1])
            assert all(text[one.start : one.end] == one.label for one in found)
    assert readable > 20


@pytest.mark.parametrize(
    ("text", "form", "labels"),
    [("[[[3]]10", BRACKETS, ["3"]), ("Score:10", BARE, ["10"]), ("[[\ud800 [[3]]", BRACKETS, ["3"]), ("", BARE, None)],
)
def test_of_labels_that_fit_the_longest_is_read_and_of_openings_the_last(
    text: str, form: AnswerFormat, labels: list[str] | None
) -> None:
    found = written_answers(text, ["1", "3", "10"], form)
    assert (None if found is None else [answer.label for answer in found]) == labels
