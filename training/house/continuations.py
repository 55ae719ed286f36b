"""What small models write from the first sentences of stories: texts worse by degrees, and not by steps of ours."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from shutil import copytree
from typing import TYPE_CHECKING, TypeVar

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.sources import ModelSource
from adjudge.engine.text.prompt import Message, Prompt, Segment
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.records.rows import Row
from adjudge.training.house.texts import FEWEST, beside_of, joined, story_of
from adjudge.training.stages import Passed, Texts, Unusable, passed, sifted
from adjudge.training.writing.passages import sentences

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


class Continuation(msgspec.Struct, frozen=True):
    """A text on the first sentence (`prompt`) of the row in that `place`, by the writer of that `noise`, if known."""

    place: int
    prompt: str
    noise: float | None
    text: str

    @property
    def sentences(self) -> tuple[str, ...]:
        """Its sentences, all of them."""
        return sentences(self.text).parts

    def first(self, count: int) -> Continuation:
        """Its first `count` sentences."""
        return msgspec.structs.replace(self, text=sentences(self.text).text(range(count)))


def weight_files(source: ModelSource) -> list[Path]:
    """Where noise would go; raises AdjudgeError for a model that is not kept as safetensors."""
    files = sorted(Path(source.path).glob("*.safetensors"))
    if not files:
        raise AdjudgeError(f"{source.name} has no *.safetensors to put noise on: name another writer")
    return files


@contextmanager
def noisy(source: ModelSource, noise: float, seed: int) -> Iterator[str]:
    """The folder of a model with normal noise, of `noise` standard deviations of each matrix, on its weights.

    The noise depends on the seed alone, so that a run that goes on has the same writer; without any, it is the model's
    own folder.
    """
    if not noise:
        yield source.path
        return
    import torch
    from safetensors.torch import load_file, save_file

    files = weight_files(source)
    with tempfile.TemporaryDirectory(prefix="adjudge-writer-") as made:
        folder = copytree(source.path, Path(made) / "model", ignore=lambda *_: [file.name for file in files])
        random = torch.Generator().manual_seed(Random(f"{seed} {noise}").getrandbits(63))
        for file in files:
            weights = load_file(file)
            for name in sorted(weights):
                weights[name] = _with_noise(weights[name], noise, random)
            save_file(weights, folder / file.name, {"format": "pt"})
        yield str(folder)


def written_by(texts: Texts, rows: Sequence[Row], noise: float) -> Passed[Continuation]:
    """One story of each row's `prompt`, at least three sentences that are whole; `noise` says whose they are."""
    prompts = [texts.prompt([Message("user", Prompt((Segment(_prompt(row)),)))]) for row in rows]
    wanted = [{"place": place, "prompt": _prompt(row), "noise": noise} for place, row in enumerate(rows)]
    results = texts.write(prompts, [partial(_told, place, _prompt(row), noise) for place, row in enumerate(rows)])
    return passed(f"write, noise {noise:g}", wanted, results)


def written_before(rows: Sequence[Row]) -> list[Continuation]:
    """The texts that rows have in `scored`, as they are, on each row's `prompt`.

    Raises AdjudgeError for what does not belong there, and where no row has any.
    """
    found = [
        Continuation(place, _prompt(row), None, well_formed(one.text))
        for place, row in enumerate(rows)
        for one in beside_of(row).scored
    ]
    if not found:
        raise AdjudgeError('no row has texts in "scored": name a --writer, which goes on from their first sentences')
    return found


def several(stage: str, rows: Sequence[T], place: Callable[[T], int]) -> Passed[T]:
    """Those whose story has others: one alone is neither better nor worse."""
    counts = Counter(map(place, rows))
    return sifted(stage, rows, lambda row: None if counts[place(row)] > 1 else "alone")


def of_one_length(continuations: Sequence[Continuation]) -> list[Continuation]:
    """In order of the stories, each cut to as many sentences as the shortest on its story has: length says nothing
    then."""
    shortest: dict[int, int] = {}
    for one in continuations:
        count = len(one.sentences)
        shortest[one.place] = min(count, shortest.get(one.place, count))
    return [one.first(shortest[one.place]) for one in sorted(continuations, key=lambda one: one.place)]


def _prompt(row: Row) -> str:
    return well_formed(str(row.columns["prompt"]).strip())


def _told(place: int, prompt: str, noise: float, text: str) -> Continuation:
    parts, gaps = story_of(text)
    if len(parts) < FEWEST:
        raise Unusable("too_short")
    return Continuation(place, prompt, noise, joined(parts, gaps))


def _with_noise(weight: torch.Tensor, noise: float, random: torch.Generator) -> torch.Tensor:
    """A matrix with noise on it; a vector (of a norm) as it is."""
    import torch

    if weight.dim() < 2 or not weight.is_floating_point():
        return weight
    values = weight.float()
    return (values + noise * values.std() * torch.randn(values.shape, generator=random)).to(weight.dtype)
