from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import LabelError
from adjudge.engine.face import sets_of
from adjudge.engine.models.sources import open_tokenizer, resolve
from adjudge.engine.score import Score
from adjudge.engine.text.labels import Labels, LabelSet, compile_labels
from adjudge.engine.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def real(smollm2: str) -> Tokenizer:
    return Tokenizer(open_tokenizer(resolve(smollm2)))


def spelt(tokenizer: Tokenizer, labels: Labels, suffix: str, trusted: bool = True) -> list[tuple[str, list[str], bool]]:
    """Every spelling of the compiled labels: (label, its token strings, whether it must stop there)."""
    compiled = compile_labels(labels, suffix, trusted, tokenizer)
    return [
        (
            compiled.labels[spelling.label],
            [tokenizer.decode([compiled.reads[read].token_ids[place]]) for read, place in spelling.steps],
            spelling.stop is not None,
        )
        for spelling in compiled.spellings
    ]


def test_labels_are_compiled_in_the_context_of_the_suffix(real: Tokenizer) -> None:
    assert spelt(real, Labels(("A", "B")), "Answer: ") == [("A", ["A"], False), ("B", ["B"], False)]
    assert spelt(real, Labels(("Yes",)), "Answer:") == [("Yes", ["Yes"], False), ("Yes", [" Yes"], False)]
    assert spelt(real, Labels(("Yes",), variants=False), "Answer:") == [("Yes", ["Yes"], False)]


def test_a_space_before_a_digit_is_a_token_of_its_own_here_and_no_variant(real: Tokenizer) -> None:
    assert spelt(real, Labels(("5",)), "Answer:") == [("5", ["5"], False)]


def test_labels_of_any_length_may_stand_after_a_space_where_one_of_them_is_a_token_with_it(real: Tokenizer) -> None:
    found = spelt(real, Labels(("No", "Not sure", " Yes")), "Answer:")
    assert ("Not sure", [" Not", " sure"], False) in found and ("No", [" No"], False) in found
    assert [label for label, *_ in found] == ["No", "No", "Not sure", "Not sure", " Yes"]
    grades = spelt(real, Labels(("A", "A+")), "Grade:")
    assert ("A", [" A"], True) in grades and ("A+", [" A", "+"], False) in grades
    ended = spelt(real, Labels(("A", "A+"), terminator=" ]]"), "Grade:")
    assert [tokens[0] for label, tokens, stops in ended if label == "A" and not stops] == ["A", " A"]


def test_the_answer_that_a_model_writes_has_its_probability_though_it_is_several_tokens(
    smollm2_engine: Engine,
) -> None:
    prompt = (
        "Q: Is the sky green?\nA: No\nQ: What did I eat on 3 May 1987?\nA: Not sure\nQ: What is my aunt's name?\nA:"
    )
    [score] = smollm2_engine.score([prompt], ["Yes", "No", "Not sure"])
    [text] = smollm2_engine.generate([prompt], max_tokens=2, temperature=0.0, logprobs=1)
    assert text.text == " Not sure" and score.best == "Not sure"
    assert score.full_logprobs is not None
    assert score.full_logprobs[2] >= sum(token.logprob for token in text.logprobs) - 1e-4


def test_a_label_that_begins_another_stops_or_is_terminated(real: Tokenizer) -> None:
    assert spelt(real, Labels(("1", "10")), "[[") == [("1", ["1"], True), ("10", ["1", "0"], False)]
    terminated = spelt(real, Labels(("1", "10"), terminator="]]"), "[[")
    assert terminated == [("1", ["1", "]]"], False), ("10", ["1", "0"], False)]


def test_ids_of_added_tokens_may_be_labels_of_a_trusted_slot(real: Tokenizer) -> None:
    assert spelt(real, Labels(("<|im_end|>", "<file_sep>")), "x", True)[0] == ("<|im_end|>", ["<|im_end|>"], False)
    assert len(spelt(real, Labels(("<|im_end|>",)), "x", False)[0][1]) > 1


def test_two_labels_with_one_spelling_are_ambiguous(real: Tokenizer) -> None:
    with pytest.raises(LabelError, match='"Yes" and " Yes" are the same'):
        compile_labels(Labels(("Yes", " Yes")), "Answer:", True, real)


def test_a_label_through_which_another_s_terminator_goes_must_stop_where_it_ends() -> None:
    bytewise = Tokenizer(open_tokenizer(resolve("dummy:tiny-llama")))
    labels = compile_labels(Labels(("a", "ab"), terminator="bb", variants=False), "Rate: ", True, bytewise)
    sure = [[0.0]] * len(labels.reads)  # of a model that writes "abb", which is "a" and its end
    score = labels.score(sure, 3)
    assert score.mass == 1.0 and score.probabilities == (1.0, 0.0)


def test_two_labels_that_a_terminator_makes_alike_are_ambiguous(real: Tokenizer) -> None:
    with pytest.raises(LabelError, match=r'labels "A" and "A\]\]" are the same tokens once "\]\]" ends them'):
        compile_labels(Labels(("A", "A]]"), terminator="]]"), "[[", True, real)


def test_labels_in_a_list_are_labels() -> None:
    assert Labels.of(Labels(["a", "b"])) == Labels(("a", "b"))  # type: ignore[arg-type]
    valued = Labels(["bad", "good"], values=[0, 1])  # type: ignore[arg-type]
    assert valued == Labels(("bad", "good"), values=(0, 1)) and hash(valued) == hash(Labels.of(valued))


def test_labels_that_can_be_read_only_once_are_read() -> None:
    assert sets_of(["x", "y"], map(str, (1, 2))) == [["1", "2"]] * 2  # type: ignore[arg-type]
    assert sets_of(["x", "y"], iter([["1"], ["2"]])) == [["1"], ["2"]]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, 2, 3], "label 1 is not a string"),
        (["a", 1], "label 1 is not a string"),
        (range(1, 3), "label 1 is not a string"),
        (None, "labels is None: give a list of strings"),
        (5, "labels is 5: give a list of strings"),
    ],
)
def test_labels_that_are_no_strings_are_one_sentence(labels: Any, message: str) -> None:
    with pytest.raises(LabelError, match=message):
        Engine("dummy:tiny-llama", kv_cache_gb=0.01).score(["x", "y", "z"], labels)


def test_labels_lose_no_values_in_silence() -> None:
    with pytest.raises(LabelError, match=r"labels are a mapping: give Labels\(tuple\(labels\), values="):
        Labels.of({"good": 1, "bad": 0})  # type: ignore[arg-type]


def test_values_are_the_labels_numbers_or_given() -> None:
    assert Labels(("1", "2.5")).numbers == (1.0, 2.5)
    assert Labels(("1", "two")).numbers is None
    assert Labels(("nan",)).numbers is None
    assert Labels(("1e200", "2")).numbers is None  # its square is no number
    assert [type(value) for value in Labels(("a", "b"), values=np.float32([1, 2])).numbers or ()] == [float, float]
    assert Labels(("bad", "good"), values=(0.0, 1.0)).numbers == (0.0, 1.0)


def test_a_value_for_each_label(real: Tokenizer) -> None:
    with pytest.raises(LabelError, match="1 values for 2 labels"):
        compile_labels(Labels(("a", "b"), values=(1.0,)), "", True, real)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), "2", 1e101, -(10**400), pytest.param(10**5000, id="digits")]
)
def test_a_value_that_is_no_finite_number_is_refused(real: Tokenizer, value: Any) -> None:
    with pytest.raises(LabelError, match="the value .* of a label is no number of at most 1e\\+100: give one"):
        compile_labels(Labels(("a", "b"), values=(1.0, value)), "", True, real)


def test_a_lone_surrogate_is_no_label_and_a_pair_is_its_character(real: Tokenizer) -> None:
    with pytest.raises(LabelError, match=r"label 'a\\ud83d' has a lone surrogate, which no text has: leave it out"):
        compile_labels(Labels(("a\ud83d", "b")), "", True, real)
    pair, whole = (compile_labels(Labels((one, "\ufffd")), "", True, real) for one in ("\ud83d\ude42", "\U0001f642"))
    assert pair.reads == whole.reads


def test_no_id_is_given_twice() -> None:
    with pytest.raises(LabelError, match="twice"):
        LabelSet.of_ids([65, 65])


def test_scores_are_the_statistics_of_the_distribution() -> None:
    p = (0.1, 0.3, 0.05)
    score = Score.of(("1", "2", "4"), [math.log(x) for x in p], (1, 2, 4), 7)
    q = [x / sum(p) for x in p]
    mean = q[0] + 2 * q[1] + 4 * q[2]
    assert score.mass == pytest.approx(sum(p))
    assert score.probabilities == pytest.approx(q)
    assert score.expected == pytest.approx(mean)
    assert score.variance == pytest.approx(sum(a * (v - mean) ** 2 for a, v in zip(q, (1, 2, 4), strict=True)))
    assert score.entropy == pytest.approx(-sum(a * math.log(a) for a in q))
    assert (score.best, score.margin) == ("2", pytest.approx(q[1] - q[0]))


@pytest.mark.parametrize(("bad", "reason"), [(math.nan, "non_finite"), (math.inf, "non_finite")])
def test_what_is_not_finite_is_a_reason_and_never_a_number(bad: float, reason: str) -> None:
    for logprobs in ([bad, -1.0], [-1.0, bad]):
        score = Score.of(("1", "2"), logprobs, (1, 2), 3)
        assert (score.reason, score.expected, score.logprobs) == (reason, None, None)


def test_no_probability_at_all_is_low_mass() -> None:
    assert Score.of(("1", "2"), [-math.inf, -math.inf], None, 3).reason == "low_mass"
    half = Score.of(("1", "2"), [-math.inf, -1.0], None, 3)
    assert half.probabilities == (0.0, 1.0) and half.entropy == 0.0


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["ab" * 6000], "has 12000 characters: at most 1024"),
        (["x" * 900], "has [0-9]+ tokens: at most 64"),
        ([f"l{n}" for n in range(200_000)], "200000 labels come to 200000 tokens or more: at most 4096"),
        ([f"label {n}" for n in range(4000)], "4000 labels come to [0-9]+ tokens or more: at most 4096"),
    ],
)
def test_labels_that_would_take_time_or_memory_are_refused(real: Tokenizer, labels: list[str], message: str) -> None:
    with pytest.raises(LabelError, match=message):
        compile_labels(Labels(tuple(labels)), "Answer:", True, real)


def test_every_label_has_the_product_of_its_tokens_along_the_trie(real: Tokenizer) -> None:
    draw = random.Random(5)
    for _ in range(200):
        parts = ["1", "0", "Yes", " no", "\n", "a"]
        drawn = dict.fromkeys("".join(draw.choices(parts, k=draw.randint(1, 4))) for _ in range(draw.randint(1, 8)))
        try:
            compiled = compile_labels(Labels(tuple(drawn)), "Answer:", True, real)
        except LabelError:
            continue
        paths = [
            tuple(compiled.reads[read].token_ids[place] for read, place in spelling.steps)
            for spelling in compiled.spellings
        ]
        for path, spelling in zip(paths, compiled.spellings, strict=True):
            assert [compiled.reads[read].path for read, _ in spelling.steps] == [path[:n] for n in range(len(path))]
            longer = {other[len(path)] for other in paths if len(other) > len(path) and other[: len(path)] == path}
            stops = () if spelling.stop is None else compiled.reads[spelling.stop]
            assert (set(stops.token_ids), stops.path) == (longer, path) if stops else not longer
        assert compiled.reads[0].path == () and len({read.path for read in compiled.reads}) == len(compiled.reads)
