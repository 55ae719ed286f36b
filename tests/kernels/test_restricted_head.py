"""The restricted head against its float64 oracle, against itself in other company, and against bad input."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from adjudge.bench.kernels.memory import peak_bytes as peak_of
from adjudge.kernels import LabelSetError, restricted_logprobs
from tests.kernels.restricted_cases import (
    DTYPES,
    FEATURES,
    PER_LABEL,
    SHAPES,
    assert_as_good_as_plain_torch,
    assert_invariant,
    assert_same,
    check_a_token_twice,
    of_row,
    problem,
    score,
)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


# ---- right


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("normalizer", ["set", "full", "both"])
def test_is_as_exact_as_plain_torch(shape: tuple[int, int, int, int], dtype: torch.dtype, normalizer: str) -> None:
    assert_as_good_as_plain_torch([problem(shape, dtype, "values targets") | {"normalizer": normalizer}])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("features", FEATURES)
def test_each_feature_is_as_exact_as_plain_torch(features: str, dtype: torch.dtype) -> None:
    shapes = [(33, 130, 257, 11), (7, 48, 1000, 64), (32, 577, 257, 5)]
    problems = [problem(shape, dtype, features, seed) | {"normalizer": "both"} for seed, shape in enumerate(shapes)]
    assert_as_good_as_plain_torch(problems)


def test_norm_weight_of_another_dtype_multiplies_in_float32() -> None:
    arguments = problem((7, 48, 257, 5), torch.bfloat16, "norm")
    assert_as_good_as_plain_torch([arguments | {"norm_weight": 1 + arguments["norm_weight"].float() / 3}])


@pytest.mark.parametrize("features", ["values targets", "csr groups values targets"])
@pytest.mark.parametrize("normalizer", ["set", "full", "both"])
def test_no_rows_give_empty_scores(features: str, normalizer: str) -> None:
    arguments = problem((1, 48, 257, 5), torch.float32, features) | {
        "hidden_ND": torch.empty(0, 48),
        "targets": torch.tensor([], dtype=torch.int64),
    }
    if "csr" in features:
        nothing = torch.tensor([], dtype=torch.int64)
        arguments |= {
            "label_ids": nothing,
            "label_groups": nothing,
            "label_values": nothing,
            "label_offsets": torch.tensor([0]),
        }
    scores = score(arguments, normalizer=normalizer)
    some = score(problem((1, 48, 257, 5), torch.float32, features), normalizer=normalizer)
    assert {name: value.dtype for name, value in scores.items()} == {name: value.dtype for name, value in some.items()}
    for name, value in scores.items():
        assert value.shape == (
            (0, 5) if name in PER_LABEL and "csr" not in features else (1,) if name == "label_offsets" else (0,)
        ), name


def test_one_label_is_certain() -> None:
    scores = score(problem((7, 48, 257, 1), torch.float32, "values"))
    assert (scores["margin"] == 1).all()
    for name in ("logprobs", "entropy", "variance", "best"):
        assert (scores[name] == 0).all(), name


def test_of_equal_labels_the_lowest_index_is_best() -> None:
    arguments = problem((33, 48, 257, 5), torch.float32)
    arguments["weight_VD"][arguments["label_ids"]] = arguments["weight_VD"][0].clone()
    scores = score(arguments, targets=torch.arange(33) % 5)
    assert (scores["best"] == 0).all() and (scores["margin"] == 0).all()
    assert torch.equal(scores["keep"], torch.arange(33) % 5 == 0)


def test_full_means_logprobs_of_the_whole_softmax_and_leaves_the_statistics_alone() -> None:
    arguments = problem((7, 48, 257, 5), torch.float32, "values")
    only_set, full, both = (score(arguments, normalizer=which) for which in ("set", "full", "both"))
    assert torch.equal(full["logprobs"], both["full_logprobs"])
    assert torch.equal(both["logprobs"], only_set["logprobs"])
    assert torch.equal(full["best_logprob"], full["logprobs"].amax(-1))
    assert torch.equal(full["mass"], both["mass"]) and (both["mass"] < 1).all()
    for name in ("expected", "variance", "entropy", "margin", "best"):
        assert torch.equal(full[name], only_set[name]), name


def test_an_impossible_label_is_no_error() -> None:
    arguments = problem((7, 48, 257, 5), torch.float32, "values bias")
    arguments["bias"][arguments["label_ids"][2]] = -torch.inf
    scores = score(arguments, normalizer="both")
    assert scores["valid"].all() and (scores["logprobs"][:, 2] == -torch.inf).all()
    assert scores["entropy"].isfinite().all() and scores["expected"].isfinite().all()


def test_a_token_in_two_labels_has_its_own_probability_in_each() -> None:
    check_a_token_twice("cpu")


def test_mass_never_exceeds_one() -> None:
    scores = score(problem((300, 130, 64, 64), torch.float32), normalizer="both")
    assert torch.allclose(scores["mass"], torch.ones(300))
    assert (scores["log_mass"] <= 0).all() and (scores["full_logprobs"] <= 0).all()


# ---- alone or in company, the same bits


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "features", ["values targets", "csr groups norm bias softcap temperature values targets strided"]
)
@pytest.mark.parametrize("width", [17, 130, 576])
def test_a_row_is_the_same_bits_in_any_company(features: str, dtype: torch.dtype, width: int) -> None:
    arguments = problem((300, width, 1000, 5), dtype, features) | {"normalizer": "both"}
    shuffled = torch.randperm(300, generator=torch.Generator().manual_seed(1)).tolist()
    assert_invariant(
        arguments, [[0], [31], [128], [299], shuffled, shuffled[:33], shuffled[:32], list(range(100, 165))]
    )


@pytest.mark.parametrize("labels", [1, 5, 64])
def test_one_row_of_four_thousand_is_the_same_bits_alone(labels: int) -> None:
    arguments = problem((4096, 576, 1000, labels), torch.float32, "values")
    assert_invariant(arguments, [[0], [127], [128], [2049], [4095]])


@pytest.mark.parametrize("labels", [1, 5])
def test_one_row_of_four_thousand_with_labels_of_its_own_is_the_same_bits_alone(labels: int) -> None:
    arguments = problem((4096, 48, 1000, labels), torch.float32, "csr groups values norm") | {"normalizer": "both"}
    shuffled = torch.randperm(4096, generator=torch.Generator().manual_seed(1)).tolist()
    assert_invariant(arguments, [[0], [2049], [4095], shuffled])


@pytest.mark.parametrize("features", ["values", "csr groups norm bias softcap temperature targets"])
def test_threads_do_not_change_bits(features: str, threads: None) -> None:
    for width in (17, 1040):
        arguments = problem((33, width, 2100, 11), torch.float32, features) | {"normalizer": "both"}
        scores = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            scores.append(score(arguments))
        assert_same(scores[0], scores[1])
        assert_same(scores[0], scores[2])


def test_a_shared_set_and_the_same_set_per_row_give_the_same_bits() -> None:
    shared = problem((33, 130, 257, 11), torch.bfloat16)
    ids = shared["label_ids"].repeat(33)
    per_row = shared | {"label_ids": ids, "label_offsets": torch.arange(34) * 11}
    one, other = score(shared), score(per_row)
    assert other.pop("label_offsets").tolist() == list(range(0, 33 * 11 + 1, 11))
    assert_same({name: value.flatten() for name, value in one.items()}, other)


# ---- bad rows, unread memory


@pytest.mark.parametrize("features", ["values", "softcap", "norm softcap", "csr groups", "norm"])
@pytest.mark.parametrize("normalizer", ["set", "full", "both"])
def test_a_row_that_is_not_finite_is_invalid_and_alone_in_it(features: str, normalizer: str) -> None:
    arguments = problem((33, 48, 257, 5), torch.float32, features) | {"normalizer": normalizer}
    arguments["targets"] = torch.zeros(33, dtype=torch.int64)
    clean = score(arguments)
    bad = {1: torch.nan, 5: torch.inf, 32: -torch.inf} | ({7: 1e30} if "norm" in features else {})
    poisoned = arguments | {"hidden_ND": arguments["hidden_ND"].clone()}
    for row, value in bad.items():
        poisoned["hidden_ND"][row, 3] = value
    scores = score(poisoned)
    for row in range(33):
        fields = of_row(scores, row)
        if row not in bad:
            assert_same(fields, of_row(clean, row))
            continue
        assert not fields.pop("valid") and not fields.pop("keep") and fields.pop("best") == -1
        assert all(value.isnan().all() for value in fields.values())


def test_the_set_alone_reads_only_its_labels_and_rows() -> None:
    arguments = problem((7, 48, 257, 5), torch.float32, "rows bias")
    clean = score(arguments)
    unread_tokens = torch.ones(257, dtype=torch.bool).index_fill_(0, arguments["label_ids"], False)
    unread_rows = torch.ones(12, dtype=torch.bool).index_fill_(0, arguments["rows"], False)
    arguments["weight_VD"][unread_tokens] = torch.nan
    arguments["bias"][unread_tokens] = torch.nan
    arguments["hidden_ND"][unread_rows] = torch.nan
    assert_same(score(arguments), clean)
    assert not score(arguments, normalizer="both")["valid"].any()


@pytest.fixture
def poisoned_memory() -> Iterator[None]:
    """Uninitialised tensors are filled with NaN and the largest integers."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("features", ["values targets", "csr groups values targets norm bias"])
def test_no_output_is_left_unwritten(features: str, poisoned_memory: None) -> None:
    assert torch.empty(1).isnan()
    assert_as_good_as_plain_torch([problem((33, 48, 3000, 11), torch.float32, features) | {"normalizer": "both"}])


def peak_bytes(arguments: dict[str, Any], **more: Any) -> int:
    restricted_logprobs(**arguments, **more)  # what a layer's shape is probed with, once, is no part of it
    return peak_of(lambda: restricted_logprobs(**arguments, **more), torch.device("cpu"))


@pytest.mark.parametrize("features", ["rows", "csr rows norm"])
def test_every_position_costs_memory_by_rows_and_labels_and_not_by_width_or_vocabulary(features: str) -> None:
    rows, labels = 2048, 5

    def growth(width: int, vocabulary: int, normalizer: str) -> float:
        """Bytes a row and label, between one thousand rows and three."""
        few, many = (
            peak_bytes(problem((n, width, vocabulary, labels), torch.bfloat16, features), normalizer=normalizer)
            for n in (1024, 1024 + rows)
        )
        return (many - few) / (rows * labels)

    for normalizer in ("set", "both"):
        small = growth(16, 300, normalizer)
        assert small < 120
        assert growth(64, 300, normalizer) < 1.2 * small
        assert growth(16, 2100, normalizer) < 1.2 * small


def test_the_vocabulary_never_stands_in_memory_for_more_than_a_tile_of_rows() -> None:
    arguments = problem((300, 16, 20000, 5), torch.bfloat16)
    assert peak_bytes(arguments, normalizer="both") < 300 * 20000 * 4 / 10


# ---- bad arguments


def test_each_mistake_is_named() -> None:
    good = problem((7, 48, 257, 5), torch.float32)
    csr = problem((7, 48, 257, 5), torch.float32, "csr")
    ids, offsets, hidden, weight = good["label_ids"], csr["label_offsets"], good["hidden_ND"], good["weight_VD"]
    empty_row = offsets.clone()
    empty_row[3] = empty_row[2]
    gap = torch.zeros_like(csr["label_ids"])
    widest = int(offsets.diff().argmax())
    gap[offsets[widest]] = 2
    mistakes: list[tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = [
        (good, {"label_ids": torch.tensor([3, 257])}, LabelSetError, r"label_ids\[1\] is 257.* 256"),
        (good, {"label_ids": torch.tensor([-1])}, LabelSetError, r"label_ids\[0\] is -1"),
        (good, {"label_ids": ids[:0]}, LabelSetError, "label_ids is empty"),
        (good, {"label_ids": ids.float()}, TypeError, "label_ids has dtype torch.float32"),
        (good, {"label_ids": ids[None]}, LabelSetError, "label_ids has shape"),
        (good, {"label_ids": ids.tolist()}, TypeError, "label_ids is a list"),
        (csr, {"label_offsets": offsets[:-1]}, LabelSetError, "label_offsets has 7 entries for 7 rows: pass 8"),
        (csr, {"label_offsets": offsets + 1}, LabelSetError, "label_offsets runs from 1"),
        (csr, {"label_offsets": empty_row}, LabelSetError, "label_offsets.* no row may be without labels"),
        (good, {"label_groups": torch.tensor([0, 0, 2, 2, 0])}, LabelSetError, "no token in group 1"),
        (csr, {"label_groups": gap}, LabelSetError, f"label_groups of row {widest} has no token in group 1"),
        (good, {"label_groups": torch.tensor([0, 1, 2, 3, 5])}, LabelSetError, r"label_groups\[4\] is 5"),
        (good, {"label_groups": torch.tensor([0, -1, 0, 0, 0])}, LabelSetError, r"label_groups\[1\] is -1"),
        (good, {"label_groups": torch.tensor([0])}, LabelSetError, "label_groups has 1 entries and label_ids 5"),
        (good, {"label_values": [1.0] * 5}, TypeError, "label_values is a list: pass a tensor of numbers"),
        (good, {"label_values": torch.ones(5) * 1j}, TypeError, "label_values has dtype torch.complex64"),
        (good, {"norm_weight": [1.0] * 48}, TypeError, "norm_weight is a list: pass a tensor"),
        (good, {"bias": [1.0] * 257}, TypeError, "bias is a list: pass a tensor"),
        (good, {"label_values": torch.ones(4)}, LabelSetError, r"label_values has shape \(4,\).*\(5,\)"),
        (good, {"targets": torch.zeros(6, dtype=torch.int64)}, LabelSetError, "targets has 6 entries"),
        (good, {"targets": torch.full((7,), 5)}, LabelSetError, r"targets\[0\] is 5"),
        (good, {"rows": torch.tensor([0, 7])}, ValueError, r"rows\[1\] is 7"),
        (good, {"rows": torch.tensor([0.0])}, TypeError, "rows has dtype"),
        (good, {"hidden_ND": hidden.bfloat16()}, TypeError, "hidden_ND is torch.bfloat16 and weight_VD torch.float32"),
        (good, {"hidden_ND": hidden.double(), "weight_VD": weight.double()}, TypeError, "hidden_ND has dtype"),
        (good, {"hidden_ND": hidden[0]}, ValueError, r"hidden_ND has shape \(48,\)"),
        (good, {"hidden_ND": hidden[:, 1:]}, ValueError, "same width D"),
        (good, {"weight_VD": weight.to("meta")}, ValueError, "weight_VD is on meta"),
        (good, {"label_ids": ids.to("meta")}, ValueError, "label_ids is on meta"),
        (good, {"norm_weight": torch.ones(47)}, ValueError, r"norm_weight has shape \(47,\)"),
        (good, {"bias": torch.ones(48)}, ValueError, r"bias has shape \(48,\): pass \(257,\)"),
        (good, {"bias": torch.ones(257, dtype=torch.int64)}, TypeError, "bias has dtype"),
        (good, {"temperature": 0.0}, ValueError, "temperature is 0.0"),
        (good, {"temperature": float("nan")}, ValueError, "temperature is nan"),
        (good, {"softcap": -1.0}, ValueError, "softcap is -1.0"),
        (good, {"eps": -1.0}, ValueError, "eps is -1.0"),
        (good, {"normalizer": "labels"}, ValueError, "normalizer is 'labels'"),
    ]
    for arguments, mistake, error, text in mistakes:
        with pytest.raises(error, match=text):
            restricted_logprobs(**(arguments | mistake))
