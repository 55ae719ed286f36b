"""What a run's completions came to where its judges gave no reward: said at its end, and an error where none did."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from adjudge.engine.errors import AdjudgeError
from adjudge.training.metrics import weighted_mean

MUCH = 0.1
"""The share of completions without a reward from which on it is told."""

MENDS = {
    "low_mass": "lower min_mass in the judge's options, or name a judge that answers as it is asked to",
    "timeout": "raise [reward] deadline, or mend what the log says of the server",
    "too_long": "lower [generation] max_tokens, or name a judge with a longer context",
}


class Unrewarded(AdjudgeError):
    """No completion of a run was given a reward."""


def unrewarded(lines: Sequence[Mapping[str, Any]], reward: str) -> str | None:
    """A sentence on the completions of a run's metrics that got no reward of that name; None where they are few.

    Raises Unrewarded where no completion was given one, with the commonest reason and its mend.
    """
    train = [line for line in lines if line["split"] == "train"]
    name = f"{reward}/abstained"
    share = _mean(train, name)
    if not share > MUCH:
        return None
    reasons = sorted({key for line in train for key in line if key.startswith(f"{name}/")})
    why = max(reasons, key=lambda key: _mean(train, key), default=name).removeprefix(f"{name}/")
    if share < 1:
        return f'{share:.0%} of the completions got no reward, most often as "{why}" ({name} in the metrics)'
    mend = MENDS.get(why, "mend what the log says")
    raise Unrewarded(f'no completion of the run was given a reward ("{why}"), and nothing was learned: {mend}')


def _mean(lines: Sequence[Mapping[str, Any]], name: str) -> float:
    """Over the lines that have it; NaN where none has."""
    values = [math.nan if (value := line.get(name)) is None else value for line in lines]
    return weighted_mean(values, [1.0] * len(values))
