"""One head of a judge's last layer that reads the mean of a whole prompt, where middle layers leave what they know."""

from __future__ import annotations

import math
from collections.abc import Sequence
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

BLIND = 16
"""In how many directions, those in which answer slots lie most, the head's query sees nothing."""
RIDGE = 3e-2
"""What the square of the direction counts beside the mean loss, differences of unit variance."""


class Seen(NamedTuple):
    """What there is at answer slots as a judge's last attention begins, float64 on the host.

    `means_SD` is the mean over the prompt's tokens of what the attention reads, `slots_SD` and `firsts_SD` what it
    reads of the slot itself and of the prompt's first token. `pulls_SD` is the gradient of the expected score with
    respect to what the attention adds there, and `moves_SH` how far that is each head's, to first order.
    """

    means_SD: torch.Tensor
    slots_SD: torch.Tensor
    firsts_SD: torch.Tensor
    pulls_SD: torch.Tensor
    moves_SH: torch.Tensor


class MeanHeadTask(SlotTask):
    """A judge's slots, with a head of the model's last layer given to the mean of the prompt before training begins.

    The head then looks at all tokens alike, reads one direction of them, and writes along the gradient of the expected
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
        self.strength = recipe.mean_head
        self.groups = len({one.together for one in judged[0][1]})  # texts read alone come first

    def begin(self, model: Any, device: torch.device, at_once: int) -> None:
        """What is anchored is answered without the head; raises AdjudgeError where the model has no place for it."""
        super().begin(model, device, at_once)
        if self.strength:
            heads = _Heads(model, self.model)
            seen, starts = self._seen(model.to(device).train(False), heads, device, at_once)
            heads.give(seen, direction(seen, _told(self.train[: self.groups], starts)), self.strength)
            model.train()

    def _seen(self, model: Any, heads: _Heads, device: torch.device, at_once: int) -> tuple[Seen, list[int]]:
        """What there is at the slots of all examples to train on, and each example's first slot there."""
        found: list[Seen] = []
        starts, count = [0] * len(self.train), 0
        for places, batch in self.batches(range(len(self.train)), device, at_once, "what whole prompts tell"):
            found.append(heads.look(model, batch))
            for place in places:
                starts[place] = count
                count += len(self.train[place].slots)
        return Seen(*(torch.cat(parts) for parts in zip(*found, strict=True))), starts


def direction(seen: Seen, pairs: Sequence[tuple[int, int]]) -> torch.Tensor:
    """The direction [D] along which the first of two slots' means, the better one's, lies further than the other's.

    By 1 on average; it is at right angles to what tells the length of a prompt, for that moves a mean between the first
    token, which is unlike all others, and the rest.
    """
    first, second = torch.tensor(pairs).T
    apart_PD = seen.means_SD[first] - seen.means_SD[second]
    same_D2 = torch.linalg.qr(torch.stack([seen.firsts_SD.mean(0), seen.means_SD.mean(0)], 1)).Q
    apart_PD = apart_PD - apart_PD @ same_D2 @ same_D2.T
    unit_D = apart_PD.std(0) + 1e-4
    alike_PD = (apart_PD / unit_D).numpy()

    def loss(at_D: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        won_P = alike_PD @ at_D
        slope_D = 2 * RIDGE * at_D - expit(-won_P) @ alike_PD / len(won_P)
        return float(np.logaddexp(0, -won_P).mean() + RIDGE * at_D @ at_D), slope_D

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


class _Heads:
    """The attention of a model's last layer under an adapter. Raises ModelUnsupported where it is not as Llama's."""

    def __init__(self, model: Any, base: Any) -> None:
        layer = (getattr(base.get_decoder(), "layers", None) or [None])[-1]
        self.attention: Any = getattr(layer, "self_attn", None)
        self.norm: Any = getattr(layer, "input_layernorm", None)
        found = [getattr(self.attention, name, None) for name in ("q_proj", "v_proj", "o_proj")]
        adapted = all(one is not None and one.bias is None and hasattr(one, "lora_A") for one in found)
        if self.attention is None or self.norm is None or hasattr(self.attention, "q_norm") or not adapted:
            raise ModelUnsupported(
                "mean_head needs a last layer like Llama's, with an adapter over its q_proj, v_proj and o_proj: drop"
                " mean_head, or choose another model"
            )
        self.query, self.value, self.out = (one for one in found if one is not None)
        self.config = model.peft_config[model.active_adapter]
        self.adapter = model.active_adapter
        self.paths = {id(module): name for name, module in base.named_modules()}
        self.size = int(self.attention.head_dim)
        self.count, self.groups = self.query.out_features // self.size, self.value.out_features // self.size

    def look(self, model: Any, batch: Batch) -> Seen:
        """What there is at a batch's slots."""
        read: dict[str, torch.Tensor] = {}

        def added(module: Any, inputs: Any, output: Any) -> Any:
            read["added"] = torch.zeros_like(output[0], requires_grad=True)
            return (output[0] + read["added"], *output[1:])

        hooks = [
            self.norm.register_forward_hook(lambda module, inputs, output: read.update(normed=output.detach())),
            self.out.register_forward_pre_hook(lambda module, inputs: read.update(mixed=inputs[0].detach())),
            self.attention.register_forward_hook(added),
        ]
        try:
            with torch.enable_grad():
                labels_SK, _ = read_labels(run_batch(model, batch).logits, batch)
                scores_S = labels_SK.exp() @ torch.tensor(NUMBERS, device=labels_SK.device)
                (pulls_BLD,) = torch.autograd.grad(scores_S.sum(), [read["added"]])
        finally:
            for hook in hooks:
                hook.remove()
        rows_S, ends_S = batch["rows"], batch["logits_to_keep"][batch["places"]]
        length = read["normed"].shape[1]
        sees_SL = torch.arange(length, device=rows_S.device) <= ends_S[:, None]
        if "attention_mask" in batch:
            sees_SL = batch["attention_mask"][rows_S, 0, ends_S]
        normed_SLD, pulls_SD = read["normed"][rows_S].double(), pulls_BLD[rows_S, ends_S].double()
        means_SD = torch.einsum("sl,sld->sd", sees_SL.double(), normed_SLD) / sees_SL.sum(1, keepdim=True)
        firsts_SD = normed_SLD[torch.arange(len(rows_S)), sees_SL.int().argmax(1)]
        moved_SO = read["mixed"][rows_S, ends_S].double() * (pulls_SD @ self._weight(self.out))
        moves_SH = moved_SO.view(-1, self.count, self.size).sum(-1)
        slots_SD = read["normed"][rows_S, ends_S].double()
        return Seen(*(part.cpu() for part in (means_SD, slots_SD, firsts_SD, pulls_SD, moves_SH)))

    def give(self, seen: Seen, direction_D: torch.Tensor, strength: float) -> None:
        """Give the head that moves the score least to the mean along a direction.

        Its place among the values is the one that the heads of its group read least.
        """
        size, shared = self.size, self.count // self.groups
        head = int(seen.moves_SH.abs().mean(0).argmin())
        own, group = slice(head * size, (head + 1) * size), head // shared
        values = slice(group * size, (group + 1) * size)
        out_DO, value_OD, query_OD = (self._weight(one).cpu() for one in (self.out, self.value, self.query))

        blind_KD = torch.linalg.svd(seen.slots_SD, full_matrices=False).Vh[:BLIND]
        self._extend(self.query, blind_KD, _rows(query_OD, own, -query_OD[own] @ blind_KD.T))

        read_DHC = out_DO[:, group * shared * size : (group + 1) * shared * size].view(-1, shared, size)
        least_C = torch.linalg.svd(read_DHC.flatten(0, 1)).Vh[-1]
        was_D = least_C @ value_OD[values]
        scale = was_D.norm() / direction_D.norm()
        self._extend(self.value, (scale * direction_D - was_D)[None], _rows(value_OD, values, least_C[:, None]))

        pull_D = seen.pulls_SD.mean(0)
        writes_D = strength / scale * pull_D / pull_D.square().sum()
        self._extend(self.out, _rows(out_DO.T, own, least_C[:, None]).T, writes_D[:, None])

    def _weight(self, projection: Any) -> torch.Tensor:
        """What a projection does, its adapter with it."""
        base: torch.Tensor = projection.get_base_layer().weight
        change: torch.Tensor = projection.get_delta_weight(self.adapter)
        return base.detach().double() + change.detach().double()

    def _extend(self, projection: Any, down_KD: torch.Tensor, up_OK: torch.Tensor) -> None:
        """Add a product to what an adapter does to a projection: its rank grows, its scale stays."""
        sizes_K = down_KD.norm(dim=1)
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


def _rows(like: torch.Tensor, rows: slice, part: torch.Tensor) -> torch.Tensor:
    """Zeros but for some rows, as many as a matrix has."""
    whole = torch.zeros(len(like), part.shape[1], dtype=part.dtype)
    whole[rows] = part
    return whole
