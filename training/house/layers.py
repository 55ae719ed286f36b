"""A judge's upper layers: what they read of whole prompts, what they use least, and that given to a direction of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from adjudge.engine.errors import AdjudgeError, ModelUnsupported
from adjudge.training.evaluator.direct import read_labels, run_batch
from adjudge.training.evaluator.fitting import Batch
from adjudge.training.evaluator.questions import NUMBERS

LOUD = 0.7
"""How far the head moves a state for a difference of one, beside the state's root mean square."""
LOUDER = 5.0
"""The same where a threshold counts, for what lies along its direction before must not reach that."""
OPEN = 8.0
"""What the neuron's gate lets through, where activations are nearly the identity."""
STEEP = 12.0
"""How far the gate opens for a difference of one, where the neuron is to fire beyond a place alone."""


class Means(NamedTuple):
    """What the layer's attention reads, float64 on the host: of each slot's prompt the mean, and the first token's."""

    means_SD: torch.Tensor
    firsts_SD: torch.Tensor


class Use(NamedTuple):
    """How a judge uses what it has from the layer on, in some prompts; float64 on the host.

    `heads_RH` is how far each head of the layer moves the expected score of a row, `neurons_SN` each neuron of the last
    layer that of a slot, to first order. `pulls_SD` is the gradient of the expected score with respect to what the last
    layer adds at a slot, `reads_SD` what its dense layers read there, `sizes_S2` the root mean squares of the states
    there as the layer and as the last dense layers begin. `states_DD` sums the squares of all tokens' states, of unit
    mean square.
    """

    heads_RH: torch.Tensor
    neurons_SN: torch.Tensor
    pulls_SD: torch.Tensor
    reads_SD: torch.Tensor
    sizes_S2: torch.Tensor
    states_DD: torch.Tensor


class Layers:
    """A model's layers from one on, under an adapter. Raises AdjudgeError where there are none, or not as Llama's."""

    def __init__(self, model: Any, base: Any, first: int) -> None:
        self.decoder = base.get_decoder()
        layers = list(getattr(self.decoder, "layers", None) or [])
        if layers and first >= len(layers):
            raise AdjudgeError(f"the model has no layer {first}: lower layer of [mean_head] below {len(layers)}")
        if not layers or not all(_like_llamas(layer) for layer in layers[first:]):
            raise ModelUnsupported(
                f"mean_head needs layers like Llama's from its own on, {first}, with an adapter over all their"
                " projections: drop mean_head, or choose another model"
            )
        self.first, self.layers = first, layers[first:]
        self.attention, self.dense = layers[first].self_attn, layers[-1].mlp
        self.norms = [norm for one in self.layers for norm in (one.input_layernorm, one.post_attention_layernorm)]
        self.config, self.adapter = model.peft_config[model.active_adapter], model.active_adapter
        self.paths = {id(module): name for name, module in base.named_modules()}
        self.size = int(self.attention.head_dim)
        self.count = self.attention.q_proj.out_features // self.size
        self.groups = self.attention.v_proj.out_features // self.size

    def means(self, model: Any, batch: Batch) -> Means:
        """The means at a batch's slots."""
        with self._no_more(), torch.no_grad(), _reading(self.norms[0], inputs=False) as read:
            run_batch(model, batch)
        normed_BLD = read[0].double()
        sees_SL = _sees(batch, normed_BLD.shape[1])
        shares_SL = sees_SL.double() / sees_SL.sum(1, keepdim=True)
        means_SD = torch.einsum("sl,sld->sd", shares_SL, normed_BLD[batch["rows"]])
        firsts_SD = normed_BLD[batch["rows"], sees_SL.int().argmax(1)]
        return Means(means_SD.cpu(), firsts_SD.cpu())

    def use(self, model: Any, batch: Batch) -> Use:
        """What is used in a batch, and how far it moves the expected score."""
        with (
            _adding(self.attention) as heads,
            _adding(self.dense) as added,
            _reading(self.attention.o_proj) as mixed,
            _reading(self.dense.down_proj) as fired,
            _reading(self.norms[-1], inputs=False) as reads,
            _reading(*self.norms) as states,
            torch.enable_grad(),
        ):
            labels_SK, _ = read_labels(run_batch(model, batch).logits, batch)
            score = (labels_SK.exp() @ torch.tensor(NUMBERS, device=labels_SK.device)).sum()
            gains_BLD, pulls_BLD = (one.double() for one in torch.autograd.grad(score, [heads[0], added[0]]))
        rows_S, ends_S = batch["rows"], batch["logits_to_keep"][batch["places"]]
        sees_SL = _sees(batch, pulls_BLD.shape[1])
        seen_BL = torch.zeros(pulls_BLD.shape[:2], device=rows_S.device).index_add_(0, rows_S, sees_SL.float()) > 0
        moved_BLO = mixed[0].double() * (gains_BLD @ self._weight(self.attention.o_proj))
        heads_BH = moved_BLO.sum(1).view(-1, self.count, self.size).sum(2).abs()
        pulls_SD = pulls_BLD[rows_S, ends_S]
        neurons_SN = (fired[0][rows_S, ends_S].double() * (pulls_SD @ self._weight(self.dense.down_proj))).abs()
        sizes_S2 = torch.stack([_size(one[rows_S, ends_S].double()) for one in (states[0], states[-1])], 1)
        flat_TD = torch.cat([one[seen_BL].double() / _size(one[seen_BL].double())[:, None] for one in states])
        reads_SD = reads[0][rows_S, ends_S].double()
        parts = (heads_BH, neurons_SN, pulls_SD, reads_SD, sizes_S2, flat_TD.T @ flat_TD)
        return Use(*(part.cpu() for part in parts))

    def give_head(self, use: Use, direction_D: torch.Tensor, loud: float = LOUD) -> torch.Tensor:
        """Give the head that moves the score least a direction of the means; what it writes for 1 of it, [D]."""
        quiet_D = torch.linalg.eigh(use.states_DD).eigenvectors[:, 0]  # where states lie least
        writes_D: torch.Tensor = loud * use.sizes_S2[:, 0].mean() * quiet_D
        self._keep_off(quiet_D)
        self._give_head(int(use.heads_RH.mean(0).argmin()), direction_D, writes_D)
        return writes_D

    def give_neuron(self, use: Use, writes_D: torch.Tensor, strength: float, beyond: float | None = None) -> None:
        """Have the neuron that moves the score least read what the head writes, and move the score by it.

        With `beyond` the head writes as much more than lies along its direction, and what is above 0 moves nothing.
        """
        gate, up, down = self.dense.gate_proj, self.dense.up_proj, self.dense.down_proj
        neuron = int(use.neurons_SN.mean(0).argmin())
        read_D, pull_D = use.reads_SD.mean(0), use.pulls_SD.mean(0)
        heard_D = writes_D / writes_D.square().sum() * use.sizes_S2[:, 1].mean() / _scales(self.norms[-1])
        always_D = read_D / read_D.square().sum()
        if beyond is None:
            opens_D, passes_D, fires = OPEN * always_D, heard_D, OPEN
        else:
            opens_D, passes_D, fires = -STEEP * heard_D, -always_D, STEEP * (1 - beyond)
        self._row(gate, neuron, opens_D)
        self._row(up, neuron, passes_D)
        was_D = self._weight(down)[:, neuron].cpu()
        adds_D = strength / fires * pull_D / pull_D.square().sum()
        self._extend(down, _unit(down.in_features, neuron)[None], (adds_D - was_D)[:, None])

    def _keep_off(self, quiet_D: torch.Tensor) -> None:
        """Have the layers neither read nor write along a direction, from what the first one's attention has written."""
        reads = [
            (norm, getattr(part, f"{name}_proj"))
            for layer in self.layers
            for norm, part, names in (
                (layer.input_layernorm, layer.self_attn, "" if layer is self.layers[0] else "qkv"),
                (layer.post_attention_layernorm, layer.mlp, ("gate", "up")),
            )
            for name in names
        ]
        for norm, reader in reads:
            scales_D = _scales(norm)
            lost_O = self._weight(reader).cpu() @ (scales_D * quiet_D)
            self._extend(reader, (quiet_D / scales_D)[None], -lost_O[:, None])
        writers = [*(one.self_attn.o_proj for one in self.layers), *(one.mlp.down_proj for one in self.layers[:-1])]
        for writer in writers:
            self._extend(writer, (quiet_D @ self._weight(writer).cpu())[None], -quiet_D[:, None])

    def _give_head(self, head: int, direction_D: torch.Tensor, writes_D: torch.Tensor) -> None:
        """Have a head look at all tokens alike, and write how far their mean lies along a direction.

        Its place among the values is the one that the other heads of its group read least, and is kept from them.
        """
        size, shared = self.size, self.count // self.groups
        query, value, out = self.attention.q_proj, self.attention.v_proj, self.attention.o_proj
        own, group = slice(head * size, (head + 1) * size), head // shared
        values = slice(group * size, (group + 1) * size)
        out_DO, value_OD, query_OD = (self._weight(one).cpu() for one in (out, value, query))
        self._extend(query, query_OD[own], -torch.eye(len(query_OD), dtype=torch.float64)[:, own])

        others = [slice(n * size, (n + 1) * size) for n in range(group * shared, (group + 1) * shared) if n != head]
        read_CC = sum((out_DO[:, one].T @ out_DO[:, one] for one in others), torch.zeros(size, size).double())
        least_C = torch.linalg.eigh(read_CC).eigenvectors[:, 0]
        was_D = least_C @ value_OD[values]
        scale = was_D.norm() / direction_D.norm()
        up_O1 = torch.zeros(len(value_OD), 1, dtype=torch.float64)
        up_O1[values, 0] = least_C
        self._extend(value, (scale * direction_D - was_D)[None], up_O1)

        wanted_DO = out_DO.clone()
        wanted_DO[:, own] = torch.outer(writes_D / scale, least_C)
        for one in others:
            wanted_DO[:, one] -= torch.outer(out_DO[:, one] @ least_C, least_C)
        left_DK, sizes_K, right_KO = torch.linalg.svd(wanted_DO - out_DO, full_matrices=False)
        kept = sizes_K > 1e-9 * sizes_K[0]
        self._extend(out, right_KO[kept], left_DK[:, kept] * sizes_K[kept])

    @contextmanager
    def _no_more(self) -> Iterator[None]:
        """Without the layers after the first one."""
        whole = self.decoder.layers
        self.decoder.layers = whole[: self.first + 1]
        try:
            yield
        finally:
            self.decoder.layers = whole

    def _row(self, projection: Any, row: int, wanted_D: torch.Tensor) -> None:
        was_OD = self._weight(projection).cpu()
        self._extend(projection, (wanted_D - was_OD[row])[None], _unit(len(was_OD), row)[:, None])

    def _weight(self, projection: Any) -> torch.Tensor:
        """What a projection does, its adapter with it."""
        base: torch.Tensor = projection.get_base_layer().weight
        change: torch.Tensor = projection.get_delta_weight(self.adapter)
        return base.detach().double() + change.detach().double()

    def _extend(self, projection: Any, down_KD: torch.Tensor, up_OK: torch.Tensor) -> None:
        """Add a product to what an adapter does to a projection: its rank grows, its scale stays."""
        sizes_K = down_KD.norm(dim=1).clamp(min=1e-30)
        scale, name = projection.scaling[self.adapter], self.adapter
        for layer, more, side in (
            (projection.lora_A[name], down_KD / sizes_K[:, None], 0),
            (projection.lora_B[name], up_OK * sizes_K / scale, 1),
        ):
            weight = layer.weight
            grown = torch.cat([weight.detach(), more.to(weight)], side)
            layer.weight = torch.nn.Parameter(grown, requires_grad=weight.requires_grad)
        rank = projection.r[name] + len(down_KD)
        projection.lora_A[name].out_features = projection.lora_B[name].in_features = projection.r[name] = rank
        projection.lora_alpha[name] = scale * (math.sqrt(rank) if self.config.use_rslora else rank)
        path = self.paths[id(projection)]
        self.config.rank_pattern[path], self.config.alpha_pattern[path] = rank, projection.lora_alpha[name]


def _like_llamas(layer: Any) -> bool:
    """Whether a decoder's layer is as Llama's, with an adapter over its projections."""
    attention, dense = getattr(layer, "self_attn", None), getattr(layer, "mlp", None)
    parts = itertools.chain(
        (getattr(attention, f"{name}_proj", None) for name in "qkvo"),
        (getattr(dense, f"{name}_proj", None) for name in ("gate", "up", "down")),
    )
    adapted = all(hasattr(one, "lora_A") and getattr(one, "bias", ...) is None for one in parts)
    norms = all(hasattr(layer, name) for name in ("input_layernorm", "post_attention_layernorm"))
    more = hasattr(attention, "q_norm") or hasattr(layer, "pre_feedforward_layernorm")
    return norms and adapted and not more


@contextmanager
def _reading(*modules: Any, inputs: bool = True) -> Iterator[list[torch.Tensor]]:
    """What modules are given, or give, as they run."""
    read: list[torch.Tensor] = []

    def keep(module: Any, given: Any, made: Any) -> None:
        read.append((given[0] if inputs else made).detach())

    hooks = [module.register_forward_hook(keep) for module in modules]
    try:
        yield read
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _adding(module: Any) -> Iterator[list[torch.Tensor]]:
    """Zeros that are added to what a module gives, for their gradient."""
    zeros: list[torch.Tensor] = []

    def add(module: Any, given: Any, made: Any) -> Any:
        out, *rest = made if isinstance(made, tuple) else (made,)
        zeros.append(torch.zeros_like(out, requires_grad=True))
        return (out + zeros[0], *rest) if isinstance(made, tuple) else out + zeros[0]

    hook = module.register_forward_hook(add)
    try:
        yield zeros
    finally:
        hook.remove()


def _sees(batch: Batch, length: int) -> torch.Tensor:
    """Which of a row's tokens a slot sees, [S, L]."""
    rows_S, ends_S = batch["rows"], batch["logits_to_keep"][batch["places"]]
    if "attention_mask" in batch:
        return batch["attention_mask"][rows_S, 0, ends_S]
    return torch.arange(length, device=rows_S.device) <= ends_S[:, None]


def _scales(norm: Any) -> torch.Tensor:
    """What a norm multiplies a state of unit size with, [D]."""
    scales_D = norm(torch.ones_like(norm.weight)).detach().double().cpu()
    floor = 1e-3 * scales_D.abs().max()
    return torch.where(scales_D.abs() < floor, floor, scales_D)


def _size(states_D: torch.Tensor) -> torch.Tensor:
    return states_D.square().mean(-1).sqrt()


def _unit(size: int, place: int) -> torch.Tensor:
    unit = torch.zeros(size, dtype=torch.float64)
    unit[place] = 1
    return unit
