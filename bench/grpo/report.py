"""The results of `adjudge bench grpo`: a table and lines for a terminal, and rows of a CSV file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median

import msgspec
from rich.table import Column, Table
from rich.text import Text

from adjudge.bench.grpo.phases import StepTimes
from adjudge.bench.words import percent
from adjudge.training.terminal import plain_table, right

Found = Mapping[str, Sequence[StepTimes] | str]
"""The steps of each variant by name, or why there are none; the first is what the others are compared with."""

PHASES = ("generate", "reward", "update", "step")
"""Of StepTimes, in seconds."""


class Setting(msgspec.Struct, frozen=True):
    """What is trained on what."""

    policy: str
    judge: str
    aspects: str
    prompts: int
    group: int
    max_tokens: int
    reply_tokens: int = 8


class Need(msgspec.Struct, frozen=True):
    """Tokens of a step's judging, in the mean of the steps measured.

    `asked`: all prompts of the judge's questions, one by one; `least`: those of their prefix tree, with nothing known
    before; `replies`: the same of the conversations of a judge that is asked for replies.
    """

    asked: float
    least: float
    replies: float


def result_table(found: Found, need: Need, chatting: Sequence[str]) -> Table:
    """A line a variant: medians (least to most) of the seconds of each phase, and tokens a step in the mean.

    `share` is the reward's of the step, `times` how long it takes beside the first variant's.
    """
    heads = right(*PHASES, "share", "times", "must compute", "computed", "wrote", "abstained")
    table = plain_table(Column("judge", no_wrap=True), *heads)
    first = next(iter(found.values()))
    for name, steps in found.items():
        if isinstance(steps, str):
            table.add_row(name, Text(f"failed: {steps}", "yellow"))
            continue
        rewards = median(step.reward for step in steps)
        share = rewards / median(step.step for step in steps)
        ratio = "" if isinstance(first, str) else f"{rewards / median(step.reward for step in first):.2f} x"
        must = need.replies if name in chatting else need.least
        table.add_row(
            name,
            *(_spread([getattr(step, phase) for step in steps]) for phase in PHASES),
            percent(share),
            ratio,
            f"{must:,.0f}" + (" + wrote" if name in chatting else ""),
            f"{fmean(step.spent.computed for step in steps):,.0f}",
            f"{fmean(step.spent.written for step in steps):,.0f}",
            f"{sum(step.abstained for step in steps)} of {sum(map(_completions, steps))}",
        )
    return table


def result_lines(found: Found, setting: Setting, need: Need) -> list[str]:
    """What was measured, what bounds it, and what does not make the variants comparable."""
    several = {name: steps for name, steps in found.items() if not isinstance(steps, str)}
    counts = sorted({len(steps) for steps in several.values()})
    lines = [
        f"seconds: medians (least to most) of {' or '.join(map(str, counts))} steps of {setting.prompts} prompts ×"
        f" {setting.group} completions × {setting.max_tokens} tokens; policy {setting.policy}, judge {setting.judge} on"
        f" {setting.aspects}",
        f"the judge's questions about a step have {need.asked:,.0f} tokens, {need.least:,.0f} with what they share"
        " counted once: who computes less remembers earlier steps; a reply is written token by token, each after a"
        f" pass of its own, {setting.reply_tokens} at most",
        "share: the reward's of the step; times: the reward's seconds beside those of the first line",
    ]
    texts = {name: [step.groups for step in steps] for name, steps in several.items()}
    expected = next(iter(texts.values()), [])
    other = [name for name, groups in texts.items() if groups != expected]
    if other:
        lines.append(f"the policy wrote other texts for {', '.join(other)}: their tokens and seconds are of those")
    for name, steps in several.items():
        peaks = [step.peak_bytes for step in steps if step.peak_bytes is not None]
        if peaks:
            lines.append(f"{name}: {max(peaks) / 2**30:.2f} GiB of the GPU at most in the trainer's own process")
    return lines


COLUMNS = (
    *("variant", "policy", "judge", "aspects", "prompts", "group", "max_tokens", "reply_tokens", "steps", *PHASES),
    *("asked", "must_compute", "computed", "written", "abstained", "completions", "peak_bytes", "note", "machine"),
)


def result_rows(
    found: Found, setting: Setting, need: Need, chatting: Sequence[str], machine: str
) -> list[list[object]]:
    """Rows of COLUMNS: the seconds of every step, tokens a step in the mean."""
    rows: list[list[object]] = []
    for name, steps in found.items():
        about: list[object] = [name, *msgspec.structs.astuple(setting)]
        if isinstance(steps, str):
            rows.append([*about, 0, *([""] * (len(COLUMNS) - len(about) - 3)), steps, machine])
            continue
        seconds = [" ".join(f"{getattr(step, phase):.3f}" for step in steps) for phase in PHASES]
        must = need.replies if name in chatting else need.least
        spent = [fmean(getattr(step.spent, field) for step in steps) for field in ("asked", "computed", "written")]
        tokens = [f"{number:.0f}" for number in (spent[0], must, *spent[1:])]
        peaks = [step.peak_bytes for step in steps if step.peak_bytes is not None]
        counts = [sum(step.abstained for step in steps), sum(map(_completions, steps)), max(peaks, default="")]
        rows.append([*about, len(steps), *seconds, *tokens, *counts, "", machine])
    return rows


def _completions(step: StepTimes) -> int:
    return sum(len(group.responses) for group in step.groups)


def _spread(seconds: Sequence[float]) -> str:
    least, most = _short(min(seconds)), _short(max(seconds))
    return _short(median(seconds)) + (f" ({least}-{most})" if least != most else "")


def _short(seconds: float) -> str:
    """Three digits or so."""
    return f"{seconds:.{2 if seconds < 10 else 1 if seconds < 100 else 0}f}"
