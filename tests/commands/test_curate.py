"""`adjudge curate` as a user meets it, in this process, with a tiny model of random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.training.curate.search import Round, Search
from tests.cli.driving import DEBATING
from tests.engine.remote.peer import Peer, says
from tests.jsonl import read_lines, write_lines

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    write_lines(
        "t.jsonl",
        *({"prompt": "A greeting", "response": f"Hello {n}", "label": n % 2, "id": f"g{n}"} for n in range(4)),
    )
    write_lines("good.jsonl", {"prompt": "A wish", "response": "Sleep well."})
    return lambda *arguments: CliRunner().invoke(app, ["curate", "pairs", "t.jsonl", *arguments])


def test_pairs_come_with_every_verdict_every_drop_and_the_numbers(run: Run) -> None:
    result = run("--examples", "good.jsonl", "-o", "p.jsonl", *DEBATING)
    assert "nothing is left in p.jsonl: p.dropped.jsonl says why (--by scores pairs" in str(result.exception)
    [summary] = read_lines("p.summary.json")
    verdicts, dropped, pairs = read_lines("p.verdicts.jsonl"), read_lines("p.dropped.jsonl"), read_lines("p.jsonl")
    assert [verdict["id"] for verdict in verdicts] == ["g0", "g1", "g2", "g3"]
    assert len(dropped) + len({pair[name] for pair in pairs for name in ("chosen_id", "rejected_id")}) == 4
    assert [stage["stage"] for stage in summary["stages"]] == ["debate", "texts", "rulings", "pairs"]
    assert summary["agreement"]["judged"] == 4 and summary["pairs"] == len(pairs)
    assert pairs == [] and all(drop["dropped"]["reason"] in ("all_good", "all_bad") for drop in dropped)
    assert "4 labels compared" in result.stdout and "excellence rate" in result.stdout
    again = run("--examples", "good.jsonl", "-o", "p.jsonl", "--resume", "--by", "scores", *DEBATING)
    assert read_lines("p.verdicts.jsonl") == verdicts and "says why (texts that differ more," in str(again.exception)
    assert [drop["dropped"]["reason"] for drop in read_lines("p.dropped.jsonl")] == ["all_even"] * 4


def test_the_better_text_of_a_prompt_is_paired_with_the_worse(run: Run) -> None:
    texts = ("Hello there, friend. " * (1 + 7 * n) + "xyz" * n for n in range(4))
    write_lines("t.jsonl", *({"prompt": "A greeting", "response": text, "id": f"g{n}"} for n, text in enumerate(texts)))
    result = run("--by", "scores", "--without", "positive,negative,reflect", "-o", "p.jsonl", *DEBATING)
    assert result.exit_code == 0, result.output
    [pair] = read_lines("p.jsonl")
    scores = {verdict["id"]: verdict["score"] for verdict in read_lines("p.verdicts.jsonl")}
    assert scores[pair["chosen_id"]] == max(scores.values()) > min(scores.values()) == scores[pair["rejected_id"]]


def test_where_every_text_abstained_no_way_of_pairing_them_is_advised(run: Run) -> None:
    result = run(*DEBATING, "--max-tokens", "1", "--attempts", "1")
    said = str(result.exception)
    assert isinstance(result.exception, AdjudgeError) and "dropped.jsonl says why (more --max-tokens or" in said
    assert "debate" in result.stdout and "--by scores" not in said


def test_where_no_text_was_answered_the_run_ends_with_an_error(run: Run) -> None:
    peer = Peer("adjudge", Engine("dummy:tiny-mistral", kv_cache_gb=0.05))
    peer.script.extend([says(500)] * 99)
    try:
        result = run("--url", peer.url, "--retries", "0", *DEBATING[2:])
    finally:
        peer.close()
    assert "nothing was answered" in str(result.exception)


def test_examples_that_a_server_does_not_embed_now_are_to_be_tried_again(run: Run) -> None:
    peer = Peer("adjudge", Engine("dummy:tiny-mistral", kv_cache_gb=0.05))
    peer.script.extend([says(500)] * 99)
    try:
        result = run("--examples", "good.jsonl", "--url", peer.url, "--retries", "0", *DEBATING[2:])
        assert "(timeout): try again once the server answers" in str(result.exception)
        peer.script.clear()
        result = run("--examples", "good.jsonl", "--url", peer.url, *DEBATING[2:])
        assert "4 rulings" in result.stdout and "--by scores" in str(result.exception)
    finally:
        peer.close()


def test_labels_of_one_class_are_warned_of(run: Run) -> None:
    write_lines("t.jsonl", *({"prompt": "A greeting", "response": f"Hello {n}", "label": 1} for n in range(2)))
    result = run("--without", "positive,negative,reflect", *DEBATING)
    assert "every label is 1" in result.stdout and Path("t.pairs.jsonl").is_file()
    assert "nothing is left in t.pairs.jsonl" in str(result.exception)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--without", "critic"), 'no agent "critic"'),
        (("--margin", "0.6"), "the margin is 0.6"),
        (("--k", "2"), "add --examples"),
        (("--plot", "p.txt"), "is no picture"),
        (("--examples", "none.jsonl"), "cannot read none"),
    ],
)
def test_mistakes_are_found_before_a_model_is_looked_for(run: Run, options: tuple[str, ...], reason: str) -> None:
    result = run(*options, "--model", "no/such-model")
    assert isinstance(result.exception, AdjudgeError)
    assert reason in str(result.exception)


def test_a_file_that_breaks_off_is_refused(run: Run) -> None:
    text = Path("t.jsonl").read_text()
    Path("t.jsonl").write_text(text[:-5])
    result = run(*DEBATING)
    assert isinstance(result.exception, AdjudgeError) and "breaks off" in str(result.exception)


# ---- principles

SMALL = ("--rounds", "1", "--written", "1", "--looked-at", "2", "--held-out", "0.5", "--max-tokens", "48")


@pytest.fixture
def search(run: Run) -> Run:
    rows = [{"prompt": f"Greeting {n}", "response": f"Hello {n}", "label": n % 2} for n in range(4)]
    write_lines("l.jsonl", *rows)
    Path("p.txt").write_text("Be kind.\n")
    return lambda *arguments: CliRunner().invoke(app, ["curate", "principles", "l.jsonl", *arguments])


def test_columns_may_go_by_names_of_the_users(run: Run, search: Run) -> None:
    columns = {"prompt": "question", "response": "answer", "label": "good"}
    for file in ("t.jsonl", "l.jsonl"):
        write_lines(file, *({columns.get(name, name): row[name] for name in row} for row in read_lines(file)))
    assert "--columns prompt=NAME takes one of another name" in str(run(*DEBATING).exception)
    said = str(run(*DEBATING, "--columns", "prompt=ask").exception)
    assert '"ask" is missing (--columns takes it as prompt)' in said and "ask=NAME" not in said
    named = ("--columns", ",".join(map("=".join, columns.items())))
    run(*named, "--without", "positive,negative,reflect", "-o", "p.jsonl", *DEBATING)
    assert [verdict["label"] for verdict in read_lines("p.verdicts.jsonl")] == [0, 1, 0, 1]
    assert "is to hold principles" in str(search(*named, "-o", "p.jsonl").exception)  # once the rows are read


def test_a_search_leaves_principles_that_a_judge_reads_and_a_line_for_each_round(search: Run) -> None:
    arguments = ("-o", "found.toml", "--principles", "p.txt", *DEBATING[:4], *SMALL)
    result = search(*arguments)
    assert result.exit_code == 0, result.output
    [texts] = [line for line in result.stdout.splitlines() if line.startswith("texts: ")]
    assert int(texts.split()[1]) > int(texts.split()[3]) > 0  # of a model that writes mostly what cannot be read
    rounds = read_lines("found.rounds.jsonl")
    assert [one["number"] for one in rounds] == [0, 1] and rounds[0]["principles"] == ["Be kind."]
    assert {"accuracy", "precision", "recall", "f1", "strategy", "held_out"} <= rounds[1].keys()
    assert all("reason" in drop["dropped"] for drop in read_lines("found.dropped.jsonl"))
    judged = CliRunner().invoke(
        app, ["judge", "l.jsonl", "--judge", "principle", "--principles", "found.toml", *DEBATING[:4]]
    )
    assert judged.exit_code == 0, judged.output
    before = Path("found.toml").read_text()
    again = search(*arguments, "--resume")
    assert again.exit_code == 0, again.output
    assert read_lines("found.rounds.jsonl") == rounds and Path("found.toml").read_text() == before


def test_a_search_that_was_not_answered_ends_with_an_error_and_leaves_no_principles(search: Run) -> None:
    peer = Peer("adjudge", Engine("dummy:tiny-mistral", kv_cache_gb=0.05))
    peer.script.extend([says(500)] * 99)
    try:
        result = search("-o", "found.toml", "--principles", "p.txt", "--url", peer.url, "--retries", "0", *SMALL)
    finally:
        peer.close()
    assert "nothing was answered" in str(result.exception) and not Path("found.toml").exists()


def test_a_search_whose_server_dies_in_a_later_round_ends_with_an_error_and_goes_on(
    search: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, search_round = Peer("adjudge", Engine("dummy:tiny-mistral", kv_cache_gb=0.05)), Search._round

    def dies(self: Search, number: int, before: Round) -> Round:
        peer.script.extend([says(500)] * 99)
        return search_round(self, number, before)

    asked = ("-o", "found.toml", "--principles", "p.txt", "--url", peer.url, "--retries", "0", *SMALL)
    try:
        with monkeypatch.context() as patch, pytest.raises(AdjudgeError, match="nothing was answered: once the server"):
            patch.setattr(Search, "_round", dies)
            raise search(*asked).exception  # type: ignore[misc]
        assert [one["number"] for one in read_lines("found.rounds.jsonl")] == [0]
        peer.script.clear()
        result = search(*asked, "--resume")
        assert result.exit_code == 0, result.output
    finally:
        peer.close()
    assert [one["number"] for one in read_lines("found.rounds.jsonl")] == [0, 1]


def test_a_search_in_which_the_judge_abstains_on_all_texts_held_out_says_so(search: Run) -> None:
    result = search("-o", "found.toml", "--principles", "p.txt", *DEBATING[:4], "--min-mass", "1", *SMALL)
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "abstained on 2 of 2 held out" in words and "no round could be measured: the judge abstained" in words


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--without", "judge"), 'no agent to leave out of the search is called "judge": choose reflect'),
        (("-o", "p.jsonl"), "name a .toml"),
        (("--held-out", "1.5"), "the share held out is 1.5"),
        (("--held-out", "0.1"), "no good texts held out"),
        (("--language", "xx"), 'no principles in language "xx"'),
        (("--language", "xx", "--principles", "p.txt"), 'language "xx"'),
        (("--principles", "none.txt"), "cannot read none.txt"),
        (("--plot", "p.txt"), "is no picture"),
    ],
)
def test_mistakes_of_a_search_are_found_before_a_model_is_looked_for(
    search: Run, options: tuple[str, ...], reason: str
) -> None:
    result = search(*options, "--model", "no/such-model")
    assert isinstance(result.exception, AdjudgeError)
    assert reason in str(result.exception)
