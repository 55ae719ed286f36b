from __future__ import annotations

import csv
import weakref
from pathlib import Path
from typing import Any, ClassVar

import pytest

from adjudge.bench.judges import (
    CREATIVE,
    TRIALS,
    agreement_of,
    bench_judges,
    drawn,
    greetings_beside_good_ones,
    openmeva_groups,
)
from adjudge.engine import engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import Reason
from adjudge.rewards.records.group import GroupVerdict
from adjudge.rewards.records.verdict import Pair, PairVerdict, Verdict
from tests.jsonl import write_lines

TINY: dict[str, Any] = {"minutes": 1.0, "model": "dummy:tiny-llama", "device": "cpu", "dtype": "auto"}


def autoj(label: int, scenario: str = "creative_writing") -> dict[str, Any]:
    return {"scenario": scenario, "label": label, "prompt": "p", "response 1": f"one {label}", "response 2": "two"}


def pair_verdict(preference: float | None) -> PairVerdict:
    return PairVerdict("", preference, {}, "low_mass" if preference is None else None, False, "m", "k")


def verdict(score: float | None, reason: Reason = "unparsable") -> Verdict:
    return Verdict("", score, {}, reason if score is None else None, False, "m", "k")


def test_people_and_judge_agree_on_pairs_that_are_no_tie_and_were_judged() -> None:
    verdicts = [pair_verdict(value) for value in (0.9, 0.9, 0.2, 0.7, None)]
    assert agreement_of(verdicts, [1.0, 0.0, 0.0, 0.5, 1.0]) == ("accuracy", pytest.approx(2 / 3), 3)


def test_items_agree_by_rank() -> None:
    verdicts = [verdict(value) for value in (1.0, 2.0, 3.0, None, 9.0)]
    assert agreement_of(verdicts, [1.0, 3.0, 2.0, 9.0, None]) == ("Spearman", pytest.approx(0.5), 3)
    assert agreement_of(verdicts[:1] * 2, [1.0, 2.0]) == ("Spearman", None, 2)
    assert agreement_of([verdict(None)], [1.0]) == ("none", None, 0)


def test_a_judges_tie_is_half_a_hit_whatever_people_preferred() -> None:
    ties = [pair_verdict(0.5)] * 4
    for people in (0.0, 1.0):
        assert agreement_of(ties, [people] * 4) == ("accuracy", 0.5, 4)


def test_groups_agree_by_the_order_within_each() -> None:
    def ranked(*strengths: float | None) -> GroupVerdict:
        return GroupVerdict("", strengths, strengths, None, None, (), None, False, "m", "k")

    verdicts = [ranked(1.0, 2.0, 3.0), ranked(1.0, 2.0, 3.0), ranked(1.0, None), ranked(1.0, 2.0)]
    truth = [(1.0, 2.0, 3.0), (2.0, 1.0, 3.0), (1.0, 2.0), (4.0, 4.0)]
    assert agreement_of(verdicts, truth) == ("mean Kendall", pytest.approx((1 + 1 / 3) / 2), 2)


def test_a_sample_is_drawn_by_the_names_of_its_set_alone(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", *[autoj(n % 3) for n in range(30)])
    one, two = (drawn("a.jsonl", 7)(tmp_path) for _ in range(2))
    assert one == two and len(one) == 7
    assert [said for _, said in drawn("a.jsonl", 99)(tmp_path)].count(0.5) == 10
    assert [pair.id for pair, _ in drawn("a.jsonl")(tmp_path)] == [str(n) for n in range(1, 31)]
    [(pair, _)] = drawn("a.jsonl", 1)(tmp_path)
    assert pair in [Pair(f"one {n % 3}", "two", "p", id=str(n + 1)) for n in range(30)]


def test_only_creative_scenarios_count_as_such(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", autoj(0, "code_generation"), autoj(1, "writing_song_lyrics"))
    assert [said for _, said in drawn("a.jsonl", 9, CREATIVE)(tmp_path)] == [0.0]


def test_greetings_are_debated_beside_good_ones_that_are_not_among_them(tmp_path: Path) -> None:
    rows = [{"query": "q", "response": f"r{n}", "label": n % 2} for n in range(12)]
    write_lines(tmp_path / "greetings/labels.jsonl", *rows)
    sample = greetings_beside_good_ones(tmp_path, 4, 8)
    judged = {item.response for (item, _), _ in sample}
    assert all(float(int(item.response[1:]) % 2) == said for (item, _), said in sample) and len(judged) == 4
    [examples] = {examples for (_, examples), _ in sample}
    assert {example.response for example in examples} == {f"r{n}" for n in range(1, 12, 2)} - judged


def test_stories_of_one_prompt_are_one_group(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{n % 2}", "story": f"s{n}", "human": float(n)} for n in range(1, 6)]
    write_lines(tmp_path / "openmeva_roc/stories.jsonl", *rows)
    [(group, told)] = openmeva_groups(tmp_path, 1)
    assert sorted(group.responses) == ["s2", "s4"]
    assert all(float(story[1:]) == human for story, human in zip(group.responses, told, strict=True))


def test_files_that_are_not_what_they_should_be_are_named(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", {"prompt": "p"})
    with pytest.raises(AdjudgeError, match=r"line 1 of a\.jsonl has the columns prompt, which are those of no known"):
        drawn("a.jsonl", 1)(tmp_path)
    with pytest.raises(AdjudgeError, match=r"cannot read .*b\.jsonl"):
        drawn("b.jsonl", 1)(tmp_path)
    with pytest.raises(AdjudgeError, match=r"has none of .*autoj.*: name another"):
        bench_judges(tmp_path, only=["pairwise"], output=None, **TINY)
    with pytest.raises(AdjudgeError, match="no trial of poetry: choose from pairwise"):
        bench_judges(tmp_path, only=["poetry"], output=None, **TINY)


def test_what_is_there_is_run_and_what_is_not_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lines(tmp_path / "autoj_pairs/pairs.jsonl", *[autoj(n % 3) for n in range(5)])
    bench_judges(tmp_path, only=["pairwise", "pointwise"], output=tmp_path / "out/j.csv", **TINY)
    assert "pointwise: hanna/stories.jsonl is not in" in capsys.readouterr().out
    with (tmp_path / "out/j.csv").open() as file:
        [row] = csv.DictReader(file)
    assert (row["judge"], row["verdicts"], row["model"]) == ("pairwise", "5", "dummy:tiny-llama")
    assert int(row["prompt_tokens"]) > 5 * int(row["tokens_computed"]) / 2 > 0
    assert row["measure"] == "accuracy" and row["compared"] == "4"


def test_an_engine_is_let_go_before_the_next_takes_what_memory_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Watched(engine.Engine):
        opened: ClassVar[list[weakref.ref[Watched]]] = []

        def __init__(self, *args: Any, **named: Any) -> None:
            assert [one() for one in self.opened] == [None] * len(self.opened)
            super().__init__(*args, **named)
            self.opened.append(weakref.ref(self))

    monkeypatch.setattr(engine, "Engine", Watched)
    write_lines(tmp_path / "autoj_pairs/pairs.jsonl", autoj(0))
    write_lines(tmp_path / "hanna/stories.jsonl", {"prompt": "p", "story": "s", "ratings": {"Coherence": [3]}})
    bench_judges(tmp_path, only=["pairwise", "pointwise"], output=None, **TINY)
    assert len(Watched.opened) == 2


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.judge)
def test_the_real_sets_are_read(trial: Any) -> None:
    folder = Path(__file__).parents[3] / "shared/data"
    if not (folder / trial.data).exists():
        pytest.skip(f"{trial.data} is not beside the project")
    sample = trial.read(folder)
    assert sample


def test_a_judge_that_needs_another_kind_of_model_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lines(tmp_path / "autoj_pairs/pairs.jsonl", *[autoj(n % 2) for n in range(4)])
    write_lines(
        tmp_path / "greetings/pairs.jsonl", *[{"query": "q", "chosen": f"c{n}", "rejected": "r"} for n in range(4)]
    )
    for model, other in (("dummy:tiny-llama", "scalar"), ("dummy:tiny-qwen3-reward", "pairwise")):
        how = {**TINY, "model": model}
        bench_judges(tmp_path, only=["pairwise", "scalar"], output=tmp_path / "j.csv", **how)
        assert f"{other}: needs a " in capsys.readouterr().out
        with (tmp_path / "j.csv").open() as file:
            [row] = csv.DictReader(file)
        assert row["judge"] != other and row["verdicts"] == "4"
    with pytest.raises(AdjudgeError, match="no judge was run: name a --model that scalar can ask"):
        bench_judges(tmp_path, only=["scalar"], output=tmp_path / "k.csv", **TINY)
