from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.tree import TreeJudge
from adjudge.rewards.judges.tree_nodes import CONTENT, TREE
from adjudge.rewards.records.verdict import Part
from tests.engine.reference import next_logprobs, open_reference
from tests.rewards.judges.company import assert_same_in_any_company
from tests.rewards.scripted import ScriptedEngine
from tests.rewards.writings import ITEM, ITEMS, PATHS, SHORT, TINY, WEIGHED, review, scores_of, writer


def test_every_leaf_is_scored_as_plain_transformers_does_at_its_answer_slot(tiny: Engine) -> None:
    judge = TreeJudge(tiny, min_mass=0)
    [verdict] = judge.judge([ITEM])
    reference = open_reference(TINY)
    questions, _ = judge.ask(ITEM)
    assert [question.name for question in questions] == [path for path in PATHS if path != "format/formatting"]
    [one] = tiny.tokenizer.encode("1", True)
    for question in questions:
        tokens = tiny.tokenizer.prompt(question.prompt)
        assert tiny.tokenizer.decode(tokens).endswith("assistant\nScore: [[")
        highest = 3 if question.name == "format/paragraphing" else 10
        logprobs = next_logprobs(reference, tokens)
        chances = {
            n: float(logprobs[tiny.tokenizer.encode(str(n), True)[0]].exp()) for n in range(1, min(highest, 9) + 1)
        }
        if highest == 10:
            after_one = next_logprobs(reference, (*tokens, one)).exp()
            ten = tiny.tokenizer.encode("10", True)
            assert ten[0] == one and len(ten) == 2
            chances[10] = chances[1] * float(after_one[ten[1]])
            chances[1] -= chances[10]
        part = verdict.breakdown[question.name]
        mass = sum(chances.values())
        values = {n: 5.0 * (n - 1) if highest == 3 else float(n) for n in chances}
        assert part.mass == pytest.approx(mass, abs=1e-5)
        assert part.distribution == pytest.approx([chance / mass for chance in chances.values()], abs=1e-4)
        assert part.score == pytest.approx(sum(values[n] * chances[n] for n in chances) / mass, abs=1e-3)


def test_the_breakdown_has_every_node_and_leaf_and_the_root_is_their_mean_by_leaves(tiny: Engine) -> None:
    [verdict] = TreeJudge(tiny, min_mass=0).judge([ITEM])
    parts = verdict.breakdown
    assert list(parts) == ["content", *TREE["content"], "format", *TREE["format"], "impression"]
    assert parts["format/formatting"] == Part(10.0, 1 / 3)
    for node in ("content", "format"):
        leaves = [parts[path].score or 0.0 for path in TREE[node]]
        assert parts[node].score == pytest.approx(sum(leaves) / len(leaves), abs=1e-9)
        assert parts[node].distribution is None and parts[node].mass is None
    expected = sum(scores_of(verdict).values()) / 9
    assert verdict.score == pytest.approx(expected, abs=1e-9)
    assert (verdict.id, verdict.abstained, verdict.truncated, verdict.analysis) == ("1", None, False, None)
    assert [parts[node].weight for node in TREE] == pytest.approx([5 / 9, 3 / 9, 1 / 9])
    assert verdict.mass == min(part.mass for part in parts.values() if part.mass is not None)


def test_a_completion_has_content_and_impression_alone(tiny: Engine) -> None:
    [verdict] = TreeJudge(tiny, min_mass=0).judge([msgspec.structs.replace(ITEM, task="completion")])
    assert list(verdict.breakdown) == ["content", *TREE["content"], "impression"]
    assert verdict.score == pytest.approx(sum(scores_of(verdict).values()) / 6, abs=1e-9)


def test_nodes_and_leaves_can_be_left_out_and_are_not_asked_about(tiny: Engine) -> None:
    judge = TreeJudge(tiny, min_mass=0, without=["emotion", "format"])
    [verdict] = judge.judge([ITEM])
    kept = [path for path in TREE["content"] if path != "content/emotion"]
    assert list(verdict.breakdown) == ["content", *kept, "impression"]
    assert [question.name for question in judge.ask(ITEM)[0]] == [*kept, "impression"]
    assert verdict.score == pytest.approx(sum(scores_of(verdict).values()) / 5, abs=1e-9)


def test_formatting_alone_asks_nothing_and_nothing_at_all_is_unsupported(tiny: Engine) -> None:
    others = ["content", "plots & structure", "paragraphing", "impression"]
    before = tiny.stats.prompts
    judge = TreeJudge(tiny, without=others)
    alone, completion = judge.judge([ITEM, msgspec.structs.replace(ITEM, task="completion")])
    assert (alone.score, alone.abstained) == (10.0, None) and tiny.stats.prompts == before
    assert (completion.score, completion.abstained, completion.breakdown) == (None, "unsupported", {})


def test_a_users_weights_are_those_of_the_leaves_that_apply(tiny: Engine) -> None:
    weights = dict(zip(CONTENT, (2, 1, 3, 1, 1), strict=True))
    [verdict] = TreeJudge(tiny, weights=weights, min_mass=0).judge([msgspec.structs.replace(ITEM, genre="fiction")])
    leaves = scores_of(verdict)
    content = (
        2 * leaves["content/opening & ending"]
        + leaves["content/language & rhetoric"]
        + leaves["content/argument & logic"]
        + leaves["content/emotion"]
    ) / 5
    assert verdict.breakdown["content"].score == pytest.approx(content, abs=1e-9)
    assert verdict.breakdown["content/opening & ending"].weight == pytest.approx(0.4)
    formatted = sum(leaves[path] for path in TREE["format"]) / 3
    assert verdict.score == pytest.approx((4 * content + 3 * formatted + leaves["impression"]) / 8, abs=1e-9)


def test_without_a_reference_the_text_is_rated_by_itself(tiny: Engine) -> None:
    for language, reference, scale in (("en", "reference", "outstanding"), ("zh", "参考文章", "出色")):
        judge = TreeJudge(tiny, language=language)
        for item, referenced in ((ITEM, True), (msgspec.structs.replace(ITEM, reference=None), False)):
            for question in judge.ask(item)[0]:
                text = "".join(segment.text for segment in question.prompt.segments if segment.trusted)
                assert (reference in text) == referenced and (scale in text) == (not referenced)
    assert TreeJudge(tiny, min_mass=0).judge([msgspec.structs.replace(ITEM, reference=None)])[0].score is not None


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("mode", ["direct", "reasoned"])
def test_each_layout_says_the_same_in_its_own_order(tiny: Engine, language: str, mode: Any) -> None:
    order = {}
    for layout in ("shared", "paper"):
        judge = TreeJudge(
            tiny, language=language, layout=layout, mode=mode, sampling=SHORT if mode == "reasoned" else None
        )  # type: ignore[arg-type]
        for question in judge._questions(ITEM):
            texts = [segment.text for segment in question.prompt.segments]
            shown = "".join(texts)
            assert texts.count(ITEM.prompt) == texts.count(ITEM.response) == 1
            paragraphs_alone = layout == "paper" and question.name == "format/paragraphing"
            assert texts.count("A lamp.") == (0 if paragraphs_alone else 1)
            about = shown.index("Quality to rate" if language == "en" else "评分维度")
            order[layout, question.name] = about < shown.index(ITEM.prompt)
            assert ("[[N]]" in shown) == (mode == "reasoned") and shown.endswith("[[") == (mode == "direct")
    assert all(order[layout, name] == (layout == "paper") for layout, name in order)


def test_all_questions_about_an_instruction_share_what_comes_first(tiny: Engine) -> None:
    engine = Engine(TINY, kv_cache_gb=0.2)
    words = " ".join(f"word{n}" for n in range(60))
    same = [
        msgspec.structs.replace(item, prompt=words, reference=words, response=f"{n} {words}")
        for n, item in enumerate(ITEMS)
    ]
    TreeJudge(engine).judge(same)
    shared = engine.stats.tokens_computed
    assert engine.stats.prompts == 8 * len(same)
    other = Engine(TINY, kv_cache_gb=0.2)
    TreeJudge(other).judge([msgspec.structs.replace(item, prompt=f"{n} {words}") for n, item in enumerate(same)])
    assert other.stats.tokens_computed > shared + 3 * len(tiny.tokenizer.encode(words, False))
    assert engine.stats.sharing > 3
    paper = Engine(TINY, kv_cache_gb=0.2)
    TreeJudge(paper, layout="paper").judge(same)
    assert paper.stats.tokens_computed > 1.5 * shared


def test_verdicts_are_journaled_and_do_not_depend_on_order_or_windows(tiny: Engine, tmp_path: Path) -> None:
    def judge_of(journal: Journal | None) -> TreeJudge:
        engine = ScriptedEngine(tiny, writer(review), last_first=journal is None)
        return TreeJudge(engine, min_mass=0, without=["format"], weights="generated", journal=journal)

    assert_same_in_any_company(judge_of, ITEMS, tiny, tmp_path / "j", asked=6 * (len(ITEMS) - 1))


def test_the_key_changes_with_everything_that_decides_the_verdict(tiny: Engine) -> None:
    def key(how: Any = {}, **item: Any) -> str:  # noqa: B006
        return TreeJudge(tiny, **how).key(msgspec.structs.replace(ITEM, **item))

    generated = {"weights": "generated"}
    keys = [
        key(),
        key(prompt="other"),
        key(response="other"),
        key(reference=None),
        key(task="completion"),
        key(genre="poem"),
        key(genre="story"),
        key({"without": ["instances"]}),
        key({"form": "parity"}),
        key({"without": ["emotion"]}),
        key({"weights": WEIGHED}),
        key({"weights": WEIGHED | {"emotion": 2.0}}),
        key(generated),
        key(generated | {"seed": 1}),
        key(generated | {"attempts": 5}),
        key({"language": "zh"}),
        key({"layout": "paper"}),
        key({"mode": "reasoned", "sampling": SHORT}),
    ]
    assert len(set(keys)) == len(keys)
    assert key(reference="") == key(reference=None)
    assert key(id="other") == key(task="open") == key(genre="speech") == key({"without": []}) == keys[0]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Fine. Score: [[2]]", True),
        ("Fine.\n**Score: [[ 2 ]]**", True),
        ("Score: [[10]]", True),
        ("The story says 2. Score: 3", False),
        ("[[2]] or rather [[3]]", False),
        ("Score: [[11]]", False),
        ("Score: [[0]]", False),
        ("Score: [[five]]", False),
        ("Score: [[２]]", False),
        ('It says "[[9]]" itself.', False),
        ("Score: [[2]] because it is fine", False),
        ("Score: [[2", False),
        ("", False),
    ],
)
def test_in_reasoned_mode_a_score_is_read_where_it_stands_or_the_leaf_abstains(
    tiny: Engine, text: str, read: bool
) -> None:
    engine = ScriptedEngine(tiny, writer(lambda shown: text))
    judge = TreeJudge(engine, mode="reasoned", sampling=SHORT, without=["content", "format"], min_mass=0)
    [verdict] = judge.judge([ITEM])
    assert verdict.abstained == (None if read else "unparsable")
    assert verdict.analysis == {"impression": (text,)}
    if read and "2" in text:
        before = tiny.tokenizer.encode(text[: text.index("2")], False)
        [question] = judge.ask(ITEM)[0]
        [score] = tiny.score([tiny.tokenizer.prompt(question.prompt) + before], question.labels)
        assert verdict.score == pytest.approx(score.expected)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"form": "exact"}, 'form is "exact": choose fixed or parity'),
        ({"weights": "even"}, 'weights is "even": choose equal or generated'),
        ({"weights": dict.fromkeys(CONTENT, 0)}, "sum to nothing"),
        ({"without": ["plot"]}, 'no "plot"'),
        ({"language": "xx"}, "choose from en, zh"),
        ({"layout": "wide"}, "choose shared or paper"),
    ],
)
def test_options_that_make_no_sense_are_refused_at_once(tiny: Engine, how: Any, reason: str) -> None:
    with pytest.raises(AdjudgeError, match=reason):
        TreeJudge(tiny, **how)
