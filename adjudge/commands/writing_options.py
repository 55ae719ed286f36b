"""How a command has texts written, and what it says of them in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from adjudge.engine.face import EngineFace
    from adjudge.engine.sampling import Sampling
    from adjudge.rewards.journal import Journal
    from adjudge.training.stages import Texts


class Writing(msgspec.Struct, frozen=True, kw_only=True):
    """How the model writes."""

    max_tokens: int
    temperature: float
    attempts: int
    seed: int

    @property
    def sampling(self) -> Sampling:
        """As the engine takes it."""
        from adjudge.engine.sampling import Sampling

        return Sampling(max_tokens=self.max_tokens, temperature=self.temperature)

    def texts(
        self,
        engine: EngineFace,
        book: Journal,
        schema: Mapping[str, Any] | None = None,
        regex: str | None = None,
        unended: bool = False,
    ) -> Texts:
        """What has texts written so, JSON of a `schema` or of the form of a `regex` where there is one.

        `unended` texts, which were cut short, will do where it is said.
        """
        from adjudge.training.stages import Texts

        sampling = msgspec.structs.replace(self.sampling, regex=regex)
        return Texts(engine, sampling, book, schema=schema, attempts=self.attempts, seed=self.seed, unended=unended)


def tell_texts(counts: Counter[str]) -> None:
    """Say what the model wrote, as `Texts` counts it."""
    from adjudge.training.terminal import counted

    shortened = f"; {counted(counts['shortened'], 'prompt')} shortened to fit" if counts["shortened"] else ""
    written, again = f"{counts['asked']} written", f"{counts['rewritten']} of them again"
    print(f"texts: {written}, {again}, {counts['remembered']} from the journal{shortened}")
