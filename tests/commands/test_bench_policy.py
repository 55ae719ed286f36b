"""`adjudge bench policy` as a user meets it."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from adjudge.bench.policy import texts as policy_texts
from adjudge.cli import app
from adjudge.commands.options.source import Source
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.rewards.engines.specification import EngineSpec
from adjudge.rewards.journal import Journal
from tests.engine.remote.peer import Peer, says
from tests.jsonl import read_lines, write_lines

pytestmark = pytest.mark.usefixtures("without_plots")

TINY, OTHER = "dummy:tiny-llama", "dummy:tiny-qwen3"
ROWS = [{"prompt": "one", "reference": "A human text."}, {"prompt": "two", "id": "second"}, {"prompt": "three"}]


def run(*command: Any) -> str:
    result = CliRunner().invoke(app, ["bench", "policy", *map(str, command)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def options(folder: Path, *more: Any) -> list[Any]:
    prompts = folder / "prompts.jsonl"
    write_lines(prompts, *ROWS)
    how = ["--judge-model", TINY, "--min-mass", 0, "--aspects", "coherence", "--samples", 2, "--max-tokens", 4]
    return ["--base", TINY, "--prompts", prompts, "-o", folder / "out", *how, *more]


def numbers(folder: Path) -> dict[tuple[str, str], dict[str, str]]:
    with (folder / "out" / "table.csv").open() as file:
        return {(row["policy"], row["of"]): row for row in csv.DictReader(file)}


def test_a_stopped_evaluation_goes_on_to_the_bytes_of_one_that_never_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("whole", "stopped"):
        (tmp_path / name).mkdir()
    said = run(OTHER, *options(tmp_path / "whole"))
    assert "control: dummy:tiny-llama against other texts of its own" in said and "human texts" in said

    left, keep = [5], Journal.put

    def put(self: Journal, *what: Any) -> bytes:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return keep(self, *what)

    monkeypatch.setattr(Journal, "put", put)
    stopped = CliRunner().invoke(app, ["bench", "policy", OTHER, *map(str, options(tmp_path / "stopped"))])
    assert stopped.exit_code == 130 and "5 texts and verdicts are kept" in stopped.output
    left[0] = 1000
    with pytest.raises(AdjudgeError, match="--resume continues that run"):
        run(OTHER, *options(tmp_path / "stopped"))
    run(OTHER, *options(tmp_path / "stopped", "--resume"))
    for name in ("texts.jsonl", "verdicts.jsonl", "table.csv"):
        assert (tmp_path / "stopped/out" / name).read_bytes() == (tmp_path / "whole/out" / name).read_bytes()
    texts = read_lines(tmp_path / "whole/out/texts.jsonl")
    assert len(texts) == 3 * (4 + 2) and {text["as"] for text in texts} == {"policy", "base"}
    assert {text["id"] for text in texts} == {"1", "second", "3"}
    verdicts = read_lines(tmp_path / "whole/out/verdicts.jsonl")
    assert len(verdicts) == 2 * (3 * 2 + 2)
    assert 1000 - left[0] + 5 == len(texts) + len({key for verdict in verdicts for key in verdict["keys"]})


def test_a_judge_that_answers_nothing_ends_the_run_with_an_error_and_judges_once_it_does(
    tmp_path: Path, tiny: Engine
) -> None:
    peer = Peer("adjudge", tiny)
    peer.script.extend([says(500)] * 9)
    how = [*options(tmp_path)[:6], "--aspects", "coherence", "--min-mass", 0, "--samples", 1, "--max-tokens", 4]
    how += ["--url", peer.url, "--retries", 0]
    try:
        with pytest.raises(AdjudgeError, match="nothing was answered: once the server answers"):
            run(OTHER, *how)
        peer.script.clear()
        run(OTHER, *how, "--resume")
    finally:
        peer.close()
    assert numbers(tmp_path)[OTHER, "wins over base"]["count"] == "3"


def test_a_server_is_asked_for_its_model_which_decides_the_judge_and_costs_no_earlier_run_where_it_is_not_there(
    tmp_path: Path, tiny: Engine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EngineSpec, "open", lambda spec: house)
    monkeypatch.setattr(Source, "open", lambda source: nullcontext(house))
    house = Engine(TINY, kv_cache_gb=0.01)
    house.name = "house"
    short = [
        *options(tmp_path)[:6],
        "--aspects",
        "wit=Is it funny?",
        "--min-mass",
        0,
        "--samples",
        1,
        "--max-tokens",
        4,
    ]
    said = run(OTHER, *short, "--url", "http://127.0.0.1:9/v1", "--limit", 1)
    assert 'house was not trained for the aspect "wit"' in said
    monkeypatch.undo()
    table = numbers(tmp_path)
    assert {row["judge"] for row in table.values()} == {"pointwise"}
    verdicts = (tmp_path / "out/verdicts.jsonl").read_bytes()
    for judge in ((), ("--judge", "pointwise")):
        with pytest.raises(AdjudgeError, match="127.0.0.1:9"):
            run(OTHER, *short, "--url", "http://127.0.0.1:9/v1", "--retries", 0, "--overwrite", *judge)
    with Journal(tmp_path / "out" / "policy.journal") as book:
        assert len(book)
    assert (tmp_path / "out/verdicts.jsonl").read_bytes() == verdicts


def test_table_and_plot_are_written_though_nobody_reads_what_is_printed(tmp_path: Path, unread: None) -> None:
    with pytest.raises(BrokenPipeError):
        run(OTHER, *options(tmp_path))
    assert (OTHER, "wins over base") in numbers(tmp_path)
    pytest.importorskip("matplotlib", reason="needs the extra report")
    assert (tmp_path / "out/wins.png").read_bytes().startswith(b"\x89PNG")


def test_a_journal_that_cannot_be_used_is_mended_by_another_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    journal, lock = out / "policy.journal", out / "policy.journal.lock"
    another = "name another folder with -o$"
    journal.mkdir()
    with pytest.raises(AdjudgeError, match=f"is a folder, and no journal: {another}"):
        run(OTHER, *options(tmp_path))
    journal.rmdir()
    lock.mkdir()
    with pytest.raises(AdjudgeError, match=f"as a journal .*: {another}"):
        run(OTHER, *options(tmp_path))
    lock.rmdir()
    journal.write_text("no journal")
    with pytest.raises(AdjudgeError, match=f"as a journal .*: {another}"):
        run(OTHER, *options(tmp_path))
    journal.unlink()
    (out / "texts.jsonl").write_text("{}\n")
    with pytest.raises(AdjudgeError, match="is empty: put its journal back there, or start again with --overwrite"):
        run(OTHER, *options(tmp_path, "--resume"))


def test_a_rows_own_system_turn_is_what_it_is_in_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def written(*systems: str, more: Sequence[str] = ()) -> list[list[str]]:
        monkeypatch.setattr(f"{__name__}.ROWS", [{"prompt": "one", "system": system} for system in systems])
        run(OTHER, *options(tmp_path, "--judge", "pointwise", "--overwrite", *more))
        texts = read_lines(tmp_path / "out/texts.jsonl")
        return [[text["text"] for text in texts if text["id"] == str(n + 1)] for n in range(len(systems))]

    own, none, broken = written("Be brief.", "", "Be \ud800.")
    [told] = written("", more=("--system", "Be brief."))
    plain = [written(system, more=("--no-chat",))[0] for system in ("Be long.", "")]
    [off] = written("Be brief.", more=("--system", ""))
    assert own == told != none == off and plain[0] == plain[1] != none != broken


def test_a_conversation_is_gone_on_with_as_in_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def turns(*said: str) -> list[dict[str, str]]:
        return [dict(zip(("role", "content"), one.split(": "), strict=True)) for one in said]

    asked, chat = list[list[tuple[str, str]]](), EngineFace.chat

    def note(self: Any, messages: Any, answer: str = "") -> Any:
        asked.append([(one.role, one.content.segments[0].text) for one in messages])
        return chat(self, messages, answer)

    monkeypatch.setattr(EngineFace, "chat", note)
    written = []
    talk = "user: Who?", "assistant: A poet.", "user: Sing."
    for rows in (
        [{"prompt": "one", "system": "Be brief."}],
        [{"prompt": turns("system: Be brief.", "user: one")}],
        [{"prompt": turns(*talk)}, {"prompt": "\n\n".join(talk)}],  # the second may be what somebody wrote
        [{"prompt": turns("user: Who?", "user: A poet.", "user: Sing.")}],
    ):
        monkeypatch.setattr(f"{__name__}.ROWS", rows)
        folder = tmp_path / str(len(written))
        folder.mkdir()
        run(OTHER, *options(folder, "--judge", "pointwise"))
        written.append([(text["prompt"], text["text"]) for text in read_lines(folder / "out/texts.jsonl")])
    assert written[0] == written[1] and len(set(written[2]) | set(written[3])) > 12
    assert written[2][0][0] == "\n\n".join(talk)
    assert [("user", "Who?"), ("assistant", "A poet."), ("user", "Sing.")] in asked
    for row, said, *more in (
        (turns("user: Who?"), "is a conversation, and policies are asked without chat: make it a text", "--no-chat"),
        (turns("user: Who?", "assistant: I."), "has the turns user, assistant: give those of user and assistant"),
    ):
        monkeypatch.setattr(f"{__name__}.ROWS", [{"prompt": row}])
        with pytest.raises(AdjudgeError, match=f'line 1 of prompts.jsonl: "prompt" {said}'):
            run(OTHER, *options(tmp_path, *more))


def test_a_finished_one_opens_no_policy_again_and_takes_more_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(TINY, *options(tmp_path, "--judge", "pointwise"))
    before = numbers(tmp_path)
    opened: list[str] = []
    open_engine = policy_texts.Writer._opened

    def note(self: policy_texts.Writer) -> Any:
        opened.append(self.policy.name)
        return open_engine(self)

    monkeypatch.setattr(policy_texts.Writer, "_opened", note)
    run(TINY, OTHER, *options(tmp_path, "--judge", "pointwise", "--resume"))
    assert opened == [OTHER]
    after = numbers(tmp_path)
    assert before.items() <= after.items() and (OTHER, "wins over base") in after
    assert {(TINY, "coherence"), (TINY, "words"), ("human texts", "coherence")} <= after.keys()
    assert after[TINY, "wins over base"]["count"] == "6" and after[TINY, "wins over human"]["count"] == "2"


def test_rows_that_share_a_prompt_are_written_to_and_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = [{"prompt": "one", "reference": f"A human text, {n}."} for n in range(3)]
    monkeypatch.setattr(f"{__name__}.ROWS", [*shared, {"prompt": "two"}])
    asked: list[int] = []
    answers = policy_texts.Writer._answers

    def count(self: policy_texts.Writer, openings: Any, missing: Any) -> Any:
        asked.append(len(missing))
        return answers(self, openings, missing)

    monkeypatch.setattr(policy_texts.Writer, "_answers", count)
    run(OTHER, *options(tmp_path, "--judge", "pointwise"))
    assert asked == [2 * 4, 2 * 2]  # the base's, twice as many samples, and the policy's
    texts = [text for text in read_lines(tmp_path / "out/texts.jsonl") if text["policy"] == OTHER]
    assert len(texts) == 4 * 2 and len({(text["prompt"], text["sample"], text["text"]) for text in texts}) == 4
    assert {numbers(tmp_path)[OTHER, of]["count"] for of in ("words", "ends by itself")} == {"4"}


def test_a_row_that_comes_again_is_left_out_before_anybody_writes_to_it_and_the_others_keep_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = {"prompt": "one", "reference": "A human text."}
    talk = [{"role": role, "content": role} for role in ("user", "assistant", "user")]
    again = [{"prompt": talk}, {"prompt": talk, "id": "again"}]
    monkeypatch.setattr(f"{__name__}.ROWS", [one, {**one, "id": "again"}, one, {"prompt": "two"}, *again, one])
    wanted: list[int] = []
    write = policy_texts.Writer.write

    def count(self: policy_texts.Writer, openings: Any, samples: Any, written: Any) -> Any:
        wanted.append(len(openings) * len(samples))
        return write(self, openings, samples, written)

    monkeypatch.setattr(policy_texts.Writer, "write", count)
    assert "4 rows left out: the same as an earlier one" in run(OTHER, *options(tmp_path))
    texts = read_lines(tmp_path / "out/texts.jsonl")
    assert wanted == [3 * 4, 3 * 2] and len(texts) == sum(wanted)
    assert {text["id"] for text in texts} == {"1", "4", "5"}
    verdicts = read_lines(tmp_path / "out/verdicts.jsonl")
    assert [{one["id"] for one in verdicts if one["against"] == who} for who in ("base", "human")] == [
        {"1", "4", "5"}, {"1"}
    ]  # fmt: skip


def test_at_temperature_0_a_model_ties_with_itself(tmp_path: Path) -> None:
    run(TINY, *options(tmp_path, "--temperature", 0))
    wins = numbers(tmp_path)[TINY, "wins over base"]
    assert (wins["mean"], wins["tied"], wins["won"]) == ("0.5", "6", "0")


OWN = """
from adjudge import OwnJudge, PointwisePairJudge, RubricJudge

class Funny(OwnJudge):
    reads = ("genre",)

    def questions(self, item):
        return [self.question("wit", f"A funny {item.genre}? {{text}}", ["1", "2"], "Grade: ", text=item.response)]

class Pairs(PointwisePairJudge):
    pass

class Graded(RubricJudge):
    pass
"""


def test_a_judge_of_ones_own_compares_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    Path("own_policies.py").write_text(OWN)
    monkeypatch.setattr(f"{__name__}.ROWS", [{"prompt": "one", "genre": "tale"}])
    how = options(tmp_path)
    run(OTHER, *how, "--judge", "pointwise")
    usual = numbers(tmp_path)[OTHER, "wins over base"]
    run(OTHER, *how, "--judge", "own_policies:Pairs", "--overwrite")
    wins = numbers(tmp_path)[OTHER, "wins over base"]
    assert wins["judge"] == "own_policies:Pairs" and wins["count"] == usual["count"] == "2"
    alone = [one for one in how if one not in ("--aspects", "coherence")]
    run(OTHER, *alone, "--judge", "own_policies:Funny", "--overwrite")
    verdicts = read_lines(tmp_path / "out/verdicts.jsonl")
    assert {tuple(verdict["scores"]) for verdict in verdicts} == {("wit",)}  # type: ignore[arg-type]
    for judge, message in {
        "own_policies:Graded": 'line 1 of prompts.jsonl: "rubric" is missing, and the judge has none',
        "own_policies:Absent": "own_policies has no Absent",
        "personal": "choose pairwise, pointwise, .*, scalar, or write package.module:name for one of your own",
    }.items():
        with pytest.raises(AdjudgeError, match=message):
            run(OTHER, *alone, "--judge", judge, "--overwrite")
    assert read_lines(tmp_path / "out/verdicts.jsonl") == verdicts


def test_mistakes_are_found_before_any_model_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_texts.Writer, "write", lambda *_: pytest.fail("a policy wrote"))
    with pytest.raises(AdjudgeError, match='line 1 of prompts.jsonl: "rubric" is missing'):
        run(TINY, *options(tmp_path)[:6], "--judge", "rubric")
    with pytest.raises(AdjudgeError, match="name what to compare them with by --base"):
        run(TINY, *options(tmp_path)[2:])
    with pytest.raises(AdjudgeError, match="there is no model 'typo-model'"):
        run(TINY, "typo-model", *options(tmp_path))
    with pytest.raises(AdjudgeError, match="there is no model 'no-judge'"):
        run(TINY, *options(tmp_path, "--judge-model", "no-judge"))
    assert not (tmp_path / "out").exists()  # so that the mended command is no second run
    wrong = {'"prompt" is missing': {"text": "no prompt"}, '"reference" is 5, not': {"prompt": "p", "reference": 5}}
    for said, row in wrong.items():
        (tmp_path / "prompts.jsonl").write_text(json.dumps(row) + "\n")
        with pytest.raises(AdjudgeError, match=said):
            run(TINY, "--base", TINY, "--prompts", tmp_path / "prompts.jsonl", "-o", tmp_path / "out")


def test_mistakes_of_the_judge_are_found_before_anything_is_written_and_cost_no_earlier_run(tmp_path: Path) -> None:
    with pytest.raises(AdjudgeError, match="min_mass is 2"):
        run(OTHER, *options(tmp_path, "--min-mass", 2))
    assert not (tmp_path / "out" / "texts.jsonl").exists()
    run(OTHER, *options(tmp_path))
    before = (tmp_path / "out" / "texts.jsonl").read_bytes()
    with pytest.raises(AdjudgeError, match="min_mass is 2"):
        run(OTHER, *options(tmp_path, "--overwrite", "--min-mass", 2))
    with Journal(tmp_path / "out" / "policy.journal") as book:
        assert len(book) > 20
    assert (tmp_path / "out" / "texts.jsonl").read_bytes() == before


def test_prompts_are_not_written_over_and_any_seed_draws(tmp_path: Path) -> None:
    how = options(tmp_path, "--seed", -3)
    texts = tmp_path / "out" / "texts.jsonl"
    texts.parent.mkdir()
    texts.write_text((tmp_path / "prompts.jsonl").read_text())
    with pytest.raises(AdjudgeError, match=r"texts\.jsonl is what is read: name another"):
        run(OTHER, *how, "--prompts", texts)
    with pytest.raises(AdjudgeError, match=r"texts\.jsonl exists"):
        run(OTHER, *how)
    texts.unlink()
    run(OTHER, *how)
    assert (tmp_path / "out" / "table.csv").exists()
