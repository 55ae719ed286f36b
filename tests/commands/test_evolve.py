"""`adjudge evolve` as a user meets it, in this process, with an engine whose texts and scores are known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import AnyPrompt
from adjudge.engine.score import Score
from adjudge.training import stages
from tests.jsonl import read_lines, write_lines
from tests.training.evolve.known_engine import KnownEngine, line, rationale

Run = Callable[..., Result]

SCORES = {"one": 1, "two": 1, "three": 4, "four": 5}
ASPECT = ("--aspects", "coherence")
TWO = ("--personas", "artist,academic")


def script(shown: str, before: int) -> str:
    """Artists forget the scores of pairs that begin with a 5, and get one wrong where both are 1."""
    if "You revise assessments" in shown:
        return f"Better. {line(*re.findall('<ANSWER> ([1-5]) ', shown)[-2:])}"
    scores = re.findall(r"Story \d (\d) of 5", shown)
    if "You are an artist" in shown and scores[0] == "5":
        return "It is what it is."
    if "You are an artist" in shown and scores == ["1", "1"]:
        return f"Hm. {line(1, 2)}"
    return f"So. {line(*scores)}"


def choose(shown: str) -> str:
    """Contradictions are always seen; the model is sure of a 1 alone, and of what stands second a 4."""
    if "The scores follow" in shown:
        return "No"
    if "Quality of" in shown or "The better assessment" in shown:
        return "2"
    return "4" if shown.rstrip().endswith("| <ANSWER>") else "1"


@pytest.fixture
def engine(tiny: Engine, monkeypatch: pytest.MonkeyPatch) -> KnownEngine:
    known = KnownEngine(tiny, script, choose)
    monkeypatch.setattr("adjudge.engine.engine.Engine", lambda *given, **options: known)
    return known


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": name, "prompt": "A tale.", "story": f"Story {name}.", "scores": {"Coherence": score}}
        for name, score in SCORES.items()
    ]
    write_lines("stories.jsonl", *rows)
    return lambda *arguments: CliRunner().invoke(app, ["evolve", *arguments])


def made(run: Run) -> list[dict[str, Any]]:
    result = run("synthesize", "stories.jsonl", "-o", "r.jsonl", *ASPECT, *TWO)
    assert result.exit_code == 0, result.output
    return read_lines("r.jsonl")


def test_a_story_that_a_file_holds_twice_is_asked_about_once_and_counted(run: Run, engine: KnownEngine) -> None:
    rows = [
        {"prompt": "A tale.", "story": f"Story {name}.", "scores": {"Coherence": score}}
        for name, score in SCORES.items()
    ]
    write_lines("once.jsonl", *rows)
    write_lines("twice.jsonl", *rows, *rows)
    for name in ("once", "twice"):
        result = run("synthesize", f"{name}.jsonl", "-o", f"{name}.out.jsonl", *ASPECT, *TWO)
        assert result.exit_code == 0, result.output
    assert read_lines("twice.out.jsonl") == read_lines("once.out.jsonl")
    dropped = read_lines("twice.out.dropped.jsonl")[: len(rows)]
    assert [row["dropped"] for row in dropped] == len(rows) * [{"stage": "repeats", "reason": "same_story"}]
    assert [row["story"] for row in dropped] == [row["story"] for row in rows]
    assert f"same_story {len(rows)}" in result.output


def test_stories_become_rationales_and_these_are_filtered_and_validated(run: Run, engine: KnownEngine) -> None:
    rows = made(run)
    # 1-1, 4-5 and two each of 1-4 and 1-5 pairs, in both orders, by two personas: 24; 3 begin with a 5.
    assert len(rows) == 21 and len(engine.asked) == 21 + 3 * 3
    assert [row["dropped"] for row in read_lines("r.dropped.jsonl")] == 3 * [
        {"stage": "synthesize", "reason": "unparsable"}
    ]
    assert all(row["system"].startswith("You are a careful reader") and row["prompt"] for row in rows)

    result = run("filter", "r.jsonl", "-o", "e.jsonl", "--plot", "e.png")
    assert result.exit_code == 0, result.output
    kept, dropped = read_lines("e.jsonl"), read_lines("e.dropped.jsonl")
    # Of 21, artists have two 1-1 wrong; 1-4 alone (2 pairs, 2 personas) has the scores that the model is sure of.
    assert {(row["score_a"], row["score_b"]) for row in kept} == {(1, 4)} and len(kept) == 4
    assert len(kept) + len(dropped) == 21
    assert [row["dropped"]["reason"] for row in dropped] == 2 * ["other_scores"] + 15 * ["not_confident"]
    assert all(row["response"].startswith("Better. ") and len(row["drafts"]) == 1 for row in kept)
    for stage, came, left, here, paper in (
        ("rule", 21, 19, "90.48%", "92.95%"),
        ("refine", 19, 19, "90.48%", "-"),
        ("attack", 19, 19, "90.48%", "75.40%"),
        ("confidence", 19, 4, "19.05%", "67.02%"),
    ):
        assert re.search(rf"{stage} +{came} +{left} +{here} +{paper}", result.output)
    assert Path("e.png").read_bytes().startswith(b"\x89PNG")

    result = run("validate", "e.jsonl", "--sample", "3")
    assert result.exit_code == 0, result.output
    table = read_lines("e.validation.jsonl")
    assert [row["stage"] for row in table] == ["initial", "rule", "refine", "rule", "attack", "confidence"]
    # Only rationales of one question are compared: the academics' on 1-1 stayed where the artists' fell.
    assert [(row["rated"], row["compared"]) for row in table] == [(3, 0), (3, 2), (3, 0), (3, 0), (3, 0), (3, 0)]
    assert table[1]["win_rate"] == 0.5  # the second is always called better, in both orders: a tie


@pytest.mark.parametrize("shape", [(), ("--pointwise",)])
def test_structured_texts_end_in_scores_whoever_writes_them(
    run: Run, tiny: Engine, monkeypatch: pytest.MonkeyPatch, shape: tuple[str, ...]
) -> None:
    monkeypatch.setattr("adjudge.engine.engine.Engine", lambda *given, **options: tiny)  # its weights are random
    how = (*ASPECT, *TWO, *shape, "--each", "1", "--max-tokens", "64")
    empty = run("synthesize", "stories.jsonl", "-o", "free.jsonl", *how, "--max-tokens", "4").exception
    assert "free.dropped.jsonl says why (--structured" in str(empty) and not read_lines("free.jsonl")
    result = run("synthesize", "stories.jsonl", "-o", "r.jsonl", *how, "--structured")
    assert result.exit_code == 0, result.output
    rows = read_lines("r.jsonl")
    assert len(rows) == (2 * 3 if shape else 2 * 2 * 4) and not read_lines("r.dropped.jsonl")
    answer = "<ANSWER> [1-5] </ANSWER>"
    form = re.compile(rf"[^<]+\n\n{answer}" + ("" if shape else rf" \| {answer}"))
    assert all(form.fullmatch(row["response"]) for row in rows)


def test_a_run_that_was_stopped_goes_on_and_asks_for_nothing_twice(
    run: Run, engine: KnownEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "WINDOW", 2)
    synthesis = ("synthesize", "stories.jsonl", "-o", "r.jsonl", *ASPECT, *TWO)

    def stopping(shown: str, before: int) -> str:
        if len(engine.asked) == 9:
            raise KeyboardInterrupt
        return script(shown, before)

    engine.script = stopping
    stopped = run(*synthesis)
    assert stopped.exit_code == 130 and "8 answers are kept in r.jsonl.journal" in stopped.output
    assert not Path("r.jsonl").exists()
    engine.script = script
    with pytest.raises(AdjudgeError, match=r"r\.jsonl\.journal exists: --resume continues"):
        raise run(*synthesis).exception  # type: ignore[misc]
    assert run(*synthesis, "--resume").exit_code == 0
    assert len(engine.asked) == 30 + 1  # the ninth had not come to its end
    first = Path("r.jsonl").read_bytes(), Path("r.dropped.jsonl").read_bytes()
    assert run(*synthesis, "--resume").exit_code == 0 and len(engine.asked) == 31
    assert (Path("r.jsonl").read_bytes(), Path("r.dropped.jsonl").read_bytes()) == first
    assert run(*synthesis, "--overwrite").exit_code == 0 and len(engine.asked) > 31


def test_what_the_judge_from_outside_wrote_is_kept_when_it_is_stopped(run: Run, engine: KnownEngine) -> None:
    write_lines("e.jsonl", rationale("x", 1, 4, passed=["rule"]))
    write_lines("e.dropped.jsonl", rationale("y", 1, 4, dropped={"stage": "rule", "reason": "r"}))
    validation = ("validate", "e.jsonl", "--mode", "reasoned", "--attempts", "2")

    def stopping(shown: str, before: int) -> str:
        if len(engine.asked) == 2:
            raise KeyboardInterrupt
        return "Nothing."

    engine.script = stopping
    assert run(*validation).exit_code == 130 and len(engine.asked) == 2  # x and y, once each
    engine.script = lambda shown, before: "Nothing."
    assert run(*validation, "--resume").exit_code == 0 and len(engine.asked) == 4


def test_a_validation_that_was_answered_nothing_writes_nothing_and_goes_on(
    run: Run, engine: KnownEngine, tiny: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines("e.jsonl", rationale("x", 1, 4, passed=["rule"]))
    write_lines("e.dropped.jsonl", rationale("y", 1, 4, dropped={"stage": "rule", "reason": "r"}))

    def silent(prompts: Sequence[AnyPrompt], labels: Any, **how: Any) -> Iterator[tuple[int, Score]]:
        return ((place, Score.abstained(labels[place].labels, "timeout")) for place in range(len(prompts)))

    with monkeypatch.context() as patch:
        patch.setattr(engine, "score_iter", silent)
        with pytest.raises(AdjudgeError, match="nothing was answered: once the server answers"):
            raise run("validate", "e.jsonl").exception  # type: ignore[misc]
    assert not Path("e.validation.jsonl").exists()
    assert run("validate", "e.jsonl", "--resume").exit_code == 0
    assert [row["rated"] for row in read_lines("e.validation.jsonl")] == [2, 1]


def test_a_file_that_was_not_written_to_its_end_is_found(run: Run, engine: KnownEngine) -> None:
    made(run)
    whole = Path("r.jsonl").read_bytes()
    Path("r.jsonl").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(AdjudgeError, match=r"r\.jsonl breaks off in its last line"):
        raise run("filter", "r.jsonl", "--stages", "rule").exception  # type: ignore[misc]
    asked = len(engine.asked)
    assert run("synthesize", "stories.jsonl", "-o", "r.jsonl", *ASPECT, *TWO, "--resume").exit_code == 0
    assert Path("r.jsonl").read_bytes() == whole and len(engine.asked) == asked


def test_the_confidence_filter_alone_writes_nothing(run: Run, engine: KnownEngine) -> None:
    write_lines("r.jsonl", rationale("x", 1, 4), rationale("y", 2, 4), rationale("z", response="None."))
    result = run("filter", "r.jsonl", "-o", "e.jsonl", "--stages", "confidence")
    assert result.exit_code == 0, result.output
    assert [row["id"] for row in read_lines("e.jsonl")] == ["x"] and engine.asked == []
    assert "paper" not in result.output and "not_confident 1, unparsable 1" in result.output
    write_lines("r.jsonl", rationale("y", 2, 4))
    empty = run("filter", "r.jsonl", "-o", "none.jsonl", "--stages", "confidence")
    assert "nothing is left in none.jsonl: none.dropped.jsonl says why (fewer --stages" in str(empty.exception)
    assert read_lines("none.jsonl") == [] and "not_confident 1" in empty.output


def test_earlier_files_are_not_touched_unless_told_so(run: Run, engine: KnownEngine) -> None:
    write_lines("r.jsonl", rationale("x", 1, 4))
    assert run("filter", "r.jsonl", "-o", "e.jsonl", "--stages", "confidence").exit_code == 0
    with pytest.raises(AdjudgeError, match=r"e\.jsonl exists: --resume continues"):
        raise run("filter", "r.jsonl", "-o", "e.jsonl", "--stages", "confidence").exception  # type: ignore[misc]
    for again in ("--resume", "--overwrite"):
        assert run("filter", "r.jsonl", "-o", "e.jsonl", "--stages", "confidence", again).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("synthesize", "stories.jsonl"), 'no story has a score on "relevance": choose --aspects'),
        (("synthesize", "stories.jsonl", *ASPECT, "--personas", "bard"), 'no persona is called "bard"'),
        (("synthesize", "stories.jsonl", *ASPECT, "--pointwise", "--examples", "r.jsonl"), "of single stories"),
        (("synthesize", "stories.jsonl", *ASPECT, "-o", "stories.jsonl"), "is both the stories and the output"),
        (("filter", "r.jsonl", "--stages", "rule,polish"), 'no stage is called "polish"'),
        (("filter", "r.jsonl", "--stages", ","), "no stage is named"),
        (("filter", "r.jsonl", "--plot", "e.txt"), "e.txt is no picture"),
        (("filter", "away.jsonl"), "cannot read away.jsonl"),
        (("filter", "bad.jsonl"), '"score_a" is 9, not a whole number from 1 to 5'),
        (
            ("validate", "r.jsonl"),
            r"r\.dropped\.jsonl is missing, which `adjudge evolve filter` writes .* by --dropped",
        ),
        (("validate", "none.jsonl"), r"cannot read none\.jsonl"),
    ],
)
def test_mistakes_are_found_before_a_model_is_opened(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], problem: str
) -> None:
    monkeypatch.setattr("adjudge.engine.engine.Engine.__init__", lambda *_, **__: pytest.fail("a model was opened"))
    write_lines("r.jsonl", rationale("x"))
    write_lines("bad.jsonl", rationale("x", score_a=9))
    result = run(*arguments)
    assert isinstance(result.exception, AdjudgeError) and re.search(problem, str(result.exception))
