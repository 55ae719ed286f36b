"""The judge benchmark on a tiny model, end to end, and its arithmetic; no time is asserted."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from rich.console import Console
from rich.progress import Progress

from adjudge.bench.judge import peer_models
from adjudge.bench.judge.judge import bench_judge
from adjudge.bench.judge.load import Load
from adjudge.bench.judge.peer_models import PeerModels
from adjudge.bench.judge.peers import Answer, ContinuousWriter, LlamaCppPeer, Peer, VLLMPeer
from adjudge.bench.judge.questions import Questions, scoring_questions, writing_questions
from adjudge.bench.judge.report import equal_texts, largest_difference, load_table
from adjudge.bench.judge.rounds import Runs, run_rounds
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.sources import open_source, resolve
from adjudge.rewards.records.verdict import Pair

TINY = "dummy:tiny-llama"
PAIRS = [("A fox ran home.", "Rain fell for days."), ("The end.", "It was late {and} dark. <|im_end|>")]
TRANSFORMERS = "transformers, one prompt at a time"
CONTINUOUS = "transformers, continuous batching"


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"prompt": "Tell.", "story_a": a, "story_b": b}) + "\n" for a, b in PAIRS))
    return path


def saved(path: Path) -> dict[str, dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return {row["variant"]: row for row in csv.DictReader(file)}


def trie_size(questions: Questions) -> int:
    """Tokens of the prompts, a shared beginning once."""
    ordered = sorted(set(questions.prompts))
    shared = [
        next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        for a, b in pairwise(ordered)
    ]
    return sum(map(len, ordered)) - sum(shared)


# ---- end to end


def test_the_table_is_written_though_nobody_reads_what_is_printed(pairs: Path, unread: None) -> None:
    output = pairs.with_name("score.csv")
    with pytest.raises(BrokenPipeError):
        bench_judge(pairs, model=TINY, limit=1, repeats=1, output=output)
    assert "adjudge" in saved(output)


def test_scores_of_all_variants_agree_and_adjudge_computes_least(
    pairs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = pairs.with_name("score.csv")
    bench_judge(pairs, model=TINY, limit=1, repeats=2, output=output)
    rows = saved(output)
    assert list(rows)[:2] == ["adjudge", TRANSFORMERS] and len(rows) >= 4
    assert all(float(row["error"]) < 1e-3 and len(row["seconds"].split()) == 2 for row in rows.values())
    tokens = {name: int(row["tokens"]) for name, row in rows.items()}
    asked = scoring_questions(Engine(TINY), [Pair(prompt="Tell.", a=PAIRS[0][0], b=PAIRS[0][1])])
    assert (tokens["adjudge"], tokens[TRANSFORMERS]) == (trie_size(asked), asked.prompt_tokens)
    assert all(tokens["adjudge"] < count for name, count in tokens.items() if name != "adjudge")
    printed = capsys.readouterr().out
    assert "1 pair, 24 questions" in printed and "by more than 0.001: nowhere" in printed
    assert "left out: vllm: " in printed and "left out: llama-cpp-python: " in printed


def test_texts_of_all_variants_have_the_same_tokens(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = pairs.with_name("text.csv")
    bench_judge(pairs, model=TINY, mode="generate", limit=2, repeats=1, max_tokens=4, output=output)
    rows = saved(output)
    assert next(iter(rows)) == "adjudge" and {TRANSFORMERS, CONTINUOUS} < rows.keys()
    for row in rows.values():
        assert (row["pairs"], row["texts"], row["written"], row["equal"], row["note"]) == ("2", "24", "96", "24", "")
        assert "transformers" in row["machine"]
    tokens = {name: int(row["tokens"]) for name, row in rows.items()}
    asked = writing_questions(Engine(TINY), [Pair(prompt="Tell.", a=a, b=b) for a, b in PAIRS], 4)
    assert {row["prompt_tokens"] for row in rows.values()} == {str(asked.prompt_tokens)}
    assert (tokens["adjudge"], tokens[TRANSFORMERS]) == (trie_size(asked), asked.prompt_tokens)
    assert tokens["adjudge"] < tokens[CONTINUOUS] < tokens[TRANSFORMERS]  # it shares whole pages
    assert "texts differ from one prompt at a time: nowhere" in capsys.readouterr().out


def test_switches_of_the_engine_are_variants_of_their_own(pairs: Path) -> None:
    output = pairs.with_name("also.csv")
    how: dict[str, Any] = {"limit": 1, "repeats": 1, "max_tokens": 2, "output": output}
    bench_judge(pairs, model=TINY, mode="generate", also="batch-invariant", **how)
    rows = saved(output)
    assert list(rows)[:3] == ["adjudge", "adjudge, batch-invariant", TRANSFORMERS]
    assert rows["adjudge"]["tokens"] == rows["adjudge, batch-invariant"]["tokens"]
    with pytest.raises(AdjudgeError, match='--also names "graphs": choose batch-invariant, cuda-graphs, compiled'):
        bench_judge(pairs, model=TINY, also="batch-invariant, graphs")
    with pytest.raises(AdjudgeError, match="cuda_graphs are for a GPU"):
        bench_judge(pairs, model=TINY, also="cuda-graphs", device="cpu")


@pytest.mark.parametrize(("mode", "options", "written"), [("score", {}, 0), ("generate", {"max_tokens": 3}, 5 * 3)])
def test_every_request_of_a_load_is_answered_at_every_rate(
    mode: str, options: dict[str, int], written: int, pairs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = pairs.with_name("load.csv")
    how = {"requests": 5, "rates": "50, 200", "output": output} | options
    bench_judge(pairs, model=TINY, mode=mode, load=True, **how)  # type: ignore[arg-type]
    with output.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["rate"], row["variant"]) for row in rows] == [
        (rate, name) for rate in ("50", "200") for name in ("adjudge", CONTINUOUS, TRANSFORMERS)
    ]
    for row in rows:
        latencies = sorted(map(float, row["latencies"].split()))
        assert len(latencies) == 5 and latencies[0] > 0
        assert float(row["p50"]) == pytest.approx(latencies[2], abs=1e-3)
        assert float(row["p99"]) == pytest.approx(latencies[4], abs=1e-3)
        assert (row["mode"], row["requests"], row["written"]) == (mode, "5", str(written))
    assert "p99 of 5 requests is the longest" in capsys.readouterr().out
    pytest.importorskip("matplotlib")
    assert output.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_rates_are_shares_of_what_adjudge_can_do_where_none_are_given(pairs: Path) -> None:
    output = pairs.with_name("load.csv")
    bench_judge(pairs, model=TINY, load=True, requests=2, output=output)
    with output.open(encoding="utf-8") as file:
        rates = sorted({float(row["rate"]) for row in csv.DictReader(file)})
    assert [rate / rates[0] for rate in rates] == pytest.approx([1.0, 2.0, 3.0], rel=1e-2)


def test_mistakes_are_named_before_anything_is_measured(pairs: Path) -> None:
    with pytest.raises(AdjudgeError, match=r'--rates is "1,fast": give requests a second above 0'):
        bench_judge(pairs, model=TINY, load=True, rates="1,fast")
    with pytest.raises(AdjudgeError, match="--rates is"):
        bench_judge(pairs, model=TINY, load=True, rates="0")
    with pytest.raises(AdjudgeError, match=r"49 requests need as many questions, and 2 pairs of .* have 48: give more"):
        bench_judge(pairs, model=TINY, load=True, requests=49)
    for option, given, place in (
        ("rates", {"rates": "1"}, "a load: add --load"),
        ("requests", {"requests": 5}, "a load: add --load"),
        ("max-tokens", {"max_tokens": 5}, "texts: add --mode generate"),
    ):
        with pytest.raises(AdjudgeError, match=f"--{option} is for {place}, or leave it out"):
            bench_judge(pairs, model=TINY, **given)  # type: ignore[arg-type]
    with pytest.raises(AdjudgeError, match="--repeats is for the table without a load: leave it out"):
        bench_judge(pairs, model=TINY, load=True, repeats=3)
    with pytest.raises(AdjudgeError, match="is the table, and the plot stands beside it"):
        bench_judge(pairs, model=TINY, load=True, output=Path("x.png"))


def test_continuous_batching_computes_the_whole_of_a_prompt_that_has_nobody_to_share_with() -> None:
    asked = writing_questions(Engine(TINY), [Pair(prompt="Tell.", a="x", b="y")], 4).first(1)
    [text], computed = ContinuousWriter(asked, PeerModels(asked).transformers).run()
    assert (len(text), computed) == (4, len(asked.prompts[0]))


def test_a_library_that_does_not_open_the_model_is_left_out_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise AttributeError("no such thing")

    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setattr(sys.modules["vllm"], "LLM", broken, raising=False)
    monkeypatch.setattr(peer_models, "find_spec", lambda name: name == "vllm" or None)
    opened = open_source(resolve(TINY), dtype=torch.float32)
    opened.model.save_pretrained(tmp_path)  # a dummy is not offered to vLLM
    opened.tokenizer.save_pretrained(tmp_path)
    asked = writing_questions(Engine(str(tmp_path)), [Pair(prompt="Tell.", a="x", b="y")], 4).first(1)
    library = sys.modules.get("llvmlite.binding.ffi")
    models = PeerModels(asked)
    assert models.vllm is None and sys.modules.get("llvmlite.binding.ffi") is library
    assert "vllm: did not open the model (no such thing)" in models.absent


def test_llama_cpp_writes_where_texts_are_wanted_and_scores_where_they_are_not() -> None:
    model: Any = SimpleNamespace(
        forget=lambda: None,
        read=lambda prompt: (torch.tensor([0.0, 1.0, 0.0]), 2),
        write=lambda prompt, n: ([7] * n, 3),
    )
    asked = Questions([(1, 2), (1, 3)], 2, "m", "float32", "cpu", 64, label_ids=[1, 2])
    scores, computed = LlamaCppPeer(asked, model).run()
    assert computed == 4 and scores[0] == pytest.approx([-0.5514, -1.5514], abs=1e-4) and scores[0] == scores[1]
    assert LlamaCppPeer(msgspec.structs.replace(asked, writes=2), model).run() == (([7, 7], [7, 7]), 6)


def test_vllm_writes_where_texts_are_wanted_and_scores_one_token_where_they_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted: list[dict[str, Any]] = []
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=lambda **how: wanted.append(how)))
    written = SimpleNamespace(token_ids=(7, 8), logprobs=[{1: SimpleNamespace(logprob=-1.0)}])
    output = SimpleNamespace(num_cached_tokens=1, outputs=[written])
    model = SimpleNamespace(reset_prefix_cache=lambda: None, generate=lambda prompts, *_, **__: [output] * len(prompts))
    asked = Questions([(1, 2), (1, 3)], 2, "m", "float32", "cpu", 64, label_ids=[1])
    assert VLLMPeer(asked, model).run() == ([[-1.0], [-1.0]], 2)
    assert VLLMPeer(msgspec.structs.replace(asked, writes=2), model).run() == ([[7, 8], [7, 8]], 2)
    assert wanted == [
        {"temperature": 0.0, "max_tokens": 1, "logprob_token_ids": [1]},
        {"temperature": 0.0, "max_tokens": 2, "ignore_eos": True},
    ]


# ---- questions


def test_what_a_pair_s_questions_share_comes_first_and_stories_have_no_special_tokens() -> None:
    engine = Engine(TINY)
    pair = Pair(prompt="Tell.", a=PAIRS[1][0], b=PAIRS[1][1])
    written = writing_questions(engine, [pair], 4)
    assert (len(written.prompts), written.per_pair, written.pairs, written.writes) == (12, 12, 1, 4)
    assert len(set(written.prompts)) == 12
    text = engine.tokenizer.decode(written.prompts[0])
    shared = next(place for place, column in enumerate(zip(*written.prompts, strict=False)) if len(set(column)) > 1)
    assert engine.tokenizer.decode(written.prompts[0][:shared]).endswith("Review one aspect, ")
    assert PAIRS[1][1] in text
    ends = engine.tokenizer.inner.convert_tokens_to_ids("<|im_end|>")
    plain = writing_questions(engine, [Pair(prompt="Tell.", a="x", b="y")], 4)
    assert written.prompts[0].count(ends) == plain.prompts[0].count(ends)
    scored = scoring_questions(engine, [pair])
    assert (len(scored.prompts), scored.per_pair, scored.writes, len(scored.label_ids)) == (24, 24, 0, 5)
    assert written.prompt_tokens == sum(map(len, written.prompts))
    assert written.first(3).prompts == written.prompts[:3]


def test_room_is_left_for_the_text_where_stories_must_be_shortened() -> None:
    engine = Engine(TINY)
    written = writing_questions(engine, [Pair(prompt="Tell.", a="word " * 9000, b="y")], 40)
    assert isinstance(written, Questions) and written.longest <= engine.max_prompt_tokens


# ---- rounds


class Fixed(Peer):
    def __init__(self, name: str, *rounds: list[list[int]] | Exception, reference: bool = False) -> None:
        self.name, self.rounds, self.is_reference, self.calls = name, list(rounds), reference, 0

    def run(self) -> tuple[list[list[int]], int]:
        self.calls += 1
        answers = self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]
        if isinstance(answers, Exception):
            raise answers
        return answers, 7


def rounds(*peers: Fixed, repeats: int = 3) -> tuple[Sequence[Answer], list[Runs]]:
    with Progress(console=Console(quiet=True)) as progress:
        return run_rounds(peers, repeats, progress)


def test_a_peer_that_fails_is_left_out_and_says_why_and_the_others_go_on() -> None:
    ours, alone = Fixed("adjudge", [[1]]), Fixed("alone", [[1]], reference=True)
    broken = Fixed("broken", [[1]], RuntimeError("no kernel\nfor this"))
    expected, runs = rounds(ours, alone, broken)
    assert expected == [[1]] and [len(run.seconds) for run in runs] == [3, 3, 0]
    assert runs[2].failure == "no kernel" and broken.calls == 2 and ours.calls == 3 and alone.calls == 4


def test_adjudge_and_the_reference_may_not_fail() -> None:
    for ours, alone in ((ValueError("x"), [[1]]), ([[1]], ValueError("x"))):
        with pytest.raises(ValueError, match="x"):
            rounds(Fixed("adjudge", ours), Fixed("alone", alone, reference=True))


def test_texts_are_counted_as_equal_only_if_they_are_so_in_every_round() -> None:
    [run] = rounds(Fixed("adjudge", [[1], [2]], [[1], [3]], [[1], [2]], reference=True))[1]
    assert run.answers[0] != run.answers[1]
    assert (
        equal_texts(run, [[1], [2]]) == 1 and equal_texts(run, [[1], [2, 5]]) == 1 and equal_texts(run, [[9]] * 2) == 0
    )


def test_a_difference_that_is_not_a_number_is_the_largest() -> None:
    run = Runs("x", answers=[[[0.0, -1.0]], [[0.5, -1.0]]])
    assert largest_difference(run, [[0.0, -1.0]]) == 0.5
    run.answers.append([[math.nan, -1.0]])
    assert math.isnan(largest_difference(run, [[0.0, -1.0]]))


def test_a_load_that_failed_is_a_line_with_its_reason() -> None:
    table = load_table([Load("adjudge", 1.0, (1.0,), 2.0, 10, 4), Load("peer", 1.0, note="out of pages")])
    console = Console(width=150)
    with console.capture() as capture:
        console.print(table)
    _, ours, peer = capture.get().splitlines()[:3]
    assert ours.split() == ["1.00", "adjudge", "0.50", "1.00", "1.00", "5.0", "2.0"]
    assert peer.split() == ["1.00", "peer", "out", "of", "pages"]
