"""`adjudge bench tree` as a user meets it, in this process, after runs of the tree judge."""

from __future__ import annotations

import csv
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import correlation, fmean
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.commands.options.source import Source
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from tests.jsonl import read_lines, write_lines
from tests.rewards.scripted import ScriptedEngine
from tests.rewards.writings import review, weights_text, writer

Run = Callable[..., Result]
TEXTS = {"a": "# A\n\nIt rained. It poured.", "b": "It rained. Then not."}
ROWS: list[dict[str, Any]] = [
    {"prompt": f"Write {n}.", "response": f"{text} {n}.", "system": system, "instruction": str(n), "task": "guide"}
    for n in range(2)
    for system, text in TEXTS.items()
]
TREE = ("--judge", "tree", "--min-mass", "0", "-o", "v.jsonl")


@pytest.fixture
def engine(tiny: Engine) -> ScriptedEngine:
    return ScriptedEngine(tiny, writer(review))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: ScriptedEngine) -> Run:
    monkeypatch.setattr(Source, "open", lambda source: nullcontext(engine))
    monkeypatch.chdir(tmp_path)
    write_lines("t.jsonl", *ROWS)
    return lambda *arguments: CliRunner().invoke(app, [*arguments, "--model", "dummy:tiny-llama"])


def done(result: Result) -> Result:
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def numbers(name: str = "n.csv") -> dict[tuple[str, str, str], str]:
    with Path(name).open() as file:
        return {(row["table"], row["row"], row["column"]): row["value"] for row in csv.DictReader(file)}


def test_scores_are_held_against_lengths_and_no_model_is_asked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    done(run("judge", "t.jsonl", *TREE))
    with monkeypatch.context() as closed:
        closed.setattr(Source, "open", lambda source: pytest.fail("a model was opened"))
        shown = done(run("bench", "tree", "v.jsonl", "-o", "n.csv")).stdout
    lengths = [float(len(row["response"])) for row in ROWS]
    expected = correlation(lengths, [row["score"] for row in read_lines("v.jsonl")])
    assert float(numbers()["lengths", "output - overall", "guide"]) == pytest.approx(expected)
    assert "(-0.44)" in shown and "disturbances" not in shown


def test_disturbed_texts_are_held_against_theirs_and_count_nowhere_else(run: Run) -> None:
    done(run("writing", "disturb", "t.jsonl", "-o", "d.jsonl", "--kinds", "drop,repeat"))
    done(run("judge", "d.jsonl", *TREE))
    shown = done(run("bench", "tree", "v.jsonl", "-o", "n.csv")).stdout
    rows = read_lines("v.jsonl")
    of = {(row["disturbance"]["of"], row["disturbance"]["kind"]): row["score"] for row in rows}
    changes = [of[str(n), "drop"] - of[str(n), "none"] for n in range(1, 5)]
    assert float(numbers()["disturbances", "overall", "drop"]) == pytest.approx(fmean(changes))
    assert numbers()["lengths", "input - overall", "guide"] == ""  # prompts are all as long
    assert "(-0.36)" in shown and "over 4 texts at most" in shown


def test_kinds_of_disturbance_are_shown_as_they_are_named(run: Run) -> None:
    done(run("writing", "disturb", "t.jsonl", "-o", "d.jsonl", "--kinds", "drop"))
    Path("d.jsonl").write_text(Path("d.jsonl").read_text().replace('"kind":"drop"', '"kind":"[/b]"'))
    done(run("judge", "d.jsonl", *TREE))
    table, note = done(run("bench", "tree", "v.jsonl")).stdout.split("not lowered", 1)
    assert "[/b]" in table and "by [/b]" in note


def test_weights_are_written_once_for_each_trial_and_instruction(run: Run, engine: ScriptedEngine) -> None:
    write_lines("t.jsonl", *[{"prompt": row["prompt"]} for row in ROWS])
    shown = done(run("bench", "tree", "t.jsonl", "--trials", "3")).stdout
    assert len(engine.asked) == 3 * 2 * 2 and len(set(engine.seeds)) == 12
    assert "0.000 (0.080)" in shown and "0.000 (0.017)" in shown and "auto-planning: 0.273" in shown
    engine.asked.clear()
    assert done(run("bench", "tree", "t.jsonl", "--trials", "3")).stdout == shown and not engine.asked
    done(run("bench", "tree", "t.jsonl"))
    assert len(engine.asked) == 2 * 2 * 2  # five by default: two more of each


def test_weights_of_a_run_that_was_stopped_are_written_when_it_is_run_again(run: Run, engine: ScriptedEngine) -> None:
    write_lines("t.jsonl", *[{"prompt": row["prompt"]} for row in ROWS])
    whole = done(run("bench", "tree", "t.jsonl", "--trials", "3")).stdout
    Path("t.jsonl.weights.journal").unlink()
    engine.asked.clear()

    def stopping(shown: str, before: int) -> str:
        if len(engine.asked) == 5:
            raise KeyboardInterrupt
        return weights_text(shown)

    script, engine.script = engine.script, stopping
    stopped = run("bench", "tree", "t.jsonl", "--trials", "3")
    assert stopped.exit_code == 130
    assert "4 answers are kept in t.jsonl.weights.journal; run it again to go on" in stopped.stderr
    engine.script = script
    assert done(run("bench", "tree", "t.jsonl", "--trials", "3")).stdout == whole and len(engine.asked) == 5 + 8


def test_numbers_are_written_though_nobody_reads_what_is_printed(run: Run, unread: None) -> None:
    write_lines("t.jsonl", {"prompt": "Write."})
    result = run("bench", "tree", "t.jsonl", "--trials", "2", "-o", "n.csv")
    assert isinstance(result.exception, BrokenPipeError) and ("fluctuation", "all weights", "delta") in numbers()


def test_weights_that_nobody_wrote_are_to_be_asked_for_again(run: Run, engine: ScriptedEngine) -> None:
    engine.script = lambda shown, before: ("", "timeout")
    write_lines("t.jsonl", {"prompt": "Write."})
    result = run("bench", "tree", "t.jsonl", "--trials", "2")
    assert str(result.exception) == "nothing was answered: once the server answers, run this again"


def test_weights_that_change_fluctuate_by_hand_and_unreadable_ones_are_told(run: Run, engine: ScriptedEngine) -> None:
    texts = iter(['{"formatting": 0.4, "paragraphing": 0.6}', '{"formatting": 0.5, "paragraphing": 0.5}', *["?"] * 6])
    engine.script = lambda shown, before: next(texts)
    write_lines("t.jsonl", {"prompt": "Write."})
    how = ("--trials", "2", "--without", "content,impression,plots & structure", "-o", "n.csv")
    done(run("bench", "tree", "t.jsonl", *how))
    assert float(numbers()["fluctuation", "formatting", "delta"]) == pytest.approx(0.1)
    assert float(numbers()["fluctuation", "all weights", "sigma as printed"]) == pytest.approx(0.005**0.5)
    assert float(numbers()["fluctuation", "all weights", "sigma"]) == pytest.approx(0.0025**0.5)
    write_lines("t.jsonl", {"prompt": "Sing."})
    shown = done(run("bench", "tree", "t.jsonl", *how)).stdout
    assert (
        "1 of 1 sets of weights could not be read" in shown and numbers()["fluctuation", "all weights", "delta"] == ""
    )


def test_trials_of_a_run_are_kept_in_its_journal(run: Run, engine: ScriptedEngine) -> None:
    engine.script = writer(review, weights_text)
    done(run("judge", "t.jsonl", *TREE, "--weights", "generated"))
    asked = len(engine.asked)
    done(run("bench", "tree", "v.jsonl", "--trials", "2"))
    assert len(engine.asked) == 2 * asked == 8  # the first trial is the run itself


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("pairs.jsonl",), "cannot read pairs.jsonl"),
        (("old.jsonl",), "old.jsonl holds verdicts, and their journal is not beside it"),
        (("t.jsonl", "--run", "1"), "t.jsonl is no journal"),
        (("t.jsonl", "--trials", "1"), "give --trials 2 or more"),
        (("t.jsonl", "-o", "t.jsonl"), "t.jsonl is what is read"),
        (("other.jsonl", "--form", "parity"), "--form is for weights that are to be written: add --trials"),
        (("other.jsonl",), "is of pointwise: judge the texts with --judge tree"),
    ],
)
def test_mistakes_are_one_sentence(run: Run, arguments: tuple[str, ...], reason: str) -> None:
    if "other.jsonl" in arguments:
        done(run("judge", "t.jsonl", "-o", "other.jsonl", "--judge", "pointwise", "--min-mass", "0"))
    write_lines("old.jsonl", {"prompt": "Write.", "breakdown": {}})
    result = run("bench", "tree", *arguments)
    assert isinstance(result.exception, AdjudgeError) and reason in str(result.exception)
