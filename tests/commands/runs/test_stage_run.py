from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adjudge.commands.options.runs import Earlier, RunOptions
from adjudge.commands.options.source import Source
from adjudge.commands.runs.stage_run import check_left, part_beside, stage_run, write_parts
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal
from adjudge.training.stages import Drop, Passed

NOBODY = Source("no/such-model")
TINY = Source("dummy:tiny-llama")


def run(folder: Path, source: Source, earlier: Earlier) -> None:
    """A run with one answer."""
    with stage_run("the texts", folder / "t.jsonl", folder / "o.jsonl", RunOptions(source, earlier)) as one:
        one.open()
        one.book.put("question", b"answer")


def kept(folder: Path) -> int:
    with Journal(folder / "o.jsonl.journal") as book:
        return len(book)


def test_a_model_that_cannot_be_opened_costs_no_answers_of_the_run_it_was_to_overwrite(tmp_path: Path) -> None:
    run(tmp_path, TINY, "refuse")
    with pytest.raises(AdjudgeError, match="no/such-model"):
        run(tmp_path, NOBODY, "overwrite")
    assert kept(tmp_path) == 1
    with stage_run("t", tmp_path / "t", tmp_path / "o.jsonl", RunOptions(TINY, "overwrite")) as one:
        one.open()
        assert "question" not in one.book and len(one.book) == 0


def test_an_earlier_run_is_refused_unless_it_is_to_go_on(tmp_path: Path) -> None:
    run(tmp_path, TINY, "refuse")
    with pytest.raises(AdjudgeError, match="exists: --resume continues that run"):
        run(tmp_path, TINY, "refuse")
    run(tmp_path, TINY, "resume")
    assert kept(tmp_path) == 1


def test_a_run_whose_journal_is_gone_goes_on_only_where_nobody_is_asked(tmp_path: Path) -> None:
    run(tmp_path, TINY, "refuse")
    output = tmp_path / "o.jsonl"
    output.write_text("{}\n")
    lost = RunOptions(NOBODY, "resume", tmp_path / "another")
    with stage_run("the texts", tmp_path / "t.jsonl", output, lost):
        pass
    with (
        pytest.raises(AdjudgeError, match="another is empty: name its journal with --journal"),
        stage_run("the texts", tmp_path / "t.jsonl", output, lost) as one,
    ):
        one.open()


def test_files_that_the_user_names_are_refused_where_they_are_one(tmp_path: Path) -> None:
    output = tmp_path / "o.jsonl"
    with (
        pytest.raises(AdjudgeError, match="is both the output and the plot: name another file"),
        stage_run("the texts", tmp_path / "t.jsonl", output, RunOptions(NOBODY), plot=output),
    ):
        pass


def test_an_output_that_is_a_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with (
        pytest.raises(AdjudgeError, match="cannot write . "),
        stage_run("the texts", Path("t.jsonl"), Path("."), RunOptions(NOBODY)),
    ):
        pass


def test_an_input_that_stands_where_dropped_rows_go_is_refused(tmp_path: Path) -> None:
    texts = tmp_path / "o.dropped.jsonl"
    with (
        pytest.raises(AdjudgeError, match="o.dropped.jsonl would be overwritten: name another output"),
        stage_run("the texts", texts, tmp_path / "o.jsonl", RunOptions(NOBODY)),
    ):
        pass


def test_a_file_that_the_run_reads_too_is_not_written_over(tmp_path: Path) -> None:
    texts, output, read = tmp_path / "t.jsonl", tmp_path / "o.jsonl", [tmp_path / "e.jsonl"]
    with (
        pytest.raises(AdjudgeError, match="e.jsonl is what is read: name another file"),
        stage_run("the texts", texts, read[0], RunOptions(NOBODY, "overwrite"), reads=read),
    ):
        pass
    for more in ({"reads": [tmp_path / "o.dropped.jsonl"]}, {"items": tmp_path / "o.dropped.jsonl"}):
        with (
            pytest.raises(AdjudgeError, match="o.dropped.jsonl would be overwritten: name another output"),
            stage_run("the texts", texts, output, RunOptions(NOBODY, "overwrite"), **more),  # type: ignore[arg-type]
        ):
            pass


def test_a_run_that_leaves_nothing_ends_with_where_it_went_and_what_may_help(tmp_path: Path) -> None:
    write_parts(tmp_path / "o.jsonl", [], [Passed("sieve", [], [Drop("sieve", "small", {"a": 0})])])
    with pytest.raises(AdjudgeError, match=r"nothing is left in .*o.jsonl: .*o.dropped.jsonl says why \(a lower --x\)"):
        check_left(tmp_path / "o.jsonl", [], "a lower --x")
    check_left(tmp_path / "o.jsonl", [1], "a lower --x")


def test_a_stage_that_was_answered_nothing_is_an_error_once_its_rows_are_written(tmp_path: Path) -> None:
    output, sieve = tmp_path / "o.jsonl", Passed("sieve", [{"a": 1}], [Drop("sieve", "small", {"a": 0})])
    for reasons in (["timeout"], ["cancelled", "unsupported"]):
        unanswered: Passed[Any] = Passed("write", [], [Drop("write", reason, {"a": 1}) for reason in reasons])
        with pytest.raises(AdjudgeError, match="nothing was answered: once the server answers"):
            write_parts(output, [], [sieve, unanswered])
        assert part_beside(output, "dropped").read_text().count("\n") == 1 + len(reasons)
    write_parts(output, [], [sieve, Passed("write", [], [*unanswered.dropped, Drop("write", "cut_short", {"a": 1})])])


def test_dropped_rows_stand_beside_those_that_were_kept_with_stage_and_reason(tmp_path: Path) -> None:
    output = tmp_path / "o.jsonl"
    write_parts(output, [{"a": 1}], [Passed("sieve", [{"a": 1}], [Drop("sieve", "small", {"a": 0})])])
    assert output.read_text() == '{"a":1}\n'
    assert part_beside(output, "rounds.csv").name == "o.rounds.csv"
    assert part_beside(output, "dropped").read_text() == '{"a":0,"dropped":{"stage":"sieve","reason":"small"}}\n'
