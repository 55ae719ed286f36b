"""`adjudge writing`: texts in, disturbed texts or a benchmark out, resumable at any point."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from adjudge.commands.resumable import Earlier, alone, check_earlier, check_paths, keeping
from adjudge.commands.source import Source
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.rewards.journal import Journal
from adjudge.training.attrition import Count, show_attrition
from adjudge.training.stages import Drop, Passed, Scores, Texts, read_stage, write_stage
from adjudge.training.writing.building import SCHEMA, Building, candidates_of
from adjudge.training.writing.disturbances import TRANSFERS, disturb, parse_kinds
from adjudge.training.writing.tasks import completions, guided, opened, parse_tasks


class Wording(msgspec.Struct, frozen=True, kw_only=True):
    """How the model writes."""

    max_tokens: int
    temperature: float
    attempts: int
    seed: int

    @property
    def sampling(self) -> Sampling:
        """As the engine takes it."""
        return Sampling(max_tokens=self.max_tokens, temperature=self.temperature)


def disturb_file(
    path: Path,
    output: Path,
    *,
    kinds: str | None,
    most: int,
    wording: Wording,
    source: Source,
    earlier: Earlier,
    journal: Path | None,
) -> None:
    """Disturb the texts of `path`; a model is loaded only where genres are to change."""
    chosen = parse_kinds(kinds)
    rows = read_stage(path)
    pure = [kind for kind in chosen if kind not in TRANSFERS]
    disturb(rows, pure, most=most, seed=wording.seed)  # which finds rows without a text before a model is loaded
    with _alone_with(path, output, earlier, journal) as book:
        how: dict[str, Any] = {"most": most, "seed": wording.seed}
        if pure == [*chosen]:
            texts, made = None, disturb(rows, chosen, **how)
        else:
            with source.open() as engine:
                texts = Texts(engine, wording.sampling, book, attempts=wording.attempts, seed=wording.seed)
                made = disturb(rows, chosen, texts, **how)
        _write(output, made.kept, made.dropped)
    show_attrition([Count.of(made)], f"Disturbed texts of {path.name}")
    if texts is not None:
        _tell(texts)
    print(f"disturbed: {output}\ndropped: {dropped_of(output)}")


def build_file(
    path: Path,
    output: Path,
    *,
    tasks: str | None,
    least: float,
    min_mass: float,
    wording: Wording,
    source: Source,
    earlier: Earlier,
    journal: Path | None,
) -> None:
    """Make a benchmark of the texts of `path`; mistakes are found before the model is loaded."""
    wanted = parse_tasks(tasks)
    candidates = candidates_of(read_stage(path))
    with _alone_with(path, output, earlier, journal) as book, source.open() as engine:
        how: dict[str, Any] = {"attempts": wording.attempts, "seed": wording.seed}
        texts, scores = Texts(engine, wording.sampling, book, schema=SCHEMA, **how), Scores(engine, book)
        building = Building(scores, texts, min_mass=min_mass, least=least)
        done: list[Passed[Any]] = [classified := building.classify(candidates)]
        done.append(good := building.filter(classified.kept))
        rows: list[dict[str, Any]] = []
        if "completion" in wanted:
            done.append(filled := completions(good.kept, wording.seed))
            rows += filled.kept
        if wanted != ("completion",):
            done.append(constructed := building.construct(good.kept))
            for task, make in {"guide": guided, "open": opened}.items():
                rows += map(make, constructed.kept if task in wanted else ())
        _write(output, rows, [drop for one in done for drop in one.dropped])
    show_attrition(list(map(Count.of, done)), f"What {path.name} gave")
    print(f"scores: {scores.computed} computed, {scores.remembered} from the journal")
    _tell(texts)
    counts = ", ".join(f"{sum(row['task'] == task for row in rows)} {task}" for task in wanted)
    print(f"benchmark: {output} ({counts})\ndropped: {dropped_of(output)}")
    if not rows:
        print(f"adjudge: no text was left: see why in {dropped_of(output)}, and --least, --min-mass", file=sys.stderr)


def dropped_of(output: Path) -> Path:
    """Where the rows that were dropped stand, beside those that were kept."""
    return output.with_name(f"{output.stem}.dropped{output.suffix}")


@contextmanager
def _alone_with(path: Path, output: Path, earlier: Earlier, journal: Path | None) -> Iterator[Journal]:
    """The journal of a run that may be stopped at any time, alone with its files."""
    journal = journal or output.with_name(output.name + ".journal")
    check_paths("the texts", path, output, journal)
    if dropped_of(output).resolve() == path.resolve():
        raise AdjudgeError(f"{path} is where dropped rows go: name another output with -o")
    with alone(journal), Journal(journal) as book:
        if earlier == "refuse":
            check_earlier(output, book, earlier)
        elif earlier == "overwrite":
            book.clear()
        with keeping(output, lambda: f"{len(book)} answers are kept in {journal}"):
            yield book


def _write(output: Path, kept: Iterable[Any], dropped: Sequence[Drop]) -> None:
    """The dropped rows first: where the kept ones stand, both do."""
    write_stage(dropped_of(output), dropped)
    write_stage(output, kept)


def _tell(texts: Texts) -> None:
    print(f"texts: {texts.asked} written, {texts.rewritten} of them again, {texts.remembered} from the journal")
