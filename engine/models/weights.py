"""The weights of a model that is being served: exchanged for others, sent to the host and fetched back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from adjudge.engine.errors import ModelCorrupt, ModelNotFound, ModelUnsupported, reason
from adjudge.engine.models.adapters import WRAPPED
from adjudge.engine.models.loading import loading, require_all_weights
from adjudge.engine.paths import expanded


class Weights:
    """The tensors of a transformers model by the names of its `state_dict`, adapters left out.

    Those that are `lent` are not moved: their owner is at work with them.
    """

    def __init__(self, model: Any, *, lent: bool = False) -> None:
        self.model = model
        self.lent = lent
        self._own: dict[str, torch.Tensor] = model.state_dict(keep_vars=True)
        self._away: list[tuple[torch.Tensor, torch.device]] = []
        self._copies: Any = WeakTensorKeyDictionary()  # on the host, with how often the tensor had been written to

    def checked(self, weights: Mapping[str, torch.Tensor] | str | Path) -> dict[str, torch.Tensor]:
        """New values for some or all of the tensors, ready for `update`; may be a folder of *.safetensors files.

        The files may have the names by which transformers saves the model, where those are others; it has to be all of
        it then, and takes the host's memory twice for a while. Raises ModelUnsupported for a name or shape the model
        has not and for tied weights that differ, ModelNotFound and ModelCorrupt about a folder.
        """
        if isinstance(weights, (str, Path)):
            folder = expanded(weights)
            new = self._in_own_names(folder, _unwrapped(_read(folder)))
        else:
            new = _unwrapped(weights)
        by_place: dict[int, str] = {}
        for name, tensor in new.items():
            own = self._own.get(name)
            if own is None:
                raise _unknown(name)
            plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
            if not plain or tensor.is_meta or tensor.is_complex():
                what = " ".join(str(getattr(tensor, name, "")) for name in ("layout", "device", "dtype"))
                what = f"{type(tensor).__name__} {what}".strip()
                raise ModelUnsupported(f"{name} is no tensor with numbers of its own ({what}): gather or convert it")
            if own.shape != tensor.shape:
                raise _misshapen(name, tensor.shape, own.shape)
            twin = by_place.setdefault(own.data_ptr(), name)
            if twin != name and not torch.equal(new[twin], tensor):
                raise ModelUnsupported(f"{twin} and {name} are one tensor here, but not those given: give one")
        return new

    def _in_own_names(self, folder: Path, saved: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What was read of a folder as transformers loads it, which renames and joins the weights of some models."""
        if saved.keys() <= self._own.keys():
            return saved
        with loading(str(folder)):
            loaded: Any = type(self.model).from_pretrained(
                None,
                config=self.model.config,
                state_dict=saved,
                dtype=self.model.dtype,
                ignore_mismatched_sizes=True,  # it tells of them in its log alone
                output_loading_info=True,
            )
        model, info = loaded
        if strange := sorted(info["unexpected_keys"]):
            raise _unknown(strange[0])
        if misshapen := sorted(info["mismatched_keys"]):
            raise _misshapen(*misshapen[0])
        require_all_weights(str(folder), info)
        tensors: dict[str, torch.Tensor] = model.state_dict()
        return tensors

    def after(self, checked: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """All tensors as `update` would leave them."""
        by_place = {self._own[name].data_ptr(): tensor for name, tensor in checked.items()}
        return {name: by_place.get(own.data_ptr(), own) for name, own in self._own.items()}

    def update(self, checked: Mapping[str, torch.Tensor]) -> None:
        """Take new values, in place."""
        with torch.no_grad():
            for name, tensor in checked.items():
                self._own[name].copy_(tensor)

    def to_host(self) -> None:
        """Move every tensor, adapters included, off its device; each object keeps its identity.

        The host keeps its copies: the next time nothing goes there but what was written to in between, of which torch
        counts all but writes through `.data`.
        """
        moved = () if self.lent else (*self.model.parameters(), *self.model.buffers(), *self._own.values())
        for tensor in moved:
            if tensor.device.type != "cpu":
                self._away.append((tensor, tensor.device))
                written, copy = self._copies.get(tensor, (None, None))
                kept = copy is not None and written == tensor._version
                tensor.data = copy if kept else tensor.data.to("cpu")

    def to_device(self) -> None:
        """Move them back to where they were."""
        while self._away:
            tensor, device = self._away[-1]
            copy, tensor.data = tensor.data, tensor.data.to(device)  # which may find no room
            self._away.pop()
            if not tensor.is_inference():  # of whose writes nothing is counted
                self._copies[tensor] = tensor._version, copy


def _unwrapped(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.replace(WRAPPED, ""): tensor for name, tensor in weights.items()}


def _unknown(name: str) -> ModelUnsupported:
    return ModelUnsupported(f"the model has no weights called {name}: use the names of its state_dict")


def _misshapen(name: str, given: torch.Size, own: torch.Size) -> ModelUnsupported:
    return ModelUnsupported(f"{name} has shape {tuple(given)}, in the model {tuple(own)}")


def _read(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelNotFound(f"{folder} holds no weights (*.safetensors): pass the folder that the model was saved to")
    try:
        return {name: tensor for file in files for name, tensor in load_file(file).items()}
    except (OSError, SafetensorError) as error:
        raise ModelCorrupt(f"the weights in {folder} are unreadable ({reason(error)}): save them again") from error
