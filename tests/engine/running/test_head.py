"""The head that is read off a model, in half precision."""

from __future__ import annotations

import torch
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm

from adjudge.engine.running.head import Head


def test_a_gain_of_one_more_than_its_weights_is_not_rounded_to_their_dtype() -> None:
    torch.manual_seed(0)
    norm = Gemma2RMSNorm(192).bfloat16()
    with torch.inference_mode():
        norm.weight.copy_(0.7 * torch.randn(192) + 3)  # as large and as various as trained ones
        head = Head(torch.zeros(8, 192).bfloat16(), None, norm.weight, 1.0, norm.eps, None, 1.0)
        hidden_ND = 5 * torch.randn(300, 192).bfloat16()
        assert head.gain is not None and torch.equal(head.gain, 1 + norm.weight.float())
        assert (head.normed(hidden_ND) == norm(hidden_ND).float()).float().mean() > 0.999
