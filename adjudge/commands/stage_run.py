"""What commands share whose stages ask a model: a run that may be stopped at any time, and files beside its output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from adjudge.commands.resumable import Earlier, alone, check_earlier, check_paths, keeping
from adjudge.commands.source import Source
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.engine.sampling import Sampling
from adjudge.rewards.journal import Journal
from adjudge.training.stages import Passed, Texts, write_stage


class Writing(msgspec.Struct, frozen=True, kw_only=True):
    """How the model writes."""

    max_tokens: int
    temperature: float
    attempts: int
    seed: int

    @property
    def sampling(self) -> Sampling:
        """As the engine takes it."""
        return Sampling(max_tokens=self.max_tokens, temperature=self.temperature)

    def texts(self, engine: EngineFace, book: Journal, schema: Mapping[str, Any] | None = None) -> Texts:
        """What has texts written so, JSON of a `schema` where there is one."""
        return Texts(engine, self.sampling, book, schema=schema, attempts=self.attempts, seed=self.seed)


class StageRun:
    """A run that is alone with its output and with its journal `book`."""

    def __init__(self, book: Journal, earlier: Earlier, closing: ExitStack) -> None:
        self.book = book
        self._earlier, self._closing = earlier, closing

    def open(self, source: Source) -> EngineFace:
        """The engine, until the run ends; once it is open, what an overwritten run was answered is forgotten."""
        engine = self._closing.enter_context(source.open())
        if self._earlier == "overwrite":
            self.book.clear()
        return engine


@contextmanager
def stage_run(
    what: str,
    path: Path,
    output: Path,
    *,
    earlier: Earlier,
    journal: Path | None,
    plot: Path | None = None,
    others: Sequence[str] = ("dropped",),
) -> Iterator[StageRun]:
    """A run from `path` to `output` that says what is kept when it is stopped; `what` names the input.

    `others` are written beside the output (see `beside`). Raises AdjudgeError for files that stand in each other's way,
    and for an earlier run's unless the user has said what is to become of them.
    """
    journal = journal or output.with_name(output.name + ".journal")
    check_paths(what, path, output, journal, plot)
    check_beside(path, output, *others)
    with alone(journal), Journal(journal) as book, ExitStack() as closing:
        if earlier == "refuse":
            check_earlier(output, book, earlier)
        with keeping(output, lambda: f"{len(book)} answers are kept in {journal}"):
            yield StageRun(book, earlier, closing)


def beside(output: Path, name: str, suffix: str | None = None) -> Path:
    """The file of that name that goes with an output, and with its ending where no other is given."""
    return output.with_name(f"{output.stem}.{name}{suffix or output.suffix}")


def check_beside(path: Path, output: Path, *others: str) -> None:
    """Refuse an output beside which one of the `others` would overwrite the input."""
    if path.resolve() in {beside(output, name).resolve() for name in others}:
        raise AdjudgeError(f"{path} would be overwritten: name another output with -o")


def write_parts(output: Path, kept: Iterable[Any], stages: Sequence[Passed[Any]]) -> None:
    """The rows that were kept, and beside them those that were dropped: these first, so that both stand or neither."""
    write_stage(beside(output, "dropped"), (drop for stage in stages for drop in stage.dropped))
    write_stage(output, kept)


def tell_texts(texts: Texts) -> None:
    """Say what the model wrote."""
    shortened = f"; {texts.shortened} prompts shortened to fit" if texts.shortened else ""
    print(
        f"texts: {texts.asked} written, {texts.rewritten} of them again, {texts.remembered} from the journal{shortened}"
    )
