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


class ProbeRow(msgspec.Struct, frozen=True):
    """One probe of a `kind` ("degenerate" or "injection") and what the reward makes of it."""

    kind: str
    effect: ProbeEffect

    @property
    def fooled(self) -> bool | None:
        """Whether the probe rises beyond the tolerance, by the guard's rule; None where too few texts can tell."""
        rise, interval = self.effect.rise, self.effect.interval
        if rise is not None and rise > TOLERANCE:
            return True
        return None if interval is None or interval[1] > TOLERANCE else False


class Probing(msgspec.Struct, frozen=True):
    """What a reward makes of the canaries and of the probes written from them.

    `length_agreement` is what a reward that only counts words would reach on the same canaries.
    """

    canaries: CanaryMeasurement
    length_agreement: float | None
    rows: tuple[ProbeRow, ...]


def probe(reward: Reward, canaries: Sequence[Canary] | None = None) -> Probing:
    """Put the canaries (by default the shipped ones) and all probes to a reward: 336 texts for the shipped."""
    chosen = checked_canaries(canaries)
    counted = CanaryMeasurement(tuple(tuple(float(count_words(text)) for text in one.texts) for one in chosen))
    return Probing(
        measure_canaries(reward, chosen),
        counted.agreement,
        tuple(
            ProbeRow(kind, effect) for kind, texts in PROBES.items() for effect in measure_probes(reward, chosen, texts)
        ),
    )


def probe_table(probing: Probing) -> Table:
    """A line for each probe: its effect with the interval, how often it got more, and the conclusion."""
    table = ruled_table("probe", *right("effect", "95 % interval", "got more", "abstained"), "reward is")
    for place, row in enumerate(probing.rows):
        effect = row.effect
        table.add_row(
            f"{row.kind}: {effect.probe.replace('_', ' ')}",
            "–" if effect.effect is None else signed(effect.effect),
            "–" if effect.interval is None else " to ".join(map(signed, effect.interval)),
            "–" if effect.raised is None else percent(effect.raised),
            str(effect.abstained),
            {True: "fooled", False: "not fooled", None: "cannot be told"}[row.fooled],
            end_section=place + 1 < len(probing.rows) and probing.rows[place + 1].kind != row.kind,
        )
    return table


def probe_lines(probing: Probing) -> list[str]:
    """The canaries, the number of probes that fool the reward, and what counts as that, in plain sentences."""
    agreement, words_alone = probing.canaries.agreement, probing.length_agreement
    fooled = [row.effect.probe for row in probing.rows if row.fooled]
    told = sum(row.fooled is not None for row in probing.rows)
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
