from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.aspects import Aspect
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.records.row_files import read_rows
from adjudge.rewards.records.verdict import Item, Pair
from adjudge.training.evolve.rationale import Rationale, read_rationales
from adjudge.training.evolve.rule import inverted, written_scores
from adjudge.training.prompts import asked
from adjudge.training.recipe import Data
from adjudge.training.stages import write_stage
from tests.jsonl import write_lines
from tests.training.evolve.known_engine import ASPECT, line, rationale

WIT = Aspect(ASPECT["aspect"], ASPECT["definition"])


def one(tmp_path: Path, **row: Any) -> Rationale:
    [read] = read_rationales(write_lines(tmp_path / "r.jsonl", rationale("x", **row)))
    return read


@pytest.mark.parametrize("prompt_b", ["A sea.", "A hill."])
def test_a_row_asks_word_for_word_what_the_judge_in_reasoned_mode_asks(
    tiny: Engine, tmp_path: Path, prompt_b: str
) -> None:
    read = one(tmp_path, prompt_b=prompt_b)
    pair = Pair("The sea of x.", "The hill of x.", prompt_a="A sea.", prompt_b=prompt_b)
    [judged], _ = PairwiseJudge(tiny, [WIT], mode="reasoned", orders="ab").prompts(pair)
    assert tiny.chat(read.messages) == judged
    write_stage(tmp_path / "out.jsonl", [read])
    [row] = read_rows(tmp_path / "out.jsonl")
    messages = asked(row, Data(train="out.jsonl"))
    assert [message["content"] for message in messages] == list(read.question)  # type: ignore[index]
    assert [message["role"] for message in messages] == ["system", "user"]  # type: ignore[index]


def test_a_row_of_a_single_story_asks_what_the_pointwise_judge_asks(tiny: Engine, tmp_path: Path) -> None:
    read = one(tmp_path, story_b=None)
    [question], _ = PointwiseJudge(tiny, [WIT], mode="reasoned").ask(Item("A sea.", "The sea of x."))
    assert tiny.chat(read.messages) == question.prompt
    assert len(read.stories) == 1 and "story_b" not in read.record


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    read = one(tmp_path, persona="artist", drafts=["old"], passed=["rule", "refine"], colour="green")
    assert read.more == {"colour": "green"} and read.pair == "coherence/xa:2-xb:4"
    write_stage(tmp_path / "again.jsonl", [read])
    assert read_rationales(tmp_path / "again.jsonl") == [read]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"score_a": 6}, 'line 1 .*"score_a" is 6, not a whole number from 1 to 5'),
        ({"score_b": 0}, '"score_b" is 0'),
        ({"score_b": 2.5}, '"score_b" is 2.5'),
        ({"score_b": None}, '"score_b" is None'),
        ({"score_b": True}, '"score_b" is True'),
        ({"story_a": None}, '"story_a" is missing'),
        ({"response": 3}, '"response" is 3, not a string'),
        ({"definition": None, "aspect": "zest"}, 'aspect "zest" is unknown'),
        ({"drafts": "old"}, '"drafts" is not a list'),
    ],
)
def test_rows_that_are_no_rationales_are_refused_by_line(tmp_path: Path, row: dict[str, Any], problem: str) -> None:
    with pytest.raises(AdjudgeError, match=problem):
        read_rationales(write_lines(tmp_path / "r.jsonl", {**rationale("x"), **row}))


def test_an_id_of_0_is_an_id_and_rows_without_one_are_numbered(tmp_path: Path) -> None:
    rows = [rationale("x", id=name) for name in (0, None, "")]
    assert [read.id for read in read_rationales(write_lines(tmp_path / "r.jsonl", *rows))] == ["0", "2", "3"]


def test_ids_that_come_twice_and_mixed_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AdjudgeError, match='line 2 .*"x" is that of line 1'):
        read_rationales(write_lines(tmp_path / "r.jsonl", rationale("x"), rationale("x")))
    with pytest.raises(AdjudgeError, match="line 2 .*are mixed"):
        read_rationales(write_lines(tmp_path / "r.jsonl", rationale("x"), rationale("y", story_b=None)))


@pytest.mark.parametrize(
    ("response", "scores"),
    [
        (f"Well. {line(2, 4)}", ["2", "4"]),
        (f"{line(2, 4)}.\n", ["2", "4"]),
        ("<answer>2</answer> <answer> **4** </answer>", ["2", "4"]),
        (f"Well. {line(2)}", None),
        (f"Well. {line(2, 4, 4)}", None),
        (f"Well. {line(2, 6)}", None),
        (f"Well. {line(2, 4)} Or not.", None),
        (f"{line(2)} and so {line(4)}", None),
        ("2 and 4", None),
        ("", None),
    ],
)
def test_the_scores_are_read_as_the_judge_reads_them(
    tiny: Engine, tmp_path: Path, response: str, scores: list[str] | None
) -> None:
    [written] = written_scores(tiny, [one(tmp_path, response=response)])
    assert (None if written is None else [label for _, label in written]) == scores


@pytest.mark.parametrize(
    ("a", "b", "contradicting"), [(2, 4, (4, 2)), (1, 2, (5, 4)), (5, 5, (1, 1)), (3, 1, (3, 5)), (3, 3, (1, 5))]
)
def test_inverted_scores_stand_where_the_scores_stood(
    tiny: Engine, tmp_path: Path, a: int, b: int, contradicting: tuple[int, int]
) -> None:
    read = one(tmp_path, a=a, b=b, response=f"Chapter {a} of {b}. {line(a, b)}\n")
    assert inverted(read) == f"Chapter {a} of {b}. {line(*contradicting)}\n"


@pytest.mark.parametrize("around", ["<ANSWER>{}</ANSWER>", "<answer>: {} </Answer>", "<ANSWER>\n**{}** </ANSWER>"])
def test_every_score_that_is_read_is_inverted(tiny: Engine, tmp_path: Path, around: str) -> None:
    read, contrary = (one(tmp_path, response="So. " + " ".join(map(around.format, pair))) for pair in ((2, 4), (4, 2)))
    assert None not in written_scores(tiny, [read, contrary]) and inverted(read) == contrary.response


def test_a_single_storys_score_is_inverted_too(tmp_path: Path) -> None:
    for score, inverse in ((1, 5), (3, 1), (4, 2)):
        assert inverted(one(tmp_path, a=score, story_b=None, response=f"So. {line(score)}")) == f"So. {line(inverse)}"
