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
from adjudge.training.house.layers import OPEN, STEEP, Means
from adjudge.training.house.mean_head import MeanHeadTask, direction
from adjudge.training.house.recipe import ASPECTS
from adjudge.training.run import Run
from tests.jsonl import read_lines
from tests.training.house.test_house import recipe

STRENGTH = 0.2
HOW = {"layer": 0, "strength": STRENGTH}
OFTEN = {"excerpts": {"count": 24, "held_out": 0.2, "longest": 4, "pairs": 0.0}}


class Looked(MeanHeadTask):
    """The task, with what it saw, what there is of each prompt alone, and the answers before and after the head."""

    seen: Means
    starts: list[int]
    alone: list[torch.Tensor]
    fired: list[torch.Tensor]
    turns: tuple[list[list[Answer]], list[list[Answer]]]

    def begin(self, model: Any, device: torch.device, at_once: int) -> None:
        model.eval()
        slots = [slot for example in self.train for slot in example.slots]
        batches = [self.batch([example]) for example in self.train]
        with torch.no_grad():
            self.alone = [self._read(slot.tokens, 0, "self_attn.q_proj") for slot in slots]
            before = [self.answers(model, batch)[0] for batch in batches]
            super().begin(model, device, at_once)
            model.eval()
            self.turns = before, [self.answers(model, batch)[0] for batch in batches]
            self.fired = [self._read(slot.tokens, -1, "mlp.down_proj")[-1] for slot in slots]
        model.train()

    def pairs(self) -> list[tuple[int, int]]:
        """The slots of each example's two texts, the better one's first."""
        starts = zip(self.train, self.starts, strict=True)
        scored = [(example.slots[0].score - example.slots[1].score, start) for example, start in starts]
        return [(start, start + 1) if gap > 0 else (start + 1, start) for gap, start in scored if gap]

    def _read(self, tokens: Sequence[int], layer: int, reader: str) -> torch.Tensor:
        """What a part of a layer reads of a prompt, [L, D]."""
        read: list[torch.Tensor] = []
        part = self.model.get_decoder().layers[layer].get_submodule(reader)
        hook = part.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0][0].double()))
        self.model(torch.tensor([tokens]))
        hook.remove()
        return read[0]

    def _seen(self, *given: Any) -> tuple[Means, list[int]]:
        self.seen, self.starts = super()._seen(*given)
        return self.seen, self.starts


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Looked]:
    """A run of two steps from a head, and its task."""
    return looking(tmp_path_factory.mktemp("mean"), HOW)


def looking(folder: Path, how: dict[str, Any]) -> tuple[Run, Looked]:
    tasks: list[Looked] = []

    def opened(*given: Any) -> Looked:
        tasks.append(Looked(*given))
        return tasks[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adjudge.training.house.house.MeanHeadTask", opened)
        run = train_house(recipe(folder, "whole", mean_head=how, **OFTEN))
    return run, tasks[0]


def test_a_planted_direction_is_found_at_right_angles_to_what_tells_the_length() -> None:
    generator = torch.Generator()
    generator.seed()
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    first_D, common_D, planted_D = torch.linalg.qr(normal(24, 3)).Q.T
    means_SD = 0.1 * normal(800, 24) + common_D
    means_SD[::2] += 0.3 * planted_D + 0.5 * first_D  # the better one of each two is shorter, too
    pairs = [(n, n + 1) for n in range(0, 800, 2)]
    seen = Means(means_SD, first_D.expand(800, 24))
    found_D = direction(seen, pairs)
    assert abs(found_D @ (first_D - means_SD.mean(0))) < 1e-9 * found_D.norm()
    assert abs(found_D @ means_SD[::2].mean(0)) < 1e-9 * found_D.norm()  # the better ones stay where they are
    assert torch.cosine_similarity(found_D, planted_D, dim=0) > 0.9
    assert (means_SD[::2] - means_SD[1::2]).mean(0) @ found_D == pytest.approx(1)


def test_means_are_those_of_a_prompt_alone(looked: tuple[Run, Looked]) -> None:
    task = looked[1]
    seen, alone = task.seen, iter(task.alone)
    for example, start in zip(task.train, task.starts, strict=True):
        for place in range(start, start + len(example.slots)):
            read_LD = next(alone)
            assert torch.allclose(read_LD.mean(0), seen.means_SD[place], atol=1e-5)
            assert torch.allclose(read_LD[0], seen.firsts_SD[place], atol=1e-5)


def test_the_longest_texts_are_looked_at_first(looked: tuple[Run, Looked]) -> None:
    task = looked[1]
    batches = task.batches(range(len(task.train)), torch.device("cpu"), 2, "lengths")
    lengths = [task.length(task.train[place]) for places, _ in batches for place in places]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] > lengths[-1]


def test_the_better_of_two_texts_gains_what_the_recipe_says(looked: tuple[Run, Looked]) -> None:
    task = looked[1]
    pairs = task.pairs()
    places = {start: n for n, start in enumerate(task.starts)}
    gained = []
    for better, worse in pairs:
        start = min(better, worse)
        was, now = (turn[places[start]] for turn in task.turns)
        better, worse = better - start, worse - start
        gained.append(now[better].score - now[worse].score - (was[better].score - was[worse].score))
    found_D = direction(task.seen, pairs)
    told = [float((task.seen.means_SD[one] - task.seen.means_SD[other]) @ found_D) for one, other in pairs]
    assert sum(gained) / len(gained) == pytest.approx(STRENGTH, rel=0.3)
    assert torch.corrcoef(torch.tensor([gained, told]))[0, 1] > 0.4  # what the head and the neuron did before is gone


def _told(task: Looked) -> torch.Tensor:
    """How far each slot's mean lies along the direction."""
    given = zip(task.train, task.starts, strict=True)
    places = [start + n for example, start in given for n in range(len(example.slots))]
    return task.seen.means_SD[places] @ direction(task.seen, task.pairs())


def test_a_neuron_of_the_last_layer_fires_as_the_mean_of_the_layer_lies(looked: tuple[Run, Looked]) -> None:
    task = looked[1]
    told_S = _told(task)
    both = torch.stack([told_S, *torch.stack(task.fired).T])
    neuron = int(torch.corrcoef(both)[0, 1:].argmax())
    assert torch.corrcoef(both)[0, 1 + neuron] > 0.99
    assert torch.cov(both)[0, 1 + neuron] / told_S.var() == pytest.approx(OPEN, rel=0.1)


def test_a_neuron_fires_beyond_a_place_alone(tmp_path: Path) -> None:
    beyond = 0.5
    _, task = looking(tmp_path, {**HOW, "beyond": beyond})
    told_S = _told(task)
    wanted_S = -torch.nn.functional.silu(STEEP * (-told_S - beyond))
    fired_SN = torch.stack(task.fired)
    neuron = int((fired_SN - wanted_S[:, None]).square().mean(0).argmin())
    both = torch.stack([wanted_S, fired_SN[:, neuron]])
    assert torch.corrcoef(both)[0, 1] > 0.98
    assert torch.cov(both)[0, 1] / wanted_S.var() == pytest.approx(1, rel=0.15)
    before = told_S > -beyond / 2
    assert before.sum() > 9 and fired_SN[before, neuron].abs().max() < 1 and wanted_S.min() < -6


def test_an_adapter_with_such_a_head_is_opened_as_it_was_trained(looked: tuple[Run, Looked], tmp_path: Path) -> None:
    run, task = looked
    assert "A head of layer 0 tells its answer" in (run.folder.policy / "README.md").read_text()
    config = read_adapter(run.folder.policy).config
    more = {".".join(path.split(".")[-3:]): rank - 4 for path, rank in config.rank_pattern.items()}
    blind = dict.fromkeys((f"{layer}.mlp.{name}_proj" for layer in (0, 1) for name in ("gate", "up", "down")), 1)
    blind |= dict.fromkeys((f"1.self_attn.{name}_proj" for name in "qkvo"), 1)
    own = {"0.self_attn.q_proj": 16, "0.self_attn.v_proj": 1, "0.self_attn.o_proj": 18}
    assert more == blind | own | {"1.mlp.gate_proj": 2, "1.mlp.up_proj": 2}
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
    resumed = train_house(recipe(tmp_path, "cut", mean_head=HOW, **OFTEN), resume=True)
    assert (resumed.folder.policy / ADAPTER).read_bytes() == (whole.policy / ADAPTER).read_bytes()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"policy": {"model": "dummy:tiny-qwen2"}}, ModelUnsupported, "layers like Llama's"),
        ({"policy": {"model": "dummy:tiny-gpt2"}}, ModelUnsupported, "layers like Llama's"),
        ({"policy": {"model": "dummy:tiny-qwen3"}}, ModelUnsupported, "layers like Llama's"),
        (
            {"policy": {"model": "dummy:tiny-llama", "lora": {"targets": ["q_proj"]}}},
            ModelUnsupported,
            "an adapter over all their projections",
        ),
        (
            {"mean_head": 0.3},
            AdjudgeError,
            r"mean_head: expected object.* got float: write it as a table, \[mean_head\]",
        ),
        ({"mean_head": {"layer": 2}}, AdjudgeError, r"no layer 2: lower layer of \[mean_head\] below 2"),
        ({"policy": {"model": "dummy:tiny-llama", "method": "full"}}, AdjudgeError, "mean_head is fitted into"),
        ({"excerpts": {"count": 3, "held_out": 0.2, "pairs": 1.0}}, AdjudgeError, "give more excerpts"),
    ],
)
def test_what_has_no_place_for_the_head_is_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[AdjudgeError], message: str
) -> None:
    with pytest.raises(error, match=message):
        train_house(recipe(tmp_path, "never", **{"mean_head": HOW, **OFTEN, **changes}))
