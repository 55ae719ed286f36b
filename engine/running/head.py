"""The model's language-model head, reduced to what a score needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import nn

from adjudge.engine.errors import ModelUnsupported
from adjudge.kernels import restricted_logprobs
from adjudge.kernels.final_rows import final_rows
from adjudge.kernels.restricted_head_arguments import HeadWeights
from adjudge.kernels.vocabulary_logits import vocabulary_logits

FINAL_NORMS = ("norm", "final_layernorm", "final_layer_norm", "ln_f")
"""What decoders call the norm before their head."""


@dataclass(frozen=True)
class Head:
    """Weight [V, D], optional bias [V], the final RMSNorm if it is fused, soft cap and temperature.

    A fused norm multiplies by `norm_offset + norm_weight`. `batch_invariant` says that rows of logits may not depend on
    each other on a GPU either.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None
    norm_weight: torch.Tensor | None
    norm_offset: float
    eps: float
    softcap: float | None
    temperature: float
    batch_invariant: bool = False

    @staticmethod
    def of(model: Any, logits_TV: torch.Tensor, hidden: Callable[[], torch.Tensor]) -> Head:
        """Read a transformers model's head, and take over its final RMSNorm where it is a plain one.

        `logits_TV` are the model's own for some tokens, `hidden()` its decoder's hidden states [T, D] for the same;
        raises ModelUnsupported when the head read off the model does not give the model's log-probabilities.
        """
        config = model.config.get_text_config()
        linear = model.get_output_embeddings()
        scale = float(getattr(config, "logit_scale", None) or 1.0) / float(
            getattr(config, "logits_scaling", None) or 1.0
        )
        softcap = getattr(config, "final_logit_softcapping", None)
        norm = _take_norm(model.get_decoder())
        head = Head(linear.weight, getattr(linear, "bias", None), *norm, softcap, 1.0 / scale)
        token_ids = tuple(range(0, linear.weight.shape[0], max(1, linear.weight.shape[0] // 7)))
        expected = torch.log_softmax(logits_TV.float(), -1)[:, list(token_ids)]
        found = torch.tensor(head.logprobs(hidden(), [token_ids] * len(expected)), dtype=torch.float32)
        error = (found - expected.cpu()).abs().max()
        rounding = float(logits_TV.abs().max()) / 64  # of logits in bfloat16: two steps of the largest
        if not error < (1e-3 if linear.weight.dtype == torch.float32 else max(0.25, rounding)):
            raise ModelUnsupported(
                f"{type(model).__name__} computes its logits in a way adjudge does not know"
                f" (log-probabilities differ by {error:.3g}): choose another model"
            )
        return head

    @property
    def gain(self) -> torch.Tensor | None:
        """What the fused norm multiplies by [D]; a sum is in float32, as transformers adds it."""
        if self.norm_weight is None or not self.norm_offset:
            return self.norm_weight
        return self.norm_offset + self.norm_weight.float()

    @property
    def kernel(self) -> HeadWeights:
        """The same as the kernels take it."""
        return HeadWeights(self.weight, self.gain, self.eps, self.bias, self.softcap, self.temperature)

    def normed(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """The hidden states [N, D] after the final norm, in float32; rows that overflow are NaN."""
        return final_rows(hidden_ND, self.kernel).float()

    def vocabulary_logits(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Logits [N, V] over the whole vocabulary in float32: for rows whose next token is sampled."""
        return vocabulary_logits(hidden_ND, self.kernel, self.batch_invariant)

    def logprobs(self, hidden_ND: torch.Tensor, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probabilities under the whole vocabulary of each row's own tokens; NaN for rows that are not finite."""
        offsets = list(accumulate(map(len, token_ids), initial=0))
        scores = restricted_logprobs(
            hidden_ND,
            self.weight,
            torch.tensor([token for row in token_ids for token in row], dtype=torch.int64),
            label_offsets=torch.tensor(offsets),
            norm_weight=self.gain,
            eps=self.eps,
            bias=self.bias,
            softcap=self.softcap,
            temperature=self.temperature,
            normalizer="full",
        )
        logprobs: list[float] = scores.logprobs.tolist()
        return [logprobs[start:end] for start, end in pairwise(offsets)]


def _take_norm(decoder: nn.Module) -> tuple[torch.Tensor | None, float, float]:
    """The decoder's final RMSNorm (weight, offset, eps), identity left in its place; (None, 0, 0) for another kind."""
    for name in FINAL_NORMS:
        norm = getattr(decoder, name, None)
        weight = getattr(norm, "weight", None)
        eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
        if norm is None or weight is None or eps is None or getattr(norm, "bias", None) is not None:
            continue
        sample = torch.randn(4, weight.shape[0], generator=torch.Generator().manual_seed(0)).to(weight)
        expected = norm(sample).float()
        normed = sample.float() * torch.rsqrt(sample.float().pow(2).mean(-1, keepdim=True) + eps)
        for offset in (0.0, 1.0):
            tolerance = 1e-5 if weight.dtype == torch.float32 else 2e-2
            if torch.allclose(normed * (offset + weight.float()), expected, rtol=tolerance, atol=tolerance):
                setattr(decoder, name, nn.Identity())
                return weight, offset, float(eps)
    return None, 0.0, 0.0
