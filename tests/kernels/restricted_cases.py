"""Problems for the restricted head and what must hold of its answers, whichever implementation gives them.

Run as a script, this file checks the implementation that ADJUDGE_KERNELS names: the Triton tests do so in a process of
their own, since Triton decides once, when it is imported, whether it interprets.
"""

import dataclasses
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from adjudge.kernels import RestrictedScores, restricted_logprobs
from adjudge.kernels.final_rows import final_rows
from adjudge.kernels.restricted_head_arguments import HeadWeights
from tests.kernels.interpreter import hasten, only_programs
from tests.kernels.restricted_oracle import restricted_logprobs_oracle, scores_of_logits

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# N, D, V, K: odd ones, tile edges, one label, all of the vocabulary, and many chunks of it
SHAPES = [
    (7, 576, 9000, 5),
    (1, 576, 257, 1),
    (33, 48, 1000, 2),
    (300, 130, 257, 11),
    (33, 17, 1000, 64),
    (7, 1, 2, 2),
    (2, 130, 257, 257),
]
# For the interpreter, which takes 40 ms a program: several tiles of rows, chunks of the vocabulary, sets beyond a tile.
SMALL_SHAPES = [(3, 130, 257, 11), (1, 17, 1000, 1), (2, 300, 64, 20), (35, 20, 600, 4), (2, 20, 300, 130)]
TILE_AND_ROWS = SMALL_SHAPES[3:]
"""One for each of the kernels of label sets, and both for those of the vocabulary."""
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
OF_THE_WIDTH = ("", "norm", "strided", FEATURES[-1])
"""Features that each block of the width meets; the others meet logits, which the width is no part of."""
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
        assert apart["valid"].all()
        for place, row in list(enumerate(rows))[:40]:
            assert_same(of_row(together, row), of_row(apart, place), f"of row {row} at {place} of {len(rows)}")


def check_implementation(device: str) -> None:
    for dtype in DTYPES:
        # The interpreter is slow: every feature in float32, the rest with the norm and all of them.
        for features in ("", *FEATURES) if dtype == torch.float32 or device != "cpu" else ("norm", FEATURES[-1]):
            # Triton's interpreter cuts float32 to bfloat16 where devices round, and cuts all have one sign.
            slack = 8.0 if device == "cpu" and dtype == torch.bfloat16 and "norm" in features else 2.0
            shapes = SMALL_SHAPES if device != "cpu" or features in OF_THE_WIDTH else TILE_AND_ROWS
            if device == "cpu" and "csr" in features:  # a program a row, 8 labels at a time
                shapes = [(min(n, 5), d, v, min(k, 20)) for n, d, v, k in shapes]
            problems = [problem(shape, dtype, features, seed) for seed, shape in enumerate(shapes)]
            assert_as_good_as_plain_torch([one | {"normalizer": "both"} for one in problems], slack, device)
    for features, normalizers in (
        ("values targets", ("set", "both")),
        ("values targets groups norm softcap", ("both",)),
        ("csr groups values targets norm softcap", ("set", "both")),
    ):
        rows = 22 if "csr" in features else 35  # a program a row, or tiles of 32
        for normalizer in normalizers:
            check_company(device, features, normalizer, (rows, 48, 600, 11), torch.float32)
    check_a_token_twice(device)
    check_rows_of_4096(device)
    check_final_rows(device)
    many = moved(problem((4096, 20, 600, 4), torch.float32, "values targets"), device)
    with only_programs({128: [0, 1, 127]}):  # tiles of 32 rows
        assert_invariant(many, [[0], [4095], [33, 2, 7]])
    with only_programs({128: [125], 256: [125, 253], 4096: [4000]}):  # row 4,000 and two chunks of the vocabulary
        assert_invariant(many | {"normalizer": "both"}, [[4000]])
    small = problem((5, 20, 600, 4), torch.float32, "softcap")
    small["hidden_ND"] /= 1000  # logits near 0, which a soft cap of 50 must leave as they are
    assert_as_good_as_plain_torch([small | {"softcap": 50.0, "normalizer": "both"}], device=device)
    if device != "cpu":
        for dtype in DTYPES:
            for width in (576, 3584):
                check_company(device, "values targets norm", "both", (4096, width, 49152, 5), dtype)


def check_final_rows(device: str) -> None:
    """Normed rows are near float64, the same bits in any company, and NaN where their squares overflow."""
    for dtype in DTYPES:
        made = moved(problem((35, 130, 8, 1), dtype, "norm strided"), device)
        hidden_ND, gain_D = made["hidden_ND"], made["norm_weight"]
        head = HeadWeights(made["weight_VD"], gain_D, 1e-5, None, None, 1.0)
        ours = final_rows(hidden_ND, head)
        exact = hidden_ND.double()
        exact = exact * torch.rsqrt(exact.square().mean(-1, keepdim=True) + 1e-5) * gain_D.double()
        # Triton's interpreter cuts float32 to bfloat16 where devices round.
        rounding = torch.finfo(dtype).eps * (2 if dtype == torch.bfloat16 and device == "cpu" else 1)
        assert ours.dtype == dtype and ((ours - exact).abs() <= rounding * exact.abs() + 1e-6).all()
        assert torch.equal(final_rows(hidden_ND[[34, 0]], head), ours[[34, 0]])
        assert final_rows(hidden_ND[:0], head).shape == (0, 130)
        if dtype != torch.float16:
            hidden_ND[7] = 1e30
            ours[7] = torch.nan
            assert_same({"rows": final_rows(hidden_ND, head)}, {"rows": ours})


def check_a_token_twice(device: str) -> None:
    """Two labels of one likely token have its probability each, though their sum is beyond 1, the most of any mass."""
    hidden_ND, weight_VD = torch.ones(1, 8, device=device), torch.zeros(20, 8, device=device)
    weight_VD[3] = 0.7
    for normalizer in ("both", "full"):
        found = restricted_logprobs(hidden_ND, weight_VD, torch.tensor([3, 3]), normalizer=normalizer)
        exact = torch.log_softmax(hidden_ND.double() @ weight_VD.double().T, -1)[0, 3]
        assert found.full_logprobs is not None and found.mass is not None
        assert (found.full_logprobs.double() - exact).abs().max() < 1e-6 and found.mass.tolist() == [1.0]
        if normalizer == "full":
            assert torch.equal(found.logprobs, found.full_logprobs)
            assert found.best_logprob.tolist() == found.logprobs[0, :1].tolist()


def check_rows_of_4096(device: str) -> None:
    """A program a row: each is the same bits alone, among 4,096, and there in another order."""
    features = "csr groups values targets norm softcap"
    many = moved(problem((4096, 8, 50, 3), torch.float32, features), device) | {"normalizer": "both"}
    rows = [0, 1, 2049, 4095]
    order = torch.randperm(4096, generator=torch.Generator().manual_seed(1)).tolist()
    places = [order.index(row) for row in rows]
    found = []
    for arguments, programs in ((many, rows), (select(many, order), places)):
        with only_programs({4096: programs, 128: [place // 32 for place in programs]}):  # rows, and tiles of 32
            found.append(score(arguments))
        assert device != "cpu" or found[-1]["entropy"].isfinite().nonzero().flatten().tolist() == sorted(programs)
    for row, place in zip(rows, places, strict=True):
        alone = of_row(score(select(many, [row])), 0)
        assert alone["valid"]
        assert_same(of_row(found[0], row), alone)
        assert_same(of_row(found[1], place), alone)


def check_company(
    device: str, features: str, normalizer: str, shape: tuple[int, int, int, int], dtype: torch.dtype
) -> None:
    """A row is the same bits in any company, and one that is not finite is invalid and alone in it."""
    arguments = problem(shape, dtype, features) | {"normalizer": normalizer}
    last = shape[0] - 1
    assert_invariant(moved(arguments, device), [[0], [last], [last - 1, 2, 7]])
    rows = {4: torch.inf, 9: torch.nan} | ({20: 1e30} if "norm" in features else {})
    for row, value in rows.items():
        arguments["hidden_ND"][row, 3] = value
    scores = score(moved(arguments, device))
    assert scores["valid"].tolist() == [row not in rows for row in range(shape[0])]
    for row in rows:
        assert scores["best"][row] == -1 and not scores["keep"][row]
        bad = of_row(scores, row)
        assert all(bad[name].isnan().all() for name in bad if bad[name].is_floating_point())


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True, warn_only=True)  # memory that nobody wrote is NaN
    hasten()
    check_implementation("cpu")
    print("all well")
