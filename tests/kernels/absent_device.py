"""A device that is not here: what its host would wait for is written down.

Its tensors say "meta" and carry their numbers in memory of the host, so that code which reads numbers off the device
goes on with the right ones, after the wait has been counted.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten
# Their results are Python's, or their shapes depend on what the tensors hold.
READS = {
    aten._local_scalar_dense,
    aten._unique2,
    aten.bincount,
    aten.equal,
    aten.masked_select,
    aten.nonzero,
    aten.unique_consecutive,
    aten.unique_dim,
}
COPIES = {aten._to_copy, aten.copy_}


class AbsentDevice(TorchDispatchMode):
    """Within the block, tensors on "meta" work; `waits` names the operations that would have waited for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def put(self, value: Any) -> Any:
        """A tensor's copy on the device, made before the clock starts; anything else as it is."""
        return _on_device(value.clone()) if isinstance(value, Tensor) else value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        target = kwargs.get("device")
        to_device = target is not None and torch.device(target).type == "meta"
        if not to_device and not any(tensor.is_meta for tensor in tensors):
            return func(*args, **kwargs)
        self._watch(func, args, kwargs, tensors)
        if to_device:
            kwargs["device"] = "cpu"
        result = func(*tree_map(number_memory, args), **tree_map(number_memory, kwargs))
        if func.overloadpacket in COPIES and target is not None and not to_device:
            return result  # a copy for the host
        same = {id(number_memory(tensor)): tensor for tensor in tensors}  # written in place
        return tree_map(lambda x: same.get(id(x), _on_device(x)) if isinstance(x, Tensor) else x, result)

    def _watch(self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor]) -> None:
        packet = func.overloadpacket
        on_host = [tensor for tensor in tensors if not tensor.is_meta and tensor.dim()]
        if packet in COPIES:
            both = bool(on_host) or kwargs.get("device") == torch.device("cpu")
            waits = both and not kwargs.get("non_blocking", args[2:3] == (True,))
        elif packet in (aten.index, aten.index_put_, aten.index_put):
            chosen = [index for index in args[1] if index is not None]
            waits = any(index.dtype == torch.bool or not index.is_meta for index in chosen)
        else:
            assert not on_host, f"{func} mixes tensors of the host and of the device"
            sizes_unknown = func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is None
            waits = packet in READS or sizes_unknown
        if waits:
            self.waits.append(str(func))


def number_memory(value: Any) -> Any:
    """The host's memory behind a tensor on the device; anything else as it is."""
    return value.numbers if isinstance(value, Tensor) and value.is_meta else value


def _on_device(numbers: Tensor) -> Tensor:
    tensor = torch.empty_strided(numbers.shape, numbers.stride(), dtype=numbers.dtype, device="meta")
    tensor.numbers = numbers  # type: ignore[attr-defined]
    return tensor
