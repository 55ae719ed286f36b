"""What small models write from the first sentences of stories: texts worse by degrees, and not by steps of ours."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from shutil import copytree

import msgspec
import torch
from safetensors.torch import load_file, save_file

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.prompt import Message, Prompt, Segment
from adjudge.engine.sources import ModelSource
from adjudge.engine.tokenizer import well_formed
from adjudge.rewards.wire import Row
from adjudge.training.house.texts import FEWEST, joined, story_of
from adjudge.training.stages import Passed, Texts, Unusable, passed

Telling = tuple[tuple[str, ...], tuple[str, ...]]
"""The sentences of a text, and the gap before each."""


class Continuation(msgspec.Struct, frozen=True):
    """A story on the first sentence (`prompt`) of the row in that `place`, by the writer of that `noise`."""

    place: int
    prompt: str
    noise: float
    sentences: tuple[str, ...]
    gaps: tuple[str, ...]

    @property
    def text(self) -> str:
        """As it is read."""
        return joined(self.sentences, self.gaps)

    def first(self, count: int) -> Continuation:
        """Its first `count` sentences."""
        return msgspec.structs.replace(self, sentences=self.sentences[:count], gaps=self.gaps[:count])


@contextmanager
def noisy(source: ModelSource, noise: float, seed: int) -> Iterator[str]:
    """The folder of a model with normal noise, of `noise` standard deviations of each matrix, on its weights.

    The noise depends on the seed alone, so that a run that goes on has the same writer; without any, it is the model's
    own folder. Raises AdjudgeError for a model that is not kept as safetensors.
    """
    if not noise:
        yield source.path
        return
    files = sorted(Path(source.path).glob("*.safetensors"))
    if not files:
        raise AdjudgeError(f"{source.name} has no *.safetensors to put noise on: name another writer, or --noise 0")
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
    prompts = [texts.prompt([Message("user", Prompt((Segment(well_formed(_prompt(row))),)))]) for row in rows]
    wanted = [{"place": place, "prompt": _prompt(row), "noise": noise} for place, row in enumerate(rows)]
    results = (
        (place, told if isinstance(told, Unusable) else Continuation(place, _prompt(rows[place]), noise, *told))
        for place, told in texts.write(prompts, _told)
    )
    return passed(f"write, noise {noise:g}", wanted, results)


def of_one_length(continuations: Sequence[Continuation]) -> list[list[Continuation]]:
    """The continuations of each row, all of as many sentences as its shortest has: length says nothing then.

    In the order of the rows and of `noise`; a row that has only one is left out: it says nothing of better or worse.
    """
    by_row: dict[int, list[Continuation]] = {}
    for one in sorted(continuations, key=lambda one: (one.place, one.noise)):
        by_row.setdefault(one.place, []).append(one)
    groups = [group for group in by_row.values() if len(group) > 1]
    return [[one.first(min(len(other.sentences) for other in group)) for one in group] for group in groups]


def _prompt(row: Row) -> str:
    return str(row.columns["prompt"]).strip()


def _told(text: str) -> Telling:
    sentences, gaps = story_of(text)
    if len(sentences) < FEWEST:
        raise Unusable("too_short")
    return sentences, gaps


def _with_noise(weight: torch.Tensor, noise: float, random: torch.Generator) -> torch.Tensor:
    """A matrix with noise on it; a vector (of a norm) as it is."""
    if weight.dim() < 2 or not weight.is_floating_point():
        return weight
    values = weight.float()
    return (values + noise * values.std() * torch.randn(values.shape, generator=random)).to(weight.dtype)
