"""The rewards of a run once more, from its journal alone: are they what the trainer was given, bit for bit?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from adjudge.engine.errors import AdjudgeError, reason
from adjudge.rewards.judge import PASSING
from adjudge.rewards.reward import Reward
from adjudge.rewards.specification import without_models
from adjudge.rewards.trainers.trl import TrlReward, for_trl
from adjudge.training.grpo_recipe import GrpoRecipe
from adjudge.training.reward_log import Rewarded, read_engines, read_rewards
from adjudge.training.reward_recipe import RewardRecipe
from adjudge.training.run_folder import RunFolder

BESIDE = ("prompts", "files")
"""What recipe.json has besides the recipe."""


class Replayed(msgspec.Struct, frozen=True):
    """A completion as it was `rewarded`, and its reward now, from the verdicts that the journal has.

    None of both where a judge `abstained`; `kept` is false for a group on which it did so for lack of time or a server,
    as no verdict was kept of it.
    """

    rewarded: Rewarded
    reward: float | None
    kept: bool = True

    @property
    def equal(self) -> bool:
        """Whether it is the same, to the last bit."""
        return self.reward == self.rewarded.reward


def replay_rewards(folder: Path, rewards: RewardRecipe | None = None) -> Iterator[Replayed]:
    """Every reward of the run in `folder` again, in order, with no model: only prompts and completions are read.

    `rewards` stands in for the run's own [reward]: other weights, parts, gates, of the same judges. Raises AdjudgeError
    for a run without a journal, and where a verdict is wanted that it does not hold.
    """
    run = RunFolder(folder)
    recipe, rewarded = read_run(run), read_rewards(run.rewards)
    with without_models(read_engines(run.engines)):
        opened = (rewards or recipe.reward).open(recipe.policy.model, str(run.journal), chat=recipe.data.chat)
        for _, lines in groupby(rewarded, key=lambda one: (one.step, one.split, one.call)):
            yield from _replayed(opened, list(lines))


def read_run(run: RunFolder) -> GrpoRecipe:
    """The recipe of a GRPO run; raises AdjudgeError where there is none, or it is of another kind."""
    try:
        record = json.loads(run.recipe.read_bytes())
        return msgspec.convert({name: value for name, value in record.items() if name not in BESIDE}, GrpoRecipe)
    except OSError as error:
        raise AdjudgeError(f"cannot read {run.recipe} ({error.strerror}): name the output folder of a run") from error
    except (ValueError, AttributeError) as error:
        raise AdjudgeError(f"{run.recipe} is not of a GRPO run ({reason(error)}): name the folder of one") from error


def _replayed(reward: Reward, lines: Sequence[Rewarded]) -> Iterator[Replayed]:
    """The completions of one call of the trainer."""
    size = lines[0].group
    groups = [lines[start : start + size] for start in range(0, len(lines), size)]
    asked = [line for group in groups if _is_kept(group) for line in group]
    names = dict.fromkeys(name for line in asked for name in line.columns)
    columns: dict[str, Any] = {name: [line.columns.get(name) for line in asked] for name in names}
    function = for_trl(reward, size)
    assert isinstance(function, TrlReward)
    values = iter(function([one.prompt for one in asked], [one.completion for one in asked], **columns))
    for group in groups:
        for line in group:
            yield Replayed(line, next(values)) if _is_kept(group) else Replayed(line, None, kept=False)


def _is_kept(group: Sequence[Rewarded]) -> bool:
    return not any(line.abstained in PASSING for line in group)
