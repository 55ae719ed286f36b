"""How likely a bare model finds each text after its prompt: what a judge of the same weights must beat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from adjudge.bench.agreement.comparison import Scores
from adjudge.bench.agreement.dataset import OVERALL, DataSet
from adjudge.bench.agreement.preferring import Choice, Choices
from adjudge.rewards.journal import Journal, content_key
from adjudge.training.bare_model import BareModel

LIKELIHOOD = "likelihood (bare model)"


def likelihood_scores(dataset: DataSet, targets: Sequence[str], model: BareModel, journal: Journal) -> Scores:
    """The mean log-probability of a text's tokens, the same for every target: minus the logarithm of its perplexity."""
    texts = [(row.item.prompt, row.item.response) for row in dataset.rows]
    column = list(likelihoods(texts, model, journal))
    return Scores(LIKELIHOOD, dict.fromkeys((*targets, OVERALL), column))


def likelihood_choices(dataset: DataSet, model: BareModel, journal: Journal) -> Choices:
    """The likelier text of each pair, token by token."""
    texts = [
        (prompt, text)
        for row in dataset.rows
        for prompt, text in zip(row.pair.prompts, (row.pair.a, row.pair.b), strict=True)
    ]
    found = list(likelihoods(texts, model, journal))
    return Choices(LIKELIHOOD, [_choice(a, b) for a, b in zip(found[::2], found[1::2], strict=True)])


def likelihoods(texts: Sequence[tuple[str, str]], model: BareModel, journal: Journal) -> Iterator[float | None]:
    """The likelihood of each text after its prompt; each is computed once, the journal keeps it."""
    for prompt, text in texts:
        key = content_key(likelihood=(prompt, text), model=model.fingerprint, dtype=str(model.dtype))
        kept = journal.get([key]).get(key)
        if kept is None:
            kept = msgspec.json.encode(model.likelihood(prompt, text))
            journal.put(key, kept)
        yield journal.decoded(kept, float | None)


def _choice(a: float | None, b: float | None) -> Choice:
    if a is None or b is None:
        return Choice(None)
    return Choice(0.5 if a == b else float(a > b), sure=False)
