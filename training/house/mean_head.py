"""What a middle layer of a judge knows of a whole prompt, told to its answer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from adjudge.engine.errors import AdjudgeError, ModelUnsupported
from adjudge.engine.models.sources import OpenModel
from adjudge.training.evaluator.direct import Example, SlotTask, comparisons, read_labels, run_batch
from adjudge.training.evaluator.fitting import Batch
from adjudge.training.evaluator.questions import NUMBERS, Rated
from adjudge.training.evaluator.recipe import Asked
from adjudge.training.house.recipe import HouseRecipe

RIDGE = 3e-2
"""What the square of the direction counts beside the mean loss, differences of unit variance."""
SPREAD = 2e-2
"""What the variance of all texts along the direction counts beside it: how different stories stand is to stay."""
SAMPLE = 64
"""Of so many examples it is seen which head, neuron and direction the model uses least."""
LOUD = 0.7
"""How far the head moves a state for a difference of one, beside the state's root mean square."""
OPEN = 8.0
"""What the neuron's gate lets through, where activations are nearly the identity."""


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


class MeanHeadTask(SlotTask):
    """A judge's slots, whose answers are told before training begins what a layer knows of the whole prompt.

    One head of the layer then looks at all tokens alike, reads one direction of them, and writes it where later layers
    no longer read or write, but for one neuron of the last, which moves the answer along the gradient of the expected
    score. The direction is that which best tells the better of two texts learnt together, by logistic regression on the
    differences of the means, and `strength` what a difference as large as theirs is on average moves the score by.
    """

    def __init__(
        self,
        recipe: HouseRecipe,
        opened: OpenModel,
        judged: Sequence[tuple[Asked, Sequence[Rated], Sequence[Rated]]],
    ) -> None:
        super().__init__(recipe, opened, recipe.optimiser, judged)
        self.how = recipe.mean_head
        self.groups = len({one.together for one in judged[0][1]})  # texts read alone come first

    def begin(self, model: Any, device: torch.device, at_once: int) -> None:
        """What is anchored is answered without the head; raises AdjudgeError where the model has no place for it."""
        super().begin(model, device, at_once)
        if self.how is not None:
            layers = _Layers(model, self.model, self.how.layer)
            model.to(device).train(False)
            seen, starts = self._seen(model, layers, device, at_once)
            told_D = direction(seen, _told(self.train[: self.groups], starts))
            writes_D = layers.give_head(self._use(model, layers, device, at_once), told_D)
            layers.give_neuron(self._use(model, layers, device, at_once), writes_D, self.how.strength)
            model.train()

    def _seen(self, model: Any, layers: _Layers, device: torch.device, at_once: int) -> tuple[Means, list[int]]:
        """The means of all examples to train on, and where each example's slots begin among them."""
        found: list[Means] = []
        starts, count = [0] * len(self.train), 0
        for places, batch in self.batches(range(len(self.train)), device, at_once, "what whole prompts tell"):
            found.append(layers.means(model, batch))
            for place in places:
                starts[place] = count
                count += len(self.train[place].slots)
        return Means(*(torch.cat(parts) for parts in zip(*found, strict=True))), starts

    def _use(self, model: Any, layers: _Layers, device: torch.device, at_once: int) -> Use:
        some = range(0, len(self.train), math.ceil(len(self.train) / SAMPLE))
        found = [layers.use(model, batch) for _, batch in self.batches(some, device, at_once, "what is used least")]
        *apart, states = zip(*found, strict=True)
        return Use._make([*map(torch.cat, apart), torch.stack(states).sum(0)])


def direction(seen: Means, pairs: Sequence[tuple[int, int]]) -> torch.Tensor:
    """The direction [D] along which the first of two slots' means, the better one's, lies further than the other's.

    By 1 on average; it is at right angles to what tells the length of a prompt, for that moves a mean between the first
    token, which is unlike all others, and the rest.
    """
    first, second = torch.tensor(pairs).T
    same_D2 = torch.linalg.qr(torch.stack([seen.firsts_SD.mean(0), seen.means_SD.mean(0)], 1)).Q
    around_SD = seen.means_SD - seen.means_SD @ same_D2 @ same_D2.T
    apart_PD = around_SD[first] - around_SD[second]
    unit_D = apart_PD.std(0) + 1e-4
    alike_PD = (apart_PD / unit_D).numpy()
    small_DD = RIDGE * np.eye(len(unit_D)) + SPREAD * torch.cov((around_SD / unit_D).T, correction=0).numpy()

    def loss(at_D: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        won_P = alike_PD @ at_D
        slope_D = 2 * small_DD @ at_D - expit(-won_P) @ alike_PD / len(won_P)
        return float(np.logaddexp(0, -won_P).mean() + at_D @ small_DD @ at_D), slope_D

    found_D = torch.from_numpy(minimize(loss, np.zeros(len(unit_D)), jac=True, method="L-BFGS-B").x) / unit_D
    found_D = found_D - same_D2 @ (same_D2.T @ found_D)
    scaled_D: torch.Tensor = found_D / (apart_PD @ found_D).mean()
    return scaled_D


def _told(examples: Sequence[Example], starts: Sequence[int]) -> list[tuple[int, int]]:
    """The slots that are compared, the better one first. Raises AdjudgeError where there are none."""
    pairs = []
    for example, start in zip(examples, starts, strict=False):
        for one, other in comparisons(example.slots):
            a, b = example.slots[one], example.slots[other]
            if a.score != b.score and not (a.anchored or b.anchored):
                pairs.append((start + one, start + other) if a.score > b.score else (start + other, start + one))
    if len(pairs) < 2:
        raise AdjudgeError("mean_head is fitted on texts that are learnt together: give more excerpts, or drop it")
    return pairs


class _Layers:
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

    def give_head(self, use: Use, direction_D: torch.Tensor) -> torch.Tensor:
        """Give the head that moves the score least a direction of the means; what it writes for 1 of it, [D]."""
        quiet_D = torch.linalg.eigh(use.states_DD).eigenvectors[:, 0]  # where states lie least
        writes_D: torch.Tensor = LOUD * use.sizes_S2[:, 0].mean() * quiet_D
        self._keep_off(quiet_D)
        self._give_head(int(use.heads_RH.mean(0).argmin()), direction_D, writes_D)
        return writes_D

    def give_neuron(self, use: Use, writes_D: torch.Tensor, strength: float) -> None:
        """Have the neuron that moves the score least read what the head writes, and move the score by it."""
        gate, up, down = self.dense.gate_proj, self.dense.up_proj, self.dense.down_proj
        neuron = int(use.neurons_SN.mean(0).argmin())
        read_D, pull_D = use.reads_SD.mean(0), use.pulls_SD.mean(0)
        self._row(gate, neuron, OPEN * read_D / read_D.square().sum())
        heard_D = writes_D / writes_D.square().sum() * use.sizes_S2[:, 1].mean()
        self._row(up, neuron, heard_D / _scales(self.norms[-1]))
        was_D = self._weight(down)[:, neuron].cpu()
        adds_D = strength / OPEN * pull_D / pull_D.square().sum()
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
