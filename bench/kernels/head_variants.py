"""The restricted head and what one would write without it, on buffers that rotate beyond the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from adjudge.bench.kernels.limits import COMPILED, FULL, INDEX, MATMUL, OURS, UNCHECKED, HeadCase
from adjudge.bench.kernels.timing import Variant, cache_bytes, itself
from adjudge.kernels import RestrictedScores, restricted_logprobs
from adjudge.kernels.restricted_head import checked_scores
from adjudge.kernels.restricted_head_arguments import HeadWeights, lay_out

LABEL_SETS = 8192
CHECKED_ROWS = 16
CHUNK = 8192  # of the vocabulary in float64


class HeadInputs:
    """Heads of one size, hidden states and label sets; each call takes the next head, rows and set."""

    def __init__(
        self, d: int, v: int, most_rows: int, device: torch.device, dtype: torch.dtype, beyond: int | None = None
    ) -> None:
        """Make at least `beyond` bytes of heads, and of hidden states (default: what the cache cannot hold)."""
        beyond = cache_bytes(device) if beyond is None else beyond
        self.device, self.dtype = device, dtype
        self.generator = torch.Generator(device).manual_seed(0)
        rows = max(most_rows, -(-beyond // (d * dtype.itemsize)))
        weight_VD = (torch.randn(v, d, generator=self.generator, device=device) * 3 / d**0.5).to(dtype)
        self.weights: list[Tensor] = [weight_VD]
        while len(self.weights) * weight_VD.nbytes < beyond:
            self.weights.append(weight_VD.clone())
        self.hidden_PD = torch.randn(rows, d, generator=self.generator, device=device).to(dtype)
        self._label_sets: dict[int, Tensor] = {}

    def weight(self, call: int) -> Tensor:
        """[V, D] for a call, the same numbers in memory of their own."""
        return self.weights[call % len(self.weights)]

    def hidden(self, call: int, n: int) -> Tensor:
        """[N, D] for a call."""
        start = call % (len(self.hidden_PD) // n) * n
        return self.hidden_PD[start : start + n]

    def labels(self, call: int, k: int) -> Tensor:
        """[K] different ids for a call."""
        v = len(self.weights[0])
        if k not in self._label_sets:
            first = torch.randint(v, (LABEL_SETS, 1), generator=self.generator, device=self.device)
            self._label_sets[k] = (first + torch.arange(k, device=self.device) * (v // k)) % v
        return self._label_sets[k][call % LABEL_SETS]


def checked_rows(n: int, device: torch.device) -> Tensor:
    """The rows of N whose errors are measured, spread evenly."""
    return torch.linspace(0, n - 1, min(n, CHECKED_ROWS), device=device).long()


def exact_logprobs(inputs: HeadInputs, case: HeadCase) -> Tensor:
    """In float64 for the checked rows of the first call: normalised over the set, and for "both" beside it fully."""
    x_CD, weight_VD = inputs.hidden(0, case.n)[checked_rows(case.n, inputs.device)].double(), inputs.weight(0)
    logits_CK = x_CD @ weight_VD[inputs.labels(0, case.k)].double().T
    of_set = torch.log_softmax(logits_CK, -1)
    if case.normalizer == "set":
        return of_set
    parts = [(x_CD @ chunk.double().T).logsumexp(-1) for chunk in torch.split(weight_VD, CHUNK)]
    return torch.cat([of_set, logits_CK - torch.stack(parts).logsumexp(0)[:, None]], 1)


def index_matmul(hidden_ND: Tensor, weight_VD: Tensor, ids_K: Tensor) -> Tensor:
    """Log-probabilities over the set from its rows of the head."""
    return torch.log_softmax(hidden_ND @ weight_VD[ids_K].T, -1, dtype=torch.float32)


def full_head(hidden_ND: Tensor, weight_VD: Tensor, ids_K: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities over the set and over the vocabulary from all logits."""
    full_NK = torch.log_softmax(hidden_ND @ weight_VD.T, -1, dtype=torch.float32)[:, ids_K]
    return torch.log_softmax(full_NK, -1), full_NK


def head_variants(inputs: HeadInputs, case: HeadCase, *, compiled: bool) -> list[Variant]:
    """Ours first."""
    n, k = case.n, case.k
    itemsize = inputs.dtype.itemsize

    def variant(name: str, run: Callable[[int], object], answer: Callable[..., Tensor] | None) -> Variant:
        work, memory = case.work(name, itemsize), case.memory(name, itemsize)
        return Variant(name, run, answer, work, memory, name.endswith(COMPILED))

    def ours(call: int) -> RestrictedScores:
        hidden_ND, ids_K = inputs.hidden(call, n), inputs.labels(call, k)
        return restricted_logprobs(hidden_ND, inputs.weight(call), ids_K, normalizer=case.normalizer)

    def of_ours(scores: RestrictedScores) -> Tensor:
        if scores.full_logprobs is None:
            return scores.logprobs
        return torch.cat([scores.logprobs, scores.full_logprobs], 1)

    def of_full_head(logprobs: tuple[Tensor, Tensor]) -> Tensor:
        return logprobs[0] if case.normalizer == "set" else torch.cat(logprobs, 1)

    def peer(function: Callable[[Tensor, Tensor, Tensor], object]) -> Callable[[int], object]:
        return lambda call: function(inputs.hidden(call, n), inputs.weight(call), inputs.labels(call, k))

    variants = [variant(OURS, ours, of_ours)]
    variants.append(variant(UNCHECKED, _unchecked(inputs, case), _of_scores))
    if case.normalizer == "set":
        variants.append(variant(INDEX, peer(index_matmul), itself))
    variants.append(variant(FULL, peer(full_head), of_full_head))
    if compiled and case.normalizer == "set":
        variants.append(variant(INDEX + COMPILED, peer(torch.compile(index_matmul, fullgraph=True)), itself))
    if compiled:
        variants.append(variant(FULL + COMPILED, peer(torch.compile(full_head, fullgraph=True)), of_full_head))
    if case.normalizer == "both":
        variants.append(variant(MATMUL, lambda call: inputs.hidden(call, n) @ inputs.weight(call).T, None))
    return variants


def _unchecked(inputs: HeadInputs, case: HeadCase) -> Callable[[int], dict[str, Tensor]]:
    """Ours without the look at its arguments, which on CUDA waits for the device."""
    heads = [HeadWeights(weight_VD, None, 1e-6, None, None, 1.0) for weight_VD in inputs.weights]
    example_ND, ids_K = inputs.hidden(0, case.n), inputs.labels(0, case.k)
    _, labels = lay_out(example_ND, case.v, None, ids_K, None, None, None, None)

    def run(call: int) -> dict[str, Tensor]:
        hidden_ND, own = inputs.hidden(call, case.n), replace(labels, token_ids=inputs.labels(call, case.k))
        return checked_scores(hidden_ND, None, case.n, heads[call % len(heads)], own, case.normalizer)

    return run


def _of_scores(scores: dict[str, Tensor]) -> Tensor:
    return torch.cat([scores[name] for name in ("logprobs", "full_logprobs") if name in scores], 1)
