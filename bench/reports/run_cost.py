"""What a run has cost, in numbers and in words."""

from __future__ import annotations

import msgspec

from adjudge.engine.face import EngineFace
from adjudge.training.terminal import counted


class RunCost(msgspec.Struct, frozen=True):
    """Of a `model`: `tokens_asked` were asked for, of prompts and of texts, `tokens_computed` went through it.

    `remembered` verdicts came from the journal; time and tokens are of the others.
    """

    model: str
    seconds: float = 0.0
    tokens_computed: int = 0
    tokens_asked: int = 0
    remembered: int = 0

    @staticmethod
    def of(engine: EngineFace, seconds: float, remembered: int = 0) -> RunCost:
        """What the engine did in that time."""
        stats = engine.stats
        asked = stats.prompt_tokens + stats.tokens_written  # all but each text's last are computed, too
        return RunCost(engine.name, seconds, stats.tokens_computed, asked, remembered)

    def lines(self, subjects: int, noun: str) -> list[str]:
        """Tokens and time in words, of a run over so many pairs or other subjects."""
        if self.remembered and self.remembered == subjects:
            return [f"all {counted(subjects, noun)} remembered, nothing was asked anew"]
        return [self.tokens + self.sharing, f"{self.seconds:.1f} s, {self.parted(subjects, noun)}"]

    @property
    def tokens(self) -> str:
        """The tokens in words."""
        return f"computed {self.tokens_computed:,} of {self.tokens_asked:,} tokens asked for"

    @property
    def sharing(self) -> str:
        """Their ratio, as it stands behind them; nothing where none were computed."""
        return f" (1 in {self.tokens_asked / self.tokens_computed:.1f})" if self.tokens_computed else ""

    def parted(self, subjects: int, noun: str) -> str:
        """How many subjects were judged a second, and how many were not judged anew."""
        judged = subjects - self.remembered
        parts = [f"{judged / self.seconds:.2f} {noun}s/s"] if judged and self.seconds > 0 else []
        if self.remembered:
            parts.append(f"{counted(self.remembered, noun)} remembered")
        return ", ".join(parts) or counted(subjects, noun)
