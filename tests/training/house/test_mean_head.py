from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra train")

import torch
from safetensors.torch import load_file

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, ModelUnsupported
from adjudge.engine.models.adapters import read_adapter
from adjudge.engine.models.merging import ADAPTER
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.records.verdict import Item
from adjudge.training.evaluator.direct import Answer
from adjudge.training.house.house import train_house
from adjudge.training.house.mean_head import MeanHeadTask, Seen, direction
from adjudge.training.house.recipe import ASPECTS
from adjudge.training.run import Run
from tests.jsonl import read_lines
from tests.training.house.test_house import recipe

STRENGTH = 0.2
OFTEN = {"excerpts": {"count": 24, "held_out": 0.2, "longest": 4, "pairs": 0.0}}


class Looked(MeanHeadTask):
    """The task, with what it saw, what there is of each prompt alone, and the answers before and after the head."""

    seen: Seen
    starts: list[int]
    alone: list[torch.Tensor]
    turns: tuple[list[list[Answer]], list[list[Answer]]]

    def begin(self, model: Any, device: torch.device, at_once: int) -> None:
        model.eval()
        batches = [self.batch([example]) for example in self.train]
        with torch.no_grad():
            self.alone = [self._read(slot.tokens) for example in self.train for slot in example.slots]
            before = [self.answers(model, batch)[0] for batch in batches]
            super().begin(model, device, at_once)
            model.eval()
            self.turns = before, [self.answers(model, batch)[0] for batch in batches]
        model.train()

    def _read(self, tokens: Sequence[int]) -> torch.Tensor:
        """What the last attention reads of a prompt, [L, D]."""
        read: list[torch.Tensor] = []
        norm = self.model.get_decoder().layers[-1].input_layernorm
        hook = norm.register_forward_hook(lambda module, inputs, output: read.append(output[0].double()))
        self.model(torch.tensor([tokens]))
        hook.remove()
        return read[0]

    def _seen(self, *given: Any) -> tuple[Seen, list[int]]:
        self.seen, self.starts = super()._seen(*given)
        return self.seen, self.starts


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Looked]:
    """A run of two steps from a head, and its task."""
    tasks: list[Looked] = []

    def opened(*given: Any) -> Looked:
        tasks.append(Looked(*given))
        return tasks[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adjudge.training.house.house.MeanHeadTask", opened)
        run = train_house(recipe(tmp_path_factory.mktemp("mean"), "whole", mean_head=STRENGTH, **OFTEN))
    return run, tasks[0]


def test_a_planted_direction_is_found_at_right_angles_to_what_tells_the_length() -> None:
    generator = torch.Generator()
    generator.seed()
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    first_D, common_D, planted_D = torch.linalg.qr(normal(24, 3)).Q.T
    means_SD = 0.1 * normal(800, 24) + common_D
    means_SD[::2] += 0.3 * planted_D + 0.5 * first_D  # the better one of each two is shorter, too
    pairs = [(n, n + 1) for n in range(0, 800, 2)]
    seen = Seen(means_SD, means_SD, first_D.expand(800, 24), means_SD, means_SD)
    found_D = direction(seen, pairs)
    assert abs(found_D @ first_D) < 1e-9 * found_D.norm() and abs(found_D @ means_SD.mean(0)) < 1e-9 * found_D.norm()
    assert torch.cosine_similarity(found_D, planted_D, dim=0) > 0.9
    assert (means_SD[::2] - means_SD[1::2]).mean(0) @ found_D == pytest.approx(1)
    turned = direction(seen, [(b, a) for a, b in pairs])
    assert torch.allclose(turned, -found_D, atol=1e-4 * float(found_D.norm()))


def test_means_are_those_of_a_prompt_alone(looked: tuple[Run, Looked]) -> None:
    task = looked[1]
    seen, alone = task.seen, iter(task.alone)
    for example, start in zip(task.train, task.starts, strict=True):
        for place in range(start, start + len(example.slots)):
            read_LD = next(alone)
            assert torch.allclose(read_LD.mean(0), seen.means_SD[place], atol=1e-5)
            assert torch.allclose(read_LD[-1], seen.slots_SD[place], atol=1e-5)
            assert torch.allclose(read_LD[0], seen.firsts_SD[place], atol=1e-5)


def test_the_better_of_two_texts_gains_what_the_recipe_says(looked: tuple[Run, Looked]) -> None:
    task = looked[1]
    gained, pairs = [], []
    for example, start, was, now in zip(task.train, task.starts, *task.turns, strict=True):
        a, b = example.slots
        if a.score != b.score:
            better, worse = (0, 1) if a.score > b.score else (1, 0)
            pairs.append((start + better, start + worse))
            gained.append(now[better].score - now[worse].score - (was[better].score - was[worse].score))
    found_D = direction(task.seen, pairs)
    told = [float((task.seen.means_SD[one] - task.seen.means_SD[other]) @ found_D) for one, other in pairs]
    assert sum(gained) / len(gained) == pytest.approx(STRENGTH, rel=0.2)
    assert torch.corrcoef(torch.tensor([gained, told]))[0, 1] > 0.7


def test_an_adapter_with_such_a_head_is_opened_as_it_was_trained(looked: tuple[Run, Looked], tmp_path: Path) -> None:
    run, task = looked
    assert "One head of its last layer" in (run.folder.policy / "README.md").read_text()
    config = read_adapter(run.folder.policy).config
    assert {path.rpartition(".")[2]: rank for path, rank in config.rank_pattern.items()} == {
        "q_proj": 20,
        "v_proj": 5,
        "o_proj": 5,
    }
    assert all(config.alpha_pattern[path] / rank == config.lora_alpha / 4 for path, rank in config.rank_pattern.items())
    engine, rows = Engine("dummy:tiny-llama", adapter=run.folder.policy), iter(read_lines(run.folder.made_rows))
    for example in task.train[:4]:
        with torch.no_grad():
            [trained] = task.answers(task.model.eval(), task.batch([example]))
        for slot, answer, row in zip(example.slots, trained, rows, strict=False):
            judge = PointwiseJudge(engine, tuple(aspect for aspect in ASPECTS if aspect.name == slot.aspect))
            [verdict] = judge.judge([Item(row["prompt"], row["response"])])
            assert verdict.score == pytest.approx(answer.score, abs=0.01)  # the adapter was rounded to bfloat16
    on = {"policy": {"model": "dummy:tiny-llama", "adapter": str(run.folder.policy)}, **OFTEN}
    again = train_house(recipe(tmp_path, "again", **on))
    assert load_file(again.folder.policy / ADAPTER).keys() == load_file(run.folder.policy / ADAPTER).keys()


def test_a_stopped_run_comes_to_the_same_head(looked: tuple[Run, Looked], tmp_path: Path) -> None:
    whole = looked[0].folder
    shutil.copytree(whole.path, tmp_path / "cut")
    (tmp_path / "cut" / "checkpoint-2" / "trainer_state.json").unlink()
    shutil.rmtree(tmp_path / "cut" / "policy")
    resumed = train_house(recipe(tmp_path, "cut", mean_head=STRENGTH, **OFTEN), resume=True)
    assert (resumed.folder.policy / ADAPTER).read_bytes() == (whole.policy / ADAPTER).read_bytes()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"policy": {"model": "dummy:tiny-qwen2"}}, ModelUnsupported, "a last layer like Llama's"),
        ({"policy": {"model": "dummy:tiny-gpt2"}}, ModelUnsupported, "a last layer like Llama's"),
        ({"policy": {"model": "dummy:tiny-qwen3"}}, ModelUnsupported, "a last layer like Llama's"),
        (
            {"policy": {"model": "dummy:tiny-llama", "lora": {"targets": ["q_proj"]}}},
            ModelUnsupported,
            "its q_proj, v_proj and o_proj",
        ),
        ({"policy": {"model": "dummy:tiny-llama", "method": "full"}}, AdjudgeError, "mean_head is fitted into"),
        ({"excerpts": {"count": 3, "held_out": 0.2, "pairs": 1.0}}, AdjudgeError, "give more excerpts"),
    ],
)
def test_what_has_no_place_for_the_head_is_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[AdjudgeError], message: str
) -> None:
    with pytest.raises(error, match=message):
        train_house(recipe(tmp_path, "never", mean_head=0.5, **{**OFTEN, **changes}))
