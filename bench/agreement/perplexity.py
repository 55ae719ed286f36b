"""How likely a bare model finds each text after its prompt: what a judge of the same weights must beat."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from adjudge.bench.agreement.bare_model import BareModel
from adjudge.bench.agreement.baselines import by_number
from adjudge.bench.agreement.dataset import DataSet
from adjudge.bench.agreement.preferring import Rater
from adjudge.rewards.journal import Journal, content_key

LIKELIHOOD = "likelihood (bare model)"


def by_likelihood(dataset: DataSet, targets: Sequence[str], model: BareModel, journal: Journal) -> Rater:
    """The mean log-probability of a text's tokens, the same for every target: minus the logarithm of its perplexity."""
    return by_number(LIKELIHOOD, dataset, targets, partial(likelihood_of, model, journal))


def likelihood_of(model: BareModel, journal: Journal, prompt: str, text: str) -> float | None:
    """The likelihood of a text after its prompt; each is computed once, the journal keeps it."""
    key = content_key(likelihood=(prompt, text), model=model.fingerprint, dtype=str(model.dtype))
    kept = journal.get([key]).get(key)
    if kept is None:
        kept = msgspec.json.encode(model.likelihood(prompt, text))
        journal.put(key, kept)
    found: float | None = journal.decoded(kept, float | None)
    return found
