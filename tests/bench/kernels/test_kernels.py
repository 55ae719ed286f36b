"""The kernel benchmark's arithmetic, its files, and a run on toy sizes; no time is asserted."""

from __future__ import annotations

import csv
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from adjudge.bench.kernels import kernels as bench
from adjudge.bench.kernels.attention_variants import BACKENDS, AttentionInputs, lay_out_pages
from adjudge.bench.kernels.dispatch_rule import propose
from adjudge.bench.kernels.head_variants import HeadInputs
from adjudge.bench.kernels.limits import (
    FULL,
    INDEX,
    MATMUL,
    OURS,
    UNCHECKED,
    AttentionCase,
    Ceilings,
    HeadCase,
    Work,
    attention_cases,
    head_cases,
)
from adjudge.bench.kernels.measurement import Measurement, read_measurements, write_measurements
from adjudge.bench.kernels.report import plot_head
from adjudge.bench.kernels.timing import Variant
from adjudge.engine.errors import AdjudgeError
from adjudge.kernels import attention
from adjudge.kernels.attention_library import AttentionKind
from adjudge.kernels.dispatch import BackendUnavailable

CPU = torch.device("cpu")
CEILINGS = Ceilings(bandwidth=1e9, rate=1e12)
H200 = Ceilings(bandwidth=4.3e12, rate=700e12)
TOY = bench.Conditions(CPU, torch.float32, CEILINGS, rounds=5, budget=60.0, compiled=False, beyond=1 << 14)
TOY_HEADS = [HeadCase("set", 1, 24, 300, 2), HeadCase("set", 7, 24, 300, 5), HeadCase("both", 7, 24, 300, 5)]
TOY_ATTENTION = [
    AttentionCase("prefill", 4, 2, 8, ((0, 19), (0, 5))),
    AttentionCase("decode", 4, 2, 8, ((20, 1),) * 3),
    AttentionCase("judge, cold", 4, 2, 8, ((0, 37), (37, 3), (37, 3)), 37),
    AttentionCase("judge, warm", 4, 2, 8, ((37, 3), (37, 3)), 37),
]


def measurement(variant: str, n: int, microseconds: float, k: int = 5, **more: str) -> Measurement:
    times = {"median_us": microseconds, "min_us": 0.984375 * microseconds, "max_us": 1.125 * microseconds}
    shape = f"N={n} D=576 V=49152 K={k}"
    about = {"kernel": "restricted head", "case": "set", "dtype": "float32", "device": "cpu"} | more
    return Measurement(shape=shape, variant=variant, **about, **times)  # type: ignore[arg-type]


# ---- arithmetic


def test_the_set_must_read_hidden_states_and_label_rows_and_write_scores() -> None:
    limit = HeadCase("set", 4096, 3584, 152_064, 5).limit(2)
    assert limit.bytes == (4096 + 5) * 3584 * 2 + 4096 * (5 * 4 + 21)
    assert limit.flops == 2 * 4096 * 3584 * 5
    assert limit.seconds(H200) == pytest.approx(limit.bytes / 4.3e12)


def test_the_full_head_is_bound_by_its_weights_for_few_rows_and_by_flops_for_many() -> None:
    few, many = (HeadCase("both", n, 3584, 152_064, 5).limit(2) for n in (1, 4096))
    assert few.bound(H200) == "bytes" and many.bound(H200) == "FLOPs"
    assert few.seconds(H200) == pytest.approx(3584 * 152_064 * 2 / 4.3e12, rel=1e-3)
    assert many.seconds(H200) == pytest.approx(2 * 4096 * 3584 * 152_064 / 700e12)


@pytest.mark.parametrize("case", [HeadCase("set", 64, 576, 49_152, 5), HeadCase("both", 64, 576, 49_152, 5)])
def test_a_peer_s_kernels_do_at_least_what_the_case_needs(case: HeadCase) -> None:
    inputs = (case.n + (case.k if case.normalizer == "set" else case.v)) * case.d * 2
    for variant in (INDEX, FULL) if case.normalizer == "set" else (FULL, MATMUL):
        work = case.work(variant, 2)
        assert work.flops >= case.limit(2).flops and work.bytes > inputs
    assert case.work(OURS, 2) == case.work(UNCHECKED, 2) == case.limit(2)


def test_attention_counts_what_rows_see_and_shared_keys_once() -> None:
    prefill = AttentionCase("prefill", 4, 2, 8, ((0, 3),))
    assert prefill.limit(4).flops == 4 * 4 * 8 * (1 + 2 + 3)
    assert prefill.limit(4).bytes == (2 * 3 * 2 * 8 + 2 * 3 * 4 * 8) * 4
    judge = AttentionCase("judge", 4, 2, 8, ((0, 600), *((600, 30),) * 12), 600)
    assert judge.kv_tokens == judge.rows == 600 + 12 * 30
    assert judge.limit(4).flops == 4 * 4 * 8 * (600 * 601 // 2 + 12 * (30 * 600 + 30 * 31 // 2))


def test_every_size_is_there_and_the_small_ones_are_among_them() -> None:
    assert len(head_cases("full")) == 2 * 7 * 4 * 2 and len(head_cases("small")) == 6 * 5
    assert set(head_cases("small")) < set(head_cases("full"))
    assert {(case.heads, case.kv_heads, case.width) for case in attention_cases("full")} == {(9, 3, 64), (28, 4, 128)}


# ---- the proposed dispatch


def test_a_peer_that_wins_at_every_n_is_proposed_and_one_that_wins_at_some_is_not() -> None:
    measured = [measurement(OURS, n, 10.0 * n, k) for n in (1, 16) for k in (5, 64)]
    measured += [measurement(INDEX, 1, 5.0, 64), measurement(INDEX, 16, 100.0, 64)]
    measured += [measurement(INDEX, 1, 5.0), measurement(INDEX, 16, 200.0)]
    measured += [measurement(UNCHECKED, n, 1.0) for n in (1, 16)]
    few, many = propose(measured)
    assert (few.k, few.choice) == (5, OURS) and "index + matmul is faster at N = 1, 2.00 x" in few.why
    assert (many.k, many.choice) == (64, INDEX) and "every N of 1 to 16, 1.60 to 2.00 x" in many.why


def test_a_win_within_the_spread_or_at_fewer_rows_is_none() -> None:
    [level] = propose([measurement(OURS, 1, 10.0), measurement(INDEX, 1, 9.95)])
    [partly] = propose([measurement(OURS, 1, 10.0), measurement(OURS, 16, 10.0), measurement(INDEX, 1, 1.0)])
    assert level.choice == partly.choice == OURS


def test_devices_dtypes_and_normalizers_are_decided_apart() -> None:
    measured = [measurement(OURS, 1, 10.0, device=d, dtype=t) for d in ("cpu", "H200") for t in ("float32", "bfloat16")]
    measured.append(measurement(INDEX, 1, 1.0, device="cpu", dtype="float32"))
    choices = {(p.device, p.dtype): p.choice for p in propose(measured)}
    assert choices.pop(("cpu", "float32")) == INDEX and set(choices.values()) == {OURS} and len(choices) == 3


# ---- files


def test_measurements_survive_their_csv(tmp_path: Path) -> None:
    full = replace(
        measurement(OURS, 1, 64.0), bytes=2.0**40, launches=3, peak_bytes=12, error=2e-7, note='a, "b"', machine="x, y"
    )
    empty = Measurement("attention", "decode", "H=9", "float32", "ours, torch", note="left out")
    write_measurements(tmp_path / "new" / "k.csv", [full, empty])
    assert read_measurements(tmp_path / "new" / "k.csv") == [full, empty]


def test_another_file_is_refused_by_line_and_column(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("kernel,case\nx,y\n")
    with pytest.raises(AdjudgeError, match=r"line 2 of .*other.csv: .* required field `shape`"):
        read_measurements(tmp_path / "other.csv")
    with pytest.raises(AdjudgeError, match="cannot be read"):
        read_measurements(tmp_path / "absent.csv")


def test_the_plot_is_a_small_image(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    measured = [replace(measurement(name, n, 10.0 * n), limit_us=1.0 * n) for name in (OURS, INDEX) for n in (1, 16)]
    plot_head(measured, tmp_path / "k.png")
    image = (tmp_path / "k.png").read_bytes()
    assert image.startswith(b"\x89PNG") and len(image) < 200_000


# ---- measuring


def test_inputs_rotate_and_label_sets_hold_no_id_twice() -> None:
    inputs = HeadInputs(24, 300, 7, CPU, torch.float32, beyond=10_000)
    assert not torch.equal(inputs.hidden(0, 7), inputs.hidden(1, 7))
    rotating = HeadInputs(24, 300, 7, CPU, torch.float32, beyond=100_000)
    heads = {weight.data_ptr(): weight for weight in map(rotating.weight, range(50))}
    assert len(heads) == 4 and all(torch.equal(head, rotating.weight(0)) for head in heads.values())
    assert inputs.hidden(10**6, 7).shape == (7, 24)
    assert all(len(inputs.labels(call, 64).unique()) == 64 for call in range(50))


def test_siblings_share_whole_blocks_and_copy_the_rest() -> None:
    inputs = AttentionInputs.random(TOY_ATTENTION[2], CPU, torch.float32, beyond=1)
    [cache], batch = lay_out_pages(inputs, 16)
    tables = [sequence.blocks for sequence in batch.sequences]
    assert all(table[:2] == tables[0][:2] for table in tables) and len({table[2] for table in tables}) == 3
    assert len(cache.key) == 1 + 2 + 3


def test_a_wrong_variant_is_not_timed_and_one_that_raises_does_not_stop_the_others() -> None:
    def raises(call: int) -> torch.Tensor:
        raise RuntimeError("no such library")

    exact = torch.zeros(2, 3, dtype=torch.float64)
    variants = [
        Variant("ours", lambda call: torch.zeros(2, 3), lambda answer: answer),
        Variant("off", lambda call: torch.ones(2, 3), lambda answer: answer),
        Variant("nan", lambda call: torch.full((2, 3), torch.nan), lambda answer: answer),
        Variant("broken", raises, lambda answer: answer),
        Variant("huge", lambda call: torch.zeros(2, 3), lambda answer: answer, memory=1 << 60),
        Variant("slow", lambda call: torch.zeros(2, 3), lambda answer: answer, work=Work(1e20)),
    ]

    def about(variant: str) -> Measurement:
        return replace(measurement(variant, 1, 0.0), median_us=None, bytes=8.0, flops=8.0)

    right, *others = bench._measure(variants, about, exact, torch.arange(2), TOY)
    assert right.median_us and right.error == 0 and right.peak_bytes == 24
    assert all(other.median_us is None for other in others)
    notes = ["wrong", "wrong", "RuntimeError: no such library", "GB of memory", "would take"]
    assert all(note in other.note for note, other in zip(notes, others, strict=True))


def test_every_attention_back_end_is_asked_for_by_name_and_one_that_is_not_here_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def backend(kind: AttentionKind, forced: str | None = None) -> tuple[str, Any]:
        asked.append((forced, kind.block_size))
        if forced != "torch":
            raise BackendUnavailable("it is not installed")
        return attention_backend(kind, forced)

    asked: list[tuple[str | None, int]] = []
    attention_backend = attention.attention_backend
    monkeypatch.setattr(attention, "attention_backend", backend)
    [measured] = bench.run_cases([], TOY_ATTENTION[:1], TOY)
    found = {m.variant: m for m in measured}
    assert found[BACKENDS["torch"]].median_us
    assert set(asked) == {("torch", 16), ("numba", 16), ("triton", 16), ("flash", 256), ("varlen", 16)}
    for name in ("numba", "triton", "flash", "varlen"):
        assert "BackendUnavailable: it is not installed" in found[BACKENDS[name]].note


def test_cases_are_chosen_by_all_the_words_of_their_names_and_shapes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def run_cases(heads: Any, attentions: Any, conditions: Any) -> list[Any]:
        asked.extend(f"{getattr(case, 'name', '')} {case.shape}" for case in (*heads, *attentions))
        return []

    monkeypatch.setattr(bench, "run_cases", run_cases)
    monkeypatch.setattr(bench, "measure_ceilings", lambda *_: "ceilings")
    bench.bench_kernels(sizes="full", only="judge warm")
    assert len(asked) == 2 and all(name.startswith("judge, warm") for name in asked)
    asked.clear()
    bench.bench_kernels(sizes="full", only="set K=5 D=3584")
    assert len(asked) == 7 and all("D=3584 V=152064 K=5" in name for name in asked)
    for only, mend in (("set decode", "take words of names"), ("set D=3584", "add --sizes full")):
        with pytest.raises(AdjudgeError, match=f'no case has all of "{only}": {mend}'):
            bench.bench_kernels(only=only, sizes="small")
    given: dict[str, Any] = {"only": "set", "kernels": "head", "sizes": "small", "rounds": 5, "device": "cuda"}
    for name, value in (given | {"compiled": False}).items():
        option = {"compiled": "no-compile"}.get(name, name)
        with pytest.raises(AdjudgeError, match=f"--{option} is for what is measured: leave it out"):
            bench.bench_kernels(**{name: value}, earlier=Path("earlier.csv"))


def test_a_tiny_run_fills_every_column_with_right_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = [row for rows in bench.run_cases(TOY_HEADS, TOY_ATTENTION, TOY) for row in rows]
    write_measurements(tmp_path / "k.csv", measured)
    with (tmp_path / "k.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [field.name for field in fields(Measurement)]
    assert {row["variant"] for row in rows} >= {OURS, UNCHECKED, INDEX, FULL, MATMUL, BACKENDS["torch"]}
    for row, m in zip(rows, measured, strict=True):
        if "BackendUnavailable" in m.note:  # this machine lacks it
            continue
        assert m.median_us and m.min_us and m.max_us and m.limit_us and m.min_us <= m.median_us <= m.max_us, row
        assert m.peak_bytes and m.bound in ("bytes", "FLOPs") and m.machine and m.device == "cpu", row
        assert m.variant == MATMUL or (m.error is not None and m.error < 1e-5), row
    bench.bench_kernels(earlier=tmp_path / "k.csv")
    printed = capsys.readouterr().out
    assert "proposed dispatch" in printed and "judge, cold" in printed
