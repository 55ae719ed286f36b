"""Tensors in, tensors out: the kernels that judging needs, each with a torch twin and a float64 oracle."""

from adjudge.kernels.restricted_head import RestrictedScores, restricted_logprobs
from adjudge.kernels.restricted_head_arguments import LabelSetError

__all__ = ["LabelSetError", "RestrictedScores", "restricted_logprobs"]
