"""How the next tokens are chosen from the model's logits, for many rows at once, where they are.

On a GPU a row by itself would be some ten launches and a wait for the answer, or its logits would come to the host,
where a row of 150,000 tokens takes 0.3 to 5 ms of one thread: for 64 texts far more than a decode step of a small
model. That is an estimate. On CPU rows are taken one at a time, so that nothing depends on the rest of the batch.
Everything is in float64, so that what the order of a sum changes is lost in what is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch

from adjudge.engine.sampling import Sampling
from adjudge.kernels.paged_kv import to_device

ROUNDING = 1e-12
"""What `top_p` and `min_p` leave to the order of a sum: at a boundary of equal tokens it would decide, on a GPU by the
size of the batch."""


class Wish(NamedTuple):
    """What the next token is chosen by, `draw` being a uniform number in [0, 1).

    The tokens `before` it, each once or more, count where there is a repetition penalty; the last `own` of them, which
    are the answer's, for the other penalties. `allowed_V` (bool, on CPU) leaves out tokens besides what `sampling`
    says.
    """

    sampling: Sampling
    before: Sequence[int] | torch.Tensor
    draw: float
    allowed_V: torch.Tensor | None = None
    own: int = 0


def uniform(seed: tuple[int, int], place: int) -> float:
    """The number in [0, 1) for the `place`-th token of a stream: a function of the two and of nothing else."""
    key = np.array(seed, dtype=np.uint64)
    return float(np.random.Generator(np.random.Philox(key=key, counter=place)).random())


def log_sums(logits_RV: torch.Tensor) -> torch.Tensor:
    """The log of each row's sum of exponentials [R], float32."""
    if logits_RV.device.type == "cpu":
        return torch.stack([logits_V.logsumexp(0) for logits_V in logits_RV])
    return logits_RV.double().logsumexp(-1).float()


def likeliest(
    logits_RV: torch.Tensor, sums_R: torch.Tensor, counts: Sequence[int]
) -> list[tuple[tuple[int, float], ...]]:
    """The most probable tokens of each row, as many as are asked for and there are, and their log-probabilities."""
    found: list[tuple[tuple[int, float], ...]] = [()] * len(counts)
    for count in set(counts) - {0}:
        rows = [row for row, asked in enumerate(counts) if asked == count]
        best = logits_RV[rows].topk(min(count, logits_RV.shape[1]))
        logprobs = (best.values - sums_R[rows].unsqueeze(1)).tolist()
        for row, tokens, values in zip(rows, best.indices.tolist(), logprobs, strict=True):
            found[row] = tuple(zip(tokens, values, strict=True))
    return found


def choose_each(logits_RV: torch.Tensor, wishes: Mapping[int, Wish]) -> list[int]:
    """The next token of each row that has a wish, as `choose` gives it.

    They stay on their device unless torch is told to be deterministic: on a GPU it then refuses to add up a row.
    """
    if logits_RV.device.type == "cpu" or torch.are_deterministic_algorithms_enabled():
        return [int(choose(logits_RV[row : row + 1].cpu(), [wish])) for row, wish in wishes.items()]
    return choose(logits_RV[list(wishes)], list(wishes.values())).tolist() if wishes else []


def choose(logits_RV: torch.Tensor, wishes: Sequence[Wish]) -> torch.Tensor:
    """The next token of each row [R], int64, from the model's logits (float32) and its wish.

    It is -1 where the model gives all tokens that may come a logit of -inf.
    """
    logits = logits_RV.double()
    _apply_wishes(logits, wishes)
    best, tokens = logits.max(-1, keepdim=True)  # of equals the first
    none_left = best == -torch.inf
    greedy = [wish.sampling.temperature == 0 for wish in wishes]
    if not all(greedy):
        drawn = _draw(logits.sub_(best), wishes)
        tokens = torch.where(torch.tensor(greedy, device=logits.device).unsqueeze(1), tokens, drawn)
    return tokens.masked_fill_(none_left, -1).squeeze(1)


def _draw(logits_RV: torch.Tensor, wishes: Sequence[Wish]) -> torch.Tensor:
    """A token [R, 1] of each row of logits, which are changed; they are at most 0, and no temperature is too low."""
    device, size = logits_RV.device, logits_RV.shape[1]
    asked = [wish.sampling for wish in wishes]

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device).unsqueeze(1)

    logits_RV /= column([one.temperature or 1.0 for one in asked])
    if cut := [row for row, one in enumerate(asked) if 0 < one.top_k < size]:
        with _rows(logits_RV, cut) as part_PV:
            counts = torch.tensor([asked[row].top_k for row in cut], device=device).unsqueeze(1)
            least = part_PV.topk(max(asked[row].top_k for row in cut)).values.gather(1, counts - 1)
            part_PV.masked_fill_(part_PV < least, -torch.inf)
    probs_RV = torch.softmax(logits_RV, -1)
    if cut := [row for row, one in enumerate(asked) if one.top_p < 1]:
        with _rows(probs_RV, cut) as part_PV:
            _keep_nucleus(part_PV, column([asked[row].top_p for row in cut]))
    if any(one.min_p for one in asked):
        least = column([one.min_p * (1 - ROUNDING) for one in asked]) * probs_RV.amax(-1, keepdim=True)
        probs_RV.masked_fill_(probs_RV < least, 0)
    reached = probs_RV.cumsum_(-1)
    whole = reached[:, -1:].contiguous()
    drawn = column([wish.draw for wish in wishes]) * whole
    tokens, last = torch.searchsorted(reached, drawn, right=True), torch.searchsorted(reached, whole)
    return torch.minimum(tokens, last)  # a draw next to 1 may round to the whole


@contextmanager
def _rows(values_RV: torch.Tensor, rows: Sequence[int]) -> Iterator[torch.Tensor]:
    """Some rows, to be changed in place within the block: all of them as they are, fewer as a copy that is put back."""
    if len(rows) == len(values_RV):
        yield values_RV
        return
    places = to_device(torch.tensor(rows), values_RV.device)
    part = values_RV[places]
    yield part
    values_RV[places] = part


def _keep_nucleus(probs_RV: torch.Tensor, top_p_R1: torch.Tensor) -> None:
    """Set to 0 the probabilities after a mass of `top_p`; of equals the first in the vocabulary counts first."""
    heavy_RW, places_W = probs_RV, None
    if probs_RV.device.type == "cpu":
        # Tokens below this weigh less than half of 1 - top_p together, so the mass before each of them is enough
        # without putting them in order, which for a whole vocabulary takes longer than all the rest.
        places_W = (probs_RV >= (1 - top_p_R1) / (2 * probs_RV.shape[1])).any(0).nonzero().squeeze(1)
        heavy_RW = probs_RV[:, places_W]
    ordered, order = heavy_RW.sort(descending=True, stable=True)
    before = ordered.cumsum(-1).sub_(ordered)
    kept = ordered.mul_(before < top_p_R1 * (1 - ROUNDING))
    probs_RV.zero_().scatter_(1, order if places_W is None else places_W[order], kept)


def _apply_wishes(logits_RV: torch.Tensor, wishes: Sequence[Wish]) -> None:
    """Add bias and penalties, and put -inf for what may not come, in place; what is of many rows is sent at once."""
    device = logits_RV.device
    for logits_V, wish in zip(logits_RV, wishes, strict=True):
        if wish.sampling.logit_bias:
            biased_B, bias_B, _ = wish.sampling.tensors_on(device)
            logits_V[biased_B] += bias_B
    if heeding := [row for row, wish in enumerate(wishes) if wish.sampling.heeds_before and len(wish.before)]:
        _penalise(logits_RV, heeding, [wishes[row] for row in heeding])
    for logits_V, wish in zip(logits_RV, wishes, strict=True):
        if wish.sampling.allowed_token_ids is not None:
            allowed_A = wish.sampling.tensors_on(device).allowed_A
            kept_A = logits_V[allowed_A]
            logits_V.fill_(-torch.inf).index_copy_(0, allowed_A, kept_A)
    if masks := {row: wish.allowed_V for row, wish in enumerate(wishes) if wish.allowed_V is not None}:
        barred = to_device(~torch.stack(list(masks.values())), device)
        with _rows(logits_RV, list(masks)) as part_PV:
            part_PV.masked_fill_(barred, -torch.inf)


def _penalise(logits_RV: torch.Tensor, rows: Sequence[int], wishes: Sequence[Wish]) -> None:
    """Penalties for what stands before the next tokens of some rows, each row's wish at its place."""
    device = logits_RV.device
    seen = [torch.as_tensor(wish.before) for wish in wishes]
    asked = [wish.sampling for wish in wishes]

    def each(tokens: Sequence[torch.Tensor], *values: Sequence[float]) -> list[Any]:
        """The row of every token, the token, and its row's values, on the device; numbers where there is one row."""
        if len(rows) == 1:
            return [rows[0], to_device(tokens[0], device), *chain.from_iterable(values)]
        counts = torch.tensor([len(one) for one in tokens])
        places = torch.stack([torch.tensor(rows).repeat_interleave(counts), torch.cat(list(tokens))])
        numbers = torch.tensor(values, dtype=torch.float64).repeat_interleave(counts, dim=1)
        return [column for sent in (places, numbers) for column in to_device(sent, device)]

    if any(one.repetition_penalty != 1 for one in asked):
        row, token, penalty = each(seen, [one.repetition_penalty for one in asked])
        some = logits_RV[row, token]
        logits_RV[row, token] = torch.where(some > 0, some / penalty, some * penalty)
    if any(one.presence_penalty or one.frequency_penalty for one in asked):
        written = [tokens[len(tokens) - wish.own :] for tokens, wish in zip(seen, wishes, strict=True)]
        penalties = [one.presence_penalty for one in asked], [-one.frequency_penalty for one in asked]
        row, token, presence, frequency = each(written, *penalties)
        if any(one.presence_penalty for one in asked):
            logits_RV[row, token] = logits_RV[row, token] - presence
        row = torch.as_tensor(row, device=device)
        frequency = torch.as_tensor(frequency, dtype=torch.float64, device=device)
        logits_RV.index_put_((row, token), frequency, accumulate=True)
