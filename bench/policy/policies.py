"""The policies of an evaluation: what a checkpoint's name stands for, what it was trained from, how it was asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from adjudge.engine.errors import AdjudgeError, reason
from adjudge.engine.models.adapters import CONFIG
from adjudge.engine.paths import expanded
from adjudge.training.recipe import Data
from adjudge.training.run_folder import RunFolder, command_of

JUDGES = ("train direct", "train reward", "train house")
"""The commands whose runs end in a judge."""


class Asked(msgspec.Struct, frozen=True):
    """How a policy is asked: as a user's turn of its chat template, after `system` where there is one, or plainly."""

    chat: bool = True
    system: str | None = None

    def system_of(self, own: str | None) -> str | None:
        """A prompt's system turn, as in training: that of all prompts, or else its own; plain prompts have none."""
        return own if self.chat and self.system is None else self.system


class Policy(msgspec.Struct, frozen=True):
    """A checkpoint: `name` as the user wrote it, `model` and `adapter` as an engine takes them.

    `base` is the model it was trained from and `asked` how it was asked in training, where its files tell.
    """

    name: str
    model: str
    adapter: str | None = None
    base: str | None = None
    asked: Asked | None = None


def policy_of(name: str) -> Policy:
    """The policy called `name`: a run folder's, a checkpoint of a run, a PEFT folder, or what `Engine` calls a model.

    Raises AdjudgeError for a run without a policy and for files that cannot be read. No weights are read.
    """
    path = expanded(name)
    run = RunFolder(path)
    if not run.recipe.is_file():
        return _of_folder(name, path) if path.is_dir() else Policy(name, name)
    if not run.policy.is_dir():
        latest = run.checkpoint()
        mend = f"finish it with --resume, or name {latest}" if latest else "let it train first"
        raise AdjudgeError(f"the run in {path} has no policy yet: {mend}")
    return _of_folder(name, run.policy)


def base_of(policies: Sequence[Policy], named: str | None) -> Policy:
    """What all are compared with: the model `named`, or the one that they were trained from; raises AdjudgeError."""
    if named is not None:
        return policy_of(named)
    bases = dict.fromkeys(policy.base for policy in policies if policy.base is not None)
    if len(bases) != 1:
        told = f"were trained from {' and '.join(bases)}" if bases else "do not say what they were trained from"
        away = [policy.name for policy in policies if policy.adapter is None and not Path(policy.model).is_dir()]
        besides = f" ({', '.join(away)}: no folder here)" if away else ""
        raise AdjudgeError(f"the checkpoints {told}{besides}: name what to compare them with by --base")
    [base] = bases
    return policy_of(base)


def asked_of(policies: Sequence[Policy], chat: bool | None, system: str | None) -> Asked:
    """How all are asked: as the user says, else as they were in training; raises AdjudgeError where those differ."""
    trained = list(dict.fromkeys(policy.asked for policy in policies if policy.asked is not None))
    if len(trained) > 1 and (chat is None or system is None):
        raise AdjudgeError(
            "the runs asked their policies in different ways (chat, system): give --chat or --no-chat, and --system"
        )
    before = trained[0] if trained else Asked()
    return Asked(before.chat if chat is None else chat, before.system if system is None else system)


def _of_folder(name: str, folder: Path) -> Policy:
    """The policy of a folder of weights or of an adapter; a run that the folder lies in tells more."""
    base, asked = None, None
    if (recipe := RunFolder(folder.absolute().parent).recipe).is_file():
        record = _read(recipe)
        if (command := command_of(record)) in JUDGES:
            raise AdjudgeError(
                f"{name} is a judge (adjudge {command}), which writes no texts: name runs of train grpo or train sft"
            )
        try:
            base = str(record["policy"]["model"])
            data = msgspec.convert(record["data"], Data)
        except (KeyError, TypeError, msgspec.ValidationError) as error:
            raise AdjudgeError(f"{recipe} is no recipe of a run ({reason(error)}): name the policy's folder") from error
        asked = Asked(data.chat, data.system)
    if not (folder / CONFIG).is_file():
        return Policy(name, str(folder), None, base, asked)
    base = base or _read(folder / CONFIG).get("base_model_name_or_path")
    if not base:
        raise AdjudgeError(f"{folder / CONFIG} does not name its base model: merge the adapter into it, or add it")
    return Policy(name, base, str(folder), base, asked)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise AdjudgeError(f"cannot read {path} ({reason(error)}): write it again") from error
