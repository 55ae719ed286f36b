"""What keeps the rows of a model from depending on each other, besides attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from adjudge.engine.errors import AdjudgeError
from adjudge.kernels.activations import in_even_shares
from adjudge.kernels.dispatch import kernel_backend
from adjudge.kernels.linear import BatchInvariantLinear, invariant_linear, make_batch_invariant


class Invariance:
    """A model whose rows do not depend on each other: on a CPU as far as that can be, on a GPU where it is `asked`.

    `others` are the kinds of layers, on a CPU, whose matrices are in no `nn.Linear`. Raises AdjudgeError where it is
    asked for and cannot be.
    """

    def __init__(self, model: Any, *, asked: bool, torch_compile: bool) -> None:
        self.asked = asked
        self.others: set[str] = set()
        self._model = model
        self._compiled = torch_compile
        self._experts: list[Any] = []
        self._means = invariant_means(model.device) if asked else nullcontext()
        self.take_layers()

    def take_layers(self) -> None:
        """Have dense layers whose rows do not depend on each other, an adapter's that was laid over them too.

        Raises AdjudgeError where it is asked for on a GPU and there are matrices beside those of `nn.Linear`.
        """
        on_cpu = self._model.device.type == "cpu"
        if not self.asked and not on_cpu:
            return
        decoder = self._model.get_decoder()
        make_batch_invariant(decoder)
        others = other_layers(decoder)
        self.others = set(others) - HOLDING if on_cpu else set()
        self._experts = expert_configs(decoder)
        if others and not on_cpu:
            raise AdjudgeError(
                f"{type(self._model).__name__} has layers that adjudge does not know ({', '.join(others)}), whose"
                " numbers may depend on the batch: leave batch_invariant out"
            )

    @contextmanager
    def held(self) -> Iterator[None]:
        """A block in which rows do not depend on each other, in what is no layer of ours either."""
        matrices = self.others and not self._compiled
        with self._means, invariant_matrices(self._experts) if matrices else nullcontext():
            yield


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


def expert_configs(decoder: nn.Module) -> list[Any]:
    """The configurations that say by what kernels transformers computes experts, each once."""
    configs = {id(own): own for one in decoder.modules() if hasattr(own := getattr(one, "config", None), EXPERTS)}
    return list(configs.values())


@contextmanager
def invariant_matrices(configs: Sequence[Any]) -> Iterator[None]:
    """A block in which rows do not depend on each other, on a CPU, where they meet matrices that are in no `nn.Linear`.

    Those of routers and of experts are in parameters of their own. The experts of these `configs` go one after the
    other meanwhile.
    """
    before = [getattr(config, EXPERTS) for config in configs]
    try:
        for config in configs:
            setattr(config, EXPERTS, "eager")
        with _Matrices():
            yield
    finally:
        for config, kernels in zip(configs, before, strict=True):
            setattr(config, EXPERTS, kernels)


HOLDING = frozenset({"Conv1D"})
"""Other layers, of GPT-2's, that hold to it as they are wherever the probe of an engine finds so."""
EXPERTS = "_experts_implementation"


class _Matrices(TorchFunctionMode):
    """Products of rows with a matrix go through `invariant_linear`, and the odds of experts through even shares."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if kwargs:
            return func(*args, **kwargs)
        if func is F.linear and args[1].dim() == 2 and args[0].numel():
            return _linear(*args)
        if func in _PRODUCTS and args[0].dim() == args[1].dim() == 2 and args[0].numel():
            return _linear(args[0], args[1].t())
        if func in _CURVES:
            return in_even_shares(func, *args)
        return func(*args)


_CURVES = (torch.sigmoid, torch.Tensor.sigmoid)
_PRODUCTS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.mm, torch.Tensor.mm)


def _linear(rows: torch.Tensor, weight_VD: torch.Tensor, bias_V: torch.Tensor | None = None) -> torch.Tensor:
    flat_ND = rows.reshape(-1, rows.shape[-1])
    return invariant_linear(flat_ND, weight_VD, bias_V).view(*rows.shape[:-1], len(weight_VD))


def other_layers(decoder: nn.Module) -> list[str]:
    """What modules with matrices are called that are neither dense layers of ours nor embeddings."""
    known = (BatchInvariantLinear, nn.Embedding)
    modules = [module for module in decoder.modules() if not isinstance(module, known)]
    return sorted({type(one).__name__ for one in modules if any(p.dim() > 1 for p in one.parameters(recurse=False))})
