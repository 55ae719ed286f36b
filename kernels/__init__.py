"""Tensors in, tensors out: the kernels that judging needs, each with a torch twin."""

from adjudge.kernels.advantages import GroupAdvantages, group_advantages
from adjudge.kernels.answer_spans import AnswerSpans, SpanReason, answer_spans
from adjudge.kernels.byte_table import ByteTable
from adjudge.kernels.ragged import RaggedError
from adjudge.kernels.restricted_head import RestrictedScores, restricted_logprobs
from adjudge.kernels.restricted_head_arguments import LabelSetError

__all__ = [
    "AnswerSpans",
    "ByteTable",
    "GroupAdvantages",
    "LabelSetError",
    "RaggedError",
    "RestrictedScores",
    "SpanReason",
    "answer_spans",
    "group_advantages",
    "restricted_logprobs",
]
