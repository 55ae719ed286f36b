"""`adjudge rubrics` as a user meets it, in this process, with an engine that writes and grades what the test says."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.commands.options.source import Source
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal
from tests.jsonl import read_lines, write_lines
from tests.training.rubrics.examiner import Examiner, simple

Run = Callable[..., Result]

MINE = ("rubrics", "mine", "q.jsonl", "--corpus", "texts", "--sets", "3", "--max-tokens", "64", "-o", "r.jsonl")
QUESTIONS = [
    {"id": "bees", "prompt": "How do bees dance?", "topic": "nature"},
    {"prompt": "What is rain?", "answers": ["good rain", "bad rain", "rain"]},
]


def script(shown: str, before: int) -> str:
    if "[Page begins]" in shown:
        return '["A passage."]'
    return simple("Marked", (7, 4)) if '"content"' in shown else f"a {'good' if before % 2 else 'bad'} answer {before}"


@pytest.fixture
def engine(tiny: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Examiner:
    examiner = Examiner(tiny, script, lambda shown: float("good" in shown.split("[Answer begins]")[1]))
    monkeypatch.setattr(Source, "open", lambda source: nullcontext(examiner))
    monkeypatch.chdir(tmp_path)
    Path("texts").mkdir()
    Path("texts", "bees.md").write_text("Bees dance in the hive.\n\nRain falls.")
    write_lines("q.jsonl", *QUESTIONS)
    return examiner


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_mined_rubrics_judge_the_answers_and_are_compared_by_scheme(engine: Examiner) -> None:
    result = run(*MINE, "--items", "i.jsonl")
    assert result.exit_code == 0, result.output
    assert "low_variance" not in result.stdout and "(2 of 2 questions" in result.stdout
    # 2 pages, 6 sets, 5 answers, 2 rubrics
    assert "texts: 15 written, 0 of them again, 0 from the journal\n" in result.stdout
    bees, rain = read_lines("r.jsonl")
    assert (bees["id"], bees["topic"], rain["id"]) == ("bees", "nature", "2") and "answers" not in rain
    assert [one["points"] for one in bees["rubric"]["criteria"]] == [6.5, 3.5] and bees["mended"]
    names = ["answers.jsonl", "passages.jsonl", "sets.jsonl"]
    assert sorted(path.name for path in Path("r.stages").iterdir()) == names and read_lines("r.dropped.jsonl") == []

    assert run("judge", "i.jsonl", "--judge", "rubric", "-o", "v.jsonl").exit_code == 0
    assert [verdict["score"] for verdict in read_lines("v.jsonl")] == pytest.approx([0, 1, 0, 1, 0, 1, 0, 0])

    write_lines("l.jsonl", *[row | {"label": float("good" in row["response"])} for row in read_lines("i.jsonl")])
    result = run("rubrics", "compare", "l.jsonl", "-o", "c.jsonl")
    assert result.exit_code == 0, result.output
    assert [line.split()[:2] for line in result.stdout.splitlines()[2:5]] == [
        ["fixed", "1.000"],
        ["free", "1.000"],
        ["binary", "1.000"],
    ]
    assert read_lines("c.jsonl")[1]["scores"] == pytest.approx({"fixed": 1, "free": 1, "binary": 1})
    assert read_lines("c.jsonl")[1]["id"] == "bees/2"


def test_a_comparison_that_was_answered_nothing_writes_nothing_and_goes_on(engine: Examiner) -> None:
    write_lines("i.jsonl", {"prompt": "What is rain?", "response": "good rain"})
    compare = ("rubrics", "compare", "i.jsonl", "-o", "c.jsonl", "--rubric", "six", "--schemes", "free")
    earned, engine.earned = engine.earned, lambda shown: None
    with pytest.raises(AdjudgeError, match="nothing was answered: once the server answers"):
        raise run(*compare).exception  # type: ignore[misc]
    assert not Path("c.jsonl").exists()
    engine.earned = earned
    result = run(*compare, "--resume")
    assert result.exit_code == 0, result.output
    assert read_lines("c.jsonl")[0]["scores"] == {"free": 1}


def test_a_stopped_run_goes_on_with_resume_and_asks_nothing_twice(
    engine: Examiner, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, left = Journal.put, iter(range(7))

    def stop(self: Journal, *what: Any) -> bytes:
        kept = put(self, *what)
        if next(left, None) is None:
            raise KeyboardInterrupt
        return kept

    monkeypatch.setattr("adjudge.training.stages.WINDOW", 1)
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "put", stop)
        result = run(*MINE)
    assert result.exit_code == 130 and "8 answers are kept in r.jsonl.journal; run again with --resume" in result.stderr
    assert not Path("r.jsonl").exists()
    assert isinstance(refused := run(*MINE).exception, AdjudgeError) and "--resume continues" in str(refused)
    assert run(*MINE, "--resume").exit_code == 0
    asked, rubrics = len(engine.asked), Path("r.jsonl").read_bytes()
    # 1 page for each question, 3 sets for each, 5 answers, 2 rubrics at the end
    assert asked == 2 + 6 + 5 + 2
    assert run(*MINE, "--resume").exit_code == 0
    assert len(engine.asked) == asked and Path("r.jsonl").read_bytes() == rubrics
    assert run(*MINE, "--overwrite").exit_code == 0 and len(engine.asked) == 2 * asked


def test_pages_found_by_meaning_are_embedded_once(
    engine: Examiner, tiny: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Examiner, "require_embeddings", lambda self: None)
    monkeypatch.setattr(Examiner, "embed_iter", lambda self, prompts, **how: tiny.embed_iter(prompts, **how))
    assert run(*MINE, "--search", "meaning").exit_code == 0
    rubrics = Path("r.jsonl").read_bytes()
    monkeypatch.setattr(Examiner, "embed_iter", lambda *prompts, **how: pytest.fail("a text was embedded again"))
    assert run(*MINE, "--search", "meaning", "--resume").exit_code == 0
    assert Path("r.jsonl").read_bytes() == rubrics


def test_without_rubrics_every_question_gets_the_six_dimensions_and_nothing_is_asked(engine: Examiner) -> None:
    assert run("rubrics", "mine", "q.jsonl", "--without", "rubrics", "--items", "i.jsonl").exit_code == 0
    assert len(read_lines("q.rubrics.jsonl")[1]["rubric"]["criteria"]) == 6 and not engine.asked
    assert run("rubrics", "mine", "q.jsonl", "--without", "rubrics", "--resume").exit_code == 0
    assert [item["response"] for item in read_lines("i.jsonl")] == ["good rain", "bad rain", "rain"]


def test_where_nothing_was_answered_the_server_is_to_blame_and_the_run_goes_on(engine: Examiner) -> None:
    engine.script = lambda shown, before: ("", "timeout")
    with pytest.raises(AdjudgeError, match="nothing was answered: once the server answers, run this again with"):
        raise run(*MINE).exception  # type: ignore[misc]
    engine.script = script
    assert run(*MINE, "--resume").exit_code == 0 and len(read_lines("r.jsonl")) == 2


def test_a_run_that_leaves_no_question_says_where_they_went(engine: Examiner) -> None:
    engine.script = lambda shown, before: "words"
    result = run(*MINE)
    assert isinstance(result.exception, AdjudgeError) and "not one question is left" in str(result.exception)
    assert "unparsable 2" in result.stdout and not Path("r.jsonl").exists()
    dropped = read_lines("r.dropped.jsonl")
    assert [row["dropped"]["reason"] for row in dropped] == ["unparsable"] * 2 + ["no_passage"] * 2
    assert dropped[0]["source"] == "bees.md"


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"prompt": "a?"}], [], "nothing to mine from: name a folder of texts with --corpus"),
        ([{"prompt": "a?"}], ["--corpus", "empty"], "empty has no .txt, .md, .jsonl files"),
        ([{"prompt": " "}], [], 'line 1 of q.jsonl: "prompt" is blank'),
        (
            [{"id": "2", "prompt": "a"}, {"prompt": "b"}],
            [],
            'line 2 of q.jsonl has no id and goes by its number, "2", which is the id of line 1',
        ),
        ([{"prompt": "a?", "answers": ["one"]}], [], '"answers" has one text, which cannot vary'),
        ([{"prompt": "a?", "answers": "one"}], [], '"answers" cannot be read'),
        ([{"prompt": "a?", "pages": [3]}], [], '"pages" cannot be read'),
        ([{"prompt": "a?"}], ["--without", "judge"], '"judge" cannot be left out'),
        ([{"prompt": "a?"}], ["--without", "texts", "--temperature", "0"], "at temperature 0"),
        ([{"prompt": "a?"}], ["--without", "texts", "--items", "q.jsonl"], "both the questions and the items"),
        ([{"prompt": "a?"}], ["--without", "texts,filter", "--items", "i.jsonl"], "no answers are written without"),
    ],
)
def test_mistakes_are_one_sentence_before_anything_is_asked(
    engine: Examiner, rows: Any, options: list[str], message: str
) -> None:
    Path("empty").mkdir()
    write_lines("q.jsonl", *rows)
    result = run("rubrics", "mine", "q.jsonl", "-o", "r.jsonl", *options)
    assert isinstance(result.exception, AdjudgeError), result.output
    assert message in str(result.exception) and not engine.asked


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"prompt": "a", "response": "b"}], [], "line 1 of i.jsonl has no rubric of its own"),
        ([{"prompt": "a", "response": "b"}], ["--rubric", "six"], "line 1 of i.jsonl, scheme fixed"),
        ([{"prompt": "a", "response": "b", "label": "x"}], ["--rubric", "six"], "\"label\" is 'x', not a number"),
    ],
)
def test_rows_that_cannot_be_compared_are_refused(
    engine: Examiner, rows: Any, options: list[str], message: str
) -> None:
    write_lines("i.jsonl", *rows)
    result = run("rubrics", "compare", "i.jsonl", *options)
    assert isinstance(result.exception, AdjudgeError), result.output
    assert message in str(result.exception) and not engine.scored
