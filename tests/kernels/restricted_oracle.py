"""Slow, plain, high-precision statements of what the kernels compute; the tests hold the kernels against them."""

import torch
from torch import Tensor

from adjudge.kernels.restricted_head import RestrictedScores
from adjudge.kernels.restricted_head_arguments import Normalizer


def restricted_logprobs_oracle(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    label_ids: Tensor,
    *,
    rows: Tensor | None = None,
    label_offsets: Tensor | None = None,
    label_groups: Tensor | None = None,
    label_values: Tensor | None = None,
    targets: Tensor | None = None,
    norm_weight: Tensor | None = None,
    eps: float = 1e-6,
    bias: Tensor | None = None,
    softcap: float | None = None,
    temperature: float = 1.0,
    normalizer: Normalizer = "set",
) -> RestrictedScores:
    """Do what `restricted_logprobs` does, over the whole vocabulary in float64, for inputs known to be good."""
    x_ND = (hidden_ND if rows is None else hidden_ND[rows]).double()
    if norm_weight is not None:
        x_ND = x_ND * torch.rsqrt(x_ND.square().mean(-1, keepdim=True) + eps) * norm_weight.double()
    logits_NV = x_ND @ weight_VD.double().T
    if bias is not None:
        logits_NV = logits_NV + bias.double()
    if softcap is not None:
        logits_NV = softcap * torch.tanh(logits_NV / softcap)
    return scores_of_logits(
        logits_NV / temperature,
        label_ids,
        label_offsets=label_offsets,
        label_groups=label_groups,
        label_values=label_values,
        targets=targets,
        normalizer=normalizer,
    )


def scores_of_logits(
    logits_NV: Tensor,
    label_ids: Tensor,
    *,
    label_offsets: Tensor | None = None,
    label_groups: Tensor | None = None,
    label_values: Tensor | None = None,
    targets: Tensor | None = None,
    normalizer: Normalizer = "set",
) -> RestrictedScores:
    """Score labels from whole rows of logits, one row at a time, in the dtype of the logits."""
    rows = []
    first_label = 0
    for n, logits_V in enumerate(logits_NV):
        tokens = slice(None) if label_offsets is None else slice(int(label_offsets[n]), int(label_offsets[n + 1]))
        logits_K = logits_V[label_ids[tokens]]
        groups = torch.arange(len(logits_K)) if label_groups is None else label_groups[tokens]
        labels = int(groups.max()) + 1
        logits_L = torch.stack([logits_K[groups == label].logsumexp(0) for label in range(labels)])
        values_L = None
        if label_values is not None:
            values_L = label_values[first_label : first_label + labels].to(logits_V.dtype)
        rows.append(_row_scores(logits_L, logits_V.logsumexp(0), values_L, normalizer))
        first_label += 0 if label_offsets is None else labels

    def column(name: str) -> Tensor:
        return torch.stack([row[name] for row in rows])

    def labels_of_rows(name: str) -> Tensor:
        return column(name) if label_offsets is None else torch.cat([row[name] for row in rows])

    with_mass = normalizer != "set"
    with_values = label_values is not None
    label_counts = torch.tensor([0] + [len(row["logprobs"]) for row in rows])
    return RestrictedScores(
        logprobs=labels_of_rows("logprobs"),
        label_offsets=None if label_offsets is None else label_counts.cumsum(0),
        full_logprobs=labels_of_rows("full_logprobs") if with_mass else None,
        log_mass=column("log_mass") if with_mass else None,
        mass=column("log_mass").exp() if with_mass else None,
        best=column("best"),
        best_logprob=column("best_logprob"),
        expected=column("expected") if with_values else None,
        variance=column("variance") if with_values else None,
        entropy=column("entropy"),
        margin=column("margin"),
        keep=None if targets is None else column("best") == targets,
        valid=column("best") >= 0,
    )


def _row_scores(
    logits_L: Tensor, log_z_vocabulary: Tensor, values_L: Tensor | None, normalizer: Normalizer
) -> dict[str, Tensor]:
    log_z = logits_L.logsumexp(0)
    set_logprobs_L, full_logprobs_L = logits_L - log_z, logits_L - log_z_vocabulary
    probs_L = set_logprobs_L.exp()
    best = set_logprobs_L.argmax()
    logprobs_L = full_logprobs_L if normalizer == "full" else set_logprobs_L
    two_best = torch.cat([probs_L, probs_L.new_zeros(1)]).topk(2).values
    if values_L is None:
        values_L = torch.zeros_like(probs_L)
    expected = (probs_L * values_L).sum()
    finite = bool(log_z.isfinite()) and (normalizer == "set" or bool(log_z_vocabulary.isfinite()))
    scores = {
        "logprobs": logprobs_L,
        "full_logprobs": full_logprobs_L,
        "log_mass": log_z - log_z_vocabulary,
        "best_logprob": logprobs_L[best],
        "expected": expected,
        "variance": (probs_L * (values_L - expected).square()).sum(),
        "entropy": torch.special.entr(probs_L).sum(),
        "margin": two_best[0] - two_best[1],
    }
    if not finite:
        scores = {name: torch.full_like(value, torch.nan) for name, value in scores.items()}
    return scores | {"best": best if finite else torch.full_like(best, -1)}
