"""The restricted head against its float64 oracle, against itself in other company, and against bad input.

Run as a script, this file checks the implementation that ADJUDGE_KERNELS names: the Triton tests do so in a process of
their own, since Triton decides once, when it is imported, whether it interprets.
"""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from adjudge.kernels import LabelSetError, RestrictedScores, restricted_logprobs
from adjudge.kernels.dispatch import BackendUnavailable, kernel_backend
from adjudge.kernels.oracle import restricted_logprobs_oracle, scores_of_logits

ROOT = Path(__file__).parents[2]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# N, D, V, K: odd ones, tile edges, one label, all of the vocabulary, and the default model's head
SHAPES = [
    (7, 576, 49152, 5),
    (1, 576, 257, 1),
    (33, 48, 1000, 2),
    (300, 130, 257, 11),
    (33, 17, 1000, 64),
    (7, 1, 2, 2),
    (2, 130, 257, 257),
]
SMALL_SHAPES = [(3, 130, 257, 11), (1, 17, 1000, 1), (2, 300, 64, 20)]  # the interpreter takes 40 ms a row
FEATURES = [
    "groups",
    "csr",
    "csr groups",
    "values",
    "csr groups values targets",
    "targets rows",
    "norm",
    "bias",
    "softcap",
    "temperature",
    "strided",
    "csr groups values targets rows norm bias softcap temperature strided",
]
PER_LABEL = ("logprobs", "full_logprobs")


def problem(shape: tuple[int, int, int, int], dtype: torch.dtype, features: str = "", seed: int = 0) -> dict[str, Any]:
    """Arguments of restricted_logprobs, with logits a few units apart."""
    n, d, v, k = shape
    g = torch.Generator().manual_seed(seed)
    wanted = features.split()
    hidden = torch.randn(n + 5 if "rows" in wanted else n, d, generator=g).to(dtype)
    weight = (torch.randn(v, d, generator=g) * 3 / d**0.5).to(dtype)
    made: dict[str, Any] = {"hidden_ND": hidden, "weight_VD": weight}
    if "csr" in wanted:
        counts = torch.randint(1, k + 1, (n,), generator=g)
        made["label_offsets"] = F.pad(counts.cumsum(0), (1, 0))
        made["label_ids"] = torch.cat([torch.randperm(v, generator=g)[:count] for count in counts.tolist()])
    else:
        counts = torch.tensor([k])
        made["label_ids"] = torch.randperm(v, generator=g)[:k]
    if "groups" in wanted:
        groups = [torch.arange(count) % (count // 2 + 1) for count in counts.tolist()]
        made["label_groups"], counts = torch.cat(groups), torch.stack([group.max() + 1 for group in groups])
    if "values" in wanted:
        made["label_values"] = torch.randint(1, 11, (int(counts.sum()),), generator=g)
    if "targets" in wanted:
        made["targets"] = torch.randint(0, 1000, (n,), generator=g) % counts
    if "rows" in wanted:
        made["rows"] = torch.randint(0, n + 5, (n,), generator=g)
    if "norm" in wanted:
        made |= {"norm_weight": (torch.rand(d, generator=g) + 0.5).to(dtype), "eps": 1e-5}
    if "bias" in wanted:
        made["bias"] = torch.randn(v, generator=g).to(dtype)
    if "softcap" in wanted:
        made["softcap"] = 8.0
    if "temperature" in wanted:
        made["temperature"] = 0.7
    if "strided" in wanted:  # every second number of longer vectors, every second column of a matrix, a transposed one
        for name, value in made.items():
            if isinstance(value, Tensor):
                made[name] = value.T.contiguous().T if name == "weight_VD" else value.repeat_interleave(2, -1)[..., ::2]
    return made


def plain_torch(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    label_ids: Tensor,
    *,
    rows: Tensor | None = None,
    norm_weight: Tensor | None = None,
    eps: float = 1e-6,
    bias: Tensor | None = None,
    softcap: float | None = None,
    temperature: float = 1.0,
    **labels: Any,
) -> RestrictedScores:
    """What one writes without this kernel: the model's own norm and head in the model's dtype, then float32."""
    x = hidden_ND if rows is None else hidden_ND[rows]
    if norm_weight is not None:
        normed = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)
        x = (norm_weight * normed.to(x.dtype)).to(x.dtype)
    logits = F.linear(x, weight_VD, bias)
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    return scores_of_logits(logits.float() / temperature, label_ids, **labels)


def assert_as_good_as_plain_torch(problems: list[dict[str, Any]], slack: float = 2.0, device: str = "cpu") -> None:
    """No field may be further from the oracle, at worst over all problems, than `slack` times plain torch.

    The allowance on top is a few float32 roundings of numbers as large as the log-probabilities.
    """
    errors: dict[str, list[tuple[float, float]]] = {}
    for arguments in problems:
        ours = score(moved(arguments, device))
        oracle, plain = (as_dict(way(**arguments)) for way in (restricted_logprobs_oracle, plain_torch))
        assert ours.keys() == oracle.keys()
        allowance = 4 * torch.finfo(torch.float32).eps * max(1.0, oracle["logprobs"].abs().max().item())
        for name, value in ours.items():
            true = oracle[name]
            assert value.shape == true.shape, name
            if not true.is_floating_point():
                assert value.dtype == true.dtype and torch.equal(value, true), name
                continue
            assert value.dtype == torch.float32, name
            error, plain_error = ((tensor.double() - true).abs().max().item() for tensor in (value, plain[name]))
            allowance = max(allowance, 4 * torch.finfo(torch.float32).eps * true.abs().max().item())
            errors.setdefault(name, []).append((error, slack * plain_error + allowance))
    for name, pairs in errors.items():
        error, bound = (max(column) for column in zip(*pairs, strict=True))
        assert error <= bound, f"{name} is {error:.2e} from the oracle; allowed are {bound:.2e}"


def moved(arguments: dict[str, Any], device: str) -> dict[str, Any]:
    return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in arguments.items()}


def score(arguments: dict[str, Any], **more: Any) -> dict[str, Tensor]:
    """The scores as a dictionary; the arguments must be left as they were."""
    before = {name: value.clone() for name, value in arguments.items() if isinstance(value, Tensor)}
    scores = as_dict(restricted_logprobs(**arguments, **more))
    assert_same(before, {name: arguments[name] for name in before}, "was written to")
    return scores


def as_dict(scores: RestrictedScores) -> dict[str, Tensor]:
    """The fields that are not None, on the CPU."""
    fields = {field.name: getattr(scores, field.name) for field in dataclasses.fields(scores)}
    return {name: value.cpu() for name, value in fields.items() if value is not None}


def of_row(scores: dict[str, Tensor], row: int) -> dict[str, Tensor]:
    """What the scores say about one row."""
    mine = slice(row, row + 1)
    offsets = scores.get("label_offsets")
    labels = mine if offsets is None else slice(int(offsets[row]), int(offsets[row + 1]))
    fields = {name: value for name, value in scores.items() if name != "label_offsets"}
    return {name: value[labels if name in PER_LABEL else mine].flatten() for name, value in fields.items()}


def select(arguments: dict[str, Any], rows: list[int]) -> dict[str, Any]:
    """The same problem for some of its rows, in another order."""
    index = torch.tensor(rows)
    chosen = arguments | {name: arguments[name][index] for name in ("hidden_ND", "targets") if name in arguments}
    if "label_offsets" not in arguments:
        return chosen

    def cut(name: str, counts: Tensor) -> Tensor:
        pieces = arguments[name].split(counts.tolist())
        return torch.cat([pieces[row] for row in rows])

    token_counts = label_counts = arguments["label_offsets"].diff()
    chosen["label_ids"] = cut("label_ids", token_counts)
    chosen["label_offsets"] = F.pad(token_counts[index].cumsum(0), (1, 0))
    if "label_groups" in arguments:
        chosen["label_groups"] = cut("label_groups", token_counts)
        label_counts = torch.stack(
            [groups.max() + 1 for groups in arguments["label_groups"].split(token_counts.tolist())]
        )
    if "label_values" in arguments:
        chosen["label_values"] = cut("label_values", label_counts)
    return chosen


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor], why: str = "") -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        left, right = (
            tensor.nan_to_num(-1e30) if tensor.is_floating_point() else tensor for tensor in (value, other[name])
        )
        assert torch.equal(left, right), f"{name} {why}"


def assert_invariant(arguments: dict[str, Any], company: list[list[int]]) -> None:
    """A row's result must be the same bits in every choice of rows."""
    together = score(arguments)
    for rows in company:
        apart = score(select(arguments, rows))
        for place, row in list(enumerate(rows))[:40]:
            assert_same(of_row(together, row), of_row(apart, place), f"of row {row} at {place} of {len(rows)}")


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


@pytest.mark.parametrize("features", ["values", "csr groups norm bias softcap temperature targets"])
def test_threads_do_not_change_bits(features: str, threads: None) -> None:
    for width in (17, 576, 3584):
        arguments = problem((33, width, 3000, 11), torch.float32, features) | {"normalizer": "both"}
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


def test_no_tensor_grows_with_rows_times_vocabulary() -> None:
    class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
        elements = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor):
                self.elements = max(self.elements, result.numel())
            return result

    arguments = problem((300, 16, 20000, 5), torch.bfloat16)
    with Largest() as largest:  # type: ignore[no-untyped-call]
        score(arguments, normalizer="both")
    assert largest.elements <= arguments["weight_VD"].numel()


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


# ---- implementations


def test_the_environment_chooses_the_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.delenv("ADJUDGE_KERNELS", raising=False)
    assert kernel_backend(cpu) == "torch"
    monkeypatch.setenv("ADJUDGE_KERNELS", "triton")
    with pytest.raises(BackendUnavailable, match="TRITON_INTERPRET=1|not installed"):
        kernel_backend(cpu)
    monkeypatch.setenv("ADJUDGE_KERNELS", "cuda")
    with pytest.raises(BackendUnavailable, match='"torch" or "triton"'):
        kernel_backend(cpu)


def python(*arguments: str, **environment: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_needs_neither_triton_nor_numba() -> None:
    python("-c", "import sys; sys.modules['triton'] = sys.modules['numba'] = None; import adjudge.kernels")


def test_triton_is_as_exact_as_plain_torch_in_the_interpreter() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    assert "all well" in python(__file__, ADJUDGE_KERNELS="triton", TRITON_INTERPRET="1")


def test_triton_compiles_ahead_of_time_for_every_target() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    widths = ["576", "3584", "577"]
    assert python(__file__, *widths, TRITON_INTERPRET="0").split() == ["80", "90", "100"] * 2 * len(widths)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_is_as_exact_as_plain_torch_on_cuda(poisoned_memory: None) -> None:
    check_implementation("cuda")


def check_implementation(device: str) -> None:
    for dtype in DTYPES:
        for features in ("", *FEATURES):
            # Triton's interpreter cuts float32 to bfloat16 where devices round, and cuts all have one sign.
            slack = 8.0 if device == "cpu" and dtype == torch.bfloat16 and "norm" in features else 2.0
            problems = [problem(shape, dtype, features, seed) for seed, shape in enumerate(SMALL_SHAPES)]
            assert_as_good_as_plain_torch([one | {"normalizer": "both"} for one in problems], slack, device)
    arguments = problem((9, 48, 257, 11), torch.float32, "csr groups values targets norm softcap")
    assert_invariant(moved(arguments, device), [[0], [8], [5, 2, 7]])
    for features, value in (("softcap", torch.inf), ("softcap", torch.nan), ("norm softcap", 1e30)):
        arguments = problem((9, 48, 257, 11), torch.float32, f"csr groups values targets {features}")
        arguments["hidden_ND"][4, 3] = value
        scores = score(moved(arguments, device))
        assert scores["valid"].tolist() == [row != 4 for row in range(9)]
        assert scores["best"][4] == -1 and not scores["keep"][4]
        bad = of_row(scores, 4)
        assert all(bad[name].isnan().all() for name in bad if bad[name].is_floating_point())


def compile_for_every_target(width: int) -> None:
    """Compile the bf16 kernel for a shared set, with everything switched on and with everything switched off."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from adjudge.kernels.restricted_head_triton import TOKEN_BLOCK, WIDTH_BLOCK, set_scores_kernel

    names = set_scores_kernel.arg_names
    models = ("hidden", "weight", "norm_weight", "bias")
    integers = ("rows", "token_ids", "token_offsets", "groups", "label_offsets", "targets", "best_out")
    strides = ("hidden_row_stride", "weight_row_stride", "width")
    types = dict.fromkeys(names, "*fp32") | dict.fromkeys(models, "*bf16") | dict.fromkeys(integers, "*i64")
    types |= dict.fromkeys(("keep_out", "valid_out"), "*i1") | dict.fromkeys(strides, "i32")
    types |= dict.fromkeys(("eps", "softcap", "temperature"), "fp32")
    constants = {
        "hidden_stride": 1,
        "weight_stride": 1,
        "SHARED": True,
        "BLOCK": TOKEN_BLOCK,
        "WIDTH_BLOCK": WIDTH_BLOCK,
    }
    optional = ("rows", "norm_weight", "bias", "softcap", "groups", "values", "targets")
    outputs_of_optional = ("expected_out", "variance_out", "keep_out")
    for absent in ((), optional + outputs_of_optional):
        fixed = constants | dict.fromkeys(absent)
        signature = types | dict.fromkeys(fixed, "constexpr")
        aligned = [name for name in names if signature[name][0] == "*" or (name in strides and width % 16 == 0)]
        attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in aligned}
        for capability in (80, 90, 100):
            source = ASTSource(set_scores_kernel, signature, fixed, attributes)
            compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32))
            assert compiled.asm["cubin"]
            print(capability)


if __name__ == "__main__":
    if sys.argv[1:]:
        for argument in sys.argv[1:]:
            compile_for_every_target(int(argument))
    else:
        torch.use_deterministic_algorithms(True, warn_only=True)  # memory that nobody wrote is NaN
        check_implementation("cpu")
        print("all well")
