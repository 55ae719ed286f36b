"""Weights that belong to somebody else: an engine on the very base weights of a model in training, and no copy."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import torch
from torch import nn

from adjudge.engine.errors import AdjudgeError, ModelUnsupported, reason
from adjudge.engine.models.adapters import changes_at_start
from adjudge.engine.models.fingerprints import content_fingerprint
from adjudge.engine.models.sources import OpenModel

SAMPLE = 16
"""Values of each base weight that are looked at, to see whether they were changed."""
MEND = "train an adapter instead (LoRA), or give the judge a model of its own"


class Lent:
    """A transformers `model` that is trained with a LoRA adapter, whose base weights an engine may use meanwhile.

    `model` may be wrapped, by PEFT or by accelerate. `tokenizer` is the model's own, `name` what logs call it, and
    `fingerprint` that of its base weights.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str, fingerprint: str) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.name, self.fingerprint = name, fingerprint
        self._taken: dict[str, nn.Parameter] = {}
        self._dtypes: dict[str, torch.dtype] = {}
        self._versions: list[int] = []
        self._sample = torch.empty(0)

    def open(self) -> OpenModel:
        """A model of the same architecture whose parameters are the base model's own objects; it has no adapter.

        So there is nothing to switch off and on again, and the lender's modules are not touched. Its buffers (rotary
        frequencies) are copies. Raises ModelUnsupported where base weights are trained, or are not whole in this
        process.
        """
        base = unwrapped(self.model)
        _check_adapters(base)
        try:
            with torch.device("meta"):
                bare: Any = type(base)(copy.deepcopy(base.config))
        except Exception as error:
            raise ModelUnsupported(
                f"{type(base).__name__} cannot be built on lent weights ({reason(error)}): {MEND}"
            ) from error
        for name, blank in list(bare.named_parameters(remove_duplicate=False)):
            place, _, leaf = name.rpartition(".")
            self._taken[name] = _whole(name, blank, _own(base, place)._parameters.get(leaf))
            bare.get_submodule(place)._parameters[leaf] = self._taken[name]
            self._dtypes[name] = self._taken[name].dtype
        for name, _ in list(bare.named_buffers(remove_duplicate=False)):
            place, _, leaf = name.rpartition(".")
            bare.get_submodule(place)._buffers[leaf] = getattr(_own(base, place), leaf).clone()
        self._versions, self._sample = self._counted(), self._sampled()
        bare.generation_config = copy.deepcopy(getattr(base, "generation_config", None))
        return OpenModel(bare.eval(), self.tokenizer)

    def check(self) -> None:
        """Raise AdjudgeError where the lender's base weights are not what `open` took: exchanged, or merged into."""
        base = unwrapped(self.model)
        if any(getattr(module, "merged", False) for module in base.modules()):
            raise AdjudgeError(
                f"the adapter of {self.name} is merged into the base weights it lends: unmerge it before they score"
            )
        for name, own in self._taken.items():
            place, _, leaf = name.rpartition(".")
            if _own(base, place)._parameters.get(leaf) is not own or own.requires_grad:
                raise AdjudgeError(f"{name} of {self.name} was exchanged or is trained since it was lent: {MEND}")
            if own.dtype != self._dtypes[name]:
                raise AdjudgeError(
                    f"{name} of {self.name} is {own.dtype} and was {self._dtypes[name]} when it was lent: cast it"
                    " before, or give the judge a model of its own"
                )

    def is_changed(self) -> bool:
        """Whether base weights were changed in place, as by merging an adapter and taking it out again: it rounds.

        torch counts such changes, but for those of `.data`, of which some values tell.
        """
        return self._counted() != self._versions or not torch.equal(self._sampled(), self._sample)

    def take_changes(self) -> str:
        """Go on with the weights as they are now; what tells them from others."""
        before, self._sample, self._versions = self._sample, self._sampled(), self._counted()
        if torch.equal(before, self._sample):  # few values were changed, or none
            return content_fingerprint(unwrapped(self.model), self.tokenizer)
        return hashlib.sha256(self._sample.numpy().tobytes()).hexdigest()

    def _counted(self) -> list[int]:
        """How often each base weight was changed in place, as far as torch counts it."""
        return [0 if own.is_inference() else own._version for own in self._taken.values()]

    def _sampled(self) -> torch.Tensor:
        """Some values of every base weight."""
        values = [own.detach().flatten()[:: max(1, own.numel() // SAMPLE)][:SAMPLE] for own in self._taken.values()]
        return torch.cat([value.float() for value in values]).cpu()


def unwrapped(model: Any) -> Any:
    """The transformers model inside what accelerate, torch.compile and PEFT have put around it."""
    while (inner := getattr(model, "module", getattr(model, "_orig_mod", None))) is not None:
        model = inner
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _own(base: Any, place: str) -> Any:
    """The module at that place of the bare model, without what PEFT has put around any on the way."""
    module = base
    for part in place.split(".") if place else ():
        if (module := getattr(module, part, None)) is None:
            raise ModelUnsupported(f"an adapter has put something else in the place of {place}: {MEND}")
        while (inner := getattr(module, "base_layer", getattr(module, "original_module", None))) is not None:
            module = inner
    return module


def _whole(name: str, blank: nn.Parameter, own: nn.Parameter | None) -> nn.Parameter:
    """The lender's parameter, if it can be used as it is."""
    if own is None or own.shape != blank.shape or hasattr(own, "device_mesh") or not own.is_floating_point():
        raise ModelUnsupported(f"{name} is not whole in this process (it is sharded or quantised): {MEND}")
    if own.requires_grad:
        raise ModelUnsupported(f"{name} is trained itself, so that its first values are gone after a step: {MEND}")
    return own


def _check_adapters(base: Any) -> None:
    for config in getattr(base, "peft_config", {}).values():
        if getattr(config, "layer_replication", None):
            raise ModelUnsupported("an adapter with layer_replication has other layers than its base: " + MEND)
        if changes_at_start(config):
            raise ModelUnsupported(
                f'an adapter that begins with init_lora_weights "{config.init_lora_weights}" changes the base weights:'
                " leave that out, or give the judge a model of its own"
            )
