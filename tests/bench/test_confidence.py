from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from adjudge.bench.confidence import Compared, Decision, bench_confidence, compare, decision_of, load_rationales
from adjudge.engine.completion import Completion, TokenLogprob
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.text.labels import LabelSet, Read, Spelling
from adjudge.training.evolve.rationale import read_rationales
from tests.jsonl import write_lines
from tests.training.evolve.known_engine import line, rationale


def stories(path: Path, count: int = 6) -> Path:
    rows = [
        {"id": n, "prompt": "A tale.", "story": f"One {n}. Two {n}? Three!", "scores": {"coherence": 1 + n % 5}}
        for n in range(count)
    ]
    return write_lines(path / "stories.jsonl", *rows)


def test_made_up_rationales_end_in_the_human_scores_and_share_their_questions(tmp_path: Path) -> None:
    made = load_rationales(stories(tmp_path), 23)
    assert len(made) == 23 == len({one.id for one in made}) and len({one.pair for one in made}) == 5
    assert all(one.response.endswith(line(*one.scores)) for one in made)
    assert made == load_rationales(tmp_path / "stories.jsonl", 23)


def test_rationales_of_a_file_are_taken_as_they_are(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "r.jsonl", rationale("x"), rationale("y"))
    assert load_rationales(path, 1) == read_rationales(path)[:1]


def completion(top: dict[int, float]) -> Completion:
    tokens = tuple((token, math.log(chance)) for token, chance in top.items())
    return Completion(0, 0, "", (7,), "length", (TokenLogprob(7, tokens[0][1], tokens),))


def test_a_labels_tokens_count_together_and_labels_that_were_not_reported_are_lacking() -> None:
    two = Spelling(1, ((0, 1),)), Spelling(1, ((0, 2),))
    labels = LabelSet(("a", "b"), None, (Read((), (1, 2, 3)),), (Spelling(0, ((0, 0),)), *two))
    assert decision_of(completion({1: 0.4, 2: 0.3, 3: 0.2}), labels) == Decision("b")
    assert decision_of(completion({1: 0.4, 2: 0.3}), labels) == Decision("a")
    assert decision_of(completion({9: 0.5, 1: 0.1}), labels) == Decision("a", lacks=True)
    assert decision_of(completion({9: 0.5}), labels) == Decision(None, lacks=True)


def test_decisions_without_every_label_are_counted_apart(tmp_path: Path) -> None:
    rows = read_rationales(write_lines(tmp_path / "r.jsonl", *[rationale(name) for name in "xyz"]))
    ours = [Decision(label) for label in ("2", "4", "2", "4")]
    other = [Decision("2"), Decision("4", lacks=True), Decision("1", lacks=True), Decision(None, lacks=True)]
    found = compare(rows, [[0, 1], [2, 3], []], ours, other)
    assert found == Compared(1, 0, 1, 1, 1, kept=2, kept_generating=1)
    assert compare(rows[:1], [[0, 1]], ours[:2], [Decision("2"), Decision("3")]).other == 1


def test_both_ways_decide_alike_and_their_costs_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, keep = tmp_path / "c.csv", tmp_path / "made.jsonl"
    bench_confidence(stories(tmp_path), model="dummy:tiny-llama", limit=10, output=output, keep=keep)
    printed = capsys.readouterr().out
    assert "10 rationales, 20 scores" in printed and " 0 other; " in printed and "0 other, " in printed
    ours, other = csv.DictReader(output.open())
    assert (ours["variant"], other["variant"]) == ("restricted head", "generation")
    assert ours["prompt_tokens"] == other["prompt_tokens"]
    decided = [int(ours[name]) for name in ("equal", "equal_lacking", "other", "other_lacking", "undecided")]
    assert sum(decided) == 20 == decided[0] + decided[1] + decided[4] and ours["kept"] == other["kept"]
    assert 0 < int(ours["tokens_computed"]) < int(ours["prompt_tokens"])
    assert int(ours["peak_bytes"]) > 0 and len(read_rationales(keep)) == 10


def test_the_figures_are_written_though_nobody_reads_what_is_printed(tmp_path: Path, unread: None) -> None:
    output = tmp_path / "c.csv"
    with pytest.raises(BrokenPipeError):
        bench_confidence(stories(tmp_path), model="dummy:tiny-llama", limit=2, output=output)
    assert len(output.read_text().splitlines()) == 3


def test_nothing_to_score_is_said(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "r.jsonl", rationale("x", response="None."))
    with pytest.raises(AdjudgeError, match="no rationale of .* ends in scores"):
        bench_confidence(path, model="dummy:tiny-llama", limit=10)


def test_what_a_file_was_taken_for_is_told_with_its_mistake(tmp_path: Path) -> None:
    with pytest.raises(AdjudgeError, match="; without a response, rows are read as stories: prompt, story and scores"):
        load_rationales(write_lines(tmp_path / "r.jsonl", {"prompt": "p", "story": "s", "human": 3}), 5)
    with pytest.raises(AdjudgeError, match='"aspect" is missing.*; with a response, rows are read as rationales, as'):
        load_rationales(write_lines(tmp_path / "r.jsonl", {"prompt": "p", "response": "s"}), 5)


def test_aspects_on_which_stories_have_one_score_are_left_out_and_where_all_are_it_is_said(tmp_path: Path) -> None:
    texts = [{"id": n, "prompt": "A tale.", "story": f"One {n}. Two {n}? Three!"} for n in range(3)]
    rated = [{**text, "scores": {"coherence": 3, "surprise": n + 1}} for n, text in enumerate(texts)]
    made = load_rationales(write_lines(tmp_path / "rated.jsonl", *rated), 5)
    assert {one.aspect.name for one in made} == {"surprise"}
    path = write_lines(tmp_path / "one.jsonl", *[{**text, "scores": {"coherence": 3}} for text in texts])
    with pytest.raises(AdjudgeError, match=r"one.jsonl: no two stories differ in their scores on relevance, .*: give"):
        load_rationales(path, 5)
