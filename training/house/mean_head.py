"""What a middle layer of a judge knows of a whole prompt, told to its answer before training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.sources import OpenModel
from adjudge.training.evaluator.direct import Example, SlotTask, comparisons
from adjudge.training.evaluator.questions import Rated
from adjudge.training.evaluator.recipe import Asked
from adjudge.training.house.layers import LOUD, LOUDER, Layers, Means, Use
from adjudge.training.house.recipe import HouseRecipe

RIDGE = 3e-2
"""What the square of the direction counts beside the mean loss, differences of unit variance."""
SPREAD = 2e-2
"""What the variance of all texts along the direction counts beside it: how different stories stand is to stay."""
SAMPLE = 64
"""Of so many examples it is seen which head, neuron and direction the model uses least."""


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
            layers = Layers(model, self.model, self.how.layer)
            model.to(device).train(False)
            seen, starts = self._seen(model, layers, device, at_once)
            pairs = _told(self.train[: self.groups], starts)
            told_D, beyond = direction(seen, pairs), self.how.beyond
            if beyond is not None:  # all means lie alike along the better ones' mean
                better_D = seen.means_SD[[better for better, _ in pairs]].mean(0)
                told_D += beyond * better_D / better_D.square().sum()
            loud = LOUD if beyond is None else LOUDER
            writes_D = layers.give_head(self._use(model, layers, device, at_once), told_D, loud)
            layers.give_neuron(self._use(model, layers, device, at_once), writes_D, self.how.strength, beyond)
            model.train()

    def _seen(self, model: Any, layers: Layers, device: torch.device, at_once: int) -> tuple[Means, list[int]]:
        """The means of all examples to train on, and where each example's slots begin among them."""
        found: list[Means] = []
        starts, count = [0] * len(self.train), 0
        for places, batch in self.batches(range(len(self.train)), device, at_once, "what whole prompts tell"):
            found.append(layers.means(model, batch))
            for place in places:
                starts[place] = count
                count += len(self.train[place].slots)
        return Means(*(torch.cat(parts) for parts in zip(*found, strict=True))), starts

    def _use(self, model: Any, layers: Layers, device: torch.device, at_once: int) -> Use:
        some = range(0, len(self.train), math.ceil(len(self.train) / SAMPLE))
        found = [layers.use(model, batch) for _, batch in self.batches(some, device, at_once, "what is used least")]
        *apart, states = zip(*found, strict=True)
        return Use._make([*map(torch.cat, apart), torch.stack(states).sum(0)])


def direction(seen: Means, pairs: Sequence[tuple[int, int]]) -> torch.Tensor:
    """The direction [D] along which the first of two slots' means, the better one's, lies further than the other's.

    By 1 on average, and the better ones lie at 0, so that their scores stay. It is at right angles to what tells the
    length of a prompt, for that moves a mean between the first token, which is unlike all others, and the rest.
    """
    first, second = torch.tensor(pairs).T
    mean_D, better_D = seen.means_SD.mean(0), seen.means_SD[first].mean(0)
    same_D2 = torch.linalg.qr(torch.stack([seen.firsts_SD.mean(0) - mean_D, better_D], 1)).Q
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
