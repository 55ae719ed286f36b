"""What `batch_invariant` asks of a model besides its dense layers and attention."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from adjudge.engine.errors import AdjudgeError
from adjudge.kernels.dispatch import kernel_backend
from adjudge.kernels.linear import BatchInvariantLinear


def invariant_means(device: torch.device) -> AbstractContextManager[Any]:
    """A block in which the means of rows do not depend on each other; raises AdjudgeError where Triton does not run."""
    if kernel_backend(device) == "triton":
        from adjudge.kernels.row_means_triton import RowMeans

        return RowMeans()
    if device.type != "cpu":
        raise AdjudgeError(
            "batch_invariant is the work of Triton kernels there: install triton and leave ADJUDGE_KERNELS unset, or"
            " leave it out"
        )
    return nullcontext()


HOLDING = frozenset({"Conv1D"})
"""Other layers, of GPT-2's, that hold to it wherever the probe of an engine finds so."""


def other_layers(decoder: nn.Module) -> list[str]:
    """What modules with matrices are called that are neither dense layers of ours nor embeddings."""
    known = (BatchInvariantLinear, nn.Embedding)
    modules = [module for module in decoder.modules() if not isinstance(module, known)]
    return sorted({type(one).__name__ for one in modules if any(p.dim() > 1 for p in one.parameters(recurse=False))})
