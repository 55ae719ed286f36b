"""Options of writing: how a command has texts written, and what it says of them in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from adjudge.commands.options.groups import Group

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
    ) -> Texts:
        """What has texts written so, JSON of a `schema` or of the form of a `regex` where there is one."""
        from adjudge.training.stages import Texts

        sampling = msgspec.structs.replace(self.sampling, regex=regex)
        return Texts(engine, sampling, book, schema=schema, attempts=self.attempts, seed=self.seed)


def written(most: int, how_freely: float = 0.7) -> Group:
    """How the model writes (`Writing`), where texts have `most` tokens unless the user says otherwise."""

    def make(
        max_tokens: Annotated[int, typer.Option(help="Tokens of a text at most.", min=1)] = most,
        temperature: Annotated[float, typer.Option(help="How freely texts are written.", min=0.0)] = how_freely,
        attempts: Annotated[int, typer.Option(help="How often an unusable text is written in all.", min=1)] = 3,
        seed: Annotated[int, typer.Option(help="Another seed draws other texts, and whatever else is drawn.")] = 0,
    ) -> Writing:
        return Writing(max_tokens=max_tokens, temperature=temperature, attempts=attempts, seed=seed)

    return Group(make)


def tell_texts(counts: Counter[str]) -> None:
    """Say what the model wrote, as `Texts` counts it."""
    from adjudge.training.terminal import counted

    shortened = f"; {counted(counts['shortened'], 'prompt')} shortened to fit" if counts["shortened"] else ""
    written, again = f"{counts['asked']} written", f"{counts['rewritten']} of them again"
    print(f"texts: {written}, {again}, {counts['remembered']} from the journal{shortened}")
