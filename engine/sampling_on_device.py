"""The next tokens of many texts at once, where their logits are: what `sampling.choose` says of a row, for all rows.

On a GPU a row by itself would be some ten launches and a wait for the answer, or its logits would come to the host,
where a row of 150,000 tokens takes 0.3 to 5 ms of one thread: for 64 texts far more than a decode step of a small
model. That is an estimate. Everything is in float64, so that what the order of a sum changes is
lost in what is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from adjudge.engine.sampling import ROUNDING, Wish, choose
from adjudge.kernels.paged_kv import to_device


def log_sums(logits_RV: torch.Tensor) -> torch.Tensor:
    """The log of each row's sum of exponentials [R], float32."""
    if logits_RV.device.type == "cpu":
        return torch.stack([logits_V.logsumexp(0) for logits_V in logits_RV])
    return logits_RV.double().logsumexp(-1).float()


def likeliest(
    logits_RV: torch.Tensor, sums_R: torch.Tensor, counts: Sequence[int]
) -> list[tuple[tuple[int, float], ...]]:
    """The most probable tokens of each row, as many as are asked for, and their log-probabilities."""
    found: list[tuple[tuple[int, float], ...]] = [()] * len(counts)
    for count in set(counts) - {0}:
        rows = [row for row, asked in enumerate(counts) if asked == count]
        best = logits_RV[rows].topk(count)
        logprobs = (best.values - sums_R[rows].unsqueeze(1)).tolist()
        for row, tokens, values in zip(rows, best.indices.tolist(), logprobs, strict=True):
            found[row] = tuple(zip(tokens, values, strict=True))
    return found


def choose_each(logits_RV: torch.Tensor, wishes: Mapping[int, Wish]) -> list[int]:
    """The next token of each row that has a wish, from the model's logits (float32).

    They stay on their device unless torch is told to be deterministic: on a GPU it then refuses to add up a row.
    """
    if logits_RV.device.type == "cpu" or torch.are_deterministic_algorithms_enabled():
        return [choose(logits_RV[row].cpu(), wish) for row, wish in wishes.items()]
    return choose_together(logits_RV, wishes).tolist() if wishes else []


def _apply_wishes(logits_RV: torch.Tensor, wishes: Sequence[Wish]) -> None:
    """`Wish.left` of all rows, in place; what is of many rows goes to the device at once."""
    for logits_V, wish in zip(logits_RV, wishes, strict=True):
        wish.add_bias(logits_V)
    heeding = [row for row, wish in enumerate(wishes) if wish.sampling.heeds_before and len(wish.before)]
    if heeding:
        _penalise(logits_RV, heeding, [wishes[row] for row in heeding])
    for logits_V, wish in zip(logits_RV, wishes, strict=True):
        if (allowed_V := wish.of_allowed(logits_V)) is not logits_V:
            logits_V.copy_(allowed_V)
    masks = {row: wish.allowed_V for row, wish in enumerate(wishes) if wish.allowed_V is not None}
    if masks:
        rows, allowed = torch.tensor(list(masks)), torch.stack(list(masks.values()))
        rows, allowed = (to_device(tensor, logits_RV.device) for tensor in (rows, allowed))
        logits_RV[rows] = logits_RV[rows].masked_fill(~allowed, -torch.inf)


def _penalise(logits_RV: torch.Tensor, rows: Sequence[int], wishes: Sequence[Wish]) -> None:
    """Penalties for what stands before the next tokens of some rows, each row's wish at its place."""
    seen = [torch.as_tensor(wish.before) for wish in wishes]
    asked = [wish.sampling for wish in wishes]

    def each(tokens: Sequence[torch.Tensor], *values: Sequence[float]) -> list[torch.Tensor]:
        """The row of every token, the token, and its row's values, on the device."""
        counts = torch.tensor([len(one) for one in tokens])
        places = torch.stack([torch.tensor(rows).repeat_interleave(counts), torch.cat(list(tokens))])
        numbers = torch.tensor(values, dtype=torch.float64).repeat_interleave(counts, dim=1)
        return [column for sent in (places, numbers) for column in to_device(sent, logits_RV.device)]

    row, token, penalty = each(seen, [one.repetition_penalty for one in asked])
    some = logits_RV[row, token]
    logits_RV[row, token] = torch.where(some > 0, some / penalty, some * penalty)
    written = [tokens[len(tokens) - wish.own :] for tokens, wish in zip(seen, wishes, strict=True)]
    penalties = [one.presence_penalty for one in asked], [-one.frequency_penalty for one in asked]
    row, token, presence, frequency = each(written, *penalties)
    logits_RV[row, token] = logits_RV[row, token] - presence
    logits_RV.index_put_((row, token), frequency, accumulate=True)


def choose_together(logits_RV: torch.Tensor, wishes: Mapping[int, Wish]) -> torch.Tensor:
    """`choose` for rows [R'] at once, on the device of the logits."""
    device, size = logits_RV.device, logits_RV.shape[1]
    logits = logits_RV[list(wishes)].double()
    asked = [wish.sampling for wish in wishes.values()]
    _apply_wishes(logits, list(wishes.values()))

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device).unsqueeze(1)

    def rows_where(wanted: list[bool]) -> torch.Tensor:
        return torch.tensor([row for row, yes in enumerate(wanted) if yes], dtype=torch.long, device=device)

    places = torch.arange(size, device=device)
    best = logits.amax(-1, keepdim=True)
    first = torch.where(logits == best, places, size).amin(-1)
    logits = (logits - best) / column([one.temperature or 1.0 for one in asked])
    if len(some := rows_where([0 < one.top_k < size for one in asked])):
        counts = torch.tensor([asked[row].top_k for row in some.tolist()], device=device).unsqueeze(1)
        least = logits[some].topk(int(counts.max())).values.gather(1, counts - 1)
        logits[some] = logits[some].masked_fill(logits[some] < least, -torch.inf)
    probs = torch.softmax(logits, -1)
    if len(some := rows_where([one.top_p < 1 for one in asked])):
        ordered, order = probs[some].sort(descending=True, stable=True)
        inside = ordered.cumsum(-1) - ordered < column([one.top_p * (1 - ROUNDING) for one in asked])[some]
        probs[some] = torch.zeros_like(ordered).scatter_(1, order, ordered * inside)
    least = column([one.min_p * (1 - ROUNDING) for one in asked]) * probs.amax(-1, keepdim=True)
    probs.masked_fill_(probs < least, 0)
    reached = probs.cumsum(-1)
    drawn = column([wish.draw for wish in wishes.values()]) * reached[:, -1:]
    last = torch.where(probs > 0, places, 0).amax(-1)
    tokens = torch.minimum(torch.searchsorted(reached, drawn, right=True).squeeze(1), last)
    return torch.where(torch.tensor([one.temperature == 0 for one in asked], device=device), first, tokens)
