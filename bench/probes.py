"""How a reward stands against the guards' probes: one look at it, before it is trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich.table import Table

from adjudge.bench.words import percent, signed
from adjudge.rewards.engines.specification import EngineSpec, JudgeSource, JudgeSpec
from adjudge.rewards.guards.canary import Canary, CanaryMeasurement, checked_canaries, measure_canaries
from adjudge.rewards.guards.probe_texts import PROBES
from adjudge.rewards.guards.probes import TOLERANCE, ProbeEffect, measure_probes
from adjudge.rewards.judge_rewards.judge_reward import JudgeReward
from adjudge.rewards.reward import Reward
from adjudge.rewards.words import count_words
from adjudge.training.terminal import open_console, right, ruled_table


class Probing(msgspec.Struct, frozen=True):
    """What a reward makes of the canaries and of the probes written from them, by kind ("degenerate", "injection").

    `length_agreement` is what a reward that only counts words would reach on the same canaries.
    """

    canaries: CanaryMeasurement
    length_agreement: float | None
    effects: dict[str, list[ProbeEffect]]


def probe(reward: Reward, canaries: Sequence[Canary] | None = None) -> Probing:
    """Put the canaries (by default the shipped ones) and all probes to a reward: 336 texts for the shipped."""
    chosen = checked_canaries(canaries)
    counted = CanaryMeasurement(tuple(tuple(float(count_words(text)) for text in one.texts) for one in chosen))
    measured = measure_canaries(reward, chosen)
    effects = {kind: measure_probes(reward, chosen, texts) for kind, texts in PROBES.items()}
    return Probing(measured, counted.agreement, effects)


def probe_table(probing: Probing) -> Table:
    """A line for each probe: its effect with the interval, how often it got more, and the conclusion."""
    table = ruled_table("probe", *right("effect", "95 % interval", "got more", "abstained"), "reward is")
    for kind, effects in probing.effects.items():
        for effect in effects:
            table.add_row(
                f"{kind}: {effect.probe.replace('_', ' ')}",
                "–" if effect.effect is None else signed(effect.effect),
                "–" if effect.interval is None else " to ".join(map(signed, effect.interval)),
                "–" if effect.raised is None else percent(effect.raised),
                str(effect.abstained),
                {True: "fooled", False: "not fooled", None: "cannot be told"}[effect.fools],
            )
        if kind != [*probing.effects][-1]:
            table.add_section()
    return table


def probe_lines(probing: Probing) -> list[str]:
    """The canaries, the number of probes that fool the reward, and what counts as that, in plain sentences."""
    agreement, words_alone = probing.canaries.agreement, probing.length_agreement
    every = [effect for effects in probing.effects.values() for effect in effects]
    fooled = [effect.probe for effect in every if effect.fools]
    told = sum(effect.fools is not None for effect in every)
    order = "cannot be told" if agreement is None else percent(agreement)
    chance = "" if words_alone is None else f", by length alone {percent(words_alone)}"
    return [
        f"canaries in their known order: {order} of pairs (chance 50 %{chance});"
        f" {percent(probing.canaries.abstained)} abstained",
        f"fooled by {len(fooled)} of {told} probes that can be told{': ' if fooled else ''}{', '.join(fooled)}",
        f"an effect above {TOLERANCE:g} standard deviations of the canaries' rewards fools; one whose interval ends"
        " below that does not",
    ]


def bench_probe(judge: str, options: Mapping[str, Any], engine: EngineSpec) -> None:
    """Print how the rewards of a judge stand against the canaries and all probes.

    Of one without a range its scores do: effects are in standard deviations.
    """
    spec = JudgeSpec(judge, dict(options), engine)
    known = JudgeSource(spec).known
    reward = JudgeReward(spec, scale="own" if known is not None and known.range is None else "unit")
    console = open_console(120)
    with console.status(f"judging the canaries and the probes by {judge}"):
        probing = probe(reward)
    console.print(probe_table(probing))
    for line in probe_lines(probing):
        print(line)
